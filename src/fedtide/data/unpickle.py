"""Read arrays and plain data out of a pickle without trusting it: a pickle can name any function, this reader knows five.

Four are NumPy's own (array, dtype, what makes a blank array and a number); the fifth is how Python 3 writes bytes for
Python 2. Each is replaced by a stand-in. The reader carries out the pickle's operations itself: a value that holds others is
never used twice and no key is slow to look up, so what comes out is no larger than the pickle.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedtide.errors import DataError

_KINDS: Final = frozenset({"f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"})  # element types admitted
_ORDERS: Final = frozenset({"<", ">", "|", "="})
_AGAIN: Final = "get the file from its source again"
_LARGEST_KEY: Final = 2**53  # larger whole numbers can be chosen such that looking them up takes for ever
_MOST_TEXT_BYTES: Final = 64  # that a pickle may spell as text: those of one number


def read_pickle(data: bytes | bytearray) -> Any:
    """Return what the pickle holds: arrays, mappings, lists, numbers and words; DataError if it is damaged or asks for more.

    Text of Python 2 is read as Latin-1. Whoever checks the values refuses what else it may hold (bytes, stand-ins).
    """
    try:
        return _loaded(data)
    except DataError:
        raise
    except Exception as error:  # a damaged pickle can raise nearly anything
        said = " ".join(str(error).split())[:100]
        raise DataError(f"damaged pickle, or none ({type(error).__name__}: {said}); {_AGAIN}") from error


def _encoded(value: object) -> bytes:
    """Return bytes, which a pickle of Python 2 has as text."""
    if not isinstance(value, bytes | str):
        raise DataError(f"the pickle has a {type(value).__name__} in the place of bytes; {_AGAIN}")
    return value if isinstance(value, bytes) else value.encode("latin-1")


class _Kind:
    """Stands in for numpy.dtype."""

    def __init__(self, kind: object, *_: object) -> None:
        self.kind, self.order = _encoded(kind).decode("ascii"), "="
        if self.kind not in _KINDS:
            raise DataError(
                f"the pickle has elements of type {self.kind!r}, expected one of {sorted(_KINDS)}; {_AGAIN}"
            )

    def build(self, state: tuple[Any, ...]) -> _Kind:
        self.order = _encoded(state[1]).decode("ascii")
        if self.order not in _ORDERS:
            raise DataError(f"the pickle has elements in the byte order {self.order!r}; {_AGAIN}")
        return self


class _Array:
    """Stands in for numpy.ndarray, until it is built."""

    def __init__(self, *_: object) -> None:
        pass

    def build(self, state: tuple[Any, ...]) -> npt.NDArray[Any]:
        _, shape, kind, fortran, data = state
        return _elements(kind, data).reshape(shape, order="F" if fortran else "C")


def _elements(kind: object, data: object) -> npt.NDArray[Any]:
    if not isinstance(kind, _Kind):
        raise DataError(f"the pickle has an array or a number that is not made of plain bytes; {_AGAIN}")
    return np.frombuffer(_encoded(data), np.dtype(kind.order + kind.kind))


def _number(kind: object, data: object) -> Any:
    """Stand in for what makes a NumPy number of its bytes."""
    return _elements(kind, data)[0].item()


def _bytes(text: object, *_: object) -> bytes:
    """Stand in for how Python 3 writes bytes for Python 2."""
    found = _encoded(text)
    if len(found) > _MOST_TEXT_BYTES:
        raise DataError(f"the pickle spells {len(found)} bytes as text, which is refused: {_AGAIN}")
    return found


_ADMITTED: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    (f"numpy.{core}.multiarray", name): stand_in
    for core in ("core", "_core")
    for name, stand_in in (("_reconstruct", _Array), ("scalar", _number))
} | {("numpy", "ndarray"): _Array, ("numpy", "dtype"): _Kind, ("_codecs", "encode"): _bytes}

# Operations that put their argument on the stack, and those that put something of their own there.
_VALUES: Final = frozenset(
    {"NONE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
    | {"STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"}
    | {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
)
_MAKES: Final[dict[str, Callable[[], Any]]] = {
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
}


def _loaded(data: bytes | bytearray) -> Any:
    """Carry out the operations of a pickle."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    def last(count: int | None = None) -> list[Any]:
        """Take so many values from the stack; None: all since the last mark."""
        start = marks.pop() if count is None else len(stack) - count
        found = stack[start:]
        del stack[start:]
        return found

    argument: Any
    for operation, argument, _ in pickletools.genops(data):
        name = operation.name
        if name in _VALUES:
            stack.append(argument)
        elif name in _MAKES:
            stack.append(_MAKES[name]())
        elif name in ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"):
            memo[len(memo) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            if isinstance(memo[argument], tuple | list | dict):
                raise DataError(f"the pickle uses a {type(memo[argument]).__name__} twice, which is refused: {_AGAIN}")
            stack.append(memo[argument])
        elif name == "MARK":
            marks.append(len(stack))
        elif name in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"):
            stack.append(tuple(last(None if name == "TUPLE" else int(name[-1]))))
        elif name == "LIST":
            stack.append(last())
        elif name == "DICT":
            stack.append(_set({}, last()))
        elif name in ("APPEND", "APPENDS"):
            items = last(1 if name == "APPEND" else None)
            stack[-1].extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = last(2 if name == "SETITEM" else None)
            _set(stack[-1], items)
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            module, attribute = argument.split(" ", 1) if name == "GLOBAL" else last(2)
            if (module, attribute) not in _ADMITTED:
                raise DataError(f"the pickle asks for {module}.{attribute}, which is refused: {_AGAIN}")
            stack.append(_ADMITTED[module, attribute])
        elif name == "REDUCE":
            function, given = last(2)
            stack.append(function(*given))
        elif name == "BUILD":
            stand_in, state = last(2)
            stack.append(stand_in.build(state))
        elif name == "STOP":
            (found,) = stack
            return found
        elif name not in ("PROTO", "FRAME"):
            raise DataError(f"the pickle has the operation {name}, which is refused: {_AGAIN}")
    raise EOFError("it has no end")


def _set(mapping: dict[Any, Any], items: list[Any]) -> dict[Any, Any]:
    """Put keys and values, in turn, into a mapping."""
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, str | bytes) and not (isinstance(key, int) and abs(key) <= _LARGEST_KEY):
            raise DataError(f"the pickle has a {type(key).__name__} as a key, which is refused: {_AGAIN}")
        mapping[key] = value
    return mapping
