"""What happened on the devices, one line of JSON per period: enough to replay it in the simulator.

trace.jsonl is written and synced before the checkpoint of the same period, and cut back to it when a run continues. Every
line ends with its seal, a SHA-256 of the line and of the seal before it: a line that was changed, lost or moved is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedtide import config
from fedtide.config import Experiment
from fedtide.config.values import explain_validation
from fedtide.core.files import file_fault, write_atomically
from fedtide.core.versioned import VersionedArray
from fedtide.engine.preflight import Answered
from fedtide.engine.step import REPORT_BITS, step_links, step_uplink
from fedtide.engine.system import System
from fedtide.errors import RunFolderError
from fedtide.runs import RoundRecord, read_run
from fedtide.types import Candidates, Ints, Link, Tick, Vector

NAME = "trace.jsonl"
_SEAL = re.compile(rb',"seal":"([0-9a-f]{64})"\}\Z')
_NOTABLE = 0.5  # seconds; less is not worth a word
MAX_COUNT = 2**53  # whole numbers stay exact in the scheduler's float64

ShortWord = Annotated[str, Field(pattern=r"^[ -~]{0,32}$")]
PartWithMemory = Literal["codec", "trainer"]  # the parts that may remember something about a device
_Device = Annotated[int, Field(ge=0)]
_Node = Annotated[int, Field(ge=0, le=2**64 - 1)]  # Flower's node numbers
_Amount = Annotated[float, Field(ge=0)]
_Positive = Annotated[float, Field(ge=sys.float_info.min)]


class StrictModel(BaseModel):
    """A record from outside: no value is converted, no field is ignored, every number is finite."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class TraceHeader(StrictModel):
    """The first line: what the bits depend on, apart from the experiment."""

    format: Literal[1] = 1
    num_devices: Annotated[int, Field(ge=1, le=MAX_COUNT)]
    num_symbols: _Positive  # per period
    isa: ShortWord  # the native kernel's instruction path on the server; nodes report theirs
    deployment: dict[str, Any]
    experiment: ShortWord  # digest


class Refusal(StrictModel):
    """A reply that was not believed."""

    device: _Device
    node: _Node
    why: str


class ReadyRows(StrictModel):
    """What a period was planned with. Columns run over the ready devices [m], ascending. None is not written."""

    tick: int
    wall: _Amount  # seconds since the federation began
    ready: list[_Device]  # [m]
    start: list[Annotated[int, Field(ge=1)]]  # version each trained from [m]
    node: list[_Node]  # Flower's node numbers [m]
    data: list[Annotated[int, Field(ge=-1)]]  # which partition each says it holds [m]
    isa: list[ShortWord]  # instruction path each trained with [m]
    ready_at: list[_Amount]  # seconds since the beginning [m]
    learning_rate: list[_Positive]  # as it was told [m]
    num_samples: list[Annotated[int, Field(ge=1, le=MAX_COUNT)]]  # [m]
    label_counts: list[list[Annotated[int, Field(ge=0, le=MAX_COUNT)]]]  # [m c]
    capacity: list[_Amount]  # bit/symbol [m]
    update_sq_norm: list[_Amount] | None = None  # [m]
    loss: list[_Amount] | None = None  # [m]
    forgot: dict[PartWithMemory, list[_Device]] | None = None  # those ready for the first time whose memory was lost


class Timing(StrictModel):
    """How late the server acted, and what it did since the period before, in seconds."""

    late: _Amount  # after the time that was due
    skipped: Annotated[int, Field(ge=0)]  # times that had passed already, and were left out
    uploads: _Amount  # it waited for uploads
    work: _Amount  # it planned, decoded, aggregated, scored
    overslept: _Amount  # it woke up too late: this machine is busy
    disk: _Amount  # saving the period before took, while it went on
    unsaved: Annotated[int, Field(ge=0)]  # periods that still wait for the disk
    silent: _Amount  # since the SuperLink was last asked something that it has not answered yet

    @property
    def why(self) -> str:
        """What made it late, and what it found out there."""
        spent = {"uploads": self.uploads, "own work": self.work, "busy machine": self.overslept}
        cause = "busy machine" if 2 * self.overslept > self.late else max(spent, key=spent.__getitem__)
        found = [f"{cause} {spent[cause]:.1f} s"] if self.late >= _NOTABLE else []
        found += [f"SuperLink silent for {self.silent:.0f} s"] if self.silent >= _NOTABLE else []
        found += [f"{self.unsaved} periods wait for the disk"] if self.unsaved > 1 else []
        return ", ".join(found)

    def __str__(self) -> str:
        """Say it in a few words."""
        skipped = f" after {self.skipped} skipped" if self.skipped else ""
        return f"{self.late:.1f} s late{skipped}" + (f" ({self.why})" if self.why else "")


class Period(ReadyRows):
    """One aggregation. Columns run over the picked devices [r], ascending."""

    picked: list[_Device]  # [r]
    symbols: list[_Amount]  # [r]
    bits: list[_Amount]  # granted [r]
    arrived: list[_Device]  # the picked devices whose update was aggregated
    arrived_at: list[_Amount]  # seconds since the beginning
    lost: list[_Device] | None = None  # the picked devices that sent over a link which did not carry it
    refused: list[Refusal]
    model: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]  # SHA-256 of the model after this period
    nodes: dict[str, _Node]  # device number -> node number, as known at the end of the period
    rate: dict[str, _Amount]  # device number -> bit/s seen on its uploads
    timing: Timing | None = None
    # device number -> samples of each label by its node's first report, of nodes that are new since the period before
    enrolled: dict[str, list[Annotated[int, Field(ge=0, le=MAX_COUNT)]]] | None = None
    banned: list[_Node] | None = None  # nodes that are ignored since the period before
    # where the server acts as it sees fit:
    done: _Amount | None = None  # when the new model was there, in seconds since the beginning
    receivers: Annotated[int, Field(ge=0)] | None = None  # models that were handed out since the period before

    @model_validator(mode="after")
    def _fits_together(self) -> Period:
        """Raise unless columns are as long as their devices are many, and these ascend and are among those before them."""
        ready, picked, arrived = self.ready, self.picked, self.arrived
        columns = {name: ready for name in ReadyRows.model_fields if isinstance(getattr(self, name), list)}
        for name, devices in (columns | {"symbols": picked, "bits": picked, "arrived_at": arrived}).items():
            if len(getattr(self, name)) != len(devices):
                raise ValueError(f"{name} has {len(getattr(self, name))} entries for {len(devices)} devices")
        for name, devices in (("ready", ready), ("picked", picked), ("arrived", arrived), ("lost", self.lost or [])):
            if devices != sorted({*devices} & {*(ready if name in ("ready", "picked") else picked)}):
                raise ValueError(f"{name} has devices that do not ascend, or were not there to be it")
        if max(self.start, default=1) > self.tick:
            raise ValueError(f"start has version {max(self.start)}, and the newest is {self.tick}")
        if self.done is not None and self.done < self.wall:
            raise ValueError(f"done is {self.done:g}, and the server acted at {self.wall:g}")
        return self


class Trace(NamedTuple):
    """A whole trace."""

    header: TraceHeader
    periods: list[Period]


def trace_fingerprint(model: Vector) -> str:
    """Return the SHA-256 of a model's bits."""
    return hashlib.sha256(model.astype("<f4").tobytes()).hexdigest()


# -- writing --------------------------------------------------------------------------------------------------------


def write_trace(folder: Path, trace: Trace) -> Writer:
    """Write a whole trace, aside and then renamed; return what adds to it."""
    path, lines, seal = folder / NAME, list[bytes](), b""
    for record in (trace.header, *trace.periods):
        line, seal = _line(record, seal)
        lines.append(line)
    data = b"".join(lines)
    if not path.exists() or path.read_bytes() != data:  # a finished run can lie on a disk that is read only
        write_atomically(path, data)
    return Writer(path, seal, len(data), len(trace.periods))


@dataclass
class Writer:
    """Adds periods to a trace. Half a line, which a kill or a full disk may leave, does not count when it is read."""

    path: Path
    seal: bytes  # of the last line
    length: int  # in bytes
    count: int  # of periods

    def append(self, period: Period) -> None:
        """Add one period and sync it; after an error it can be added again, and one that is there already stays."""
        if period.tick <= self.count:
            return
        line, seal = _line(period, self.seal)
        try:
            with open(self.path, "ab") as file:
                file.truncate(self.length)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            self.seal, self.length, self.count = seal, self.length + len(line), period.tick
        except OSError as error:
            fault = file_fault(self.path, "written", error)
            raise RunFolderError(f"{fault}; everything up to the period before is saved: start again") from error


def _line(record: BaseModel, before: bytes) -> tuple[bytes, bytes]:
    """Return a line of the trace and its seal, given the seal of the line before."""
    tree = record.model_dump(exclude_none=True, warnings=False)
    body = json.dumps(tree, separators=(",", ":"), allow_nan=False).encode()
    seal = _sealed(body, before)
    return body[:-1] + b',"seal":"' + seal + b'"}\n', seal


def _sealed(body: bytes, before: bytes) -> bytes:
    return hashlib.sha256(before + b"\n" + body).hexdigest().encode()


# -- reading --------------------------------------------------------------------------------------------------------


def read_trace(folder: Path) -> Trace:
    """Read a trace, of a finished federation or not; check the seal and the fields of every line. Nothing is changed.

    A last line without end does not count.
    """
    path = folder / NAME
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunFolderError(f"{folder} holds no {NAME}: name the run folder that a deployment made") from error
    except OSError as error:
        raise file_fault(path, "read", error) from error
    seal, records = b"", list[Any]()
    for number, line in enumerate(lines or [b""], 1):
        kind: type[StrictModel] = Period if records else TraceHeader
        try:
            body, seal = _unsealed(line, seal)
            records.append(kind.model_validate_json(body))
            _check_place(records)
        except ValueError as error:  # ValidationError is one, too
            fields = kind.model_fields
            problem = explain_validation(error, fields, "field") if isinstance(error, ValidationError) else error
            raise RunFolderError(
                f"{path} is damaged or of another version (line {number}: {problem}); restore it from a copy"
            ) from error
    return Trace(records[0], records[1:])


def last_timing(folder: Path) -> Timing | None:
    """Return how late the server last acted, of a federation that is going on; None if that is not known."""
    try:
        line = (folder / NAME).read_bytes().split(b"\n")[-2]
        return Timing.model_validate(json.loads(line)["timing"])
    except (OSError, IndexError, KeyError, ValueError):
        return None


def _check_place(records: list[Any]) -> None:
    """Raise ValueError if the last line does not continue those before it."""
    header, last = records[0], records[-1]
    if last is header:
        return
    if last.tick != len(records) - 1:
        raise ValueError(f"tick is {last.tick}, and this is period {len(records) - 1}")
    others = [*last.ready, *(refusal.device for refusal in last.refused), *map(int, last.nodes), *map(int, last.rate)]
    if max(others, default=0) >= header.num_devices or max(last.data, default=0) >= header.num_devices:
        raise ValueError(f"it names a device or a part of the data beyond the {header.num_devices} there are")


def _unsealed(line: bytes, before: bytes) -> tuple[bytes, bytes]:
    """Return what a line says, as JSON, and its seal; raise if the seal does not fit."""
    found = _SEAL.search(line)
    if found is None:
        raise ValueError("it does not end with its seal")
    body = line[: found.start()] + b"}"
    if _sealed(body, before) != found[1]:
        raise ValueError("it does not fit its seal: it, or a line before it, was changed, lost or moved")
    return body, found[1]


# -- the run folder as a whole --------------------------------------------------------------------------------------


class History(NamedTuple):
    """What a federation has left behind so far."""

    experiment: Experiment
    rounds: list[RoundRecord]
    trace: Trace
    user_folder: Path | None  # from which its own files were named


def read_trace_history(folder: Path) -> History:
    """Read a federation, finished, stopped or going on; raise if its files are not of one run. Nothing is changed.

    The trace alone, with experiment.yaml beside it, can be read too: then there is nothing more to check it against.
    """
    path = folder / NAME
    if not path.exists():
        read_trace(folder)  # says what a folder without a trace is
    # In the reverse order of writing, so that a federation that is going on fits together too.
    kept = read_run(folder)
    header, periods = found = read_trace(folder)
    wanted = config.digest(kept.experiment)
    if header.experiment != wanted or header.num_devices != kept.experiment.fleet.num_devices:
        raise RunFolderError(
            f"{path} is of another run than experiment.yaml beside it, whose digest is {wanted}: restore the one or the other"
        )
    count = len(kept.rounds)
    if len(periods) < count or (kept.complete and len(periods) != count):
        raise RunFolderError(
            f"{path} has {len(periods)} periods and rounds.jsonl {count}: lines were lost; restore it from a copy"
        )
    if count and kept.checkpoint is not None and trace_fingerprint(kept.checkpoint.model) != periods[count - 1].model:
        raise RunFolderError(
            f"{path} is of another run than checkpoint.npz beside it, which has another model after period {count}: "
            "restore both from a copy"
        )
    return History(kept.experiment, kept.rounds, found, kept.versions.files_folder)


def traced_tick(rows: ReadyRows, system: System) -> Tick:
    """Return a period as a tick: at the time that was planned or, where the server acts as it sees fit, at which it acted."""
    time = system.ticks[rows.tick - 1].time if system.world is None else rows.wall
    return Tick(rows.tick, time, np.array(rows.ready, np.int64), np.array(rows.start, np.int64))


def traced_links(rows: ReadyRows, system: System, capacity: str) -> Link | None:
    """Return the links of a period if they were simulated [m], by the deployment's setting of this name, else None."""
    return step_links(system, traced_tick(rows, system)) if capacity == "simulated" else None


def traced_candidates(
    rows: ReadyRows, system: System, uploads: Ints | VersionedArray, link: Link | None, reports: bool = True
) -> Candidates:
    """Return what the scheduler sees in a period. uploads: how often each device was aggregated before [N].

    link: if it was simulated [m]. reports: with the update norms and losses on record.
    """
    device, num_labels = np.array(rows.ready, np.int64), system.dataset.num_labels
    if any(len(counts) != num_labels for counts in rows.label_counts):
        raise RunFolderError(
            f"the trace counts {len(rows.label_counts[0])} labels in period {rows.tick}, and the data has {num_labels}: "
            "the loader gives other data than the devices had"
        )
    columns: dict[str, Any] = {name: getattr(rows, name) for name in REPORT_BITS if reports}
    columns = {name: np.array(column, np.float64) for name, column in columns.items() if column is not None}
    return Candidates(
        num_devices=system.fleet.num_devices,
        device=device,
        num_samples=np.array(rows.num_samples, np.int64),
        label_counts=np.array(rows.label_counts, np.int64).reshape(len(device), num_labels),
        age=rows.tick - np.array(rows.start, np.int64),
        missed=rows.tick - uploads[device],
        capacity=np.array(rows.capacity, np.float64),
        tick=rows.tick,
        time=traced_tick(rows, system).time,
        uplink=None if link is None else step_uplink(system, link),
        **columns,
    )


def traced_answers(system: System, history: History) -> Iterator[Answered]:
    """Return what the policies of a federation saw and answered so far."""
    uploads = np.zeros(system.fleet.num_devices, np.int64)
    capacity = history.trace.header.deployment.get("capacity", "")
    for period, record in zip(history.trace.periods, history.rounds, strict=False):
        rows = traced_candidates(period, system, uploads, traced_links(period, system, capacity))
        weight = dict(zip(record.picked, record.weight, strict=True))
        yield Answered(rows, period.picked, period.arrived, [weight[device] for device in period.arrived])
        uploads[period.arrived] += 1
