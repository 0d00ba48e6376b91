"""Being there in intervals: the first that is not over, exactly, and at a cost that does not grow with the time.

Every interval is [start, end). Comparing is done with the very numbers that are answered, so that whoever is told when a
device is back finds it there at that time, however these numbers were rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fedtide.types import Floats, Ints, read_only


def next_there(
    time: Floats, interval: Callable[[Ints], tuple[Floats, Floats]], low: Ints | float, high: Ints | float
) -> Floats:
    """Return the time if it lies in an interval, else when the next begins [m]; infinity if none does.

    interval: numbers [m] -> start and end of the interval of that number in each row, both growing with it [m]. low, high:
    the numbers that are looked through, low <= number < high [m]; by halves.
    """
    low, high = np.broadcast_to(low, time.shape).astype(np.int64), np.broadcast_to(high, time.shape).astype(np.int64)
    first, last = low, high
    while np.any(first < last):
        middle = np.minimum((first + last) // 2, np.maximum(high - 1, low))
        over = (interval(middle)[1] <= time) & (first < last)
        first, last = np.where(over, middle + 1, first), np.where(over | (first >= last), last, middle)
    while True:
        start, end = interval(np.minimum(first, np.maximum(high - 1, low)))
        nothing = (first < high) & (end <= start)  # what is left of it, so far from 0, is nothing
        if not nothing.any():
            return np.where(first < high, np.maximum(time, start), np.inf)
        first = first + nothing


def repeating(time: Floats, start: Floats, length: Floats, period: Floats) -> Floats:
    """Return when each is next there that is there for so long in every period, first from a start in (-period, period) [m]."""
    number = np.floor((time - start) / period)

    def interval(which: Ints) -> tuple[Floats, Floats]:
        begin = which * period + start
        return begin, begin + length

    return next_there(time, interval, number - 1, number + 3)


class Intervals(NamedTuple):
    """When each of some rows is there, over and over or once."""

    start: Floats  # row after row, ascending in each
    end: Floats
    offset: Ints  # where each row begins [rows + 1]
    period: Floats  # after which a row starts again; infinity: it does not [rows]

    def scaled(self, factor: float) -> Intervals:
        """Return the same in other units of time."""
        return Intervals(self.start * factor, self.end * factor, self.offset, self.period * factor)

    def next_there(self, row: Ints, time: Floats) -> Floats:
        """Return when each row is next there, at that time or later [m]."""
        offset, period = self.offset[row], self.period[row]
        count = self.offset[row + 1] - offset
        again = np.isfinite(period)
        length = np.where(again, period, 1.0)
        cycle = np.where(again, np.floor(time / length), 0)

        def interval(which: Ints) -> tuple[Floats, Floats]:
            turn, at = np.divmod(which, count)
            begin = np.where(again, turn * length, 0.0)
            return begin + self.start[offset + at], begin + self.end[offset + at]

        low = np.where(again, np.maximum(cycle - 1, 0) * count, 0)
        return next_there(time, interval, low, np.where(again, (cycle + 3) * count, count))


def make_intervals(start: Sequence[Floats], end: Sequence[Floats], period: Floats) -> Intervals:
    """Put the intervals of several rows together, each ascending."""
    offset = np.concatenate([[0], np.cumsum([len(each) for each in start])]).astype(np.int64)
    return Intervals(
        read_only(np.concatenate(start)), read_only(np.concatenate(end)), read_only(offset), read_only(period)
    )
