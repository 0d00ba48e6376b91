"""Is something a data set that can be shared out and trained on?"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedtide.core.forms import shown
from fedtide.errors import DataError
from fedtide.types import Dataset, Samples


def check_dataset(dataset: Any, label: str = "dataset", may_be_empty: bool = False) -> None:
    """Raise if something is not a data set that can be shared out and trained on. label: what to call it, or its part."""
    if not isinstance(dataset, Dataset):
        raise DataError(f"{label} is a {_kind(dataset)}: give a fedtide.types.Dataset, as fedtide.data.load returns")
    whose = "the data set" if label == "dataset" else f"{label}: the data set"
    for field in ("name", "source"):
        if not isinstance(getattr(dataset, field), str):
            raise DataError(f"{whose}'s {field} is a {_kind(getattr(dataset, field))}: give a word for the record")
    count = dataset.num_labels
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or not 1 <= count <= 256:
        raise DataError(f"{whose} has num_labels={shown(count)}: it must be a whole number from 1 to 256")
    for part, samples in (("train", dataset.train), ("test", dataset.test)):
        if not isinstance(samples, Samples) or not all(isinstance(each, np.ndarray) for each in samples[:2]):
            raise DataError(f"{whose}'s {part} is a {_kind(samples)}: give Samples(images, labels) of NumPy arrays")
        images, labels = samples[:2]
        if (
            images.ndim != 4
            or 0 in images.shape[1:]
            or images.dtype.kind != "f"
            or labels.dtype.kind not in "iu"
            or labels.shape != images.shape[:1]
        ):
            raise DataError(
                f"{whose}'s {part} has images {images.dtype}{list(images.shape)} and labels {labels.dtype}"
                f"{list(labels.shape)}: give float32 [n channels height width] and uint8 [n]"
            )
        if may_be_empty and not len(labels):
            continue
        if not len(labels) or labels.min() < 0 or labels.max() >= dataset.num_labels:
            has = f"labels from {labels.min()} to {labels.max()}" if len(labels) else "no samples"
            raise DataError(f"{whose}'s {part} has {has}: give at least one, labels 0 to {dataset.num_labels - 1}")
        if not np.isfinite(images).all():
            raise DataError(f"{whose}'s {part} has images with NaN or infinity: give finite numbers")
    if dataset.test.images.shape[1:] != dataset.train.images.shape[1:]:
        raise DataError(
            f"{whose}'s test has images {list(dataset.test.images.shape[1:])} and its train "
            f"{list(dataset.train.images.shape[1:])}: give images of one shape [channels height width]"
        )
    owners = dataset.owners
    if owners is not None and (
        not isinstance(owners, np.ndarray)
        or owners.dtype.kind not in "iu"
        or owners.shape != dataset.train.labels.shape
    ):
        raise DataError(
            f"{whose}'s owners must be whole numbers, one for each of the {len(dataset.train.labels)} samples"
        )


def checked_dataset(dataset: Any, label: str) -> Dataset:
    """Return what a user's data set gave in our types: float32 images, uint8 labels; raise if it cannot be."""
    check_dataset(dataset, label)
    with np.errstate(over="ignore"):
        train, test = (
            Samples(np.ascontiguousarray(each.images, np.float32), np.ascontiguousarray(each.labels, np.uint8))
            for each in (dataset.train, dataset.test)
        )
    made: Dataset = dataset._replace(train=train, test=test)
    if {each.images.dtype for each in (dataset.train, dataset.test)} != {np.dtype(np.float32)}:
        check_dataset(made, label)  # what is finite in double precision may not be in ours
    return made


def _kind(thing: Any) -> str:
    return type(thing).__name__
