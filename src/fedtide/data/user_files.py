"""Users' own data on disk: a NumPy archive, or a folder of pictures."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np

from fedtide.core.memory_budget import require
from fedtide.data.adapters import Channels, RawSplit, dataset
from fedtide.data.dataset import first_samples, in_turn
from fedtide.data.fetch import Bytes, regular
from fedtide.errors import DataError
from fedtide.parts.arguments import arg
from fedtide.types import Dataset

# A data set in one NumPy archive of the user's own.


_NAMES: Final = ("x_train", "y_train", "x_test", "y_test")
# What a damaged archive may raise: a header can speak of more numbers than there are bytes, which no memory would hold.
_BROKEN: Final = (OSError, ValueError, EOFError, KeyError, NotImplementedError, MemoryError, OverflowError)


def npz(
    path: Annotated[
        Path, arg("the archive: x_train, y_train, x_test, y_test and, if samples belong to somebody, owners")
    ],
    channels: Annotated[
        Channels, arg("which axis of the images they are, if that is not plain: first or last")
    ] = "auto",
    num_labels: Annotated[int | None, arg("labels in all; none: one more than the largest", ge=1, le=256)] = None,
    num_train: Annotated[int | None, arg("use only the first so many", key="data.num_train")] = None,
    num_test: Annotated[int | None, arg("use only the first so many", key="data.num_test")] = None,
) -> Dataset:
    """Your own arrays, as np.savez writes them: images [n h w], [n h w channels] or [n channels h w], labels [n].

    Bytes are normalised by mean and deviation of the training images, channel by channel; floats are taken as they are.
    """
    found = _read(path.expanduser())
    train, test = (RawSplit(found[f"x_{part}"], found[f"y_{part}"]) for part in ("train", "test"))
    made = dataset("npz", str(path), train, test, found.get("owners"), channels, num_labels)
    return first_samples(made, num_train, num_test)


def _read(path: Path) -> dict[str, Any]:
    remedy = "write it with np.savez(path, x_train=..., y_train=..., x_test=..., y_test=...)"
    if not path.is_file():
        raise DataError(f"npz: there is no file {path}; {remedy}, or correct data.name.path")
    try:
        with zipfile.ZipFile(path) as archive:
            require(2.0 * sum(member.file_size for member in archive.infolist()), f"reading {path}", "make it smaller")
        with np.load(path, allow_pickle=False) as arrays:
            missing = [name for name in _NAMES if name not in arrays]
            if missing:
                raise DataError(
                    f"{path} has {', '.join(arrays) or 'no array'}, and lacks {', '.join(missing)}; {remedy}"
                )
            return {name: arrays[name] for name in (*_NAMES, "owners") if name in arrays}
    except (*_BROKEN, zipfile.BadZipFile, zlib.error) as error:
        why = " ".join(str(error).split())
        raise DataError(f"{path} cannot be read as arrays of numbers ({why}); {remedy}") from error


# A data set of picture files in a folder of the user's own.


_ENDS: Final = (".png", ".jpg", ".jpeg")
_GREY: Final = ("1", "L", "LA", "I", "I;16", "I;16L", "I;16B")  # modes of pictures without colour
# Whatever a file is called, nothing else is read: of other formats Pillow may start other programs, such as Ghostscript.
_FORMATS: Final = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")


def image_folder(
    path: Annotated[Path, arg("the folder: train/LABEL/*.png or *.jpg, and test/LABEL/...")],
    num_train: Annotated[int | None, arg("use only the first so many", key="data.num_train")] = None,
    num_test: Annotated[int | None, arg("use only the first so many", key="data.num_test")] = None,
) -> Dataset:
    """Your own pictures, of one size, in a folder for each label: train/LABEL/*.png or *.jpg, and test/LABEL likewise.

    Labels are numbered in the order of their names; pictures are taken from the labels in turn. Grey or in colour, as the
    first picture is; normalised by mean and deviation of the training pictures, channel by channel.
    """
    folder = path.expanduser()
    labels = _label_folders(folder, "train")
    unknown = [name for name in _label_folders(folder, "test") if name not in labels]
    if unknown:
        raise DataError(f"{folder}/test has the label {unknown[0]!r}, which train has not: {', '.join(labels)}")
    places = {part: _places(folder / part, labels) for part in ("train", "test")}
    with _opened(places["train"][0][0]) as picture:
        mode, size = "L" if picture.mode in _GREY else "RGB", picture.size
    train, test = (_part(places[part], mode, size) for part in ("train", "test"))
    made = dataset("image_folder", str(path), train, test, channels="last", num_labels=len(labels))
    return first_samples(made, num_train, num_test)


def _label_folders(folder: Path, part: str) -> list[str]:
    inner = folder / part
    found = sorted(path.name for path in inner.iterdir() if path.is_dir()) if inner.is_dir() else []
    if not found:
        raise DataError(
            f"image_folder: {inner} {'holds no folder' if inner.is_dir() else 'is not there'}; lay the pictures out as "
            "train/LABEL/*.png and test/LABEL/*.png, and name the folder of both in data.name.path"
        )
    if len(found) > 256:
        raise DataError(f"{inner} holds {len(found)} folders: there can be 256 labels at most")
    return found


def _places(folder: Path, labels: list[str]) -> list[tuple[Path, int]]:
    """Return the pictures of a part with their labels, taken from the labels in turn: the first so many are even."""
    found = in_turn(
        [
            [(path, number) for path in sorted((folder / name).glob("*")) if path.suffix.lower() in _ENDS]
            for number, name in enumerate(labels)
        ]
    )
    if not found:
        raise DataError(f"{folder} holds no picture: put {' or '.join(_ENDS)} into its folders")
    return found


def _part(places: list[tuple[Path, int]], mode: str, size: tuple[int, int]) -> RawSplit:
    """Return the pictures as bytes [n h w channels] with their labels [n]."""
    shape = (len(places), size[1], size[0], *([] if mode == "L" else [3]))
    require(3.0 * np.prod(shape, dtype=float), f"reading {len(places):,} pictures", "use fewer or smaller ones")
    images: Bytes = np.empty(shape, np.uint8)
    for at, (place, _) in enumerate(places):
        images[at] = _picture(place, mode, size)
    return RawSplit(images, np.array([label for _, label in places]))


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
        with Image.open(regular(place), formats=_FORMATS) as picture:
            yield picture
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        why = " ".join(str(error).split())
        raise DataError(f"{place} cannot be read as a picture ({why}): replace it or take it away") from error
