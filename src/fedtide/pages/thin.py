"""Keeping a page small: fewer points or rows than were recorded, and saying so is the page's part."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedtide.errors import FedtideError
from fedtide.types import Ints

LIMIT: Final = 2_000_000  # bytes of a page
LEVELS: Final = 12
NAMES: Final = {"uint8": "u1", "uint16": "u2", "uint32": "u4", "float32": "f4"}


def fitting(make: Callable[[int], str]) -> str:
    """Return the page of the lowest level that fits. make: level (0: everything, each further one about half) -> page."""
    for level in range(LEVELS):
        made = make(level)
        if len(made.encode()) <= LIMIT:
            return made
    raise FedtideError(f"the page is larger than {LIMIT:,} bytes however it is thinned; show fewer runs in it")


def every(count: int, most: int) -> Ints:
    """Return at most `most` of the positions 0 ... count - 1, evenly, with the first and the last [m]."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, max(most, 2)).round().astype(np.int64))


def packed(values: npt.NDArray[Any]) -> dict[str, Any]:
    """Return an array of unsigned integers or float32 as base64 with its shape; `fedtide.unpack` in common.js reads it."""
    wire = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"), copy=False)
    data = base64.b64encode(wire.tobytes()).decode()
    return {"packed": data, "type": NAMES[values.dtype.name], "shape": list(values.shape)}


def smallest(values: Ints) -> npt.NDArray[Any]:
    """Return numbers of 0 and more in the shortest type that holds them."""
    most = int(values.max(initial=0))
    return values.astype(np.uint8 if most < 2**8 else np.uint16 if most < 2**16 else np.uint32)
