from __future__ import annotations

import gzip
import io
import lzma
import shutil
import tarfile

import numpy as np
import pytest

from fedtide.data import load, mnist
from fedtide.data.fetch import Source
from fedtide.data.mnist import load_idx
from fedtide.data.registries import data_member, debian
from fedtide.errors import DataError


def member(name, data):
    return f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)


def deb(raws, pack=lzma.compress, before=b"odd"):
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for name, raw in raws.items():
            packed = gzip.compress(raw)
            info = tarfile.TarInfo(f"./usr/share/datasets/fashion-mnist/{name}.gz")
            info.size = len(packed)
            archive.addfile(info, io.BytesIO(packed))
    return b"!<arch>\n" + member("debian-binary", before) + member("data.tar.xz", pack(tar.getvalue()))


@pytest.fixture
def served(tiny, monkeypatch):
    """Return a source: apt-get leaves the package of the tiny set behind."""
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    ran = []

    def run(command, folder):
        ran.append(command)
        (folder / "dataset_1_all.deb").write_bytes(deb(tiny.raws))

    return debian("dataset-fashion-mnist", run), ran


def test_it_is_normalised_by_its_own_numbers_and_cached_apart(tiny, served, cache, said):
    fetch, ran = served
    found = load_idx(mnist.FASHION, None, said.append, files=tiny.files, sources=[Source("deb", fetch)])
    assert (found.name, found.source, found.num_labels) == ("fashion_mnist", "deb", 10)
    np.testing.assert_allclose(found.train.images[:, 0], (tiny.pixels[0] / 255 - 0.2860) / 0.3530, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found.test.labels, tiny.labels[1])
    assert [command[1:2] + command[-1:] for command in ran] == [["download", "dataset-fashion-mnist"]]
    assert sorted(path.name for path in (cache.parent / "fashion_mnist").iterdir()) == sorted(tiny.raws)
    assert not cache.exists()
    assert said == ["Fashion-MNIST: trying deb", "Fashion-MNIST from deb"]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda data: b"", "not a Debian package: it begins with nothing"),
        (lambda data: b"PK" + data, "not a Debian package: it begins with 504b"),
        (lambda data: data[:-200], "truncated package"),
        (lambda data: data[:60], "holds no data.tar"),
        (lambda data: data.replace(b"`\n", b"??"), "no header of a member at byte 8"),
        (lambda data: data.replace(b"data.tar", b"none.tar"), "holds no data.tar"),
    ],
)
def test_a_bad_package(tiny, spoil, reason):
    with pytest.raises(DataError, match=reason):
        data_member(spoil(deb(tiny.raws)))


@pytest.mark.parametrize(
    "pack", [lambda tar: lzma.compress(tar)[:400], lambda tar: b"(\xb5/\xfd zstd", lambda tar: b""]
)
def test_a_package_with_a_bad_archive(tiny, monkeypatch, pack):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")

    def run(command, folder):
        (folder / "x.deb").write_bytes(deb(tiny.raws, pack))

    with pytest.raises(DataError, match=r"x\.deb is damaged"):
        debian("x", run)(tiny.files)


def test_apt_is_not_there_or_fails(tiny, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(DataError, match="apt-get is not installed"):
        debian("x")(tiny.files)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(DataError, match="left 0 files"):
        debian("x", lambda command, folder: None)(tiny.files)


def test_one_set_is_not_taken_for_the_other(tmp_path):
    """The names of the files and their sizes are the same: only the checksums tell them apart."""
    assert [file[:2] for file in mnist.FASHION_FILES] == [file[:2] for file in mnist.MNIST_FILES]
    assert not {file.sha256 for file in mnist.FASHION_FILES} & {file.sha256 for file in mnist.MNIST_FILES}
    for file in mnist.FASHION_FILES:
        (tmp_path / file.name).write_bytes(bytes(file.num_bytes))
    with pytest.raises(DataError, match=r"Fashion-MNIST: .*corrupt: SHA-256.*FashionMNIST/raw") as caught:
        load("fashion_mnist", folder=tmp_path)
    assert "\n" not in str(caught.value)
