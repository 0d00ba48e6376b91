"""Official files from a folder, the cache and a mirror: MNIST, by a tiny set of the same form."""

from __future__ import annotations

import dataclasses
import gzip
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedtide.data
from fedtide.data import fetch, mnist
from fedtide.data.fetch import (
    _cache_folder,
    check_fetched_file,
    fetch_files,
    fetchable_files,
    fetched_whereabouts,
    gunzip,
)
from fedtide.data.mnist import _load_idx, _parse_idx
from fedtide.errors import DataError, FedtideError
from set_files import idx_bytes, tarball


@pytest.fixture
def wanted(tiny, mirror):
    """MNIST with the tiny files, which the mirror serves."""
    mirror.files.update({f"/{name}.gz": gzip.compress(raw, mtime=0) for name, raw in tiny.raws.items()})
    return mnist._idx_set("mnist", "MNIST", (mirror.address,), "MNIST/raw", tiny.files)


def write(folder, raws, pack=lambda raw: raw):
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in raws.items():
        (folder / name).write_bytes(pack(raw))


def load(wanted, folder=None, say=lambda _: None, images=True):
    return _load_idx(wanted, 0.1307, 0.3081, folder, say, images)


def assert_is_tiny(dataset, tiny):
    assert (dataset.name, dataset.num_labels) == ("mnist", 10)
    for samples, pixels, labels in zip((dataset.train, dataset.test), tiny.pixels, tiny.labels, strict=True):
        assert samples.images.dtype == np.float32
        assert samples.images.flags.c_contiguous
        expected = (pixels[:, None] / 255 - 0.1307) / 0.3081
        np.testing.assert_allclose(samples.images, expected, rtol=1e-6, atol=1e-7)
        assert samples.labels.dtype == np.uint8
        np.testing.assert_array_equal(samples.labels, labels)


# --- the folder that the user names


@pytest.mark.parametrize("layout", [".", "MNIST/raw", "raw"])
@pytest.mark.parametrize("dot", [False, True])
@pytest.mark.parametrize("end", ["", ".gz"])
def test_a_folder_in_every_layout_and_form(wanted, tiny, tmp_path, said, layout, dot, end):
    names = {name: (name.replace("-idx", ".idx") if dot else name) + end for name in tiny.raws}
    raws = {names[name]: raw for name, raw in tiny.raws.items()}
    write(tmp_path / "mine" / layout, raws, gzip.compress if end else bytes)
    dataset = load(wanted, tmp_path / "mine", said.append)
    assert_is_tiny(dataset, tiny)
    assert dataset.source == f"folder {tmp_path / 'mine'}"
    assert said == [f"MNIST from folder {tmp_path / 'mine'}"]
    assert fetched_whereabouts(wanted, tmp_path / "mine").complete


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.unlink(), "t10k-images-idx3-ubyte is not in"),
        (
            lambda path: path.write_bytes(path.read_bytes()[:100]),
            "t10k-images-idx3-ubyte: corrupt: 100 bytes, expected",
        ),
        (
            lambda path: path.write_bytes(bytes(path.stat().st_size)),
            "t10k-images-idx3-ubyte: corrupt: SHA-256",
        ),
        (lambda path: path.write_bytes(gzip.compress(path.read_bytes())[:50]), "damaged gzip data"),
    ],
)
def test_a_bad_folder_is_an_error_and_nothing_else_is_tried(wanted, tiny, tmp_path, cache, mirror, spoil, reason):
    write(cache / "mnist", tiny.raws)
    write(tmp_path / "mine", tiny.raws)
    spoil(tmp_path / "mine" / "t10k-images-idx3-ubyte")
    with pytest.raises(DataError, match=reason) as caught:
        load(wanted, tmp_path / "mine")
    assert "name no folder to download it" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3
    assert not mirror.asked


def test_a_folder_that_is_missing_or_a_file_or_cannot_be_read(wanted, tiny, tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    for name, reason in [("nowhere", "does not exist; name the folder that holds"), ("file", "is a file")]:
        with pytest.raises(DataError, match=reason):
            load(wanted, tmp_path / name)

    def refuse(path, mode):
        raise PermissionError(13, "Permission denied")

    write(tmp_path / "mine", tiny.raws)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match="mine: Permission denied"):
        load(wanted, tmp_path / "mine")


# --- the cache and the mirrors


def test_the_first_load_fills_the_cache_and_the_second_uses_it(wanted, tiny, cache, mirror, said):
    first = load(wanted, say=said.append)
    assert first.source == f"mirror {mirror.address}"
    kept = cache / "mnist"
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == tiny.raws
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in kept.iterdir())
    assert mirror.asked == [f"/{name}.gz" for name in tiny.raws]
    second = load(wanted, say=said.append)
    assert second.source == f"cache {kept}"
    assert_is_tiny(second, tiny)
    assert len(mirror.asked) == 4
    assert said[0].endswith(f"is not in {kept} (and 3 more); fetching it from {mirror.address}")
    assert said[1:] == [f"MNIST from mirror {mirror.address}", f"MNIST from cache {kept}"]


def test_a_corrupt_cached_file_is_reported_and_fetched_anew(wanted, tiny, cache, mirror, said):
    write(cache / "mnist", tiny.raws)
    (cache / "mnist" / "train-labels-idx1-ubyte").write_bytes(b"nonsense")
    assert_is_tiny(load(wanted, say=said.append), tiny)
    assert "train-labels-idx1-ubyte: corrupt: 8 bytes" in said[0]
    assert mirror.asked == ["/train-labels-idx1-ubyte.gz"]
    assert fetched_whereabouts(wanted).complete


def test_a_cache_that_cannot_be_written(wanted, cache):
    cache.write_bytes(b"a file is in the way")
    with pytest.raises(DataError, match=r": Not a directory\).* set FEDTIDE_CACHE to a folder that can be written"):
        load(wanted)


def test_mirrors_are_asked_in_turn(wanted, tiny, mirror, said):
    both = dataclasses.replace(wanted, mirrors=(f"{mirror.address}/gone", mirror.address))
    assert_is_tiny(load(both, say=said.append), tiny)
    assert said[-1] == f"MNIST from mirror {mirror.address}"
    assert mirror.asked[:2] == ["/gone/train-images-idx3-ubyte.gz", "/train-images-idx3-ubyte.gz"]


@pytest.mark.parametrize(
    ("served", "reason"),
    [
        (None, "HTTP 404"),
        (b"nonsense", "hash"),
        (gzip.compress(b"nonsense", mtime=0), "hash"),
        (gzip.compress(bytes(10_000), mtime=0), "gzip data holds more than the"),
    ],
)
def test_when_nothing_serves_one_line_says_what_to_do(wanted, cache, mirror, said, served, reason):
    mirror.files.pop("/train-images-idx3-ubyte.gz")
    if served is not None:
        mirror.files["/train-images-idx3-ubyte.gz"] = served
    with pytest.raises(DataError, match=reason) as caught:
        load(wanted, say=said.append)
    message = str(caught.value)
    assert "\n" not in message
    for told in (f"not in the cache {cache / 'mnist'}", mirror.address, "data.folder=PATH", "data.name=synthetic"):
        assert told in message
    assert not list((cache / "mnist").iterdir())


def test_a_mirror_that_cannot_be_reached(wanted):
    gone = dataclasses.replace(wanted, mirrors=("http://127.0.0.1:9",))
    with pytest.raises(DataError, match=r"cannot be fetched \(http://127.0.0.1:9: ConnectionError\)"):
        load(gone)


def test_many_processes_at_once(wanted, tiny, cache, mirror):
    script = f"""
from fedtide.data import mnist
from fedtide.data.fetch import OfficialFile
files = tuple(OfficialFile(*file) for file in {[tuple(file) for file in tiny.files]!r})
wanted = mnist._idx_set("mnist", "MNIST", ({mirror.address!r},), "MNIST/raw", files)
print(mnist._load_idx(wanted, 0.1, 0.3, None, lambda _: None, True).train.labels.sum())
"""
    running = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert {process.communicate()[0] for process in running} == {f"{tiny.labels[0].sum()}\n"}
    assert sorted(path.name for path in (cache / "mnist").iterdir()) == sorted(tiny.raws)


def test_labels_alone_are_enough_for_a_plan(wanted, tiny, cache, mirror):
    write(cache / "mnist", {file.name: tiny.raws[file.name] for file in tiny.files[1::2]})
    found = load(wanted, images=False)
    assert found.train.labels.tolist() == tiny.labels[0].tolist()
    assert found.train.images.shape == (6, 1, 28, 28)
    assert found.train.images.strides == (0, 0, 0, 0)
    assert not mirror.asked
    assert not fetched_whereabouts(wanted).complete


def test_status(wanted, tiny, cache):
    nothing = fetched_whereabouts(wanted)
    assert nothing.folder == cache / "mnist"
    assert all(nothing.problems.values())
    write(cache / "mnist", tiny.raws)
    (cache / "mnist" / tiny.files[3].name).write_bytes(b"x")
    spoilt = fetched_whereabouts(wanted)
    assert [problem is None for problem in spoilt.problems.values()] == [True, True, True, False]
    assert "corrupt: 1 bytes" in spoilt.problems[tiny.files[3].name]
    assert not spoilt.complete


def test_messages_go_to_stderr(wanted, capsys):
    fetch_files(wanted, None, fetch.say_fetching)
    out, err = capsys.readouterr()
    assert out == ""
    assert "MNIST from mirror" in err


def test_planning_and_cached_sets_import_no_network():
    script = (
        "import sys, fedtide, fedtide.data.mnist, fedtide.data.cifar; print({'pooch', 'requests'} & {*sys.modules})"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "set()\n"


def test_the_registry():
    assert {name: len(fetchable_files(name)) for name in fedtide.data._FETCHED} == {
        "mnist": 4,
        "fashion_mnist": 4,
        "cifar10": 4,
        "shakespeare": 37,
    }
    assert all(len(file.sha256) == 64 for name in fedtide.data._FETCHED for file in fetchable_files(name))
    assert [file.num_bytes for file in fetchable_files("cifar10")] == [50_000 * 3072, 50_000, 10_000 * 3072, 10_000]
    assert all(address.startswith("https://") for address in mnist.MNIST.mirrors)


def test_names_that_no_set_has():
    for make, reason in [
        (lambda: fedtide.data.load("mnits"), "no data set is called 'mnits'"),
        (lambda: fedtide.data.fetched("mnits", None, None), "mnits is not downloaded by fedtide: only mnist, "),
        (lambda: fedtide.data.fetched("svhn", None, None), "svhn is not downloaded by fedtide"),
    ]:
        with pytest.raises(FedtideError, match=reason):
            make()


def test_where_the_cache_is(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FEDTIDE_CACHE", "~/here")
    assert _cache_folder() == tmp_path / "here"
    monkeypatch.delenv("FEDTIDE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "there"))
    if sys.platform == "linux":
        assert _cache_folder() == tmp_path / "there" / "fedtide"
        monkeypatch.delenv("XDG_CACHE_HOME")
        assert _cache_folder() == tmp_path / ".cache" / "fedtide"


# --- formats


@given(st.lists(st.integers(0, 5), max_size=4))
def test_idx_there_and_back(shape):
    array = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    np.testing.assert_array_equal(_parse_idx(idx_bytes(array)), array)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "begins with nothing"),
        (b"\0\0\x0d\x01\0\0\0\0", "not an IDX file of unsigned bytes"),
        (idx_bytes(np.zeros(3, np.uint8))[:-1], r"IDX header says \[3\], which needs 11 bytes, not 10"),
        (b"\0\0\x08\x03\0\0", "IDX header says"),
    ],
)
def test_bad_idx(raw, reason):
    with pytest.raises(DataError, match=reason):
        _parse_idx(raw)


def test_gunzip_and_check(tiny):
    file, raw = tiny.files[1], tiny.raws[tiny.files[1].name]
    packed = gzip.compress(raw, mtime=0)
    assert gunzip(packed, len(raw)) == check_fetched_file(packed, file) == check_fetched_file(raw, file) == raw
    for data, reason in [
        (packed[:-9], "damaged gzip data"),
        (packed[:5] + b"x" * 20, "damaged"),
        (raw + b"x", "15 bytes"),
    ]:
        with pytest.raises(DataError, match=reason):
            check_fetched_file(data, file)
    with pytest.raises(DataError, match="more than the 3 bytes"):
        gunzip(packed, 3)


def test_an_archive_is_read_in_memory_alone(tmp_path):
    path = tmp_path / "in" / "x.tgz"
    path.parent.mkdir()
    whole = tarball({"../../good": b"one", "/tmp/evil/also": b"two", "other": b"three"})
    path.write_bytes(whole)
    assert fetch.archive_members(path, ["good", "also"]) == {"good": b"one", "also": b"two"}
    assert [each.name for each in tmp_path.rglob("*")] == ["in", "x.tgz"]
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("good")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    assert fetch.archive_members(path, ["good"]) == {}
    for data in (b"", b"nonsense", whole[: len(whole) // 2]):
        path.write_bytes(data)
        with pytest.raises(DataError, match=r"x\.tgz is damaged"):
            fetch.archive_members(path, ["good"])
