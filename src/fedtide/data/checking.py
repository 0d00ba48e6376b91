"""Is something a data set that can be shared out and trained on?"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedtide.errors import DataError
from fedtide.types import Dataset, Samples


def check_dataset(dataset: Any, label: str = "dataset", may_be_empty: bool = False) -> None:
    """Raise if something is not a data set that can be shared out and trained on."""
    if not isinstance(dataset, Dataset):
        raise DataError(f"{label} is a {_kind(dataset)}: give a fedtide.types.Dataset, as fedtide.data.load returns")
    if not isinstance(dataset.num_labels, (int, np.integer)) or not 1 <= dataset.num_labels <= 256:
        raise DataError(f"the data set has num_labels={dataset.num_labels!r}: it must be a whole number from 1 to 256")
    for part, samples in (("train", dataset.train), ("test", dataset.test)):
        if not isinstance(samples, Samples) or not all(isinstance(each, np.ndarray) for each in samples):
            raise DataError(
                f"the data set's {part} is a {_kind(samples)}: give Samples(images, labels) of NumPy arrays"
            )
        images, labels = samples
        if (
            images.ndim != 4
            or 0 in images.shape[1:]
            or images.dtype.kind != "f"
            or labels.dtype.kind not in "iu"
            or labels.shape != images.shape[:1]
        ):
            raise DataError(
                f"the data set's {part} has images {images.dtype}{list(images.shape)} and labels {labels.dtype}"
                f"{list(labels.shape)}: give float32 [n channels height width] and uint8 [n]"
            )
        if may_be_empty and not len(labels):
            continue
        if not len(labels) or labels.min() < 0 or labels.max() >= dataset.num_labels:
            has = f"labels from {labels.min()} to {labels.max()}" if len(labels) else "no samples"
            raise DataError(f"the data set's {part} has {has}: give at least one, labels 0 to {dataset.num_labels - 1}")
        if not np.isfinite(images).all():
            raise DataError(f"the data set's {part} has images with NaN or infinity: give finite numbers")
    owners = dataset.owners
    if owners is not None and (
        not isinstance(owners, np.ndarray)
        or owners.dtype.kind not in "iu"
        or owners.shape != dataset.train.labels.shape
    ):
        raise DataError(
            f"{label}: owners must be whole numbers, one for each of the {len(dataset.train.labels)} samples"
        )


def _kind(thing: Any) -> str:
    return type(thing).__name__
