"""Users' own data in memory: arrays, and data sets of torchvision and Hugging Face."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide.core.yaml12 import shown
from fedtide.data.fetch import Bytes
from fedtide.errors import DataError
from fedtide.types import Dataset, Ints, Samples


def byte_values(mean: Sequence[float], std: Sequence[float]) -> npt.NDArray[np.float32]:
    """Return what each byte of each channel stands for, (byte/255 - mean)/std, computed in double precision [channels 256]."""
    share = np.arange(256) / 255
    values: npt.NDArray[np.float32] = ((share - np.array(mean)[:, None]) / np.array(std)[:, None]).astype(np.float32)
    return values


# A data set out of arrays of the user's own: which axis is which, what bytes stand for, how labels are counted.


Channels: TypeAlias = Literal["auto", "first", "last"]
_FEW: Final = 4  # channels at most, if their axis is to be guessed


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
    first, last = shape[1] <= _FEW, shape[3] <= _FEW
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
    parts = [_stored(each) or _items(_pairs(each, part), part) for each, part in ((train, "train"), (test, "test"))]
    return _made(name, "handed over from torchvision", parts, owners, num_labels)


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
    splits = [_rows(each, columns, part) for each, part in ((train, "train"), (test, "test"))]
    answers, count = _numbered([labels for _, labels, _ in splits], getattr(train, "features", None), label)
    parts = [(Part(images, own), how) for (images, _, how), own in zip(splits, answers, strict=True)]
    owners = None if owner is None else [row[owner] for row in _only(train, [owner])]
    return _made(name, "handed over from datasets", parts, owners, count)


def _made(name: str, source: str, parts: list[tuple[Part, Channels]], owners: Any, num_labels: int | None) -> Dataset:
    (train, how), (test, how_test) = parts
    if how != how_test and np.ndim(train.images) == np.ndim(test.images) == 4:
        test = test._replace(images=_first_to(test.images, how_test))
        train, how = train._replace(images=_first_to(train.images, how)), "first"
    return dataset(name, source, train, test, owners, how, num_labels)


def _first_to(images: npt.NDArray[Any], how: Channels) -> npt.NDArray[Any]:
    return images.transpose(0, 3, 1, 2) if how == "last" else images


def _stored(given: Any) -> tuple[Part, Channels] | None:
    """Return the arrays of a torchvision set to which nothing is to be done; None if it has none."""
    if any(getattr(given, each, None) is not None for each in ("transform", "target_transform", "transforms")):
        return None
    images, labels = getattr(given, "data", None), getattr(given, "targets", None)
    labels = getattr(given, "labels", None) if labels is None else labels
    if images is None or labels is None:
        return None
    array = _array(images)
    if array.ndim not in (3, 4) or array.dtype.kind not in "fu":  # names of files, say
        return None
    # [n 3 h w] as SVHN and STL10 have it; [n h w 3] as CIFAR has it
    last = array.ndim == 4 and array.shape[3] <= 4 < array.shape[1]
    return Part(array, _array(labels)), "last" if last else "first"


def _pairs(given: Any, part: str) -> Iterator[tuple[Any, Any]]:
    try:
        count = len(given)
        for number in range(count):
            image, label = given[number]
            yield image, label
    except (TypeError, ValueError, KeyError) as error:
        raise DataError(
            f"{part} is a {type(given).__name__} that does not give (image, label) by number ({error}): hand over a "
            "torchvision data set, or anything with a length and such items"
        ) from error


def _items(pairs: Iterable[tuple[Any, Any]], part: str) -> tuple[Part, Channels]:
    images, labels, how = _gathered(pairs, part)
    return Part(images, np.array([_whole(each, part) for each in labels], np.int64)), how


def _whole(label: Any, part: str) -> int:
    try:
        return operator.index(label)
    except TypeError as error:
        raise DataError(f"{part} has the label {shown(label)}: give whole numbers from 0 on") from error


def _rows(given: Any, columns: list[str], part: str) -> tuple[npt.NDArray[Any], list[Any], Channels]:
    return _gathered(((row[columns[0]], row[columns[1]]) for row in _checked(given, columns, part)), part)


def _checked(given: Any, columns: list[str], part: str) -> Iterator[Mapping[str, Any]]:
    try:
        rows = iter(given)
    except TypeError as error:
        raise DataError(
            f"{part} is a {type(given).__name__}, not rows: hand over one split, as dataset['train']"
        ) from error
    for row in rows:
        if not isinstance(row, Mapping):
            raise DataError(f"{part} gives a {type(row).__name__}, not rows: hand over one split, as dataset['train']")
        missing = [each for each in columns if each not in row]
        if missing:
            raise DataError(
                f"{part} has the columns {', '.join(map(str, row))}, and no {missing[0]!r}: name it in from_huggingface"
            )
        yield row


def _only(given: Any, columns: list[str]) -> Iterable[Mapping[str, Any]]:
    """Return the rows with these columns alone, if the set can leave out the others: no picture is unpacked for a name."""
    select: Callable[[list[str]], Any] | None = getattr(given, "select_columns", None)
    return _checked(given if select is None else select(columns), columns, "train")


def _gathered(pairs: Iterable[tuple[Any, Any]], part: str) -> tuple[npt.NDArray[Any], list[Any], Channels]:
    """Return all images in one array, their labels, and where the channels are."""
    images: list[npt.NDArray[Any]] = []
    labels: list[Any] = []
    how: Channels = "last"
    for image, label in pairs:
        how = "first" if hasattr(image, "detach") else "last"  # PyTorch has them first
        array = _array(image)
        if images and array.shape != images[0].shape:
            raise DataError(
                f"{part} has an image {list(array.shape)} (number {len(images)}) and one {list(images[0].shape)}: bring all "
                "of them to one size and one number of channels"
            )
        images.append(array)
        labels.append(label)
    if not images:
        raise DataError(f"{part} has no samples: hand over at least one")
    return np.stack(images), labels, how


def _array(given: Any) -> npt.NDArray[Any]:
    """Return an array of a tensor, a picture, a list, or what is one already."""
    tensor = given.detach().cpu() if hasattr(given, "detach") else given
    return np.asarray(tensor.numpy() if hasattr(tensor, "numpy") else tensor)


def _numbered(parts: list[list[Any]], features: Any, label: str) -> tuple[list[npt.NDArray[np.int64]], int | None]:
    """Return labels as numbers, and how many there are if the set says so or they are words."""
    declared = getattr(features.get(label) if isinstance(features, Mapping) else None, "num_classes", None)
    if all(isinstance(each, int | np.integer) for labels in parts for each in labels):
        return [np.array(labels, np.int64) for labels in parts], declared
    if not all(isinstance(each, str) for labels in parts for each in labels):
        kinds = sorted({type(each).__name__ for labels in parts for each in labels})
        raise DataError(f"the labels in {label!r} are of type {', '.join(kinds)}: give whole numbers, or words")
    words = {word: number for number, word in enumerate(sorted({each for labels in parts for each in labels}))}
    return [np.array([words[each] for each in labels], np.int64) for labels in parts], len(words)
