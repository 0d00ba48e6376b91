"""A data set in one NumPy archive of the user's own."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np

from fedtide.core.arguments import arg
from fedtide.core.ram import need
from fedtide.data.cut import cut
from fedtide.data.own import Channels, Part, dataset
from fedtide.errors import DataError
from fedtide.types import Dataset

NAMES: Final = ("x_train", "y_train", "x_test", "y_test")
# What a damaged archive may raise: a header can speak of more numbers than there are bytes, which no memory would hold.
BROKEN: Final = (OSError, ValueError, EOFError, KeyError, NotImplementedError, MemoryError, OverflowError)


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
    train, test = (Part(found[f"x_{part}"], found[f"y_{part}"]) for part in ("train", "test"))
    made = dataset("npz", str(path), train, test, found.get("owners"), channels, num_labels)
    return cut(made, num_train, num_test)


def _read(path: Path) -> dict[str, Any]:
    remedy = "write it with np.savez(path, x_train=..., y_train=..., x_test=..., y_test=...)"
    if not path.is_file():
        raise DataError(f"npz: there is no file {path}; {remedy}, or correct data.args.path")
    try:
        with zipfile.ZipFile(path) as archive:
            need(2.0 * sum(each.file_size for each in archive.infolist()), f"reading {path}", "make it smaller")
        with np.load(path, allow_pickle=False) as arrays:
            missing = [name for name in NAMES if name not in arrays]
            if missing:
                raise DataError(
                    f"{path} has {', '.join(arrays) or 'no array'}, and lacks {', '.join(missing)}; {remedy}"
                )
            return {name: arrays[name] for name in (*NAMES, "owners") if name in arrays}
    except (*BROKEN, zipfile.BadZipFile, zlib.error) as error:
        why = " ".join(str(error).split())
        raise DataError(f"{path} cannot be read as arrays of numbers ({why}); {remedy}") from error
