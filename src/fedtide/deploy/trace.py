"""What happened on the devices, one line of JSON per period: enough to replay it in the simulator.

trace.jsonl is written and synced before the checkpoint of the same period, and cut back to it when a run continues. Every
line ends with its seal, a SHA-256 of the line and of the seal before it: a line that was changed, lost or moved is noticed.
A trace is copied between machines and edited by hand, so nothing in it is taken for granted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import reprlib
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedtide import config
from fedtide.config import Experiment
from fedtide.core import reading
from fedtide.core.files import machine_fault, write_atomically
from fedtide.core.versioned import VersionedArray
from fedtide.deploy.settings import deployment
from fedtide.engine.step import REPORT_BITS, ServerState
from fedtide.engine.system import System
from fedtide.engine.verify_replay import Answered
from fedtide.errors import FedtideError, RunFolderError
from fedtide.runs import RoundRecord, read_run
from fedtide.schedule.schedulers import make_candidates
from fedtide.types import Candidates, Ints, Vector

NAME = "trace.jsonl"
TRACE_FORMAT = 1
_SEAL = re.compile(rb',"seal":"([0-9a-f]{64})"\}\Z')
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


class Period(StrictModel):
    """One aggregation. Columns run over the ready devices [m] or the picked ones [r], ascending. None is not written."""

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
    picked: list[_Device]  # [r]
    symbols: list[_Amount]  # [r]
    bits: list[_Amount]  # granted [r]
    arrived: list[_Device]  # the picked devices whose update was aggregated
    arrived_at: list[_Amount]  # seconds since the beginning
    lost: list[_Device] | None = None  # the picked devices that sent over a link which did not carry it
    forgot: dict[PartWithMemory, list[_Device]] | None = None  # the ready devices whose memory was lost
    refused: list[Refusal]
    model: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]  # SHA-256 of the model after this period
    nodes: dict[str, _Node]  # device number -> node number, as known at the end of the period
    rate: dict[str, _Amount]  # device number -> bit/s seen on its uploads


_PER_READY = ("start", "node", "data", "isa", "ready_at", "learning_rate", "num_samples", "label_counts", "capacity",
              "update_sq_norm", "loss")  # fmt: skip


class Trace(NamedTuple):
    """A whole trace."""

    header: TraceHeader
    periods: list[Period]


def fingerprint(model: Vector) -> str:
    """Return the SHA-256 of a model's bits."""
    return hashlib.sha256(model.astype("<f4").tobytes()).hexdigest()


def explain_record(error: ValidationError) -> str:
    """Say in one short line what is wrong with a record from outside: field, value, reason."""
    found = error.errors(include_url=False)[0]
    field = ".".join(str(part) if str(part).isidentifier() else reprlib.repr(part) for part in found["loc"])
    if found["type"] == "missing":
        return f"it lacks {field}"
    if found["type"] == "extra_forbidden":
        return f"it has {field}, which is no field of it"
    return f"{field} is {reprlib.repr(found['input'])}: {found['msg'][0].lower()}{found['msg'][1:]}"


# -- writing --------------------------------------------------------------------------------------------------------


def write_trace(folder: Path, trace: Trace) -> Writer:
    """Write a whole trace, aside and then renamed; return what adds to it."""
    path, data, seal = folder / NAME, b"", b""
    for record in (trace.header, *trace.periods):
        line, seal = _line(record, seal)
        data += line
    if not path.exists() or path.read_bytes() != data:  # a finished run can lie on a disk that is read only
        write_atomically(path, data)
    return Writer(path, seal, len(data))


@dataclass
class Writer:
    """Adds periods to a trace: a line is there whole or not at all."""

    path: Path
    seal: bytes  # of the last line
    length: int  # bytes of all lines

    def append(self, period: Period) -> None:
        """Add one period and sync it."""
        line, seal = _line(period, self.seal)
        try:
            with open(self.path, "r+b", buffering=0) as file:
                if file.seek(0, os.SEEK_END) != self.length:
                    raise RunFolderError(
                        f"{self.path} was changed by someone else since the last period ({file.tell():,} bytes, not "
                        f"{self.length:,}): restore it and start again"
                    )
                try:
                    left = line
                    while left:
                        left = left[file.write(left) :]
                    os.fsync(file.fileno())
                except OSError:
                    with contextlib.suppress(OSError):  # what is left of the line is dropped when it is read
                        file.truncate(self.length)
                    raise
        except OSError as error:
            fault = machine_fault(self.path, "written", error)
            raise RunFolderError(f"{fault}; everything up to the period before is saved: start again") from error
        self.seal, self.length = seal, self.length + len(line)


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
    """Read a trace, of a finished federation or not; a last line without end does not count.

    Every line is checked: its fields, its seal and its place. Nothing is changed.
    """
    path = folder / NAME
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunFolderError(f"{folder} holds no {NAME}: only a deployment's run folder can be replayed") from error
    except OSError as error:
        raise machine_fault(path, "read", error) from error
    number, seal = 1, b""
    periods: list[Period] = []
    try:
        if not lines:
            raise ValueError("it has no whole line")
        _check_format(path, lines[0])
        tree, seal = _unsealed(lines[0], seal)
        header = TraceHeader.model_validate(tree)
        for number, line in enumerate(lines[1:], 2):
            tree, seal = _unsealed(line, seal)
            period = Period.model_validate(tree)
            _check_period(period, number - 1, header.num_devices)
            if periods and period.wall < periods[-1].wall:
                raise ValueError(f"wall is {period.wall}, before the {periods[-1].wall} of the line before")
            periods.append(period)
    except ValueError as error:  # ValidationError is one, too
        problem = explain_record(error) if isinstance(error, ValidationError) else error
        raise RunFolderError(f"{path} is damaged (line {number}: {problem}); restore it from a copy") from error
    return Trace(header, periods)


def _check_format(path: Path, line: bytes) -> None:
    tree = reading.parse_json(line)
    version = tree.get("format") if isinstance(tree, dict) else None
    if type(version) is not int or version < 1:
        raise ValueError("it is not the first line of a trace, which names its format")
    if version != TRACE_FORMAT:
        raise RunFolderError(
            f"{path} is of format {version}, and this version reads format {TRACE_FORMAT}: use the fedtide that wrote it"
        )


def _unsealed(line: bytes, before: bytes) -> tuple[Any, bytes]:
    """Return what a line says, and its seal; raise if the seal does not fit."""
    found = _SEAL.search(line)
    if found is None:
        raise ValueError("it does not end with its seal")
    body = line[: found.start()] + b"}"
    if _sealed(body, before) != found[1]:
        raise ValueError("it does not fit its seal: it, or a line before it, was changed, lost or moved")
    return reading.parse_json(body), found[1]


def _check_period(period: Period, tick: int, num_devices: int) -> None:
    """Raise ValueError unless the columns of period `tick` fit together, in a federation of N devices."""
    if period.tick != tick:
        raise ValueError(f"tick is {period.tick}; the periods must count 1, 2, ... and this is the {tick}th")
    ready, picked, arrived = period.ready, period.picked, period.arrived
    _check_devices("ready", ready, range(num_devices), f"0 to {num_devices - 1}")
    _check_devices("picked", picked, ready, "ready")
    _check_devices("arrived", arrived, picked, "picked")
    _check_devices("lost", period.lost or (), {*picked} - {*arrived}, "picked without having arrived")
    for kind, devices in (period.forgot or {}).items():
        _check_devices(f"forgot.{kind}", devices, ready, "ready")
    for names, rows in ((_PER_READY, ready), (("symbols", "bits"), picked), (("arrived_at",), arrived)):
        for name in names:
            column = getattr(period, name)
            if column is not None and len(column) != len(rows):
                raise ValueError(f"{name} has {len(column)} entries; it must have {len(rows)}")
    if max(period.start, default=1) > tick:
        raise ValueError(f"start has {max(period.start)}; nobody can train from a version after {tick}")
    if max(period.data, default=0) >= num_devices:
        raise ValueError(f"data has {max(period.data)}; the parts are 0 to {num_devices - 1}")
    for device, counts, total in zip(ready, period.label_counts, period.num_samples, strict=True):
        if len(counts) != len(period.label_counts[0]) or sum(counts) != total:
            raise ValueError(
                f"label_counts of device {device} has {len(counts)} entries and adds up to {sum(counts)}; num_samples is {total}"
            )
    known = {str(device) for device in range(num_devices)}
    for name, keys in (("nodes", period.nodes), ("rate", period.rate)):
        if strange := [key for key in keys if key not in known]:
            raise ValueError(f"{name} has the key {reprlib.repr(strange[0])}; the devices are 0 to {num_devices - 1}")
    if strangers := [refusal.device for refusal in period.refused if refusal.device >= num_devices]:
        raise ValueError(f"refused has device {strangers[0]}; the devices are 0 to {num_devices - 1}")


def _check_devices(name: str, devices: Sequence[int], allowed: Collection[int], where: str) -> None:
    for place, device in enumerate(devices):
        if device not in allowed:
            raise ValueError(f"{name} has device {device}, which is not in {where}")
        if place and device <= devices[place - 1]:
            raise ValueError(f"{name} has {device} after {devices[place - 1]}; devices must ascend")


# -- the run folder as a whole --------------------------------------------------------------------------------------


class History(NamedTuple):
    """What a federation has left behind so far."""

    experiment: Experiment
    rounds: list[RoundRecord]
    trace: Trace
    user_folder: Path | None  # from which its own files were named


def read_history(folder: Path) -> History:
    """Read a federation, finished, stopped or going on; raise if its files do not fit together. Nothing is changed.

    The trace alone, with experiment.yaml beside it, can be read too: then there is nothing more to check it against.
    """
    path = folder / NAME
    if not folder.is_dir():
        raise RunFolderError(f"there is no run folder {folder}; name the folder that a deployment made")
    if not path.exists():
        read_trace(folder)  # says what a folder without a trace is
    # In the reverse order of writing, so that a federation that is going on fits together too.
    kept = read_run(folder)
    header, periods = found = read_trace(folder)
    try:
        deployment(header.deployment)
    except FedtideError as error:
        raise RunFolderError(f"{path} is damaged (line 1: {error}); restore it from a copy") from error
    wanted = config.digest(kept.experiment)
    if header.num_devices != kept.experiment.fleet.num_devices or header.experiment != wanted:
        raise RunFolderError(
            f"{path} is of another run than experiment.yaml beside it, whose digest is {wanted}: restore the one or the other"
        )
    if len(periods) < len(kept.rounds) or (kept.complete and len(periods) != len(kept.rounds)):
        raise RunFolderError(
            f"{path} has {len(periods)} periods and rounds.jsonl {len(kept.rounds)}: lines were lost; restore it from a copy"
        )
    for period, record in zip(periods, kept.rounds, strict=False):
        if problem := _difference(period, record):
            raise RunFolderError(
                f"{path} does not fit rounds.jsonl: in period {period.tick} {problem} differs; restore both from a copy"
            )
    if kept.checkpoint is not None:
        _check_state(path, periods, kept.checkpoint.state)
    return History(kept.experiment, kept.rounds, found, kept.versions.files_folder)


def read_begun(folder: Path, settings: Mapping[str, Any]) -> History | None:
    """Return what a federation with these settings can go on from; None if nothing has happened in this folder yet.

    Raises if the folder is a simulation's, if its files do not fit together, or if they were made with other settings.
    """
    if not (folder / NAME).exists():
        kept = read_run(folder)
        if kept.rounds or kept.complete or kept.num_parameters is not None:
            raise RunFolderError(
                f"{folder} holds a run but no {NAME}: it is a simulation's, or its trace was lost; "
                "choose another folder or restore the trace"
            )
        return None
    history = read_history(folder)
    periods = history.trace.periods
    if periods and history.trace.header.deployment != settings:
        raise RunFolderError(f"{folder} was begun with other deployment settings; restore them or start anew")
    if len(periods) > 1 and not (folder / "checkpoint.npz").exists():
        raise RunFolderError(
            f"{folder} has {len(periods)} periods in {NAME} but no checkpoint.npz to go on from; "
            "restore it or start in a new folder"
        )
    return history


def _difference(period: Period, record: RoundRecord) -> str | None:
    """Name what a period and the round of the same tick do not agree on."""
    place = {device: row for row, device in enumerate(period.ready)}
    picked = [place[device] for device in period.picked]
    silent = {*period.picked} - {*period.arrived, *(period.lost or ())}
    same = {
        "ready": period.ready == record.ready,
        "picked": period.picked == record.picked,
        "start": [period.tick - period.start[row] for row in picked] == record.age,
        "capacity": [period.capacity[row] for row in picked] == record.capacity,
        "symbols": period.symbols == record.symbols,
        "bits": period.bits == record.budget_bits,
        "arrived": not any(
            weight or sent
            for device, weight, sent in zip(record.picked, record.weight, record.sent_bits, strict=True)
            if device in silent
        ),
        "lost": (period.lost or []) == list(record.lost),
    }
    return next((name for name, fits in same.items() if not fits), None)


def _check_state(path: Path, periods: Sequence[Period], state: ServerState) -> None:
    """Raise unless the checkpoint's models are those of the trace, and its uploads those that arrived."""
    models = {period.tick + 1: period.model for period in periods}
    for version, model in state.models.items():
        if version > 1 and models.get(version) != fingerprint(model):
            raise RunFolderError(
                f"{path} does not fit checkpoint.npz: it has another model after period {version - 1}; "
                "restore both from a copy"
            )
    uploads = np.zeros(len(state.uploads), np.int64)
    for period in periods[: state.version - 1]:
        uploads[period.arrived] += 1
    if not np.array_equal(uploads, state.uploads):
        raise RunFolderError(
            f"{path} does not fit checkpoint.npz, which counts other arrivals: restore both from a copy"
        )


def recorded_candidates(
    period: Period, num_devices: int, num_labels: int, uploads: Ints | VersionedArray, reports: bool = True
) -> Candidates:
    """Return what the scheduler saw in a period. uploads: how often each device had been aggregated before [N]."""
    device = np.array(period.ready, np.int64)
    if any(len(row) != num_labels for row in period.label_counts):
        raise RunFolderError(
            f"the trace counts {len(period.label_counts[0])} labels in period {period.tick}, and the data has {num_labels}: "
            "the loader gives other data than the devices had"
        )
    reported = {
        name: np.array(column) for name in REPORT_BITS if reports and (column := getattr(period, name)) is not None
    }
    return make_candidates(
        num_devices,
        period.tick,
        device,
        np.array(period.start, np.int64),
        np.array(period.num_samples, np.int64),
        np.array(period.label_counts, np.int64).reshape(len(device), num_labels),
        np.array(period.capacity, np.float64),
        uploads,
        reported,
    )


def answered(system: System, history: History) -> Iterator[Answered]:
    """Return what the policies of a federation saw and answered so far."""
    uploads = np.zeros(system.fleet.num_devices, np.int64)
    for period, record in zip(history.trace.periods, history.rounds, strict=False):
        rows = recorded_candidates(period, system.fleet.num_devices, system.dataset.num_labels, uploads)
        weight = dict(zip(record.picked, record.weight, strict=True))
        yield Answered(rows, period.picked, period.arrived, [weight[device] for device in period.arrived])
        uploads[period.arrived] += 1
