"""Users' own data in memory: arrays, and data sets of torchvision and Hugging Face."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide.core.yaml12 import shown
from fedtide.data.dataset import check_dataset
from fedtide.data.fetch import Bytes
from fedtide.errors import DataError
from fedtide.types import Dataset, Ints, Samples

Channels: TypeAlias = Literal["auto", "first", "last"]
_MOST_CHANNELS: Final = 4  # if their axis is to be guessed


def byte_values(mean: Sequence[float], std: Sequence[float]) -> npt.NDArray[np.float32]:
    """Return what each byte of each channel stands for, (byte/255 - mean)/std, computed in double precision [channels 256]."""
    share = np.arange(256) / 255
    values: npt.NDArray[np.float32] = ((share - np.array(mean)[:, None]) / np.array(std)[:, None]).astype(np.float32)
    return values


class RawSplit(NamedTuple):
    """Training or test samples as the user has them."""

    images: Any  # [n h w], [n h w channels] or [n channels h w]
    labels: Any  # [n]


def dataset(
    name: str,
    source: str,
    train: RawSplit,
    test: RawSplit,
    owners: Any = None,
    channels: Channels = "auto",
    num_labels: int | None = None,
) -> Dataset:
    """Return a data set of arrays: bytes with values by their own mean and deviation, floats as they are.

    owners: who each training sample belongs to, numbers or words; they are numbered in order. DataError if it cannot be.
    """
    named = ((train, f"{source}: train"), (test, f"{source}: test"))
    images = [_images(part.images, label, channels) for part, label in named]
    labels = [_labels(part.labels, label) for part, label in named]
    if images[0].dtype != images[1].dtype:
        raise DataError(f"{source}: train has images {images[0].dtype} and test {images[1].dtype}: give one type")
    most = 1 + max(int(part.max()) for part in labels)
    if num_labels is not None and num_labels < most:
        raise DataError(f"{source}: there is a label {most - 1}: num_labels must be at least {most}")
    values = byte_values(*_moments(images[0])) if images[0].dtype == np.uint8 else None
    parts = [Samples(pixels, answers, values) for pixels, answers in zip(images, labels, strict=True)]
    holders = None if owners is None else _owners(owners, len(labels[0]), source)
    made = Dataset(name, parts[0], parts[1], most if num_labels is None else num_labels, source, holders)
    check_dataset(made, source)
    return made


def _images(given: Any, label: str, channels: Channels) -> npt.NDArray[Any]:
    """Return images [n channels h w] as uint8 or float32, C-contiguous."""
    array = np.asarray(given)
    if array.dtype.kind != "f" and array.dtype != np.uint8:
        raise DataError(f"{label} has images of type {array.dtype}: give uint8, or floating point numbers")
    if array.ndim not in (3, 4) or 0 in array.shape:
        raise DataError(
            f"{label} has images {list(array.shape)}: give at least one, as [n height width], [n height width channels] or "
            "[n channels height width]"
        )
    if array.ndim == 3:
        array = array[:, None]
    elif channels == "last" or (channels == "auto" and _are_last(array.shape, label)):
        array = array.transpose(0, 3, 1, 2)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, np.uint8 if array.dtype == np.uint8 else np.float32)


def _are_last(shape: tuple[int, ...], label: str) -> bool:
    """Say whether the channels are the last axis; raise if it must be said."""
    if (shape[1] <= _MOST_CHANNELS) == (shape[3] <= _MOST_CHANNELS):
        raise DataError(
            f"{label} has images {list(shape)}, whose channels may be first or last: say channels=first or last"
        )
    return shape[3] <= _MOST_CHANNELS


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
    means = [float((count * byte).sum() / count.sum()) for count in counts]
    stds = [
        float(np.sqrt((count * (byte - mean) ** 2).sum() / count.sum()))
        for count, mean in zip(counts, means, strict=True)
    ]
    return [mean / 255 for mean in means], [std / 255 or 1.0 for std in stds]


# Data sets of other packages, handed over from Python: torchvision's and Hugging Face's, known by what they can do.
#
# What is returned goes to `fedtide.simulate(experiment, dataset=...)`, and its content belongs to the run. Neither package
# is imported: what comes is asked for its length, its items and, if nothing is to be done to them, its arrays. Items are
# pictures (PIL), arrays [h w], [h w channels] or, of PyTorch, tensors [channels h w], all of one shape.


def from_torchvision(
    train: Any, test: Any, name: str = "torchvision", owners: Any = None, num_labels: int | None = None
) -> Dataset:
    """Return a data set of two torchvision sets, or of any two that give (image, label) by number.

    A set without transforms is taken as it is stored, bytes with values by their own mean and deviation; otherwise
    every item is asked for once, and what the transforms make of it is kept, so a random one is drawn once. owners: who each
    training sample belongs to [n].
    """
    parts = [_stored(given) or _items(given, part) for given, part in ((train, "train"), (test, "test"))]
    return dataset(name, "handed over from torchvision", parts[0], parts[1], owners, "first", num_labels)


def from_huggingface(
    train: Any,
    test: Any,
    image: str = "image",
    label: str = "label",
    owner: str | None = None,
    name: str = "huggingface",
) -> Dataset:
    """Return a data set of two splits of Hugging Face's `datasets`, or of any two that give mappings in turn.

    image, label, owner: the columns. Labels are numbers, or words, which are numbered in their order; owners likewise.
    """
    columns = [image, label] + ([] if owner is None else [owner])
    splits = [
        _gathered(((row[image], row[label]) for row in _rows(given, columns, part)), part)
        for given, part in ((train, "train"), (test, "test"))
    ]
    answers, count = _numbered([labels for _, labels in splits], getattr(train, "features", None), label)
    parts = [RawSplit(images, numbers) for (images, _), numbers in zip(splits, answers, strict=True)]
    owners = None
    if owner is not None:  # no picture is unpacked for a name, if the set can leave out the other columns
        select: Callable[[list[str]], Any] = getattr(train, "select_columns", lambda _: train)
        owners = [row[owner] for row in _rows(select([owner]), [owner], "train")]
    return dataset(name, "handed over from datasets", parts[0], parts[1], owners, "first", count)


def _stored(given: Any) -> RawSplit | None:
    """Return the arrays of a torchvision set to which nothing is to be done, channels first; None if it has none."""
    if any(getattr(given, name, None) is not None for name in ("transform", "target_transform", "transforms")):
        return None
    images, labels = getattr(given, "data", None), getattr(given, "targets", None)
    labels = getattr(given, "labels", None) if labels is None else labels
    if images is None or labels is None:
        return None
    array = _array(images)
    if array.ndim not in (3, 4) or array.dtype.kind not in "fu":  # names of files, say
        return None
    # [n 3 h w] as SVHN and STL10 have it; [n h w 3] as CIFAR has it
    last = array.ndim == 4 and array.shape[3] <= _MOST_CHANNELS < array.shape[1]
    return RawSplit(array.transpose(0, 3, 1, 2) if last else array, _array(labels))


def _items(given: Any, part: str) -> RawSplit:
    images, labels = _gathered(_pairs(given, part), part)
    try:
        return RawSplit(images, np.array([operator.index(label) for label in labels], np.int64))
    except TypeError as error:
        wrong = next(label for label in labels if not hasattr(label, "__index__"))
        raise DataError(f"{part} has the label {shown(wrong)}: give whole numbers from 0 on") from error


def _pairs(given: Any, part: str) -> Iterator[tuple[Any, Any]]:
    try:
        for number in range(len(given)):
            image, label = given[number]
            yield image, label
    except (TypeError, ValueError, KeyError) as error:
        raise DataError(
            f"{part} is a {type(given).__name__} that does not give (image, label) by number ({error}): hand over a "
            "torchvision data set, or anything with a length and such items"
        ) from error


def _rows(given: Any, columns: list[str], part: str) -> Iterator[Mapping[str, Any]]:
    if not hasattr(given, "__iter__"):
        raise DataError(f"{part} is a {type(given).__name__}, not rows: hand over one split, as dataset['train']")
    for row in given:
        if not isinstance(row, Mapping):
            raise DataError(f"{part} gives a {type(row).__name__}, not rows: hand over one split, as dataset['train']")
        if missing := [name for name in columns if name not in row]:
            raise DataError(
                f"{part} has the columns {', '.join(map(str, row))}, and no {missing[0]!r}: name it in from_huggingface"
            )
        yield row


def _gathered(pairs: Iterable[tuple[Any, Any]], part: str) -> tuple[npt.NDArray[Any], list[Any]]:
    """Return all images in one array, channels first, and their labels."""
    images: list[npt.NDArray[Any]] = []
    labels: list[Any] = []
    first = False
    for image, label in pairs:
        first = hasattr(image, "detach")  # PyTorch has the channels first
        images.append(_array(image))
        labels.append(label)
        if images[-1].shape != images[0].shape:
            raise DataError(
                f"{part} has an image {list(images[-1].shape)} (number {len(images) - 1}) and one {list(images[0].shape)}: "
                "bring all of them to one size and one number of channels"
            )
    if not images:
        raise DataError(f"{part} has no samples: hand over at least one")
    stacked = np.stack(images)
    return stacked.transpose(0, 3, 1, 2) if stacked.ndim == 4 and not first else stacked, labels


def _array(given: Any) -> npt.NDArray[Any]:
    """Return an array of a tensor, a picture, a list, or what is one already."""
    tensor = given.detach().cpu() if hasattr(given, "detach") else given
    return np.asarray(tensor.numpy() if hasattr(tensor, "numpy") else tensor)


def _numbered(parts: list[list[Any]], features: Any, label: str) -> tuple[list[npt.NDArray[np.int64]], int | None]:
    """Return labels as numbers, and how many there are if the set says so or they are words."""
    declared = getattr(features.get(label) if isinstance(features, Mapping) else None, "num_classes", None)
    kinds = {type(answer) for labels in parts for answer in labels}
    if all(issubclass(kind, int | np.integer) for kind in kinds):
        return [np.array(labels, np.int64) for labels in parts], declared
    if not all(issubclass(kind, str) for kind in kinds):
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise DataError(f"the labels in {label!r} are of type {names}: give whole numbers, or words")
    words = {word: number for number, word in enumerate(sorted({answer for labels in parts for answer in labels}))}
    return [np.array([words[answer] for answer in labels], np.int64) for labels in parts], len(words)
