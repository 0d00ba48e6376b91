"""Users' own data: a NumPy archive, a folder of pictures, and data sets of torchvision and Hugging Face."""

from __future__ import annotations

import operator
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide.core.faults import fault_message
from fedtide.core.memory_budget import require_memory
from fedtide.data.dataset import MOST_CHANNELS, Channels, NumTest, NumTrain, dataset, dataset_in_turn, first_samples
from fedtide.data.fetch import Bytes, regular_fetched_file
from fedtide.errors import DataError
from fedtide.parts.arguments import arg
from fedtide.types import Dataset, Samples

# A data set in one NumPy archive.

_NAMES: Final = ("x_train", "y_train", "x_test", "y_test")
# What a damaged archive may raise: a header can speak of more numbers than there are bytes, which no memory would hold.
_BROKEN: Final = (OSError, ValueError, EOFError, KeyError, NotImplementedError, MemoryError, OverflowError)


def npz(
    path: Annotated[
        Path, arg("the archive, with x_train, y_train, x_test, y_test and, if samples have owners, owners")
    ],
    channels: Annotated[Channels, arg("position of the channel axis if it is ambiguous: first or last")] = "auto",
    num_labels: Annotated[int | None, arg("number of labels; default: one more than the largest", ge=1, le=256)] = None,
    num_train: NumTrain = None,
    num_test: NumTest = None,
) -> Dataset:
    """Your own arrays, as np.savez writes them: images [n h w], [n h w channels] or [n channels h w], labels [n].

    Bytes are normalised by mean and deviation of the training images, channel by channel; floats are taken as they are.
    """
    found = _arrays(path.expanduser())
    train, test = (Samples(found[f"x_{part}"], found[f"y_{part}"]) for part in ("train", "test"))
    made = dataset("npz", str(path), train, test, found.get("owners"), channels, num_labels)
    return first_samples(made, num_train, num_test)


def _arrays(path: Path) -> dict[str, Any]:
    remedy = "write it with np.savez(path, x_train=..., y_train=..., x_test=..., y_test=...)"
    if not path.is_file():
        raise DataError(f"npz: file not found: {path}; {remedy}, or correct data.name.path")
    try:
        with zipfile.ZipFile(path) as archive:
            require_memory(
                2.0 * sum(member.file_size for member in archive.infolist()), f"reading {path}", "make it smaller"
            )
        with np.load(path, allow_pickle=False) as arrays:
            if missing := [name for name in _NAMES if name not in arrays]:
                raise DataError(
                    f"{path} has {', '.join(arrays) or 'no array'}, and lacks {', '.join(missing)}; {remedy}"
                )
            return {name: arrays[name] for name in (*_NAMES, "owners") if name in arrays}
    except (*_BROKEN, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} cannot be read as arrays of numbers ({fault_message(error)}); {remedy}") from error


# A data set of picture files in a folder.

_ENDS: Final = (".png", ".jpg", ".jpeg")
_GREY: Final = ("1", "L", "LA", "I", "I;16", "I;16L", "I;16B")  # modes of pictures without colour
# Whatever a file is called, nothing else is read: of other formats Pillow may start other programs, such as Ghostscript.
_FORMATS: Final = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")


def image_folder(
    path: Annotated[Path, arg("the folder, with train/LABEL/*.png or *.jpg, and test/LABEL/...")],
    num_train: NumTrain = None,
    num_test: NumTest = None,
) -> Dataset:
    """Your own pictures of one size, one folder per label: train/LABEL/*.png or *.jpg, and test/LABEL likewise.

    Labels are numbered in the order of their names; pictures are taken from the labels in turn. Grey or in colour, as the
    first picture is; normalised by mean and deviation of the training pictures, channel by channel.
    """
    folder = path.expanduser()
    labels = _label_folders(folder / "train")
    if unknown := [name for name in _label_folders(folder / "test") if name not in labels]:
        raise DataError(f"{folder}/test has the label {unknown[0]!r}, which train does not have: {', '.join(labels)}")
    places = {part: _pictures(folder / part, labels) for part in ("train", "test")}
    with _opened(places["train"][0][0]) as picture:
        mode, size = "L" if picture.mode in _GREY else "RGB", picture.size
    train, test = (_samples(places[part], mode, size) for part in ("train", "test"))
    made = dataset("image_folder", str(path), train, test, channels="last", num_labels=len(labels))
    return first_samples(made, num_train, num_test)


def _label_folders(folder: Path) -> list[str]:
    found = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    if not 1 <= len(found) <= 256:
        has = f"holds {len(found)} folders" if folder.is_dir() else "is not there"
        raise DataError(
            f"image_folder: {folder} {has}; lay the pictures out as train/LABEL/*.png and test/LABEL/*.png, with 1 to 256 "
            "labels, and name the folder of both in data.name.path"
        )
    return found


def _pictures(folder: Path, labels: list[str]) -> list[tuple[Path, int]]:
    """Return the pictures of a part with their labels, taken from the labels in turn: the first so many are even."""
    found = dataset_in_turn(
        [
            [(path, number) for path in sorted((folder / name).glob("*")) if path.suffix.lower() in _ENDS]
            for number, name in enumerate(labels)
        ]
    )
    if not found:
        raise DataError(f"{folder} holds no picture: put {' or '.join(_ENDS)} into its folders")
    return found


def _samples(places: list[tuple[Path, int]], mode: str, size: tuple[int, int]) -> Samples:
    """Return the pictures as bytes [n h w channels] with their labels [n]."""
    shape = (len(places), size[1], size[0], *([] if mode == "L" else [3]))
    require_memory(3.0 * np.prod(shape, dtype=float), f"reading {len(places):,} pictures", "use fewer or smaller ones")
    images: Bytes = np.empty(shape, np.uint8)
    for at, (place, _) in enumerate(places):
        images[at] = _picture(place, mode, size)
    return Samples(images, np.array([label for _, label in places], np.uint8))


def _picture(place: Path, mode: str, size: tuple[int, int]) -> Bytes:
    with _opened(place) as picture:
        if picture.size != size:
            raise DataError(
                f"{place} has {picture.size[0]} x {picture.size[1]} pixels, and the first picture {size[0]} x {size[1]}: "
                "bring all of them to one size"
            )
        if picture.mode[0] not in "IF":
            return np.asarray(picture.convert(mode))
        values = np.asarray(picture).astype(np.float64)
        if picture.mode == "F" or values.min() < 0 or values.max() > 65535:
            raise DataError(
                f"{place} has pixels from {values.min():g} to {values.max():g} ({picture.mode}): save it with 8 or 16 bits each"
            )
        grey = np.rint(values / 257).astype(np.uint8)  # of 16 bits; Pillow would cut at 255
        return grey if mode == "L" else np.repeat(grey[..., None], 3, axis=2)


@contextmanager
def _opened(place: Path) -> Iterator[Any]:
    """Open a picture file of one of the formats; whatever is wrong with it is one line."""
    from PIL import Image  # matplotlib brings it; only pictures need it

    try:
        with Image.open(regular_fetched_file(place), formats=_FORMATS) as picture:
            yield picture
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise DataError(
            f"{place} cannot be read as a picture ({fault_message(error)}): replace or remove it"
        ) from error


# Data sets of other packages, handed over from Python: torchvision's and Hugging Face's, known by what they can do.
#
# What is returned goes to `fedtide.simulate(experiment, dataset=...)`, and its content belongs to the run. Neither package
# is imported: what comes is asked for its length, its items and, if nothing is to be done to them, its arrays. Items are
# pictures (PIL), arrays [h w], [h w channels] or, of PyTorch, tensors [channels h w], all of one shape.

_Split: TypeAlias = tuple[npt.NDArray[Any], Any]  # images, and as many labels, numbers or words


def from_torchvision(
    train: Any, test: Any, name: str = "torchvision", owners: Any = None, num_labels: int | None = None
) -> Dataset:
    """Return a data set of two torchvision sets, or of any two that give (image, label) by number.

    A set without transforms is taken as it is stored, bytes with values by their own mean and deviation; otherwise
    every item is asked for once, and what the transforms make of it is kept, so a random one is drawn once. Labels are numbers,
    or words, which are numbered in their order. owners: who each training sample belongs to [n].
    """
    parts = [
        _stored(given) or _gathered(_pairs(given, part), part) for given, part in ((train, "train"), (test, "test"))
    ]
    return _handed_over(name, "torchvision", parts, owners, num_labels)


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
    parts = [
        _gathered(((row[image], row[label]) for row in _rows(given, columns, part)), part)
        for given, part in ((train, "train"), (test, "test"))
    ]
    owners = None
    if owner is not None:  # no picture is unpacked for a name, if the set can leave out the other columns
        names = train.select_columns([owner]) if hasattr(train, "select_columns") else train
        owners = [row[owner] for row in _rows(names, [owner], "train")]
    features = getattr(train, "features", None)
    declared = features.get(label) if isinstance(features, Mapping) else None
    return _handed_over(name, "datasets", parts, owners, getattr(declared, "num_classes", None))


def _handed_over(name: str, package: str, parts: list[_Split], owners: Any, num_labels: int | None) -> Dataset:
    """Return the data set of two parts, channels first; labels that are words are numbered."""
    whole = [label for _, labels in parts for label in labels]
    kinds = {"int" if hasattr(label, "__index__") else type(label).__name__ for label in whole}
    number: Callable[[Any], int] = operator.index
    if kinds == {"str"}:
        words = sorted(set(whole))
        number, num_labels = words.index, len(words)
    elif kinds != {"int"}:
        raise DataError(f"the labels are of type {', '.join(sorted(kinds))}: give whole numbers, or words")
    train, test = (Samples(images, np.array([*map(number, labels)])) for images, labels in parts)
    return dataset(name, f"handed over from {package}", train, test, owners, "first", num_labels)


def _stored(given: Any) -> _Split | None:
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
    last = array.ndim == 4 and array.shape[3] <= MOST_CHANNELS < array.shape[1]
    return array.transpose(0, 3, 1, 2) if last else array, _array(labels)


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
    for row in given if isinstance(given, Iterable) else [given]:
        if not isinstance(row, Mapping):
            raise DataError(f"{part} gives a {type(row).__name__}, not rows: pass one split, as dataset['train']")
        if missing := [name for name in columns if name not in row]:
            raise DataError(
                f"{part} has the columns {', '.join(map(str, row))}, and no {missing[0]!r}: name it in from_huggingface"
            )
        yield row


def _gathered(pairs: Iterable[tuple[Any, Any]], part: str) -> _Split:
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
        raise DataError(f"{part} has no samples: pass at least one")
    stacked = np.stack(images)
    return stacked.transpose(0, 3, 1, 2) if stacked.ndim == 4 and not first else stacked, labels


def _array(given: Any) -> npt.NDArray[Any]:
    """Return an array of a tensor, a picture, a list, or what is one already."""
    tensor = given.detach().cpu() if hasattr(given, "detach") else given
    return np.asarray(tensor.numpy() if hasattr(tensor, "numpy") else tensor)
