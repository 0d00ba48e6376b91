"""Data sets of other packages, handed over from Python: torchvision's and Hugging Face's, known by what they can do.

What is returned goes to `fedtide.simulate(experiment, dataset=...)`, and its content belongs to the run.
Neither package is imported: what comes is asked for its length, its items and, if nothing is to be done to them, its arrays.
Items are pictures (PIL), arrays [h w], [h w channels] or, of PyTorch, tensors [channels h w], all of one shape.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fedtide.core.forms import shown
from fedtide.data.own import Channels, Part, dataset
from fedtide.errors import DataError
from fedtide.types import Dataset


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
