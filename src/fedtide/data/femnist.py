"""FEMNIST as LEAF makes it: handwriting that belongs to its writers, in JSON files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np

from fedtide.core.arguments import arg
from fedtide.data.cut import cut
from fedtide.data.idx import Bytes
from fedtide.data.official import named_folder, regular
from fedtide.data.own import Part, dataset
from fedtide.errors import DataError
from fedtide.types import Dataset

NUM_LABELS: Final = 62
HOLDS: Final = "LEAF's train/*.json and test/*.json, or all_data_*.json"
GET: Final = "LEAF (https://leaf.cmu.edu) and run its data/femnist/preprocess.sh"


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
    place = named_folder("FEMNIST", folder, HOLDS, GET)
    folders = _folders(place)
    if len(folders) == 2:
        train, test = (_gathered(*each) for each in folders)
        parts = [(images, labels, writers) for images, labels, writers in (train, test)]
    else:
        parts = _divided(*_gathered(*folders[0]), test_share, folders[0][0])
    (images, labels, writers), (test_images, test_labels, _) = parts
    made = dataset(
        "femnist", str(place), Part(images, labels), Part(test_images, test_labels), writers, num_labels=NUM_LABELS
    )
    return cut(made, num_train, num_test)


def files(folder: Path) -> list[Path]:
    """Return the files that are read of a folder."""
    return [path for inner, pattern in _folders(folder) for path in sorted(inner.glob(pattern))]


def _folders(place: Path) -> list[tuple[Path, str]]:
    """Return where the files lie and how they are called: of training and test, or of all together."""
    if all((place / part).is_dir() for part in ("train", "test")):
        return [(place / part, "*.json") for part in ("train", "test")]
    return [(place / "all_data" if (place / "all_data").is_dir() else place, "all_data_*.json")]


Rows = tuple[Bytes, Bytes, Any]  # images [n 28 28], labels [n], writers [n]


def _divided(images: Bytes, labels: Bytes, writers: Any, share: float, folder: Path) -> list[Rows]:
    """Take the last samples of each writer for the test; of a single one, none."""
    place = np.zeros(len(labels), np.int64)  # of a sample among its writer's, from the end
    _, inverse, count = np.unique(writers, return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable")
    ends = np.cumsum(count)
    place[order] = np.repeat(ends, count) - 1 - np.arange(len(labels))
    held = place < np.floor(share * count)[inverse]
    if not held.any():
        raise DataError(
            f"FEMNIST in {folder}: no writer has {1 / share:.0f} samples, so none are left for the test: raise test_share"
        )
    return [(images[which], labels[which], writers[which]) for which in (~held, held)]


def _gathered(folder: Path, pattern: str) -> Rows:
    """Return what all files of a folder hold, in the order of the numbers in their names."""
    paths = sorted(folder.glob(pattern), key=_numbers)
    if not paths:
        raise DataError(f"FEMNIST: {folder} holds no {pattern}; expected {HOLDS}")
    found = [each for path in paths for each in _writers(path)]
    if not found:
        raise DataError(f"FEMNIST: the files in {folder} hold no samples; run LEAF's preprocess.sh again")
    images, labels, names = zip(*found, strict=True)
    owners = np.repeat(np.array(names), [len(each) for each in labels])
    return np.concatenate(images), np.concatenate(labels), owners


def _numbers(path: Path) -> tuple[list[int], str]:
    """Return what puts a file in its place: the numbers in its name; of files that have the same ones, the name."""
    return [int(each) for each in re.findall(r"\d+", path.name)], path.name


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
    if not ((shares >= 0) & (shares <= 1)).all() or labels.min() < 0 or labels.max() >= NUM_LABELS:
        raise DataError(f"{label} has pixels outside 0 to 1, or labels outside 0 to {NUM_LABELS - 1}")
    return np.rint(shares * 255).astype(np.uint8).reshape(-1, 28, 28), labels.astype(np.uint8)
