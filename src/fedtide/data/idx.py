"""The IDX format, and files that are known by size and SHA-256: read, write, check."""

from __future__ import annotations

import hashlib
import math
import zlib
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide.errors import DataError

Bytes = npt.NDArray[np.uint8]
Raw: TypeAlias = bytes | bytearray

GZIP_MAGIC: Final = b"\x1f\x8b"
_UNSIGNED_BYTE: Final = 0x08  # the type code of IDX; our sets use no other


class IdxFile(NamedTuple):
    """One file of a data set, as it is when not compressed."""

    name: str  # such as train-images-idx3-ubyte
    num_bytes: int
    sha256: str


def gunzip(data: Raw, limit: int) -> bytes:
    """Return what gzip data holds; DataError if it is damaged, cut short, or holds more than limit bytes."""
    stream = zlib.decompressobj(wbits=31)
    try:
        raw = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise DataError(f"damaged gzip data ({error})") from error
    if len(raw) > limit:
        raise DataError(f"gzip data holds more than the {limit} bytes expected")
    if not stream.eof:
        raise DataError(f"truncated gzip data: it ends after {len(raw)} bytes of at most {limit}")
    return raw


def check_file(data: Raw, file: IdxFile) -> Raw:
    """Return the raw bytes of `file` from data, gzipped or not; DataError (the reason only) if they are not its own."""
    raw = gunzip(data, file.num_bytes) if data.startswith(GZIP_MAGIC) else data
    if len(raw) != file.num_bytes:
        what = "truncated: " if len(raw) < file.num_bytes else ""
        raise DataError(f"{what}{len(raw)} bytes, expected {file.num_bytes}")
    digest = hashlib.sha256(raw).hexdigest()
    if digest != file.sha256:
        raise DataError(f"corrupt: SHA-256 {digest}, expected {file.sha256}")
    return raw


def parse_idx(raw: Raw) -> Bytes:
    """Return the array in IDX bytes, of the shape its header gives (a view, no copy)."""
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] != _UNSIGNED_BYTE:
        raise DataError(f"not an IDX file of unsigned bytes: it begins with {raw[:4].hex() or 'nothing'}")
    start = 4 + 4 * raw[3]
    shape = tuple(int.from_bytes(raw[at : at + 4], "big") for at in range(4, start, 4))
    if len(raw) != start + math.prod(shape):
        raise DataError(f"IDX header says {list(shape)}, which needs {start + math.prod(shape)} bytes, not {len(raw)}")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def render(array: Bytes) -> bytes:
    """Return the IDX bytes of an array; the inverse of `parse`."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, _UNSIGNED_BYTE, array.ndim]) + sizes + array.astype(np.uint8, copy=False).tobytes()
