"""What happened on the devices, one line of JSON per period: enough to play it again in the simulator.

trace.jsonl is written and synced before the checkpoint of the same period, and cut back to it when a run continues. Every
line ends with its seal, a SHA-256 of the line and of the seal before it: a line that was changed, lost or moved is noticed.
Traces of format 1 have no seals and are still read, and continued as they are.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fedtide.errors import RunFolderError
from fedtide.flower import form
from fedtide.records import machine_fault, write_atomically
from fedtide.types import Vector

NAME = "trace.jsonl"
FORMAT = 2
REMEMBERING = ("codec", "trainer")  # the parts that may remember something of a device
OPTIONAL = ("loss", "lost", "forgot")  # columns that came later
UNSEALED = 1  # the format that had no seals
_SEAL = re.compile(rb',"seal":"([0-9a-f]{64})"\}\Z')


class Header(NamedTuple):
    """The first line: what the bits depend on besides the experiment."""

    format: int
    num_devices: int
    num_symbols: float  # per period
    isa: str  # the native kernel's instruction path on the server; nodes report theirs
    deployment: dict[str, Any]
    experiment: str | None = None  # digest; None in traces of format 1


class Refusal(NamedTuple):
    """A reply that was not believed."""

    device: int
    node: int
    why: str


class Period(NamedTuple):
    """One aggregation. Columns run over the ready devices [m], or over the picked ones [r], ascending."""

    tick: int
    wall: float  # seconds since the federation began
    ready: list[int]  # [m]
    start: list[int]  # version each trained from [m]
    node: list[int]  # Flower's node numbers [m]
    data: list[int]  # which partition each says it holds [m]
    isa: list[str]  # instruction path each trained with [m]
    ready_at: list[float]  # seconds since the beginning [m]
    learning_rate: list[float]  # as it was told [m]
    num_samples: list[int]  # [m]
    label_counts: list[list[int]]  # [m c]
    capacity: list[float]  # bit/symbol [m]
    update_sq_norm: list[float] | None  # [m]
    picked: list[int]  # device numbers [r]
    symbols: list[float]  # [r]
    bits: list[float]  # granted [r]
    arrived: list[int]  # the picked devices whose update was aggregated
    arrived_at: list[float]  # seconds since the beginning
    refused: list[Refusal]
    model: str  # SHA-256 of the model after this period
    nodes: dict[str, int]  # device number -> node number, as known at the end of the period
    rate: dict[str, float]  # device number -> bit/s seen on its uploads
    loss: list[float] | None = None  # [m]; not written if nobody asked for it
    lost: list[int] | None = (
        None  # the picked devices that sent over a link which did not carry it; not written if none
    )
    # by kind of part, the ready devices whose memory of what was seen of them was lost; not written if there is none
    forgot: dict[str, list[int]] | None = None


class Trace(NamedTuple):
    """A whole trace."""

    header: Header
    periods: list[Period]


def fingerprint(model: Vector) -> str:
    """Return the SHA-256 of a model's bits."""
    return hashlib.sha256(model.astype("<f4").tobytes()).hexdigest()


def begin(folder: Path, header: Header) -> Writer:
    """Start an empty trace."""
    return write(folder, Trace(header, []))


def write(folder: Path, trace: Trace) -> Writer:
    """Write a whole trace, aside and then renamed; return what adds to it."""
    header, path = trace.header, folder / NAME
    tree = {key: value for key, value in header._asdict().items() if key in _header_fields(header.format)}
    data, seal = _line(tree, b"", header.format)
    for period in trace.periods:
        line, seal = _line(_tree(period), seal, header.format)
        data += line
    if not path.exists() or path.read_bytes() != data:  # a finished run can lie on a disk that is read only
        write_atomically(path, data)
    return Writer(path, header.format, seal, len(data))


@dataclass
class Writer:
    """Adds periods to a trace: a line is there whole or not at all."""

    path: Path
    format: int
    seal: bytes  # of the last line
    length: int  # bytes of all lines

    def append(self, period: Period) -> None:
        """Add one period and sync it."""
        line, seal = _line(_tree(period), self.seal, self.format)
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


def _tree(period: Period) -> dict[str, Any]:
    tree = {**period._asdict(), "refused": [each._asdict() for each in period.refused]}
    return {name: each for name, each in tree.items() if name not in OPTIONAL or each is not None}


def _line(tree: dict[str, Any], before: bytes, version: int) -> tuple[bytes, bytes]:
    """Return a line of the trace and its seal, given the seal of the line before."""
    body = json.dumps(tree, separators=(",", ":"), allow_nan=False).encode()
    if version == UNSEALED:
        return body + b"\n", b""
    seal = _sealed(body, before)
    return body[:-1] + b',"seal":"' + seal + b'"}\n', seal


def _sealed(body: bytes, before: bytes) -> bytes:
    return hashlib.sha256(before + b"\n" + body).hexdigest().encode()


def read(folder: Path) -> Trace:
    """Read a trace, of a finished federation or not; a last line without end does not count.

    Every line is checked: its form, its seal and its place. Nothing is changed.
    """
    path = folder / NAME
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunFolderError(f"{folder} holds no {NAME}: only a deployment's run folder can be replayed") from error
    except OSError as error:
        raise machine_fault(path, "read", error) from error
    number = 1
    try:
        if not lines:
            raise ValueError("it has no whole line")
        header, seal = _read_header(path, lines[0])
        periods: list[Period] = []
        for number, line in enumerate(lines[1:], 2):  # noqa: B007 - the message names the line
            body, seal = _unsealed(line, seal, header.format)
            tree = form.parsed(body)
            fields = [each for each in Period._fields if each in tree or each not in OPTIONAL]
            form.check_period(tree, fields, len(periods) + 1, header.num_devices)
            period = Period(**{**tree, "refused": [Refusal(**each) for each in tree["refused"]]})
            if periods and period.wall < periods[-1].wall:
                raise ValueError(f"wall is {period.wall}, before the {periods[-1].wall} of the line before")
            periods.append(period)
    except ValueError as error:
        raise RunFolderError(f"{path} is damaged (line {number}: {error}); restore it from a copy") from error
    return Trace(header, periods)


def _read_header(path: Path, line: bytes) -> tuple[Header, bytes]:
    """Return the header and its seal."""
    tree = form.parsed(line)
    version = tree.get("format")
    if type(version) is not int or version < 1:
        raise ValueError("it is not the first line of a trace, which names its format")
    if version > FORMAT:
        raise RunFolderError(
            f"{path} is of format {version}, and this version reads up to {FORMAT}: use the fedtide that wrote it"
        )
    body, seal = _unsealed(line, b"", version)
    tree = form.parsed(body)
    form.check_header(tree, _header_fields(version))
    return Header(**tree), seal


def _header_fields(version: int) -> list[str]:
    return [each for each in Header._fields if version != UNSEALED or each != "experiment"]


def _unsealed(line: bytes, before: bytes, version: int) -> tuple[bytes, bytes]:
    """Return what a line says, and its seal; raise if the seal does not fit."""
    if version == UNSEALED:
        return line, b""
    found = _SEAL.search(line)
    if found is None:
        raise ValueError("it does not end with its seal")
    body = line[: found.start()] + b"}"
    if _sealed(body, before) != found[1]:
        raise ValueError("it does not fit its seal: it, or a line before it, was changed, lost or moved")
    return body, found[1]
