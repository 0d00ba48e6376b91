"""MNIST and its family, 28 x 28 in grey: MNIST and Fashion-MNIST, EMNIST with letters, FEMNIST by writer; the IDX format."""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from fedtide.core.faults import fault_text
from fedtide.data import fetch
from fedtide.data.dataset import Folder, NumTest, NumTrain, Tell, WithImages, byte_values, dataset, first_samples
from fedtide.data.fetch import Bytes, OfficialFile, OfficialSet, Raw, Say, fetchable_files, say_fetching
from fedtide.errors import DataError
from fedtide.parts.arguments import arg
from fedtide.types import Dataset, Samples

_UNSIGNED_BYTE: Final = 0x08  # the type code of IDX; our sets use no other


def _parse_idx(raw: Raw) -> Bytes:
    """Return the array in IDX bytes, of the shape its header gives (a view, no copy)."""
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] != _UNSIGNED_BYTE:
        raise DataError(f"not an IDX file of unsigned bytes: it begins with {raw[:4].hex() or 'nothing'}")
    start = 4 + 4 * raw[3]
    shape = tuple(int.from_bytes(raw[at : at + 4], "big") for at in range(4, start, 4))
    if len(raw) != start + math.prod(shape):
        raise DataError(f"IDX header says {list(shape)}, which needs {start + math.prod(shape)} bytes, not {len(raw)}")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def _idx_set(
    name: str, title: str, mirrors: tuple[str, ...], root: str, files: tuple[OfficialFile, ...]
) -> OfficialSet:
    """Return the set of four files: training images and labels, then those of the test. root: torchvision's folder."""

    def read_folder(folder: Path) -> dict[str, Raw]:
        found: dict[str, Raw] = {}
        for name, *_ in files:
            stems = (name, name.replace("-idx", ".idx"))
            path = fetch.find_fetched_file(
                folder, (".", root, "raw"), [stem + end for end in ("", ".gz") for stem in stems]
            )
            if path is not None:
                found[name] = fetch.read_fetched_file(path)
        return found

    return OfficialSet(name, title, mirrors, f"{files[0].name}.gz and so on, unpacked or not", read_folder, files)


MNIST: Final = _idx_set(
    "mnist",
    "MNIST",
    ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist"),
    "MNIST/raw",
    fetchable_files("mnist"),
)
FASHION_MNIST: Final = _idx_set(
    "fashion_mnist",
    "Fashion-MNIST",
    ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",),  # it has no HTTPS; the checksums are ours
    "FashionMNIST/raw",
    fetchable_files("fashion_mnist"),
)


def _load_idx(wanted: OfficialSet, mean: float, std: float, folder: Path | None, say: Say, images: bool) -> Dataset:
    """Return the set: images float32 [n 1 28 28] as (pixel/255 - mean)/std, labels uint8 [n]; ten labels.

    With images=False labels are enough, if they are at hand: the images are then all zero and take no memory.
    """
    pixels, labels, source = fetch.fetch_pairs(wanted, folder, say, images, _parse_idx)
    values = byte_values([mean], [std])[0]
    train, test = (
        Samples(_floats(part, values, len(answers)), answers.copy())
        for part, answers in zip(pixels, labels, strict=True)
    )
    return Dataset(wanted.name, train, test, 10, source)


def _floats(pixels: Bytes | None, values: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.float32]:
    """Return what pixels [n 28 28] stand for [n 1 28 28], by the value of each byte [256]; zeros of None."""
    if pixels is None:
        return np.broadcast_to(np.float32(0), (count, 1, 28, 28))
    images = np.empty((count, 1, *pixels.shape[1:]), np.float32)
    for start in range(0, count, 1000):  # in blocks: NumPy blows the pixels up to 8-byte indices on the way
        block = slice(start, start + 1000)
        images[block, 0] = values[pixels[block]]
    return images


def mnist(
    folder: Folder = None,
    num_train: NumTrain = None,
    num_test: NumTest = None,
    say: Tell = say_fetching,
    images: WithImages = True,
) -> Dataset:
    """Handwritten digits: 60,000 training and 10,000 test images, from a folder, the cache or a download."""
    return first_samples(_load_idx(MNIST, 0.1307, 0.3081, folder, say, images), num_train, num_test)


def fashion_mnist(
    folder: Folder = None,
    num_train: NumTrain = None,
    num_test: NumTest = None,
    say: Tell = say_fetching,
    images: WithImages = True,
) -> Dataset:
    """Pictures of ten kinds of clothes, as many as in MNIST and of the same size.

    Images float32 [n 1 28 28] as (pixel/255 - 0.2860)/0.3530, labels uint8 [n].
    """
    return first_samples(_load_idx(FASHION_MNIST, 0.2860, 0.3530, folder, say, images), num_train, num_test)


# EMNIST: handwritten digits and letters, in the official IDX files.

Split: TypeAlias = Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"]

_EMNIST_LABELS: Final = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26, "digits": 10, "mnist": 10}
_ARCHIVE: Final = "gzip.zip"
EMNIST_MD5: Final = "58c8d27c78d21e728a6bc7b3cc06412e"
_INNER: Final = (".", "gzip", "EMNIST/raw")  # plain; as unpacked; torchvision's root
_EMNIST_HOLDS: Final = "gzip.zip, or what was in it (emnist-balanced-train-images-idx3-ubyte.gz and so on)"
_EMNIST_GET: Final = "gzip.zip from https://www.nist.gov/itl/products-and-services/emnist-dataset"


def emnist(
    split: Annotated[Split, arg("byclass, bymerge, balanced, letters, digits or mnist")] = "balanced",
    folder: Folder = None,
    num_train: NumTrain = None,
    num_test: NumTest = None,
) -> Dataset:
    """Handwritten digits and letters: 62 labels by class, 47 merged or balanced, 26 letters, 10 digits; 28 x 28.

    From the official files; gzip.zip is checked by its MD5, loose files by their structure. Turned upright; labels from 0.
    Images uint8 [n 1 28 28], normalised by mean and deviation of the training images.
    """
    place = fetch.fetch_folder("EMNIST", folder, _EMNIST_HOLDS, _EMNIST_GET)
    train, test = (_emnist_part(place, split, part) for part in ("train", "test"))
    made = dataset("emnist", f"{place}", train, test, num_labels=_EMNIST_LABELS[split])
    return first_samples(made, num_train, num_test)


def _emnist_part(folder: Path, split: str, part: str) -> Samples:
    images, labels = (_parsed(folder, f"emnist-{split}-{part}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
    if images.shape[1:] != (28, 28):
        raise DataError(f"EMNIST in {folder}: {part} has images {list(images.shape)}, not [n 28 28]; get {_EMNIST_GET}")
    first = 1 if split == "letters" else 0  # letters count from 1
    return Samples(images.transpose(0, 2, 1), labels - np.uint8(first))


def _parsed(folder: Path, name: str) -> Bytes:
    try:
        return _parse_idx(fetch.gunzip(_raw(folder, name), fetch.MOST_FILE_BYTES))
    except (DataError, OSError) as error:
        raise DataError(f"EMNIST: {name} in {folder}: {error}; expected {_EMNIST_HOLDS}") from error


def _raw(folder: Path, name: str) -> Raw:
    path = fetch.find_fetched_file(folder, _INNER, (name, f"{name}.gz"))
    if path is not None:
        return fetch.read_fetched_file(path)
    archive = folder / _ARCHIVE
    if not archive.is_file():
        raise DataError("it is not there")
    fetch.check_md5(archive, EMNIST_MD5)
    try:
        with zipfile.ZipFile(archive) as zipped, zipped.open(f"gzip/{name}.gz") as file:
            return file.read(fetch.MOST_FILE_BYTES)
    except (zipfile.BadZipFile, KeyError, zlib.error, EOFError) as error:
        raise DataError(f"{archive} is damaged ({error})") from error


# FEMNIST as LEAF makes it: handwriting that belongs to its writers, in JSON files.

_FEMNIST_LABELS: Final = 62
_FEMNIST_HOLDS: Final = "LEAF's train/*.json and test/*.json, or all_data_*.json"
_FEMNIST_GET: Final = "LEAF (https://leaf.cmu.edu) and run its data/femnist/preprocess.sh"

_Shade: TypeAlias = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class _Writer(BaseModel):
    """What one writer wrote."""

    x: list[Annotated[list[_Shade], Field(min_length=784, max_length=784)]]  # pixels [n 784]
    y: list[Annotated[int, Field(ge=0, lt=_FEMNIST_LABELS)]]  # labels [n]


class _LeafFile(BaseModel):
    """What one of LEAF's files holds."""

    users: list[str]
    user_data: dict[str, _Writer]


_WriterRows: TypeAlias = tuple[Bytes, Bytes, Any]  # images [n 28 28], labels [n], writers [n]


def femnist(
    folder: Annotated[
        Path | None, arg("folder with LEAF's JSON files (its data/femnist/data)", key="data.folder")
    ] = None,
    test_share: Annotated[
        float,
        arg(
            "share of each writer's samples held out for the test (the last ones); applies to all_data_*.json only",
            gt=0,
            lt=1,
        ),
    ] = 0.1,
    num_train: NumTrain = None,
    num_test: NumTest = None,
) -> Dataset:
    """Handwritten digits and letters by writer, 62 labels, 28 x 28: LEAF's federated EMNIST; data.partition=natural.

    LEAF makes these files anew each time, so there is no checksum: they are checked by their structure. Images uint8
    [n 1 28 28], normalised by mean and deviation of the training images; owners are the writers.
    """
    place = fetch.fetch_folder("FEMNIST", folder, _FEMNIST_HOLDS, _FEMNIST_GET)
    if all((place / part).is_dir() for part in ("train", "test")):
        parts = [_gathered(place / part, "*.json") for part in ("train", "test")]
    else:
        whole = _gathered(place / "all_data" if (place / "all_data").is_dir() else place, "all_data_*.json")
        parts = _divided(*whole, test_share, place)
    train, test = (Samples(images, labels) for images, labels, _ in parts)
    made = dataset("femnist", f"{place}", train, test, parts[0][2], num_labels=_FEMNIST_LABELS)
    return first_samples(made, num_train, num_test)


def _divided(images: Bytes, labels: Bytes, writers: Any, share: float, folder: Path) -> list[_WriterRows]:
    """Take the last samples of each writer for the test; of a single one, none."""
    _, inverse, count = np.unique(writers, return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable")
    place = np.empty(len(labels), np.int64)  # of a sample among its writer's, from the end
    place[order] = np.repeat(np.cumsum(count), count) - 1 - np.arange(len(labels))
    held = place < np.floor(share * count)[inverse]
    if not held.any():
        raise DataError(
            f"FEMNIST in {folder}: no writer has {1 / share:.0f} samples, so none are left for the test: raise test_share"
        )
    return [(images[which], labels[which], writers[which]) for which in (~held, held)]


def _gathered(folder: Path, pattern: str) -> _WriterRows:
    """Return what all files of a folder hold, in the order of the numbers in their names."""
    paths = sorted(folder.glob(pattern), key=lambda path: ([*map(int, re.findall(r"\d+", path.name))], path.name))
    found = [rows for path in paths for rows in _writers(path)]
    if not found:
        raise DataError(f"FEMNIST: {folder} holds no samples in {pattern}; expected {_FEMNIST_HOLDS}")
    images, labels, names = zip(*found, strict=True)
    owners = np.repeat(np.array(names), [len(part) for part in labels])
    return np.concatenate(images), np.concatenate(labels), owners


def _writers(path: Path) -> Iterator[tuple[Bytes, Bytes, str]]:
    """Yield the samples of each writer in a file: images [n 28 28], labels [n], name."""
    try:
        found = _LeafFile.model_validate_json(fetch.regular_fetched_file(path).read_bytes())
        for name in found.users:
            writer = found.user_data[name]
            if writer.x or writer.y:
                pixels = np.rint(np.array(writer.x) * 255).astype(np.uint8).reshape(len(writer.y), 28, 28)
                yield pixels, np.array(writer.y, np.uint8), name
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"{path} is damaged or not a LEAF file ({fault_text(error)}); run LEAF's preprocess.sh again"
        ) from error
