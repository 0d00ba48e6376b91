"""Measured uplinks: 5G drive tests and packet traces. `drive_twin.py` has the drives' statistics, and needs no file.

The files of a folder are dealt to the devices by the seed; each device plays its file from a second of its own on, and from the
beginning again at the end. Rows are looked up as those of `channel=trace` are.
"""

from __future__ import annotations

import functools
import io
import math
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from fedtide import columns
from fedtide.devices.traces import Trace, TraceRows, csv_columns, trace_bytes
from fedtide.errors import DataError
from fedtide.parts.arguments import arg
from fedtide.radio.channel import (
    FileLicense,
    FileSource,
    SymbolRate,
    UnitSeconds,
    rate_as_capacity,
)
from fedtide.types import Floats, Ints, Link, read_only

State: TypeAlias = Literal["any", "static", "driving"]
OffsetDb: TypeAlias = Annotated[float, arg("added to every SNR", unit="dB", ge=-100, le=100)]

_Stamps: TypeAlias = tuple[tuple[str, int, int], ...]  # of files: the same stamps, the same content
_MOST_BYTES: Final = 2**30  # of all files of a folder
_CLOCK_SECONDS: Final = 5.0  # by which a phone's clock may be set back within a drive; more is another drive
_MOST_SNR_DB: Final = 100.0  # more is a slip of units


# Files of one folder, in a fixed order, and which of them a device plays.


def _files(path: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[Path, bytes]]:
    """Yield name and content of every file with one of these endings in a folder or an archive, or of the one file named."""
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.is_file() and _is_data(file.relative_to(path), suffixes):
                yield file, trace_bytes(file, _MOST_BYTES)
    elif path.suffix == ".zip":
        yield from _archived(path, suffixes)
    else:
        yield path, trace_bytes(path, _MOST_BYTES)


def _is_data(inside: Path, suffixes: tuple[str, ...]) -> bool:
    """Say whether a file is one of the set's, rather than one that a file system keeps beside them. inside: from the folder on."""
    return inside.suffix in suffixes and not any(part.startswith((".", "__MACOSX")) for part in inside.parts)


def _archived(path: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[Path, bytes]]:
    content = trace_bytes(path, _MOST_BYTES)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            held = sorted(archive.infolist(), key=lambda each: each.filename)
            held = [each for each in held if not each.is_dir() and _is_data(Path(each.filename), suffixes)]
            if sum(each.file_size for each in held) > _MOST_BYTES:
                raise DataError(
                    f"the archive {path} holds more than {_MOST_BYTES // 2**20} MB; unpack what is needed of it"
                )
            for each in held:
                yield path / each.filename, archive.read(each)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError) as error:
        raise DataError(
            f"the archive {path} cannot be read ({error}); pack it again, or name its folder unpacked"
        ) from error


def _stamps(path: Path) -> _Stamps:
    """Return what tells whether the files at a path have changed."""
    try:
        found = [path, *sorted(path.rglob("*"))] if path.is_dir() else [path]
        return tuple((str(each), each.stat().st_mtime_ns, each.stat().st_size) for each in found)
    except (OSError, ValueError):
        return ()  # whoever reads it says why it cannot be read


def _joined(series: list[TraceRows]) -> TraceRows:
    """Return several series, each with its own rows, as one table."""
    first = np.cumsum([0, *(len(each.time) for each in series)])
    time, value, lasts = (
        np.concatenate([getattr(each, name) for each in series]) for name in ("time", "value", "lasts")
    )
    return TraceRows(read_only(time), read_only(value), read_only(first), read_only(lasts))


def _played(rows: TraceRows, seed: int, device: Ints, seconds: float) -> Floats:
    """Return what each device meets after so many seconds [m].

    The seed shuffles the files and deals them out, over and over; where in its file a device begins is drawn uniformly.
    """
    count = len(rows.lasts)
    order = np.argsort(columns.uniform(seed, "measured files", np.arange(count)), kind="stable")
    series = order[device % count]
    begun = columns.uniform(seed, "measured start", device) * rows.end(series)
    return rows.value[rows.row_at(series, begun + seconds, wrap=True)]


# 5G drive tests, a row a second: SNR, CQI, cell, speed and position as a phone reports them.


_TIMESTAMP = re.compile(r"(\d{4})\.(\d\d)\.(\d\d)_(\d\d)\.(\d\d)\.(\d\d)")


def _number_or_none(text: str) -> float:
    return math.nan if text.strip() in ("-", "") else float(text)


def _seconds(text: str) -> float:
    found = _TIMESTAMP.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    year, month, day, hour, minute, second = map(int, found.groups())
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()


_DRIVE_COLUMNS = ("SNR", "CQI", "CellID", "Speed", "Longitude", "Latitude")
_IRISH_FILE = re.compile(r"B_20(19\.1[12]|20\.0[12])\.\d\d_\d\d\.\d\d\.\d\d\.csv")  # as all of the Irish set are named
_IRISH_SOURCE = (
    "D. Raca, D. Leahy, C. J. Sreenan, J. J. Quinlan: Beyond throughput, the next generation: a 5G dataset with channel and "
    "context metrics. ACM MMSys 2020. https://github.com/uccmisl/5Gdataset"
)


def read_drive_test(path: Path, content: bytes | None = None) -> Trace:
    """Read one drive test: columns time in s from its first row on, and SNR in dB; perhaps CQI, CellID, Speed in km/h, position.

    What a phone did not report (`-`) is NaN. content: what the file holds, if it has been read. Rows that a phone's clock put
    back by at most 5 s are sorted.
    """
    header, column = csv_columns(path, trace_bytes(path) if content is None else content)
    for name in ("Timestamp", "SNR"):
        if name not in header:
            raise DataError(
                f"the drive test {path} has no column {name!r}, only {', '.join(header[:30]) or 'none'}; it needs Timestamp "
                "and SNR, named in its first line"
            )
    time = column("Timestamp", _seconds, "is no time such as 2019.12.16_13.40.04; write it so")
    held = {
        name: column(name, _number_or_none, "is no number; give one, or - for none")
        for name in _DRIVE_COLUMNS
        if name in header
    }
    if not len(time):
        raise DataError(f"the drive test {path} has no rows; it needs one a second")
    trace = Trace(path, {"time": time - time[0], **held}, np.arange(len(time)))
    back = np.maximum.accumulate(trace["time"]) - trace["time"]
    problem = "time goes back by {back:g} s; sort the rows, or make two files of two drives"
    trace.refuse(back > _CLOCK_SECONDS, problem, back=back)
    problem = f"SNR={{SNR:g}} is no SNR in dB; give at most {_MOST_SNR_DB:g}"
    trace.refuse(np.abs(trace["SNR"]) > _MOST_SNR_DB, problem)
    return trace.ordered(np.argsort(trace["time"], kind="stable"))


def drive_snr(trace: Trace, step: float, max_gap: float, refuse: bool = False) -> TraceRows:
    """Return the SNR of a drive test, as a number and not in dB, averaged over steps of so many seconds.

    A value is held until the next one if that comes within max_gap seconds; else there is no link meanwhile (SNR 0), or the
    gap is refused. The rows are one series.
    """
    known = ~np.isnan(trace["SNR"])
    end = (math.floor(trace["time"].max() / step) + 1) * step
    if not known.any():
        return TraceRows(np.zeros(1), np.zeros(1), np.array([0, 1]), np.array([end]))
    at, which = np.unique(np.floor(trace["time"][known] / step), return_inverse=True)
    snr = np.bincount(which, 10 ** (trace["SNR"][known] / 10)) / np.bincount(which)
    time = at * step
    gap = (
        np.diff(time, prepend=-step, append=end) - step
    )  # in which nothing is known: before each row, and after the last
    if refuse:
        for each in np.flatnonzero(gap > max_gap)[:1]:
            raise DataError(
                f"the drive test {trace.path} has no SNR for {gap[each]:g} s from {(time[each - 1] + step) if each else 0:g} s on, "
                f"max_gap={max_gap:g}; raise it, or set gaps: no_link"
            )
    down = gap > max_gap
    begins = np.append(0.0, time + step)[down]  # where the link is lost
    order = np.argsort(np.append(time, begins), kind="stable")
    time, snr = np.append(time, begins)[order], np.append(snr, np.zeros(len(begins)))[order]
    time[0] = 0.0  # what is known first holds before, if that is not long
    return TraceRows(time, snr, np.array([0, len(time)]), np.array([end - time[-1]]))


def drive_tests(path: Path, state: State = "any") -> list[Trace]:
    """Read all drive tests of a folder, an archive or a file; state: those in a folder of this name."""
    files = list(_files(path, (".csv",)))
    if not files:
        raise DataError(f"no .csv file in {path}; name the folder, the .zip or the file of the drive tests")
    above = len(path.parts) - 1  # folders that tell nothing of the state
    held = [each for each in files if state == "any" or state in {part.lower() for part in each[0].parts[above:]}]
    if not held:
        raise DataError(f"no file of {path} lies in a folder named {state!r}; make one, or set state: any")
    return [read_drive_test(file, content) for file, content in held]


class _Drives(NamedTuple):
    rows: TraceRows
    is_irish: bool


@functools.lru_cache(maxsize=8)  # a hundred files, which every run of a study names
def _drives(
    path: Path, state: State, step: float, max_gap: float, refuse: bool, least: float, stamps: _Stamps
) -> _Drives:
    """Return the SNRs of all drive tests that have one for so many seconds at least."""
    traces, kept = drive_tests(path, state), []
    for trace in traces:
        rows = drive_snr(trace, step, max_gap, refuse)
        up = np.diff(rows.time, append=rows.end(np.zeros(1, np.int64)))[rows.value > 0].sum()
        kept += [rows] if up >= least and up > 0 else []
    if not kept:
        raise DataError(f"no drive test of {path} has an SNR for min_seconds={least:g}; name longer ones, or lower it")
    return _Drives(_joined(kept), all(_IRISH_FILE.fullmatch(trace.path.name) for trace in traces))


@dataclass(frozen=True)
class DriveTest:
    """SNR_k(t) = 10^(dB/10) in second s_k + t of a 5G drive test: a file and a start s_k per device, drawn by the seed.

    Format and columns of Raca et al., "Beyond throughput, the next generation: a 5G dataset with channel and context metrics",
    MMSys 2020. A phone reports the downlink's SNR: `offset_db` is what the uplink is better.
    """

    by_time: ClassVar[bool] = True  # not by aggregation

    path: Annotated[Path, arg("a folder of .csv files, a .zip of one, or one file")]
    unit_seconds: UnitSeconds = 1.0
    state: Annotated[State, arg("use only files in folders of this name")] = "any"
    step: Annotated[float, arg("interval over which SNRs are averaged", unit="s", ge=0.1)] = 1.0
    max_gap: Annotated[float, arg("longest time for which an SNR is held", unit="s", ge=0)] = 5.0
    gaps: Annotated[Literal["no_link", "refuse"], arg("longer gaps: SNR 0, or an error")] = "no_link"
    min_seconds: Annotated[float, arg("skip files that have an SNR for a shorter time", unit="s", ge=0)] = 60.0
    offset_db: OffsetDb = 0.0
    source: FileSource = ""
    license: FileLicense = ""
    rows: TraceRows = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        how = (self.step, self.max_gap, self.gaps == "refuse", self.min_seconds)
        rows, is_irish = _drives(self.path, self.state, *how, _stamps(self.path))
        if not self.source and is_irish:
            object.__setattr__(self, "source", _IRISH_SOURCE)
            object.__setattr__(self, "license", self.license or "GPL-3.0")
        scaled = read_only(rows.value * 10 ** (self.offset_db / 10))
        object.__setattr__(self, "rows", rows._replace(value=scaled))

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Floats:
        """Return SNR_k [m]; the tick's number does not matter."""
        return _played(self.rows, seed, device, time * self.unit_seconds)


# Mahimahi: when a packet may be sent, a line each.


_PACKET_BITS: Final = 12_000  # 1500 bytes, for each line of a trace
_LONGEST_MS: Final = 10  # digits of a line: four months
_MAHIMAHI_SUFFIXES: Final = (".trace", ".up", ".down", ".txt", ".log", "")


def packet_rates(path: Path, content: bytes, window: float) -> TraceRows:
    """Return the rate of a packet trace in Mbit/s over windows of so many seconds, as one series.

    A trace is over at its last line, where Mahimahi begins it again.
    """
    lines = content.split()
    for at, line in enumerate(lines):
        if not line.isdigit() or len(line) > _LONGEST_MS:
            shown = line[:40].decode("ascii", "replace")
            raise DataError(f"the trace {path}, line {at + 1}: {shown!r} is not a whole number of ms; write one a line")
    ms = np.array(lines, np.int64)
    if not len(ms) or not ms[-1]:
        raise DataError(f"the trace {path} ends at 0 ms; it needs lines with the ms at which a packet may be sent")
    for at in np.flatnonzero(np.diff(ms) < 0)[:1]:
        raise DataError(
            f"the trace {path}, line {at + 2}: {ms[at + 1]} ms comes after {ms[at]} ms; sort the lines by time"
        )
    end = ms[-1] / 1000
    begins = np.arange(math.ceil(end / window)) * window
    count = np.bincount(np.minimum((ms / 1000 / window).astype(np.int64), len(begins) - 1), minlength=len(begins))
    width = np.diff(begins, append=end)
    return TraceRows(begins, count * _PACKET_BITS / 1e6 / width, np.array([0, len(begins)]), width[-1:])


@functools.lru_cache(maxsize=4)
def _packet_traces(path: Path, window: float, stamps: _Stamps) -> list[TraceRows]:
    found = [packet_rates(file, content, window) for file, content in _files(path, _MAHIMAHI_SUFFIXES)]
    if not found:
        endings = ", ".join(each for each in _MAHIMAHI_SUFFIXES if each)
        raise DataError(f"no packet trace in {path}; name a file, or a folder of files that end with {endings}")
    return found


@dataclass(frozen=True)
class Mahimahi:
    """C_k = 12,000 bits x lines in a window / its symbols, of Mahimahi's packet traces: a line is a ms at which 1500 bytes may go.

    A file and a start per device, drawn by the seed. Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP",
    USENIX ATC 2015.
    """

    by_time: ClassVar[bool] = True  # not by aggregation

    path: Annotated[Path, arg("a file, a folder of .trace, .up, .down, .txt or .log files, or a .zip of one")]
    symbol_rate: SymbolRate = 0.0
    unit_seconds: UnitSeconds = 1.0
    window: Annotated[float, arg("interval over which rates are averaged", unit="s", ge=0.1)] = 1.0
    min_seconds: Annotated[float, arg("skip shorter files", unit="s", ge=0)] = 0.0
    source: FileSource = ""
    license: FileLicense = ""
    rows: TraceRows = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        traces = _packet_traces(self.path, self.window, _stamps(self.path))
        kept = [each for each in traces if each.end(np.zeros(1, np.int64))[0] >= self.min_seconds]
        if not kept:
            raise DataError(
                f"no packet trace of {self.path} lasts min_seconds={self.min_seconds:g}; name longer ones, or lower it"
            )
        joined = _joined(kept)
        capacity = rate_as_capacity(joined.value, self.symbol_rate, self.unit_seconds, "channel=mahimahi")
        object.__setattr__(self, "rows", joined._replace(value=read_only(capacity)))

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Link:
        """Return C_k [m]; the tick's number does not matter."""
        capacity = _played(self.rows, seed, device, time * self.unit_seconds)
        return Link(capacity, capacity)
