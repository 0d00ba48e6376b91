"""Values that are changed at the cost of the change, and stay as they were: a column of numbers and a table.

The newest one holds the numbers; the one before it, what to put back into a copy of them, which is made only if somebody asks,
such as a run that is saved after a step that failed. Whoever keeps none of the earlier ones pays nothing for them. Each change
is written down before it is made: wherever an interruption falls, the earlier one is whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from fedtide.types import Ints

_V = TypeVar("_V")
_FEW = 16  # numbers, which are counted one by one


class VersionedArray:
    """Whole numbers, one for each device [N]."""

    __slots__ = ("_here", "_tally")

    def __init__(self, values: Ints) -> None:
        self._here: Any = np.array(values, np.int64)  # [N]; or (index, values, newer): what to put back where
        self._tally: dict[int, int] | None = None

    def put(self, index: Ints, values: Ints | int) -> VersionedArray:
        """Return the column with other numbers at some places [m], each named once."""
        array = self._array()
        before = array[index]
        newer = VersionedArray.__new__(VersionedArray)
        newer._here, newer._tally = array, self._tally
        self._here, self._tally = (index, before, newer), None
        array[index] = values
        if newer._tally is not None:
            came = {values: len(before)} if isinstance(values, int) else versioned_counts(values)
            _recount(newer._tally, versioned_counts(before), came if len(before) else {})
        return newer

    @property
    def tally(self) -> Mapping[int, int]:
        """How often each number is there; counted once, and from then on with every change."""
        if self._tally is None:
            self._tally = versioned_counts(self._array())
        return self._tally

    def _array(self) -> Ints:
        """Return the numbers; an earlier column makes a copy of its own."""
        undo, here = [], self._here
        while isinstance(here, tuple):
            undo.append(here[:2])
            here = here[2]._here
        found: Ints = here
        if undo:
            found = found.copy()
            for index, values in reversed(undo):
                found[index] = values
            self._here = found
        return found

    def __getitem__(self, index: Any) -> Any:
        """Return some of the numbers, as they are now."""
        found = self._array()[index]
        return found.copy() if isinstance(found, np.ndarray) else found

    def __len__(self) -> int:
        """N."""
        return len(self._array())

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """Return a copy, for NumPy."""
        return np.array(self._array(), dtype)

    def tolist(self) -> list[int]:
        """Return the numbers as a list."""
        found: list[int] = self._array().tolist()
        return found


def versioned_counts(values: Ints) -> dict[int, int]:
    """Return how often each number is there [m]."""
    least = int(values.min()) if len(values) > _FEW else 0
    if len(values) <= _FEW or int(values.max()) - least > 2 * len(values):
        return dict(Counter(values.tolist()))
    number = np.bincount(values - least)
    there = np.flatnonzero(number)
    return dict(zip((there + least).tolist(), number[there].tolist(), strict=True))


def _recount(tally: dict[int, int], gone: Mapping[int, int], came: Mapping[int, int]) -> None:
    for value, number in came.items():
        tally[value] = tally.get(value, 0) + number
    for value, number in gone.items():
        tally[value] -= number
        if not tally[value]:
            del tally[value]


class VersionedDict(Mapping[int, _V], Generic[_V]):
    """Values by number."""

    __slots__ = ("_here",)

    def __init__(self, values: Mapping[int, _V]) -> None:
        self._here: Any = dict(values)  # or (there, absent, newer): what to put back, and what to take out

    def after(self, put: Mapping[int, _V], drop: Iterable[int] = ()) -> VersionedDict[_V]:
        """Return the table with some values put in, and others, that are not among them, left out."""
        table = self._dict()
        drop = [each for each in drop if each in table]
        before = {each: table[each] for each in (*put, *drop) if each in table}
        newer: VersionedDict[_V] = VersionedDict.__new__(VersionedDict)
        newer._here = table
        self._here = (before, [each for each in put if each not in table], newer)
        table.update(put)
        for each in drop:
            del table[each]
        return newer

    def _dict(self) -> dict[int, _V]:
        """Return the values; an earlier table makes a copy of its own."""
        undo, here = [], self._here
        while isinstance(here, tuple):
            undo.append(here[:2])
            here = here[2]._here
        found: dict[int, _V] = here
        if undo:
            found = dict(found)
            for there, absent in reversed(undo):
                for each in absent:
                    found.pop(each, None)
                found |= there
            self._here = found
        return found

    def __getitem__(self, number: int) -> _V:
        """Return one value."""
        return self._dict()[number]

    def __iter__(self) -> Iterator[int]:
        """Go over the numbers."""
        return iter(self._dict())

    def __len__(self) -> int:
        """How many there are."""
        return len(self._dict())


def versioned_array(values: VersionedArray | Ints) -> VersionedArray:
    """Return numbers [N] as a column."""
    return values if isinstance(values, VersionedArray) else VersionedArray(values)


def versioned_dict(values: Mapping[int, _V]) -> VersionedDict[_V]:
    """Return values by number as a table."""
    return values if isinstance(values, VersionedDict) else VersionedDict(values)
