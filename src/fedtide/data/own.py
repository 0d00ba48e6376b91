"""A data set out of arrays of the user's own: which axis is which, what bytes stand for, how labels are counted."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide.core.forms import shown
from fedtide.data.idx import Bytes
from fedtide.data.pictures import byte_values
from fedtide.errors import DataError
from fedtide.types import Dataset, Ints, Samples

Channels: TypeAlias = Literal["auto", "first", "last"]
FEW: Final = 4  # channels at most, if their axis is to be guessed


class Part(NamedTuple):
    """Training or test samples as the user has them."""

    images: Any  # [n h w], [n h w channels] or [n channels h w]
    labels: Any  # [n]


def dataset(
    name: str,
    source: str,
    train: Part,
    test: Part,
    owners: Any = None,
    channels: Channels = "auto",
    num_labels: int | None = None,
) -> Dataset:
    """Return a data set of arrays: bytes with values by their own mean and deviation, floats as they are.

    owners: who each training sample belongs to, numbers or words; they are numbered in order. DataError if it cannot be.
    """
    images = [_images(each.images, f"{source}: {part}", channels) for each, part in ((train, "train"), (test, "test"))]
    labels = [_labels(each.labels, f"{source}: {part}") for each, part in ((train, "train"), (test, "test"))]
    for part, pixels, answers in zip(("train", "test"), images, labels, strict=True):
        if len(pixels) != len(answers):
            raise DataError(
                f"{source}: {part} has {len(pixels)} images and {len(answers)} labels: give one label for each image"
            )
    if images[0].shape[1:] != images[1].shape[1:] or images[0].dtype != images[1].dtype:
        raise DataError(
            f"{source}: train has images {images[0].dtype}{list(images[0].shape[1:])} and test "
            f"{images[1].dtype}{list(images[1].shape[1:])}: give images of one shape and one type"
        )
    most = 1 + max(int(each.max()) for each in labels)
    if num_labels is not None and num_labels < most:
        raise DataError(f"{source}: there is a label {most - 1}: num_labels must be at least {most}")
    values = byte_values(*_moments(images[0])) if images[0].dtype == np.uint8 else None
    made = [Samples(pixels, answers, values) for pixels, answers in zip(images, labels, strict=True)]
    holders = None if owners is None else _owners(owners, len(labels[0]), source)
    return Dataset(name, made[0], made[1], most if num_labels is None else num_labels, source, holders)


def _images(given: Any, label: str, channels: Channels) -> npt.NDArray[Any]:
    """Return images [n channels h w] as uint8 or float32, C-contiguous."""
    array = np.asarray(given)
    if array.dtype.kind not in "f" and array.dtype != np.uint8:
        raise DataError(f"{label} has images of type {array.dtype}: give uint8, or floating point numbers")
    if array.ndim not in (3, 4) or 0 in array.shape:
        raise DataError(
            f"{label} has images {list(array.shape)}: give at least one, as [n height width], [n height width channels] or "
            "[n channels height width]"
        )
    if array.ndim == 3:
        array = array[:, None]
    elif _is_last(array.shape, channels, label):
        array = array.transpose(0, 3, 1, 2)
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    with np.errstate(over="ignore"):
        floats = np.ascontiguousarray(array, np.float32)
    if not np.isfinite(floats).all():
        raise DataError(f"{label} has images with NaN or infinity: give finite numbers")
    return floats


def _is_last(shape: tuple[int, ...], channels: Channels, label: str) -> bool:
    """Say whether the channels are the last axis; raise if it must be said and is not."""
    if channels != "auto":
        return channels == "last"
    first, last = shape[1] <= FEW, shape[3] <= FEW
    if first == last:
        raise DataError(
            f"{label} has images {list(shape)}, whose channels may be first or last: say channels=first or last"
        )
    return last


def _labels(given: Any, label: str) -> Bytes:
    array = np.asarray(given)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(f"{label} has labels {array.dtype}{list(array.shape)}: give whole numbers [n]")
    if not len(array) or array.min() < 0 or array.max() > 255:
        has = f"labels from {array.min()} to {array.max()}" if len(array) else "no labels"
        raise DataError(f"{label} has {has}: give at least one, from 0 to 255")
    return np.ascontiguousarray(array, np.uint8)


def _owners(given: Any, count: int, source: str) -> Ints:
    array = np.asarray(given)
    if array.shape != (count,) or array.dtype.kind not in "iuUS":
        raise DataError(
            f"{source}: owners are {shown(f'{array.dtype}{list(array.shape)}')}: give a number or a word for each of the "
            f"{count} training samples"
        )
    return np.unique(array, return_inverse=True)[1].astype(np.int64)


def _moments(images: Bytes) -> tuple[list[float], list[float]]:
    """Return mean and deviation of each channel, as shares of 255; of a channel that never varies the deviation is 1."""
    byte = np.arange(256)
    counts = [np.bincount(images[:, channel].ravel(), minlength=256) for channel in range(images.shape[1])]
    means = [float((each * byte).sum() / each.sum()) for each in counts]
    stds = [
        float(np.sqrt((each * (byte - mean) ** 2).sum() / each.sum())) for each, mean in zip(counts, means, strict=True)
    ]
    return [mean / 255 for mean in means], [std / 255 or 1.0 for std in stds]
