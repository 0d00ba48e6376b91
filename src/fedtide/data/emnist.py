"""EMNIST and FEMNIST: handwritten digits and letters."""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import numpy as np

from fedtide.data.adapters import RawSplit, dataset
from fedtide.data.dataset import first_samples
from fedtide.data.fetch import (
    MOST_FILE_BYTES,
    Bytes,
    Raw,
    check_md5,
    find_file,
    named_folder,
    read_whole,
    regular,
    unpacked,
)
from fedtide.data.mnist import parse_idx
from fedtide.errors import DataError
from fedtide.parts.arguments import arg
from fedtide.types import Dataset

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
    folder: Annotated[Path | None, arg("where gzip.zip or the IDX files lie", key="data.folder")] = None,
    num_train: Annotated[int | None, arg("use only the first so many", key="data.num_train")] = None,
    num_test: Annotated[int | None, arg("use only the first so many", key="data.num_test")] = None,
) -> Dataset:
    """Handwritten digits and letters: 62 labels by class, 47 merged or balanced, 26 letters, 10 digits; 28 x 28.

    From the official files; gzip.zip is checked by its MD5, loose files by their structure. Turned upright; labels from 0.
    Images uint8 [n 1 28 28], normalised by mean and deviation of the training images.
    """
    place = named_folder("EMNIST", folder, _EMNIST_HOLDS, _EMNIST_GET)
    train, test = (_part(place, split, part) for part in ("train", "test"))
    return first_samples(
        dataset("emnist", str(place), train, test, num_labels=_EMNIST_LABELS[split]), num_train, num_test
    )


def _part(folder: Path, split: str, part: str) -> RawSplit:
    images, labels = (_parsed(folder, f"emnist-{split}-{part}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
    first = 1 if split == "letters" else 0  # letters count from 1
    last = first + _EMNIST_LABELS[split] - 1
    if images.shape != (labels.size, 28, 28) or not labels.size or labels.min() < first or labels.max() > last:
        has = f"{labels.size} labels from {labels.min(initial=255)} to {labels.max(initial=0)}"
        raise DataError(
            f"EMNIST in {folder}: {part} has images {list(images.shape)} and {has}, expected [n 28 28] and n from {first} "
            f"to {last}; get {_EMNIST_GET}"
        )
    return RawSplit(images.transpose(0, 2, 1), labels - first)


def _parsed(folder: Path, name: str) -> Bytes:
    try:
        return parse_idx(unpacked(_raw(folder, name), MOST_FILE_BYTES))
    except (DataError, OSError) as error:
        raise DataError(f"EMNIST: {name} in {folder}: {error}; expected {_EMNIST_HOLDS}") from error


def _raw(folder: Path, name: str) -> Raw:
    path = find_file(folder, _INNER, (name, f"{name}.gz"))
    if path is not None:
        return read_whole(path)
    archive = folder / _ARCHIVE
    if not archive.is_file():
        raise DataError("it is not there")
    check_md5(archive, EMNIST_MD5)
    try:
        with zipfile.ZipFile(archive) as zipped, zipped.open(f"gzip/{name}.gz") as file:
            return file.read(MOST_FILE_BYTES)
    except (zipfile.BadZipFile, KeyError, zlib.error, EOFError) as error:
        raise DataError(f"{archive} is damaged ({error})") from error


# FEMNIST as LEAF makes it: handwriting that belongs to its writers, in JSON files.


_FEMNIST_LABELS: Final = 62
_FEMNIST_HOLDS: Final = "LEAF's train/*.json and test/*.json, or all_data_*.json"
_FEMNIST_GET: Final = "LEAF (https://leaf.cmu.edu) and run its data/femnist/preprocess.sh"


def femnist(
    folder: Annotated[Path | None, arg("where LEAF's JSON files lie: its data/femnist/data", key="data.folder")] = None,
    test_share: Annotated[
        float, arg("of each writer's samples, the last ones, for the test; only of all_data_*.json", gt=0, lt=1)
    ] = 0.1,
    num_train: Annotated[int | None, arg("use only the first so many", key="data.num_train")] = None,
    num_test: Annotated[int | None, arg("use only the first so many", key="data.num_test")] = None,
) -> Dataset:
    """Handwritten digits and letters by writer, 62 labels, 28 x 28: LEAF's federated EMNIST; data.partition=natural.

    LEAF makes these files anew each time, so there is no checksum: they are checked by their structure. Images uint8
    [n 1 28 28], normalised by mean and deviation of the training images; owners are the writers.
    """
    place = named_folder("FEMNIST", folder, _FEMNIST_HOLDS, _FEMNIST_GET)
    folders = _folders(place)
    parts = [_gathered(inner, pattern) for inner, pattern in folders]
    if len(parts) == 1:
        parts = _divided(*parts[0], test_share, place)
    (images, labels, writers), (test_images, test_labels, _) = parts
    train, test = RawSplit(images, labels), RawSplit(test_images, test_labels)
    made = dataset("femnist", str(place), train, test, writers, num_labels=_FEMNIST_LABELS)
    return first_samples(made, num_train, num_test)


def _femnist_files(folder: Path) -> list[Path]:
    """Return the files that are read of a folder."""
    return [path for inner, pattern in _folders(folder) for path in sorted(inner.glob(pattern))]


def _folders(place: Path) -> list[tuple[Path, str]]:
    """Return where the files lie and how they are called: of training and test, or of all together."""
    if all((place / part).is_dir() for part in ("train", "test")):
        return [(place / part, "*.json") for part in ("train", "test")]
    return [(place / "all_data" if (place / "all_data").is_dir() else place, "all_data_*.json")]


_WriterRows = tuple[Bytes, Bytes, Any]  # images [n 28 28], labels [n], writers [n]


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
    if not paths:
        raise DataError(f"FEMNIST: {folder} holds no {pattern}; expected {_FEMNIST_HOLDS}")
    found = [rows for path in paths for rows in _writers(path)]
    if not found:
        raise DataError(f"FEMNIST: the files in {folder} hold no samples; run LEAF's preprocess.sh again")
    images, labels, names = zip(*found, strict=True)
    owners = np.repeat(np.array(names), [len(part) for part in labels])
    return np.concatenate(images), np.concatenate(labels), owners


def _writers(path: Path) -> Iterator[tuple[Bytes, Bytes, str]]:
    """Yield the samples of each writer in a file: images [n 28 28], labels [n], name."""
    try:
        tree = json.loads(regular(path).read_bytes())
        rows = [(str(name), tree["user_data"][name]["x"], tree["user_data"][name]["y"]) for name in tree["users"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"{path} is damaged or not of LEAF ({type(error).__name__}: {error}); run LEAF's preprocess.sh again"
        ) from error
    for name, x, y in rows:
        if x or y:
            yield *_sample_arrays(x, y, f"{path}: writer {name}"), name


def _sample_arrays(x: Any, y: Any, label: str) -> tuple[Bytes, Bytes]:
    try:
        shares, labels = np.array(x, np.float64), np.array(y)
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"{label} has other than rows of numbers ({error}); run LEAF's preprocess.sh again") from error
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or shares.shape != (len(labels), 784):
        raise DataError(
            f"{label} has x {list(shares.shape)} and y {labels.dtype}{list(labels.shape)}, expected [n 784] and [n]"
        )
    if not ((shares >= 0) & (shares <= 1)).all() or labels.min() < 0 or labels.max() >= _FEMNIST_LABELS:
        raise DataError(f"{label} has pixels outside 0 to 1, or labels outside 0 to {_FEMNIST_LABELS - 1}")
    return np.rint(shares * 255).astype(np.uint8).reshape(-1, 28, 28), labels.astype(np.uint8)
