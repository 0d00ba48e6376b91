"""Read arrays out of a pickle without trusting it: a pickle can name any function, this reader knows three.

The three are NumPy's own (array, dtype, and the call that makes a blank array), and even they are replaced by stand-ins
that only note what they are given. Nothing is imported and nothing else can be called.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from fedtide.data.idx import Raw
from fedtide.errors import DataError

KINDS: Final = frozenset({"f4", "f8", "i8", "i4", "u1"})  # the element types admitted
ORDERS: Final = frozenset({"<", ">", "|", "="})
MEMO_SLOTS: Final = 200_000  # the wheel's pickle of MNIST uses 14; CIFAR-100's, one for each of its 50,000 file names


def _text(value: object) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else str(value)


class _Kind:
    """Stands in for numpy.dtype."""

    def __init__(self, kind: object, *_: object) -> None:
        self.kind, self.order = _text(kind), "="
        if self.kind not in KINDS:
            raise DataError(f"the pickle has elements of type {self.kind!r}, expected one of {sorted(KINDS)}")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = _text(state[1])
        if self.order not in ORDERS:
            raise DataError(f"the pickle has elements in the byte order {self.order!r}")


class _Array:
    """Stands in for numpy.ndarray: [shape] from the bytes of its state."""

    values: npt.NDArray[Any]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, data = state
        if not isinstance(kind, _Kind) or not isinstance(data, bytes):
            raise DataError("the pickle has an array that is not made of plain bytes")
        flat = np.frombuffer(data, np.dtype(kind.order + kind.kind))
        self.values = flat.reshape(shape, order="F" if fortran else "C")


def _blank(*_: object) -> _Array:
    return _Array()


ADMITTED: Final[dict[tuple[str, str], object]] = {
    ("numpy.core.multiarray", "_reconstruct"): _blank,
    ("numpy._core.multiarray", "_reconstruct"): _blank,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Kind,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            raise DataError(f"the pickle asks for {module}.{name}, which is not an array: refused")
        return ADMITTED[module, name]

    def persistent_load(self, pid: Any) -> NoReturn:
        raise DataError("the pickle asks for an object from outside: refused")


def read_arrays(data: bytes) -> Any:
    """Return what the pickle holds: arrays, in tuples or lists; DataError if it holds or asks for anything else."""
    return _read(data, _plain)


def read_mapping(data: Raw) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays and the lists of whole numbers that a pickled mapping holds, by name; words are left out."""
    found: dict[str, npt.NDArray[Any]] = _read(data, _columns)
    return found


def _read(data: Raw, tidy: Callable[[object], Any]) -> Any:
    try:
        survey(data, MEMO_SLOTS)
        return tidy(_Reader(io.BytesIO(data), encoding="bytes").load())
    except DataError:
        raise
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise DataError(f"damaged pickle ({type(error).__name__}: {error})") from error


def survey(data: Raw, most_slots: int) -> None:
    """Step through the pickle without doing what it says: is every length real, and no memo slot above the most?

    The reader makes room for a memo slot or a string before it looks further, so a few bytes could ask for gigabytes.
    """
    for operation, argument, _ in pickletools.genops(data):
        if operation.name.endswith("PUT") and isinstance(argument, int) and argument > most_slots:
            raise DataError(
                f"the pickle asks for memo slot {argument}, which is refused: get the file from its source again"
            )


def _plain(value: object) -> Any:
    if isinstance(value, tuple | list):
        return tuple(_plain(item) for item in value)
    if isinstance(value, _Array):
        return value.values
    raise DataError(f"the pickle holds a {type(value).__name__}, expected arrays")


def _columns(value: object) -> dict[str, npt.NDArray[Any]]:
    if not isinstance(value, dict):
        raise DataError(f"the pickle holds a {type(value).__name__}, expected a mapping")
    found = {}
    for name, each in value.items():
        if isinstance(each, _Array):
            found[_text(name)] = each.values
        elif isinstance(each, list) and each and all(type(one) is int for one in each):
            found[_text(name)] = np.array(each, np.int64)
    return found
