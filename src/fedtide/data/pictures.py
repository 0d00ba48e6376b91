"""Pictures as bytes: what each byte stands for, and PNGs read into arrays."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide.data.idx import Bytes
from fedtide.errors import DataError

Batch: TypeAlias = tuple[str, Bytes, Bytes]  # its name, pixels [n 3 32 32], labels [n]


def byte_values(mean: Sequence[float], std: Sequence[float]) -> npt.NDArray[np.float32]:
    """Return what each byte of each channel stands for, (byte/255 - mean)/std, computed in double precision [channels 256]."""
    share = np.arange(256) / 255
    values: npt.NDArray[np.float32] = ((share - np.array(mean)[:, None]) / np.array(std)[:, None]).astype(np.float32)
    return values


def from_png(data: bytes, name: str, size: tuple[int, int]) -> Bytes:
    """Return the pixels of a picture in colour of so many rows and columns [rows columns 3]; DataError if it is not one."""
    from PIL import Image  # matplotlib brings it; only pictures need it

    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as picture:
            if picture.mode != "RGB" or picture.size != (size[1], size[0]):  # known before anything is unpacked
                raise DataError(
                    f"{name} is a picture of {picture.size[1]} rows and {picture.size[0]} columns ({picture.mode}), "
                    f"expected {size[0]} and {size[1]} (RGB)"
                )
            return np.asarray(picture)
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise DataError(f"{name} is damaged ({' '.join(str(error).split())})") from error
