"""Read plain data out of a pickle without trusting it: mappings, lists, numbers and words, and nothing that can be called.

A pickle can name any function. This reader knows what makes a NumPy number, and replaces it by stand-ins that read its bytes.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Final, NoReturn

import numpy as np

from fedtide.data.pickled import survey
from fedtide.errors import DataError

KINDS: Final = frozenset({"f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"})
REMEDY: Final = "it is not a file of plain data; get it from its source again"


class _Kind:
    """Stands in for numpy.dtype."""

    def __init__(self, kind: object, *_: object) -> None:
        self.kind, self.order = kind.decode("ascii") if isinstance(kind, bytes) else str(kind), "<"
        if self.kind not in KINDS:
            raise DataError(f"it has numbers of type {self.kind!r}: {REMEDY}")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = ">" if state[1] in (">", b">") else "<"


def _number(kind: object, data: object) -> Any:
    """Stand in for what makes a NumPy number of its bytes."""
    if not isinstance(kind, _Kind) or not isinstance(data, bytes | str):
        raise DataError(f"it has a number that is not made of bytes: {REMEDY}")
    content = data if isinstance(data, bytes) else data.encode("latin-1")
    return np.frombuffer(content, np.dtype(kind.order + kind.kind))[0].item()


def _bytes(text: object, *_: object) -> bytes:
    """Stand in for how Python 3 writes bytes for Python 2."""
    if not isinstance(text, str):
        raise DataError(f"it has bytes that are not made of text: {REMEDY}")
    return text.encode("latin-1")


ADMITTED: Final[dict[tuple[str, str], object]] = {
    ("numpy.core.multiarray", "scalar"): _number,
    ("numpy._core.multiarray", "scalar"): _number,
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): _bytes,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            raise DataError(f"it asks for {module}.{name}, which is refused: {REMEDY}")
        return ADMITTED[module, name]

    def persistent_load(self, pid: Any) -> NoReturn:
        raise DataError(f"it asks for an object from outside, which is refused: {REMEDY}")


def read_plain(data: bytes) -> Any:
    """Return what the pickle holds; DataError if it is damaged or asks for anything but numbers.

    What it may hold besides plain data (stand-ins, bytes) is for whoever checks the values to refuse.
    """
    try:
        survey(data, len(data))  # a trace has slots for each of its clients, who may be many; each takes some bytes
        return _Reader(io.BytesIO(data), encoding="latin-1").load()
    except DataError:
        raise
    except Exception as error:  # a damaged pickle can raise nearly anything
        said = " ".join(str(error).split())[:100]
        raise DataError(f"it is no pickle, or a damaged one ({type(error).__name__}: {said}); get it again") from error
