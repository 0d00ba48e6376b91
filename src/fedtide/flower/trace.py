"""What happened on the devices, one line of JSON per period: enough to play it again in the simulator.

trace.jsonl is written and synced before the checkpoint of the same period, and cut back to it when a run continues.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from fedtide.errors import RunFolderError
from fedtide.records import write_atomically
from fedtide.types import Vector

NAME = "trace.jsonl"
FORMAT = 1


class Header(NamedTuple):
    """The first line: what the bits depend on besides the experiment."""

    format: int
    num_devices: int
    num_symbols: float  # per period
    isa: str  # the native kernel's instruction path on the server; nodes report theirs
    deployment: dict[str, Any]


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

    def to_json(self) -> str:
        """Return one line of JSON."""
        tree = {**self._asdict(), "refused": [each._asdict() for each in self.refused]}
        return json.dumps(tree, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Period:
        """Read one line of JSON."""
        tree = json.loads(line)
        return cls(**{**tree, "refused": [Refusal(**each) for each in tree["refused"]]})


class Trace(NamedTuple):
    """A whole trace."""

    header: Header
    periods: list[Period]


def fingerprint(model: Vector) -> str:
    """Return the SHA-256 of a model's bits."""
    return hashlib.sha256(model.astype("<f4").tobytes()).hexdigest()


def begin(folder: Path, header: Header) -> None:
    """Start an empty trace."""
    write_atomically(folder / NAME, (json.dumps(header._asdict(), separators=(",", ":")) + "\n").encode())


def append(folder: Path, period: Period) -> None:
    """Add one period and sync it."""
    try:
        with open(folder / NAME, "ab") as file:
            file.write(period.to_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RunFolderError(
            f"{folder / NAME} cannot be written ({error.strerror}): free space and start again"
        ) from error


def read(folder: Path) -> Trace:
    """Read a trace, of a finished federation or not; a last line without end does not count."""
    path = folder / NAME
    try:
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    except FileNotFoundError as error:
        raise RunFolderError(f"{folder} holds no {NAME}: only a deployment's run folder can be replayed") from error
    try:
        header = Header(**json.loads(lines[0]))
        if header.format != FORMAT:
            raise RunFolderError(f"{path} is of format {header.format}; this version reads {FORMAT}")
        periods = [Period.from_json(line) for line in lines[1:]]
    except (IndexError, ValueError, TypeError, KeyError) as error:
        raise RunFolderError(f"{path} is damaged ({error})") from error
    if [each.tick for each in periods] != list(range(1, len(periods) + 1)):
        raise RunFolderError(f"{path} does not count its periods 1, 2, ...; it is damaged")
    return Trace(header, periods)


def cut(folder: Path, num_periods: int) -> Trace:
    """Keep the first periods only, as the checkpoint has them, and return what is left."""
    whole = read_lines(folder)
    kept = whole[: num_periods + 1]
    if len(kept) != num_periods + 1:
        raise RunFolderError(f"{folder / NAME} is shorter than the checkpoint says; start in a new folder")
    write_atomically(folder / NAME, ("\n".join(kept) + "\n").encode())
    return read(folder)


def read_lines(folder: Path) -> list[str]:
    """Return the complete lines of a trace as text."""
    try:
        return (folder / NAME).read_text(encoding="utf-8").split("\n")[:-1]
    except FileNotFoundError as error:
        raise RunFolderError(
            f"{folder} holds a run but no {NAME}: it is a simulation's; choose another folder"
        ) from error
