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

from fedtide.core.faults import fault_text
from fedtide.errors import DataError

_ELEMENTS: Final = frozenset({"f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"})  # types admitted
_LARGEST_KEY: Final = 2**53  # larger whole numbers can be chosen such that looking them up takes for ever
_MOST_TEXT_BYTES: Final = 64  # that a pickle may spell as text: those of one number


def read_pickle(data: bytes | bytearray) -> Any:
    """Return what the pickle holds: arrays, mappings, lists, numbers and words; DataError if it is damaged or asks for more.

    Text of Python 2 is read as Latin-1. Whoever checks the values refuses what else it may hold (bytes, stand-ins).
    """
    again = "get the file from its source again"
    try:
        return _loaded(data)
    except DataError as error:
        raise DataError(f"the pickle {error}, which is refused: {again}") from error
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise DataError(f"damaged pickle, or not a pickle ({fault_text(error)[:100]}); {again}") from error


# Stand-ins. Text of Python 2 stands for bytes.


def _dtype(kind: str | bytes, *_: object) -> np.dtype[Any]:
    name = kind.decode() if isinstance(kind, bytes) else kind
    if name not in _ELEMENTS:
        raise DataError(f"has elements of type {name!r}")
    return np.dtype(name)


def _blank(*_: object) -> None:
    """Stand in for an array, until it is built."""


def _elements(dtype: np.dtype[Any], data: bytes | str) -> npt.NDArray[Any]:
    if not isinstance(dtype, np.dtype):
        raise DataError("has an array or a number that is not made of plain bytes")
    return np.frombuffer(data.encode("latin-1") if isinstance(data, str) else data, dtype)


def _built(stand_in: np.dtype[Any] | None, state: tuple[Any, ...]) -> Any:
    """Return a dtype in its byte order, or an array of its elements."""
    if stand_in is not None:
        order: Any = state[1].decode() if isinstance(state[1], bytes) else state[1]
        return stand_in.newbyteorder(order)
    _, shape, dtype, fortran, data = state
    return _elements(dtype, data).reshape(shape, order="F" if fortran else "C")


def _number(dtype: np.dtype[Any], data: bytes | str) -> Any:
    return _elements(dtype, data)[0].item()


def _encoded(text: str, *_: object) -> bytes:
    if len(text) > _MOST_TEXT_BYTES:
        raise DataError(f"spells {len(text)} bytes as text")
    return text.encode("latin-1")


_ADMITTED: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    (f"numpy.{core}.multiarray", name): stand_in
    for core in ("core", "_core")
    for name, stand_in in (("_reconstruct", _blank), ("scalar", _number))
} | {("numpy", "ndarray"): _blank, ("numpy", "dtype"): _dtype, ("_codecs", "encode"): _encoded}

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
        match operation.name:
            case name if name in _VALUES:
                stack.append(argument)
            case name if name in _MAKES:
                stack.append(_MAKES[name]())
            case "MEMOIZE" | "PUT" | "BINPUT" | "LONG_BINPUT":
                memo[len(memo) if argument is None else argument] = stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                if isinstance(memo[argument], tuple | list | dict):
                    raise DataError(f"uses a {type(memo[argument]).__name__} twice")
                stack.append(memo[argument])
            case "MARK":
                marks.append(len(stack))
            case "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3" as name:
                stack.append(tuple(last(None if name == "TUPLE" else int(name[-1]))))
            case "LIST":
                stack.append(last())
            case "DICT":
                stack.append(_mapping(last()))
            case "APPEND" | "APPENDS" as name:
                items = last(1 if name == "APPEND" else None)
                stack[-1].extend(items)
            case "SETITEM" | "SETITEMS" as name:
                items = last(2 if name == "SETITEM" else None)
                stack[-1].update(_mapping(items))
            case "GLOBAL" | "STACK_GLOBAL" as name:
                module, attribute = argument.split(" ", 1) if name == "GLOBAL" else last(2)
                if (module, attribute) not in _ADMITTED:
                    raise DataError(f"asks for {module}.{attribute}")
                stack.append(_ADMITTED[module, attribute])
            case "REDUCE":
                function, given = last(2)
                stack.append(function(*given))
            case "BUILD":
                stack.append(_built(*last(2)))
            case "STOP":
                (found,) = stack
                return found
            case name if name not in ("PROTO", "FRAME"):
                raise DataError(f"has the operation {name}")
    raise EOFError("it has no end")


def _mapping(items: list[Any]) -> dict[Any, Any]:
    """Return the mapping of keys and values, which come in turn."""
    for key in items[::2]:
        if not isinstance(key, str | bytes) and not (isinstance(key, int) and abs(key) <= _LARGEST_KEY):
            raise DataError(f"has a {type(key).__name__} as a key")
    return dict(zip(items[::2], items[1::2], strict=True))
