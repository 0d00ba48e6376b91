"""Reading traces: columns of numbers by name out of a CSV or Parquet file, checked where they are read.

Whoever goes on checking names the row at fault with `refused(path, at, ...)`, so that every complaint says where it is.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from fedtide.core.faults import fault_reason
from fedtide.core.files import read_bytes
from fedtide.errors import DataError
from fedtide.types import Floats, Ints, read_only

_MOST_BYTES: Final = 2**30  # of a trace; millions of rows


def read_columns(path: Path, names: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Floats]:
    """Return the columns of these names, each of finite numbers [rows]; those that are optional only if they are there.

    A CSV file has a header with the names, in any order; what else it holds is not looked at. There is one row at least.
    """
    content = trace_bytes(path)
    if path.suffix == ".csv":
        header, values = _csv(path, content, (*names, *optional))
    elif path.suffix == ".parquet":
        header, values = _parquet(path, content, (*names, *optional))
    else:
        raise DataError(f"the trace {path} ends with {path.suffix!r}; name a .csv or .parquet file")
    for name in names:
        if name not in header:
            raise DataError(
                f"the trace {path} has no column {name!r}, only {', '.join(header[:20]) or 'none'}; "
                f"it needs {', '.join(names)}, named in its first line"
            )
    if not len(next(iter(values.values()))):
        raise DataError(f"the trace {path} has no rows; it needs one at least, with {', '.join(names)}")
    for name, column in values.items():
        for at in np.flatnonzero(~np.isfinite(column))[:1]:
            raise refused(path, int(at), f"{name}={column[at]} is no finite number; give one")
    return values


def refused(path: Path, at: int, problem: str) -> DataError:
    """Return the error of a row, counted from 0: where it is in the file, and what is wrong with it and what to do."""
    where = f"line {at + 2}" if path.suffix == ".csv" else f"row {at + 1}"
    return DataError(f"the trace {path}, {where}: {problem}")


def whole(path: Path, name: str, column: Floats, least: int = 0) -> Ints:
    """Return a column as whole numbers >= least [rows], or raise."""
    for at in np.flatnonzero((column != np.floor(column)) | (column < least) | (column > 2**53))[:1]:
        raise refused(path, int(at), f"{name}={column[at]:g} is no whole number >= {least}; number them {least}, ...")
    return column.astype(np.int64)


def numbered(path: Path, device: Floats) -> Ints:
    """Return the devices of the rows as numbers 0, 1, ... without a gap [rows], or raise."""
    found = whole(path, "device", device)
    there = np.unique(found)
    for gap in np.flatnonzero(there != np.arange(len(there)))[:1]:
        raise DataError(
            f"the trace {path} has a device {there[-1]} but no device {gap}; number its devices 0, 1, ... without gaps"
        )
    return found


def trace_bytes(path: Path, most: int = _MOST_BYTES) -> bytes:
    """Return what a trace's file holds, or raise one line that says why it cannot be had."""
    try:
        return read_bytes(path, most)
    except FileNotFoundError as error:
        raise DataError(f"there is no trace {path}; give its path from the working folder, or in full") from error
    except (OSError, ValueError) as error:  # the latter: a null byte in the name
        why = fault_reason(error) if isinstance(error, OSError) else str(error)
        raise DataError(f"the trace {path} cannot be read ({why}); name a file that can") from error


def _csv(path: Path, content: bytes, names: Sequence[str]) -> tuple[list[str], dict[str, Floats]]:
    try:
        rows = list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"the trace {path} is no CSV file of UTF-8 text ({error}); save it as one") from error
    while rows and not rows[-1]:
        rows.pop()
    header = [name.strip() for name in rows[0]] if rows else []
    for name in names:
        if header.count(name) > 1:
            raise DataError(f"the trace {path} has two columns {name!r}; name every column once")
    for at, row in enumerate(rows[1:]):
        if len(row) != len(header):
            raise refused(path, at, f"it has {len(row)} values for {len(header)} columns; give one for each")
    return header, {name: _numbers(path, name, rows[1:], header.index(name)) for name in names if name in header}


def _numbers(path: Path, name: str, rows: list[list[str]], column: int) -> Floats:
    try:
        return np.array([float(row[column]) for row in rows])
    except ValueError:
        for at, row in enumerate(rows):
            try:
                float(row[column])
            except ValueError as error:
                raise refused(path, at, f"{name}={row[column][:40]!r} is no number; give one") from error
        raise


def _parquet(path: Path, content: bytes, names: Sequence[str]) -> tuple[list[str], dict[str, Floats]]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise DataError(
            f"the trace {path}: Parquet needs pyarrow ({error}): pip install 'fedtide[export]', or save it as .csv"
        ) from error
    try:
        table: Any = pq.read_table(pa.BufferReader(content))
    except Exception as error:  # a damaged file can raise nearly anything
        line = " ".join(str(error).split())[:200]
        raise DataError(f"the trace {path} is no Parquet file, or damaged ({line}); write it anew") from error
    header = [str(name) for name in table.column_names]
    values = {}
    for name in names:
        if header.count(name) > 1:
            raise DataError(f"the trace {path} has two columns {name!r}; name every column once")
        if name not in header:
            continue
        kind = table.schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise DataError(f"the trace {path} has {name} of type {kind}; store numbers")
        values[name] = np.asarray(table.column(name).cast(pa.float64(), safe=False).to_numpy(), np.float64)  # null: NaN
    return header, values


# Being there in intervals: the first that is not over, exactly, and at a cost that does not grow with the time.
#
# Every interval is [start, end). Comparing is done with the very numbers that are answered, so that whoever is told when a
# device is back finds it there at that time, however these numbers were rounded.


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
