"""CIFAR-10, CIFAR-100 and SVHN: photographs in colour, bytes [n 3 32 32]."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from fedtide.core.faults import fault_text
from fedtide.data import fetch
from fedtide.data.dataset import (
    Folder,
    NumTest,
    NumTrain,
    Tell,
    WithImages,
    byte_values,
    check_dataset,
    dataset,
    first_samples,
)
from fedtide.data.fetch import Bytes, OfficialSet, Raw, fetchable_files, say_fetching
from fedtide.data.unpickle import read_pickle
from fedtide.errors import DataError
from fedtide.parts.arguments import arg
from fedtide.types import Dataset, Samples

SHAPE: Final = (3, 32, 32)
_NUM_PIXELS: Final = 3072
_Batch: TypeAlias = tuple[Bytes, Bytes]  # pixels [n 3 32 32] and labels [n]


class _Version(NamedTuple):
    """One of the official ways to write the pictures down."""

    archive: str
    md5: str | None  # None: what it holds is checked
    folder: str  # in the archive
    end: str  # of a file's name; none: the Python version


def _batches(
    folder: Path, versions: tuple[_Version, ...], names: tuple[str, ...], kinds: tuple[str, ...], wanted: str
) -> Callable[[str], _Batch]:
    """Return what reads a batch by its name, loose in a folder or in its archive, in the version that is there.

    kinds: the labels that each picture has, by the names of the Python version, as they come in a record; wanted: one of them.
    """
    version, found = versions[0], dict[str, Raw]()
    for version in versions:
        ended, archive = [f"{name}{version.end}" for name in names], folder / version.archive
        found = fetch.read_fetched_files(folder, ended) or fetch.read_fetched_files(folder / version.folder, ended)
        if not found and archive.is_file():
            if version.md5 is not None:
                fetch.check_md5(archive, version.md5)
            found = fetch.archive_members(archive, ended)
        if found:
            break
    if missing := [name for name in names if f"{name}{version.end}" not in found]:
        raise DataError(f"it holds no {', '.join(missing)}")

    def batch(name: str) -> _Batch:
        data = found.pop(f"{name}{version.end}")
        try:
            return _records(data, len(kinds), kinds.index(wanted)) if version.end else _pickled(data, wanted)
        except DataError as error:
            raise DataError(f"{name}: {error}") from error

    return batch


def _records(data: Raw, num_labels: int, which: int) -> _Batch:
    """Read the binary version: a record has num_labels labels of one byte each, of which one is wanted, and 3,072 pixels."""
    size = num_labels + _NUM_PIXELS
    if not data or len(data) % size:
        raise DataError(f"truncated: {len(data)} bytes, expected whole records of {size}")
    records = np.frombuffer(data, np.uint8).reshape(-1, size)
    return records[:, num_labels:].reshape(-1, *SHAPE), records[:, which]


def _pickled(data: Raw, kind: str) -> _Batch:
    """Read the Python version, a mapping. kind: the name that the labels go by."""
    found = read_pickle(data)
    pixels, labels = (found.get("data"), found.get(kind)) if isinstance(found, dict) else (None, None)
    if (
        not isinstance(pixels, np.ndarray)
        or not isinstance(labels, list)
        or (pixels.dtype, pixels.shape) != (np.uint8, (len(labels), _NUM_PIXELS))
        or not all(type(label) is int and 0 <= label <= 255 for label in labels)
    ):
        raise DataError(
            f"the pickle holds no data, uint8 [n {_NUM_PIXELS}], with a list {kind} of as many labels from 0 to 255"
        )
    return pixels.reshape(-1, *SHAPE), np.array(labels, np.uint8)


# CIFAR-10. In the cache each part is one file of raw bytes, pixels [n 3 32 32] or labels [n], known by its SHA-256.

TRAIN_BATCHES: Final = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST: Final = "test_batch"
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of the training pixels by channel, as shares of 255
_CIFAR10_VERSIONS: Final = (
    _Version("cifar-10-binary.tar.gz", None, "cifar-10-batches-bin", ".bin"),
    _Version("cifar-10-python.tar.gz", None, "cifar-10-batches-py", ""),
)


def _raw_parts(batch: Callable[[str], _Batch]) -> dict[str, Raw]:
    """Return the raw files of both parts, from what reads a batch by its name."""
    raws: dict[str, Raw] = {}
    for part, names in (("train", TRAIN_BATCHES), ("test", (TEST,))):
        images, labels = bytearray(), bytearray()
        for name in names:
            pixels, answers = batch(name)
            images += pixels.tobytes()
            labels += answers.tobytes()
        raws |= {f"{part}-images": images, f"{part}-labels": labels}
    return raws


CIFAR10: Final = OfficialSet(
    "cifar10",
    "CIFAR-10",
    ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
    "data_batch_1 to 5 and test_batch (.bin, or the Python version), there or in cifar-10-batches-bin or "
    "cifar-10-batches-py, or the archive cifar-10-binary.tar.gz or cifar-10-python.tar.gz",
    lambda folder: _raw_parts(_batches(folder, _CIFAR10_VERSIONS, (*TRAIN_BATCHES, TEST), ("labels",), "labels")),
    fetchable_files("cifar10"),
)


def cifar10(
    folder: Folder = None,
    num_train: NumTrain = None,
    num_test: NumTest = None,
    say: Tell = say_fetching,
    images: WithImages = True,
) -> Dataset:
    """Small photographs of ten kinds of things: 50,000 for training and 10,000 for the test, 32 x 32 in colour.

    Images uint8 [n 3 32 32], each byte standing for (byte/255 - mean)/std of its channel; labels uint8 [n].
    """
    values = byte_values(MEAN, STD)
    pixels, labels, source = fetch.fetch_pairs(CIFAR10, folder, say, images, lambda raw: np.frombuffer(raw, np.uint8))
    train, test = (
        Samples(_pictures(part, len(answers)), answers, values) for part, answers in zip(pixels, labels, strict=True)
    )
    return first_samples(Dataset("cifar10", train, test, 10, source), num_train, num_test)


def _pictures(pixels: Bytes | None, count: int) -> Bytes:
    """Return pixels as [n 3 32 32], over the bytes that were read: no copy; zeros of None, which take no memory."""
    return np.broadcast_to(np.uint8(0), (count, *SHAPE)) if pixels is None else pixels.reshape(count, *SHAPE)


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
    folder: Folder = None,
    num_train: NumTrain = None,
    num_test: NumTest = None,
) -> Dataset:
    """Small photographs of 100 kinds of things: 50,000 for training and 10,000 for the test, 32 x 32 in colour.

    From the official files; archives are checked by their MD5, loose files by their structure. Images uint8 [n 3 32 32].
    """
    place = fetch.fetch_folder("CIFAR-100", folder, _HOLDS, _GET)
    values = byte_values(_MEAN, _STD)
    kinds = ("coarse_labels", "fine_labels")
    try:
        batch = _batches(place, CIFAR100_VERSIONS, ("train", "test"), kinds, f"{labels}_labels")
        train, test = (
            Samples(pixels.copy(), answers.copy(), values) for pixels, answers in map(batch, ("train", "test"))
        )
    except DataError as error:
        raise DataError(f"CIFAR-100 in {place}: {error}; expected {_HOLDS}") from error
    made = Dataset("cifar100", train, test, _NUM_LABELS[labels], str(place))
    check_dataset(made, f"CIFAR-100 in {place}")
    return first_samples(made, num_train, num_test)


# SVHN: digits of house numbers, seen from the street, in the official MATLAB files.

SVHN_MD5: Final = {
    "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
}
_SVHN_HOLDS: Final = "train_32x32.mat and test_32x32.mat"
_SVHN_GET: Final = f"{_SVHN_HOLDS} from http://ufldl.stanford.edu/housenumbers"


def svhn(folder: Folder = None, num_train: NumTrain = None, num_test: NumTest = None) -> Dataset:
    """Digits of house numbers: 73,257 for training and 26,032 for the test, 32 x 32 in colour.

    From the official files (format 2), checked by their MD5. Images uint8 [n 3 32 32], normalised by mean and deviation of
    the training images; the label 10, which the files have for zero, is 0.
    """
    place = fetch.fetch_folder("SVHN", folder, _SVHN_HOLDS, _SVHN_GET)
    train, test = (_svhn_part(place / name, md5) for name, md5 in SVHN_MD5.items())
    made = dataset("svhn", f"{place}", train, test, channels="first", num_labels=10)
    return first_samples(made, num_train, num_test)


def _svhn_part(path: Path, md5: str) -> Samples:
    if not path.is_file():
        raise DataError(f"SVHN: {path} is not there; get {_SVHN_GET}")
    fetch.check_md5(path, md5)
    from scipy.io import loadmat  # here, since scipy is imported when it is used

    try:
        found = loadmat(path, variable_names=["X", "y"])
        images, labels = np.asarray(found["X"]), np.asarray(found["y"]).ravel()
        return Samples(images.transpose(3, 2, 0, 1), labels.astype(np.uint8) % 10)
    except Exception as error:  # a damaged file can raise nearly anything
        raise DataError(f"{path} cannot be read ({fault_text(error)}); download it again") from error
