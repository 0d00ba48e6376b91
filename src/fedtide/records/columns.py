"""Columns as text: numbers, one per device, in a fraction of what a JSON list of them takes, and exact.

A packed column is `<i8:`, `<f8:` or `<f4:` (NumPy's names for its numbers) and base64 of zlib of its bytes. Whole numbers are
written as their differences, so that ascending devices are small ones; bytes of one significance lie together in a plane,
so that zlib finds them alike.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

SHORT: Final = 256  # entries; up to here a JSON list is as good, and can be read
MOST: Final = 2**24  # entries of a column; nobody has more devices
LEVEL: Final = 6  # of zlib: the same bytes every time
_KINDS: Final[dict[str, np.dtype[Any]]] = {"<i8": np.dtype("<i8"), "<f8": np.dtype("<f8"), "<f4": np.dtype("<f4")}
_PACKED = re.compile(r"(<[if][48]):([A-Za-z0-9+/=]*)")
_EXACT: Final = 2**63  # whole numbers below it fit


def written(values: Sequence[Any]) -> Sequence[Any] | str:
    """Return a list as a record has it: packed if it is long and of one kind of number, else as it is."""
    if len(values) <= SHORT:
        return values
    kinds = set(map(type, values))
    if kinds == {float}:
        return pack(np.array(values, np.float64))
    if kinds == {int} and min(values) >= -_EXACT and max(values) < _EXACT:
        return pack(np.array(values, np.int64))
    return values


def read(value: Any, most: int = MOST) -> list[Any]:
    """Return the list that `written` was given; raise ValueError if it is none, or longer than `most`."""
    found: list[Any] = value if isinstance(value, list) else unpack(value, most).tolist()
    if len(found) > most:
        raise ValueError(f"a column has {len(found):,} entries, and {most:,} are the most")
    return found


def pack(values: npt.NDArray[Any]) -> str:
    """Return a column [m] of int64, float64 or float32 as text."""
    kind = values.dtype.newbyteorder("<").str
    if kind not in _KINDS or values.ndim != 1:
        raise ValueError(f"a column is of int64, float64 or float32 [m], not {values.dtype}{list(values.shape)}")
    numbers = _differences(values) if kind == "<i8" else values
    table = numbers.astype(kind).view(np.uint8).reshape(len(values), _KINDS[kind].itemsize)  # [m bytes]
    # Z_RLE: runs of one byte are all that the planes repeat, and looking for more makes them longer.
    zipper = zlib.compressobj(LEVEL, strategy=zlib.Z_RLE)
    content = zipper.compress(table.T.tobytes()) + zipper.flush()
    return f"{kind}:{base64.b64encode(content).decode()}"


def unpack(text: Any, most: int = MOST) -> npt.NDArray[Any]:
    """Return a packed column [m]; raise ValueError if it is none, or longer than `most`: a bomb is not unpacked."""
    found = _PACKED.fullmatch(text) if isinstance(text, str) else None
    if found is None or found[1] not in _KINDS:
        raise ValueError("a column is neither a list of numbers nor a packed one")
    dtype = _KINDS[found[1]]
    unzip = zlib.decompressobj()
    try:
        content = unzip.decompress(base64.b64decode(found[2], validate=True), most * dtype.itemsize + 1)
    except (zlib.error, binascii.Error) as error:
        raise ValueError(f"a packed column is broken: {error}") from None
    if len(content) > most * dtype.itemsize:
        raise ValueError(f"a packed column has more than {most:,} entries")
    if not unzip.eof or unzip.unused_data or len(content) % dtype.itemsize:
        raise ValueError("a packed column is broken: it ends too early or too late")
    table = np.frombuffer(content, np.uint8).reshape(dtype.itemsize, -1)
    numbers = np.ascontiguousarray(table.T).reshape(-1).view(dtype)
    return _sums(numbers) if dtype.kind == "i" else numbers.astype(dtype.newbyteorder("="))


def _differences(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return each number less the one before, modulo 2^64, the sign in the lowest bit: 0, -1, 1, -2 become 0, 1, 2, 3."""
    steps = np.diff(values, prepend=np.int64(0))
    return np.asarray((steps << 1) ^ (steps >> 63))


def _sums(steps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Undo `_differences`."""
    unsigned = steps.astype(np.uint64)
    return np.cumsum((unsigned >> np.uint64(1)) ^ -(unsigned & np.uint64(1)), dtype=np.uint64).view(np.int64)
