"""Named arrays in one file, as `numpy.savez` writes them to the byte, without a second copy of what is long."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedtide.types import Ints

_NARROW: Final = (np.uint8, np.uint16, np.uint32, np.int64)


def archive(arrays: Mapping[str, Any]) -> memoryview:
    """Return the file. A list of vectors [d] is written as an array of them [v d]."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED, allowZip64=True) as made:
        for name, value in arrays.items():
            with made.open(f"{name}.npy", "w", force_zip64=True) as file:
                if isinstance(value, list):
                    _write_rows(file, value)
                else:
                    np.lib.format.write_array(file, np.asanyarray(value), allow_pickle=False)
    return buffer.getbuffer()


def _write_rows(file: Any, rows: list[npt.NDArray[Any]]) -> None:
    form = {"descr": rows[0].dtype.str, "fortran_order": False, "shape": (len(rows), *rows[0].shape)}
    np.lib.format.write_array_header_1_0(file, form)
    for row in rows:
        if row.dtype != rows[0].dtype or row.shape != rows[0].shape:
            raise ValueError(
                f"a row is {row.dtype}{list(row.shape)}, and the first {rows[0].dtype}{list(rows[0].shape)}"
            )
        file.write(np.ascontiguousarray(row).view(np.uint8).data)


def narrow(values: Ints) -> npt.NDArray[Any]:
    """Return whole numbers of at least 0 in as few bytes as the largest needs [N]."""
    most = int(values.max(initial=0))
    return values.astype(next(kind for kind in _NARROW if most <= np.iinfo(kind).max))


def widened(values: npt.NDArray[Any]) -> Ints:
    """Return what `narrow` was given; raise ValueError if these are no such numbers."""
    if values.dtype not in _NARROW:
        raise ValueError(f"a column is of {values.dtype}")
    return values.astype(np.int64)
