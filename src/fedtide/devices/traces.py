"""Traces: tables of numbers out of CSV and Parquet files, checked where they are read, and intervals in which devices are there."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fedtide.core.faults import fault_reason
from fedtide.core.files import read_bytes
from fedtide.errors import DataError
from fedtide.types import Floats, Ints

_MOST_BYTES: Final = 2**30  # of a trace; millions of rows


@dataclass(frozen=True)
class Trace:
    """Columns of finite numbers by name. Whoever checks them further names the row at fault with `refuse`."""

    path: Path
    columns: Mapping[str, Floats]  # [rows]
    row: Ints  # of the file, counted from 0 [rows]

    def __getitem__(self, name: str) -> Floats:
        """Return a column [rows]."""
        return self.columns[name]

    def refuse(self, bad: npt.NDArray[np.bool_], problem: str, **more: npt.NDArray[Any]) -> None:
        """Raise if a row is bad. problem: what is wrong and what to do, with the first one's values as in `{time:g}`.

        more: values besides the columns' [rows].
        """
        for at in np.flatnonzero(bad)[:1]:
            values = {name: column[at] for name, column in {**self.columns, **more}.items()}
            raise _row_error(self.path, int(self.row[at]), problem.format(**values))

    def whole(self, name: str, least: int = 0) -> Ints:
        """Return a column as whole numbers >= least [rows]."""
        column = self[name]
        bad = (column != np.floor(column)) | (column < least) | (column > 2**53)
        self.refuse(bad, f"{name}={{{name}:g}} is not a whole number >= {least}; number them {least}, ...")
        return column.astype(np.int64)

    def devices(self, num_devices: int | None = None) -> Ints:
        """Return the devices of the rows: all of 0, 1, ..., up to N if that is known [rows]."""
        device = self.whole("device")
        if num_devices is not None:
            problem = f"device={{device:g}} is not known, fleet.num_devices={num_devices}; leave it out or add devices"
            self.refuse(device >= num_devices, problem)
        there = np.unique(device)
        missing = int(np.argmax(np.append(there, -1) != np.arange(len(there) + 1)))
        if missing < (num_devices or len(there)):
            raise DataError(f"the trace {self.path} has no row of device {missing}; give every device 0, 1, ... one")
        return device

    def ordered(self, order: Ints) -> Trace:
        """Return the rows in this order."""
        return replace(self, columns={name: each[order] for name, each in self.columns.items()}, row=self.row[order])


def _row_error(path: Path, row: int, problem: str) -> DataError:
    where = f"line {row + 2}" if path.suffix == ".csv" else f"row {row + 1}"
    return DataError(f"the trace {path}, {where}: {problem}")


def check_trace_device_count(path: Path, device: Ints, count: int) -> None:
    """Raise if a device is asked for that a trace, which does not wrap, has not."""
    for each in device[device >= count][:1]:
        raise DataError(
            f"the trace {path} has {count} devices and device {each} was asked for; "
            f"lower fleet.num_devices to {count}, or add wrap: true"
        )


def read_trace_columns(path: Path, names: Sequence[str], optional: Sequence[str] = ()) -> Trace:
    """Read the columns of these names, one row at least; those that are optional only if they are there.

    A CSV file has a header with the names, in any order; what else it holds is not looked at.
    """
    content = trace_bytes(path)
    if path.suffix not in _READERS:
        raise DataError(f"the trace {path} ends with {path.suffix!r}; name a .csv or .parquet file")
    header, column = _READERS[path.suffix](path, content)
    for name in names:
        if name not in header:
            raise DataError(
                f"the trace {path} has no column {name!r}, only {', '.join(header[:20]) or 'none'}; "
                f"it needs {', '.join(names)}, named in its first line"
            )
    wanted = [name for name in (*names, *optional) if name in header]
    for name in wanted:
        if header.count(name) > 1:
            raise DataError(f"the trace {path} has two columns {name!r}; name every column once")
    columns = {name: column(name) for name in wanted}
    num_rows = len(columns[names[0]])
    if not num_rows:
        raise DataError(f"the trace {path} has no rows; it needs one at least, with {', '.join(names)}")
    found = Trace(path, columns, np.arange(num_rows))
    for name in wanted:
        found.refuse(~np.isfinite(found[name]), f"{name}={{{name}}} is no finite number; give one")
    return found


def trace_bytes(path: Path, most: int = _MOST_BYTES) -> bytes:
    """Return what a trace's file holds, or raise one line that says why it cannot be had."""
    try:
        return read_bytes(path, most)
    except FileNotFoundError as error:
        raise DataError(f"trace file not found: {path}; give its path from the working folder, or in full") from error
    except (OSError, ValueError) as error:  # the latter: a null byte in the name
        why = fault_reason(error) if isinstance(error, OSError) else str(error)
        raise DataError(f"the trace {path} cannot be read ({why}); name a file that can") from error


class _Column(Protocol):
    """Makes a column of a name in the header. number: what text is as a number; problem: what to say if it is none."""

    def __call__(self, name: str, number: Callable[[str], float] = ..., problem: str = ...) -> Floats: ...


_Table = tuple[list[str], _Column]  # the header, and what makes a column of a name in it


def csv_columns(path: Path, content: bytes) -> _Table:
    """Read a table with a header. path: as errors name it."""
    try:
        rows = list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"the trace {path} is not a CSV file of UTF-8 text ({error}); save it as one") from error
    while rows and not rows[-1]:
        rows.pop()
    header = [name.strip() for name in rows[0]] if rows else []
    for at, row in enumerate(rows[1:]):
        if len(row) != len(header):
            raise _row_error(path, at, f"it has {len(row)} values for {len(header)} columns; give one for each")

    def column(name: str, number: Callable[[str], float] = float, problem: str = "is no number; give one") -> Floats:
        values, place = np.empty(len(rows) - 1), header.index(name)
        for at, row in enumerate(rows[1:]):
            try:
                values[at] = number(row[place])
            except ValueError as error:
                raise _row_error(path, at, f"{name}={row[place][:40]!r} {problem}") from error
        return values

    return header, column


def _parquet(path: Path, content: bytes) -> _Table:
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
        raise DataError(f"the trace {path} is not a Parquet file, or damaged ({line}); write it again") from error

    def column(name: str, number: Callable[[str], float] = float, problem: str = "") -> Floats:
        kind = table.schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise DataError(f"the trace {path} has {name} of type {kind}; store numbers")
        return np.asarray(table.column(name).cast(pa.float64(), safe=False).to_numpy(), np.float64)  # null: NaN

    return [str(name) for name in table.column_names], column


_READERS: Final[dict[str, Callable[[Path, bytes], _Table]]] = {".csv": csv_columns, ".parquet": _parquet}


# Values that hold from a time on.


class TraceRows(NamedTuple):
    """Values that hold from a time on: series after series (a device's, a file's), each in the order of time."""

    time: Floats  # [rows]
    value: Floats  # [rows]
    first: Ints  # where the rows of each series begin, and the number of rows at the end [series + 1]
    lasts: Floats  # how long the last value of each holds [series]

    def end(self, series: Ints) -> Floats:
        """Return until when each of these series is known [m]."""
        return self.time[self.first[series + 1] - 1] + self.lasts[series]

    def row_at(self, series: Ints, time: Floats, wrap: bool) -> Ints:
        """Return the last row of each series that is not after this time [m], by halves. wrap: begin again at the end."""
        low, high = self.first[series], self.first[series + 1]  # the row is at low or after it, and before high
        if wrap:
            period = self.end(series)
            time = np.where(np.isinf(period), 0.0, np.mod(time, period))
        while np.any(high - low > 1):
            middle = (low + high) // 2
            after = self.time[middle] > time
            low, high = np.where(after, low, middle), np.where(after, middle, high)
        return low


# Being there in intervals: the first that is not over, exactly, and at a cost that does not grow with the time.
#
# Every interval is [start, end). Comparing is done with the very numbers that are answered, so that whoever is told when a
# device is back finds it there at that time, however these numbers were rounded.


def _next_there(
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


def repeating_trace(time: Floats, start: Floats, length: Floats, period: Floats) -> Floats:
    """Return when each is next there that is there for so long in every period, first from a start in (-period, period) [m]."""
    number = np.floor((time - start) / period)

    def interval(which: Ints) -> tuple[Floats, Floats]:
        begin = which * period + start
        return begin, begin + length

    return _next_there(time, interval, number - 1, number + 3)


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
        return _next_there(time, interval, low, np.where(again, (cycle + 3) * count, count))
