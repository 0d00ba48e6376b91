"""CIFAR-10 and CIFAR-100, in their binary or their Python version. Pixels are bytes [n 3 32 32] in both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from fedtide.data.adapters import byte_values
from fedtide.data.dataset import first_samples
from fedtide.data.fetch import (
    Bytes,
    OfficialSet,
    Raw,
    Say,
    archive_members,
    at_hand,
    check_md5,
    named_folder,
    obtain,
    read_whole,
    registered,
    to_stderr,
)
from fedtide.data.unpickle import read_pickle
from fedtide.errors import DataError
from fedtide.parts.arguments import arg
from fedtide.types import Dataset, Samples

SHAPE: Final = (3, 32, 32)
_NUM_PIXELS: Final = 3072


def from_records(data: Raw, num_labels: int = 1, which: int = 0) -> tuple[Bytes, Bytes]:
    """Return pixels [n 3 32 32] and labels [n] of the binary version.

    A record has num_labels labels of one byte each, of which one is wanted, and 3,072 pixels.
    """
    size = num_labels + _NUM_PIXELS
    if not data or len(data) % size:
        raise DataError(f"truncated: {len(data)} bytes, expected whole records of {size}")
    records = np.frombuffer(data, np.uint8).reshape(-1, size)
    return records[:, num_labels:].reshape(-1, *SHAPE), records[:, which]


def from_pickle(data: Raw, labels: str = "labels") -> tuple[Bytes, Bytes]:
    """Return pixels [n 3 32 32] and labels [n] of the Python version; labels: the name that they go by."""
    found = read_pickle(data)
    if not isinstance(found, dict):
        raise DataError(f"the pickle holds a {type(found).__name__}, expected a mapping")
    pixels, answers = found.get("data"), found.get(labels)
    if not isinstance(pixels, np.ndarray) or not isinstance(answers, list):
        raise DataError(f"the pickle has {', '.join(map(str, found)) or 'nothing'}, expected data and a list {labels}")
    right = all(type(label) is int and 0 <= label <= 255 for label in answers)
    if pixels.dtype != np.uint8 or not answers or pixels.shape != (len(answers), _NUM_PIXELS) or not right:
        raise DataError(
            f"the pickle has data {pixels.dtype}{list(pixels.shape)} and {len(answers)} {labels}, expected uint8 "
            f"[n {_NUM_PIXELS}] and as many labels from 0 to 255"
        )
    return pixels.reshape(-1, *SHAPE), np.array(answers, np.uint8)


class _Version(NamedTuple):
    """One of the official ways to write the pictures down."""

    archive: str
    md5: str | None  # None: what it holds is checked
    folder: str  # in the archive
    end: str  # of a file's name


def _read(folder: Path, versions: tuple[_Version, ...], names: tuple[str, ...]) -> tuple[_Version, dict[str, Raw]]:
    """Return the files of these names that a folder has in some version, loose or in its archive, as far as it has them."""
    for version in versions:
        for inner in (folder, folder / version.folder):
            paths = {name: inner / f"{name}{version.end}" for name in names}
            if found := {name: read_whole(path) for name, path in paths.items() if path.is_file()}:
                return version, dict(found)
        archive = folder / version.archive
        if archive.is_file():
            if version.md5 is not None:
                check_md5(archive, version.md5)
            members = archive_members(archive, {f"{name}{version.end}" for name in names})
            return version, {name.removesuffix(".bin"): data for name, data in members.items()}
    return versions[0], {}


def _missing(names: tuple[str, ...], found: Mapping[str, Raw]) -> None:
    if missing := [name for name in names if name not in found]:
        raise DataError(f"it holds no {', '.join(missing)}")


def _parsed(name: str, data: Raw, read: Callable[[Raw], tuple[Bytes, Bytes]]) -> tuple[Bytes, Bytes]:
    try:
        return read(data)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error


# CIFAR-10. In the cache each part is one file of raw bytes, pixels [n 3 32 32] or labels [n], known by its SHA-256.

TRAIN_BATCHES: Final = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST: Final = "test_batch"
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of the training pixels by channel, as shares of 255
_CIFAR10_VERSIONS: Final = (
    _Version("cifar-10-binary.tar.gz", None, "cifar-10-batches-bin", ".bin"),
    _Version("cifar-10-python.tar.gz", None, "cifar-10-batches-py", ""),
)


def raw_parts(batches: Callable[[str], tuple[Bytes, Bytes]]) -> dict[str, Raw]:
    """Return the raw files of both parts, from what gives the pixels [n 3 32 32] and labels [n] of a batch."""
    raws: dict[str, Raw] = {}
    for part, names in (("train", TRAIN_BATCHES), ("test", (TEST,))):
        images, labels = bytearray(), bytearray()
        for name in names:
            pixels, answers = batches(name)
            images += pixels.tobytes()
            labels += answers.tobytes()
        raws |= {f"{part}-images": images, f"{part}-labels": labels}
    return raws


def _cifar10_folder(folder: Path) -> dict[str, Raw]:
    version, found = _read(folder, _CIFAR10_VERSIONS, (*TRAIN_BATCHES, TEST))
    _missing((*TRAIN_BATCHES, TEST), found)
    return raw_parts(lambda name: _parsed(name, found.pop(name), from_records if version.end else from_pickle))


CIFAR10: Final = OfficialSet(
    "cifar10",
    "CIFAR-10",
    ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
    "data_batch_1 to 5 and test_batch (.bin, or the Python version), there or in cifar-10-batches-bin or "
    "cifar-10-batches-py, or the archive cifar-10-binary.tar.gz or cifar-10-python.tar.gz",
    _cifar10_folder,
    registered("cifar10"),
    archive=True,
)


def cifar10(
    folder: Annotated[
        Path | None, arg("where the official batches or an archive of them lie", key="data.folder")
    ] = None,
    num_train: Annotated[int | None, arg("use only the first so many", key="data.num_train", le=50_000)] = None,
    num_test: Annotated[int | None, arg("use only the first so many", key="data.num_test", le=10_000)] = None,
    say: Annotated[Say, arg("told what is fetched", key="run.say")] = to_stderr,
    images: Annotated[bool, arg("false: labels are enough, where they are at hand", key="run.images")] = True,
) -> Dataset:
    """Small photographs of ten kinds of things: 50,000 for training and 10,000 for the test, 32 x 32 in colour.

    Images uint8 [n 3 32 32], each byte standing for (byte/255 - mean)/std of its channel; labels uint8 [n].
    """
    values = byte_values(MEAN, STD)
    if not images and folder is None and (found := at_hand(CIFAR10, None, CIFAR10.files[1::2])):
        labels, source = [np.frombuffer(raw, np.uint8) for raw in found], f"labels only, {CIFAR10.cache}"
        pixels = [np.broadcast_to(np.uint8(0), (len(part), *SHAPE)) for part in labels]
    else:
        raws, source = obtain(CIFAR10, folder, say)
        arrays = [np.frombuffer(raw, np.uint8) for raw in raws]  # over the bytes that were read: no copy
        pixels, labels = [part.reshape(-1, *SHAPE) for part in arrays[::2]], arrays[1::2]
    train, test = (Samples(part, answers, values) for part, answers in zip(pixels, labels, strict=True))
    return first_samples(Dataset("cifar10", train, test, 10, source), num_train, num_test)


# CIFAR-100.

_LabelSet: TypeAlias = Literal["fine", "coarse"]

_NUM_LABELS: Final = {"fine": 100, "coarse": 20}
_MEAN, _STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)  # of the training pixels by channel, as shares of 255
_HOLDS: Final = "cifar-100-binary.tar.gz or cifar-100-python.tar.gz, or the files train and test of either"
_GET: Final = "one of its archives from https://www.cs.toronto.edu/~kriz/cifar.html"
CIFAR100_VERSIONS: Final = (
    _Version("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", "cifar-100-binary", ".bin"),
    _Version("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", "cifar-100-python", ""),
)


def cifar100(
    labels: Annotated[_LabelSet, arg("fine: 100 of them; coarse: 20 groups of five")] = "fine",
    folder: Annotated[Path | None, arg("where an official archive or its files lie", key="data.folder")] = None,
    num_train: Annotated[int | None, arg("use only the first so many", key="data.num_train", le=50_000)] = None,
    num_test: Annotated[int | None, arg("use only the first so many", key="data.num_test", le=10_000)] = None,
) -> Dataset:
    """Small photographs of 100 kinds of things: 50,000 for training and 10,000 for the test, 32 x 32 in colour.

    From the official files; archives are checked by their MD5, loose files by their structure. Images uint8 [n 3 32 32].
    """
    place = named_folder("CIFAR-100", folder, _HOLDS, _GET)
    values, made = byte_values(_MEAN, _STD), []

    def read(data: Raw) -> tuple[Bytes, Bytes]:
        if version.end:
            return from_records(data, 2, 1 if labels == "fine" else 0)  # the coarse label comes first
        return from_pickle(data, f"{labels}_labels")

    try:
        version, found = _read(place, CIFAR100_VERSIONS, ("train", "test"))
        _missing(("train", "test"), found)
        for part in ("train", "test"):
            pixels, answers = _parsed(part, found.pop(part), read)
            if answers.max() >= _NUM_LABELS[labels]:
                raise DataError(f"{part} has a label {answers.max()}, expected 0 to {_NUM_LABELS[labels] - 1}")
            made.append(Samples(pixels.copy(), answers.copy(), values))  # not over the records that they come from
    except DataError as error:
        raise DataError(f"CIFAR-100 in {place}: {error}; expected {_HOLDS}") from error
    return first_samples(Dataset("cifar100", made[0], made[1], _NUM_LABELS[labels], str(place)), num_train, num_test)
