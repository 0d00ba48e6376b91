"""A checkpoint's arrays: models, and what parts remember."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError
from fedtide.types import Ints, Memory

# Named arrays in one file, as `numpy.savez` writes them to the byte, without a second copy of what is long.


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


# What parts remember, as arrays of a checkpoint and back.
#
# memory/KIND/NAME          an array of a part at the server devices/KIND              the devices of which a part keeps
# something, ascending [k] devices/KIND/NAME         an array of each of them [k ...] devices/KIND/NAME/DEVICE  one
# device's, where not all of them have one of the same shape and type


# As a name of a file in an archive: NumPy adds .npy, and takes a name that has it for another one.
_NAME: Final = re.compile(r"(?!.*\.npy$)[A-Za-z0-9_][A-Za-z0-9_.-]*")
_LONGEST: Final = 100


def to_arrays(memory: Mapping[str, Memory], devices: Mapping[str, Mapping[int, Memory]]) -> dict[str, npt.NDArray[Any]]:
    """Return what the parts of each kind remember, of the server and of each device, as flat named arrays.

    The same arrays for the same memory, in whatever order it was filled; none for none, so that a kind whose memory is empty
    is not there when it is read.
    """
    found: dict[str, npt.NDArray[Any]] = {}
    for kind, arrays in sorted(memory.items()):
        for name, array in sorted(arrays.items()):
            found[f"memory/{kind}/{name}"] = _plain(kind, name, array)
    for kind, rows in sorted(devices.items()):
        if rows:
            found |= _table(kind, rows)
    return found


def from_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[dict[str, Memory], dict[str, dict[int, Memory]]]:
    """Return the memory and the devices' that `to_arrays` was given; other arrays are passed over.

    Raise ValueError if they do not belong together.
    """
    memory: dict[str, Memory] = {}
    devices: dict[str, dict[int, Memory]] = {}
    places = sorted((place, place.split("/")) for place in arrays)  # the devices of a kind before their arrays
    for place, words in places:
        match words:
            case ["memory", kind, name]:
                memory.setdefault(kind, {})[name] = arrays[place]
            case ["devices", kind]:
                devices[kind] = {device: {} for device in _numbers(place, arrays[place])}
            case ["devices", kind, name]:
                rows, table = _rows(devices, kind, place), arrays[place]
                if table.ndim < 1 or len(table) != len(rows):
                    raise ValueError(f"{place} is not of {len(rows)} devices")
                for own, row in zip(rows.values(), table, strict=True):
                    own[name] = np.array(row)  # its own, so that the table goes with the last of them
            case ["devices", kind, name, device]:
                rows = _rows(devices, kind, place)
                if not device.isdecimal() or int(device) not in rows:
                    raise ValueError(f"{place} is of no device that devices/{kind} names")
                rows[int(device)][name] = arrays[place]
    return memory, devices


def _table(kind: str, rows: Mapping[int, Memory]) -> dict[str, npt.NDArray[Any]]:
    numbers = sorted(rows)
    found = {f"devices/{kind}": np.array(numbers, np.int64)}
    for name in sorted({name for own in rows.values() for name in own}):
        column = {device: _plain(kind, name, rows[device][name]) for device in numbers if name in rows[device]}
        forms = {(each.shape, each.dtype) for each in column.values()}
        if len(forms) == 1 and len(column) == len(numbers):
            found[f"devices/{kind}/{name}"] = np.stack(list(column.values()))
        else:
            found |= {f"devices/{kind}/{name}/{device}": each for device, each in column.items()}
    return found


def _plain(kind: str, name: Any, array: Any) -> npt.NDArray[Any]:
    """Return an array that a file can hold; raise if it cannot."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise FedtideError(
            f"the {kind}'s memory has the name {shown(name)}: use letters, digits, _, - and . ({_LONGEST} at most, not "
            "beginning with a dot or ending with .npy)"
        )
    if not isinstance(array, np.ndarray) or array.dtype.hasobject:
        what = f"an array of {array.dtype}" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"
        raise FedtideError(
            f"the {kind}'s memory {name!r} is {what}: keep NumPy arrays of numbers, which a checkpoint can hold"
        )
    return array


def _numbers(place: str, numbers: Ints) -> list[int]:
    if numbers.dtype != np.int64 or numbers.ndim != 1 or (numbers < 0).any() or (np.diff(numbers) <= 0).any():
        raise ValueError(f"{place} does not hold ascending devices")
    found: list[int] = numbers.tolist()
    return found


def _rows(devices: Mapping[str, dict[int, Memory]], kind: str, place: str) -> dict[int, Memory]:
    if kind not in devices:
        raise ValueError(f"{place} is there without devices/{kind}")
    return devices[kind]
