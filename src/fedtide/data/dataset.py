"""Data sets: arguments that they share, arrays made into one, checks, and the first samples of one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from fedtide.core.yaml12 import shown
from fedtide.data.fetch import Bytes, Say
from fedtide.errors import DataError, FedtideError
from fedtide.parts.arguments import arg
from fedtide.types import Dataset, Samples

Item = TypeVar("Item")
Items = TypeVar("Items", list[str], npt.NDArray[Any])
Channels: TypeAlias = Literal["auto", "first", "last"]
MOST_CHANNELS: Final = 4  # if their axis is to be guessed

Folder = Annotated[Path | None, arg("folder with the official files", key="data.folder")]
NumTrain = Annotated[int | None, arg("use only this many samples from the start", key="data.num_train")]
NumTest = Annotated[int | None, arg("use only this many samples from the start", key="data.num_test")]
Tell = Annotated[Say, arg("called with a message about each download", key="run.say")]
WithImages = Annotated[bool, arg("false: load only the labels, where possible", key="run.images")]


def check_data_range(name: str, value: float, least: float, most: float = math.inf) -> None:
    """Raise if a number is smaller or larger than it may be, infinite, or not a number."""
    if not (least <= value <= most and math.isfinite(value)):
        bounds = f"at least {least}" if math.isinf(most) else f"from {least} to {most}"
        raise FedtideError(f"{name} = {value}: must be {bounds}")


def first_items(items: Items, num: int | None, name: str) -> Items:
    """Return the first so many; None: all of them."""
    check_data_range(name, len(items) if num is None else num, 1, len(items))
    return items[:num]


def first_samples(whole: Dataset, num_train: int | None, num_test: int | None) -> Dataset:
    """Return a data set with only its first samples; None: all of them."""
    train, test = (
        Samples(first_items(part.images, num, name), part.labels[:num], part.values)
        for part, num, name in ((whole.train, num_train, "num_train"), (whole.test, num_test, "num_test"))
    )
    return whole._replace(train=train, test=test, owners=None if whole.owners is None else whole.owners[:num_train])


def validation_split(whole: Dataset, share: float) -> Dataset:
    """Return a data set that is tested on a share of its training samples, evenly spread over them; they leave the training."""
    held = np.diff(np.floor(np.arange(len(whole.train.labels) + 1) * share)) > 0
    if not held.any() or held.all():
        raise FedtideError(
            f"data.validation={share:g} of {len(held)} training samples leaves none to test or to train on; "
            "give another share or more samples"
        )
    train, test = (
        Samples(whole.train.images[part], whole.train.labels[part], whole.train.values) for part in (~held, held)
    )
    owners = None if whole.owners is None else whole.owners[~held]
    return whole._replace(train=train, test=test, owners=owners)


def held_out_split(whole: Dataset, num_train: int | None, count: int) -> Dataset:
    """Return a data set whose training samples after the first num_train, so many, are held out; it has no others."""
    if num_train is None:
        raise FedtideError(
            f"data.num_held_out={count} takes the training samples that follow the first data.num_train, which is not given; "
            "set data.num_train"
        )
    if (there := len(whole.train.labels)) != num_train + count:
        raise FedtideError(
            f"data.num_train={num_train} and data.num_held_out={count} need {num_train + count} training samples, and "
            f"data.name={whole.name} gives {there}; lower one of them"
        )
    train, held = (
        Samples(whole.train.images[part], whole.train.labels[part], whole.train.values)
        for part in (slice(num_train), slice(num_train, None))
    )
    owners = None if whole.owners is None else whole.owners[:num_train]
    return whole._replace(train=train, owners=owners, held_out=held)


def dataset_in_turn(columns: Sequence[Sequence[Item]]) -> list[Item]:
    """Return the items of several lists, one of each in turn, so that the first ones are spread evenly over the lists."""
    nothing = object()
    return [item for item in chain.from_iterable(zip_longest(*columns, fillvalue=nothing)) if item is not nothing]  # type: ignore[misc]


# Arrays made into a data set.


def byte_values(mean: Sequence[float], std: Sequence[float]) -> npt.NDArray[np.float32]:
    """Return what each byte of each channel stands for, (byte/255 - mean)/std, computed in double precision [channels 256]."""
    share = np.arange(256) / 255
    values: npt.NDArray[np.float32] = ((share - np.array(mean)[:, None]) / np.array(std)[:, None]).astype(np.float32)
    return values


def dataset(
    name: str,
    source: str,
    train: Samples,
    test: Samples,
    owners: Any = None,
    channels: Channels = "auto",
    num_labels: int | None = None,
) -> Dataset:
    """Return a data set of arrays: bytes with values by their own mean and deviation, floats as they are.

    train, test: images [n h w], [n h w channels] or [n channels h w], labels [n]. owners: who each training sample belongs to,
    numbers or words; they are numbered in order. DataError if it cannot be.
    """
    images = [
        _channels_first(part.images, f"{source}: {which}", channels)
        for part, which in ((train, "train"), (test, "test"))
    ]
    labels = [np.asarray(part.labels) for part in (train, test)]
    labels = [part[:, 0] if part.ndim == 2 and part.shape[1] == 1 else part for part in labels]
    if num_labels is None:
        num_labels = 1 + max(int(part.max(initial=0)) if part.dtype.kind in "iu" else 0 for part in labels)
    values = byte_values(*_moments(images[0])) if images[0].dtype == np.uint8 else None
    if owners is not None:
        owners = np.asarray(owners)
        if owners.dtype.kind not in "iuUS":
            raise DataError(f"{source}: owners are {owners.dtype}: give a number or a word for each training sample")
        owners = np.unique(owners, return_inverse=True)[1].astype(np.int64)
    parts = [Samples(pixels, answers, values) for pixels, answers in zip(images, labels, strict=True)]
    return checked_dataset(Dataset(name, parts[0], parts[1], num_labels, source, owners), source)


def _channels_first(given: Any, label: str, channels: Channels) -> npt.NDArray[Any]:
    """Return images [n channels h w]; raise if they have no such axes, or it must be said which they are."""
    array = np.asarray(given)
    if array.ndim not in (3, 4) or 0 in array.shape:
        raise DataError(
            f"{label} has images {list(array.shape)}: give at least one, as [n height width], [n height width channels] or "
            "[n channels height width]"
        )
    if array.ndim == 3:
        return array[:, None]
    last = array.shape[3] <= MOST_CHANNELS
    if channels == "auto" and (array.shape[1] <= MOST_CHANNELS) == last:
        raise DataError(
            f"{label} has images {list(array.shape)}, whose channels may be first or last: set channels=first or last"
        )
    return array.transpose(0, 3, 1, 2) if channels == "last" or (channels == "auto" and last) else array


def _moments(images: Bytes) -> tuple[list[float], list[float]]:
    """Return mean and deviation of each channel, as shares of 255; of a channel that never varies the deviation is 1."""
    byte = np.arange(256)
    means, stds = [], []
    for channel in range(images.shape[1]):
        count = np.bincount(images[:, channel].ravel(), minlength=256)
        mean = float((count * byte).sum() / count.sum())
        std = float(np.sqrt((count * (byte - mean) ** 2).sum() / count.sum()))
        means.append(mean / 255)
        stds.append(std / 255 or 1.0)
    return means, stds


# What every data set must be.


def checked_dataset(dataset: Any, label: str) -> Dataset:
    """Return what a user's data set gave in our types: float32 or uint8 images, uint8 labels; raise if it cannot be."""
    check_dataset(dataset, label)
    with np.errstate(over="ignore"):
        made: Dataset = dataset._replace(train=_in_our_types(dataset.train), test=_in_our_types(dataset.test))
    check_dataset(made, label)  # what is finite in double precision may not be in ours
    return made


def _in_our_types(samples: Samples) -> Samples:
    images = np.ascontiguousarray(samples.images, np.float32 if samples.values is None else np.uint8)
    values = None if samples.values is None else np.ascontiguousarray(samples.values)
    return Samples(images, np.ascontiguousarray(samples.labels, np.uint8), values)


def check_dataset(dataset: Any, label: str = "dataset", may_be_empty: bool = False) -> None:
    """Raise if something is not a data set that can be shared out and trained on. label: what to call it, or its part."""
    if not isinstance(dataset, Dataset):
        raise DataError(f"{label} is a {_kind(dataset)}: give a fedtide.types.Dataset, as fedtide.data.load returns")
    if wrong := _wrong_dataset(dataset, may_be_empty):
        raise DataError(f"{'' if label == 'dataset' else f'{label}: '}the data set{wrong}")


def _wrong_dataset(dataset: Dataset, may_be_empty: bool) -> str | None:
    """Say what is wrong with a data set, and what to do; None if nothing is."""
    for field in ("name", "source"):
        if not isinstance(getattr(dataset, field), str):
            return f"'s {field} is a {_kind(getattr(dataset, field))}: give a word for the record"
    count = dataset.num_labels
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or not 1 <= count <= 256:
        return f" has num_labels={shown(count)}: it must be a whole number from 1 to 256"
    for part, samples in (("train", dataset.train), ("test", dataset.test)):
        if not isinstance(samples, Samples) or not all(isinstance(array, np.ndarray) for array in samples[:2]):
            return f"'s {part} is a {_kind(samples)}: give Samples(images, labels) of NumPy arrays"
        if wrong := _wrong_samples(samples, int(count), may_be_empty):
            return f"'s {part} has {wrong}"
    shapes = [list(samples.images.shape[1:]) for samples in (dataset.test, dataset.train)]
    if shapes[0] != shapes[1]:
        return f"'s test has images {shapes[0]} and its train {shapes[1]}: give images of one shape [channels height width]"
    owners, num_train = dataset.owners, len(dataset.train.labels)
    if owners is not None and (
        not isinstance(owners, np.ndarray) or owners.dtype.kind not in "iu" or owners.shape != (num_train,)
    ):
        return f"'s owners must be whole numbers, one for each of the {num_train} training samples"
    return None


def _wrong_samples(samples: Samples, num_labels: int, may_be_empty: bool) -> str | None:
    images, labels = samples.images, samples.labels
    if (
        images.ndim != 4
        or 0 in images.shape[1:]
        or (images.dtype.kind != "f" and images.dtype != np.uint8)
        or labels.dtype.kind not in "iu"
        or labels.shape != images.shape[:1]
    ):
        return (
            f"images {images.dtype}{list(images.shape)} and labels {labels.dtype}{list(labels.shape)}: give float32 or uint8 "
            "[n channels height width] and whole numbers [n]"
        )
    if wrong := wrong_dataset_values(samples):
        return wrong
    if not len(labels):
        return None if may_be_empty else f"no samples: give at least one, labels 0 to {num_labels - 1}"
    if labels.min() < 0 or labels.max() >= num_labels:
        return f"labels from {labels.min()} to {labels.max()}: give labels 0 to {num_labels - 1}"
    if images.dtype != np.uint8 and not np.isfinite(images).all():
        return "images with NaN or infinity: give finite numbers"
    return None


def wrong_dataset_values(samples: Samples) -> str | None:
    """Say why images [n c h w] and the values of their bytes do not go together, and what to do; None if they do."""
    images, values = samples.images, samples.values
    if images.dtype != np.uint8:
        return None if values is None else f"{images.dtype} images and values of bytes: give uint8 images, or no values"
    wanted = f"float32 [{images.shape[1]} 256], what each byte of each channel stands for"
    if values is None:
        return f"uint8 images without values: give values {wanted}, or float32 images"
    if not isinstance(values, np.ndarray) or values.dtype != np.float32 or values.shape != (images.shape[1], 256):
        given = f"{values.dtype}{list(values.shape)}" if isinstance(values, np.ndarray) else f"a {_kind(values)}"
        return f"values that are {given}: give {wanted}"
    return None if np.isfinite(values).all() else "values with NaN or infinity: give finite numbers"


def _kind(thing: Any) -> str:
    return type(thing).__name__
