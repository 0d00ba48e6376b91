"""Checking a data set, and taking its first samples."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any, TypeVar

import numpy as np

from fedtide.core.yaml12 import shown
from fedtide.errors import DataError, FedtideError
from fedtide.types import Dataset, Samples

Item = TypeVar("Item")


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
        if not isinstance(samples, Samples) or not all(isinstance(array, np.ndarray) for array in samples[:2]):
            raise DataError(f"{whose}'s {part} is a {_kind(samples)}: give Samples(images, labels) of NumPy arrays")
        if wrong := _wrong_samples(samples, int(count), may_be_empty):
            raise DataError(f"{whose}'s {part} has {wrong}")
    shapes = [list(samples.images.shape[1:]) for samples in (dataset.test, dataset.train)]
    if shapes[0] != shapes[1]:
        raise DataError(
            f"{whose}'s test has images {shapes[0]} and its train {shapes[1]}: give images of one shape [channels height width]"
        )
    owners, wanted = dataset.owners, dataset.train.labels.shape
    if owners is not None and not (
        isinstance(owners, np.ndarray) and owners.dtype.kind in "iu" and owners.shape == wanted
    ):
        raise DataError(f"{whose}'s owners must be whole numbers, one for each of the {wanted[0]} samples")


def _wrong_samples(samples: Samples, num_labels: int, may_be_empty: bool) -> str | None:
    """Say what is wrong with the arrays, and what to do; None if nothing is."""
    images, labels = samples.images, samples.labels
    if (
        images.ndim != 4
        or 0 in images.shape[1:]
        or (images.dtype.kind != "f" and images.dtype != np.uint8)
        or labels.dtype.kind not in "iu"
        or labels.shape != images.shape[:1]
    ):
        return (
            f"images {images.dtype}{list(images.shape)} and labels {labels.dtype}{list(labels.shape)}: give float32 "
            "[n channels height width] and uint8 [n]"
        )
    if wrong := wrong_values(samples):
        return wrong
    if not len(labels):
        return None if may_be_empty else f"no samples: give at least one, labels 0 to {num_labels - 1}"
    if labels.min() < 0 or labels.max() >= num_labels:
        return f"labels from {labels.min()} to {labels.max()}: give at least one, labels 0 to {num_labels - 1}"
    if images.dtype != np.uint8 and not np.isfinite(images).all():
        return "images with NaN or infinity: give finite numbers"
    return None


def wrong_values(samples: Samples) -> str | None:
    """Say why images [n c h w] and the values of their bytes do not go together, and what to do; None if they do."""
    images, values = samples.images, samples.values
    if images.dtype != np.uint8:
        has = f"{images.dtype} images and values of bytes"
        return None if values is None else f"{has}: leave the values out, or give the images as uint8"
    wanted = f"float32 [{images.shape[1]} 256], what each byte of each channel stands for"
    if values is None:
        return f"uint8 images without values: give values {wanted}, or float32 images"
    if not isinstance(values, np.ndarray) or values.dtype != np.float32 or values.shape != (images.shape[1], 256):
        given = f"{values.dtype}{list(values.shape)}" if isinstance(values, np.ndarray) else f"a {_kind(values)}"
        return f"values that are {given}: give {wanted}"
    if not np.isfinite(values).all():
        return "values with NaN or infinity: give finite numbers"
    return None


def checked_dataset(dataset: Any, label: str) -> Dataset:
    """Return what a user's data set gave in our types: float32 or uint8 images, uint8 labels; raise if it cannot be."""
    check_dataset(dataset, label)
    with np.errstate(over="ignore"):
        train, test = _ours(dataset.train), _ours(dataset.test)
    made: Dataset = dataset._replace(train=train, test=test)
    if not {part.images.dtype for part in (dataset.train, dataset.test)} <= {np.dtype(np.float32), np.dtype(np.uint8)}:
        check_dataset(made, label)  # what is finite in double precision may not be in ours
    return made


def _ours(samples: Samples) -> Samples:
    labels = np.ascontiguousarray(samples.labels, np.uint8)
    if samples.values is None:
        return Samples(np.ascontiguousarray(samples.images, np.float32), labels)
    return Samples(np.ascontiguousarray(samples.images), labels, np.ascontiguousarray(samples.values))


def _kind(thing: Any) -> str:
    return type(thing).__name__


def first_samples(whole: Dataset, num_train: int | None, num_test: int | None) -> Dataset:
    """Return a data set with only its first samples; None: all of them."""
    train, test = _first(whole.train, num_train, "num_train"), _first(whole.test, num_test, "num_test")
    owners = None if whole.owners is None else whole.owners[: len(train.labels)]
    return whole._replace(train=train, test=test, owners=owners)


def _first(samples: Samples, num: int | None, name: str) -> Samples:
    if num is None:
        return samples
    if not 1 <= num <= len(samples.labels):
        raise FedtideError(f"{name} = {num}: must be from 1 to {len(samples.labels)}")
    return Samples(samples.images[:num], samples.labels[:num], samples.values)


def in_turn(columns: Sequence[Sequence[Item]]) -> list[Item]:
    """Return the items of several lists, one of each in turn, so that the first ones are spread evenly over the lists."""
    nothing = object()
    return [item for item in chain.from_iterable(zip_longest(*columns, fillvalue=nothing)) if item is not nothing]  # type: ignore[misc]
