"""What happened on the devices, one line of JSON per period: enough to play it again in the simulator."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from fedtide.core import reading
from fedtide.errors import RunFolderError
from fedtide.runs import machine_fault, write_atomically
from fedtide.types import Vector

# The form of a trace: which fields a line has, of which type, in which range and of which length.
#
# A trace is read by people's tools, copied between machines and edited by hand: nothing in it is taken for granted.
# Everything here raises ValueError with the field, the value and what it must be.


_LARGEST_NODE: Final = 2**64 - 1  # Flower's node numbers
_LARGEST_TRACE_COUNT: Final = 2**53  # whole numbers stay exact in the scheduler's float64
_LARGEST: Final = sys.float_info.max
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Range(NamedTuple):
    """A number from low to high; whole, or any finite one."""

    low: float
    high: float
    whole: bool = False

    def check(self, name: str, value: Any) -> None:
        """Raise unless value is such a number. True is none, nor is a number in quotes, NaN or infinity."""
        right = type(value) is int or (type(value) is float and not self.whole)
        if not right or not self.low <= value <= self.high:
            kind = "a whole number" if self.whole else "a number"
            top = "" if self.high in (_LARGEST, _LARGEST_TRACE_COUNT, _LARGEST_NODE) else f" to {self.high:g}"
            raise ValueError(f"{name} is {_shown(value)}; it must be {kind} from {self.low:g}{top}")


_SECONDS: Final = Range(0.0, _LARGEST)
_AMOUNT: Final = Range(0.0, _LARGEST)
_NODE: Final = Range(0, _LARGEST_NODE, whole=True)


def parsed(line: bytes) -> dict[str, Any]:
    """Return the mapping that a line of JSON holds: no NaN, no field twice, not nested beyond reason."""
    tree = reading.parse_json(line)
    if not isinstance(tree, dict):
        raise ValueError(f"it is {_shown(tree)}, not a mapping")
    return tree


def check_header(tree: Mapping[str, Any], fields: Sequence[str]) -> None:
    """Check the first line, whose fields must be these."""
    _check_fields(tree, fields)
    Range(1, _LARGEST_TRACE_COUNT, whole=True).check("num_devices", tree["num_devices"])
    Range(sys.float_info.min, _LARGEST).check("num_symbols", tree["num_symbols"])
    _check_word("isa", tree["isa"])
    _check_mapping("deployment", tree["deployment"])
    if tree.get("experiment") is not None:
        _check_word("experiment", tree["experiment"])


def check_period(tree: Mapping[str, Any], fields: Sequence[str], tick: int, num_devices: int) -> None:
    """Check the line of period `tick` in a federation of N devices, whose fields must be these."""
    _check_fields(tree, fields)
    device = Range(0, num_devices - 1, whole=True)
    if type(tree["tick"]) is not int or tree["tick"] != tick:
        raise ValueError(f"tick is {_shown(tree['tick'])}; the periods must count 1, 2, ... and this is the {tick}th")
    _SECONDS.check("wall", tree["wall"])
    ready = _check_devices("ready", tree["ready"], device)
    count = len(ready)
    _check_column("start", tree["start"], count, Range(1, tick, whole=True))
    _check_column("node", tree["node"], count, _NODE)
    _check_column("data", tree["data"], count, Range(-1, num_devices - 1, whole=True))
    for place, word in enumerate(_check_list("isa", tree["isa"], count)):
        _check_word(f"isa[{place}]", word)
    _check_column("ready_at", tree["ready_at"], count, _SECONDS)
    _check_column("learning_rate", tree["learning_rate"], count, Range(sys.float_info.min, _LARGEST))
    _check_column("num_samples", tree["num_samples"], count, Range(1, _LARGEST_TRACE_COUNT, whole=True))
    _check_counts(tree["label_counts"], tree["num_samples"])
    _check_column("capacity", tree["capacity"], count, _AMOUNT)
    if tree["update_sq_norm"] is not None:
        _check_column("update_sq_norm", tree["update_sq_norm"], count, _AMOUNT)
    if tree.get("loss") is not None:
        _check_column("loss", tree["loss"], count, _AMOUNT)
    if tree.get("forgot") is not None:
        for kind, devices in _check_mapping("forgot", tree["forgot"]).items():
            _check_word("forgot", kind)
            _check_subset(f"forgot.{kind}", devices, device, ready, "ready")
    picked = _check_subset("picked", tree["picked"], device, ready, "ready")
    _check_column("symbols", tree["symbols"], len(picked), _AMOUNT)
    _check_column("bits", tree["bits"], len(picked), _AMOUNT)
    arrived = _check_subset("arrived", tree["arrived"], device, picked, "picked")
    _check_column("arrived_at", tree["arrived_at"], len(arrived), _SECONDS)
    if tree.get("lost") is not None:
        missing = [each for each in picked if each not in arrived]
        _check_subset("lost", tree["lost"], device, missing, "picked without having arrived")
    for place, refusal in enumerate(_check_list("refused", tree["refused"], None)):
        _check_refusal(f"refused[{place}]", refusal, device)
    _check_digest("model", tree["model"])
    for name, values in (("nodes", _NODE), ("rate", _AMOUNT)):
        for key, value in _check_mapping(name, tree[name]).items():
            if not re.fullmatch(r"0|[1-9][0-9]{0,15}", key) or int(key) >= num_devices:
                raise ValueError(f"{name} has the key {_shown(key)}; it must be a device from 0 to {num_devices - 1}")
            values.check(f"{name}[{key}]", value)


def _check_fields(tree: Mapping[str, Any], fields: Sequence[str]) -> None:
    lacking, foreign = [each for each in fields if each not in tree], [each for each in tree if each not in fields]
    if lacking:
        raise ValueError(f"it lacks {', '.join(lacking[:5])}")
    if foreign:
        raise ValueError(f"it has {', '.join(_shown(each) for each in foreign[:5])}, which is no field of it")


def _check_list(name: str, values: Any, count: int | None) -> list[Any]:
    """Return a list of so many entries."""
    if not isinstance(values, list):
        raise ValueError(f"{name} is {_shown(values)}; it must be a list")
    if count is not None and len(values) != count:
        raise ValueError(f"{name} has {len(values)} entries; it must have {count}")
    return values


def _check_column(name: str, values: Any, count: int, allowed: Range) -> None:
    for place, value in enumerate(_check_list(name, values, count)):
        allowed.check(f"{name}[{place}]", value)


def _check_devices(name: str, values: Any, device: Range) -> list[int]:
    """Return device numbers, ascending."""
    found: list[int] = _check_list(name, values, None)
    for place, value in enumerate(found):
        device.check(f"{name}[{place}]", value)
        if place and value <= found[place - 1]:
            raise ValueError(f"{name}[{place}] is {value} after {found[place - 1]}; devices must ascend")
    return found


def _check_subset(name: str, values: Any, device: Range, whole: list[int], of: str) -> list[int]:
    found = _check_devices(name, values, device)
    if strangers := set(found) - set(whole):
        raise ValueError(f"{name} has device {min(strangers)}, which is not in {of}")
    return found


def _check_counts(rows: Any, num_samples: list[int]) -> None:
    """Check label counts [m c]: as many per row, and as many samples as the device has."""
    for place, row in enumerate(_check_list("label_counts", rows, len(num_samples))):
        name = f"label_counts[{place}]"
        _check_list(name, row, len(rows[0]) if isinstance(rows[0], list) else None)
        _check_column(name, row, len(row), Range(0, _LARGEST_TRACE_COUNT, whole=True))
        if sum(row) != num_samples[place]:
            raise ValueError(f"{name} adds up to {sum(row)}; num_samples[{place}] is {num_samples[place]}")


def _check_refusal(name: str, value: Any, device: Range) -> None:
    _check_fields(_check_mapping(name, value), ("device", "node", "why"))
    device.check(f"{name}.device", value["device"])
    _NODE.check(f"{name}.node", value["node"])
    if not isinstance(value["why"], str):
        raise ValueError(f"{name}.why is {_shown(value['why'])}; it must be text")


def _check_mapping(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {_shown(value)}; it must be a mapping")
    return value


def _check_word(name: str, value: Any) -> None:
    if not isinstance(value, str) or len(value) > 32 or not value.isprintable():
        raise ValueError(f"{name} is {_shown(value)}; it must be a short word")


def _check_digest(name: str, value: Any) -> None:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ValueError(f"{name} is {_shown(value)}; it must be a SHA-256 in 64 hexadecimal digits")


def _shown(value: Any) -> str:
    """Show a value in a few characters, whatever it is."""
    if isinstance(value, (list, dict)):
        return f"a {'list' if isinstance(value, list) else 'mapping'} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 44 else f"{text[:40]}..."


# What happened on the devices, one line of JSON per period: enough to play it again in the simulator.
#
# trace.jsonl is written and synced before the checkpoint of the same period, and cut back to it when a run continues. Every
# line ends with its seal, a SHA-256 of the line and of the seal before it: a line that was changed, lost or moved is
# noticed. Traces of format 1 have no seals and are still read, and continued as they are.


NAME = "trace.jsonl"
TRACE_FORMAT = 2
REMEMBERING = ("codec", "trainer")  # the parts that may remember something of a device
_OPTIONAL = ("loss", "lost", "forgot")  # columns that came later
_UNSEALED = 1  # the format that had no seals
_SEAL = re.compile(rb',"seal":"([0-9a-f]{64})"\}\Z')


class TraceHeader(NamedTuple):
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

    header: TraceHeader
    periods: list[Period]


def fingerprint(model: Vector) -> str:
    """Return the SHA-256 of a model's bits."""
    return hashlib.sha256(model.astype("<f4").tobytes()).hexdigest()


def begin_trace(folder: Path, header: TraceHeader) -> Writer:
    """Start an empty trace."""
    return write_trace(folder, Trace(header, []))


def write_trace(folder: Path, trace: Trace) -> Writer:
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
    return {name: each for name, each in tree.items() if name not in _OPTIONAL or each is not None}


def _line(tree: dict[str, Any], before: bytes, version: int) -> tuple[bytes, bytes]:
    """Return a line of the trace and its seal, given the seal of the line before."""
    body = json.dumps(tree, separators=(",", ":"), allow_nan=False).encode()
    if version == _UNSEALED:
        return body + b"\n", b""
    seal = _sealed(body, before)
    return body[:-1] + b',"seal":"' + seal + b'"}\n', seal


def _sealed(body: bytes, before: bytes) -> bytes:
    return hashlib.sha256(before + b"\n" + body).hexdigest().encode()


def read_trace(folder: Path) -> Trace:
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
            tree = parsed(body)
            fields = [each for each in Period._fields if each in tree or each not in _OPTIONAL]
            check_period(tree, fields, len(periods) + 1, header.num_devices)
            period = Period(**{**tree, "refused": [Refusal(**each) for each in tree["refused"]]})
            if periods and period.wall < periods[-1].wall:
                raise ValueError(f"wall is {period.wall}, before the {periods[-1].wall} of the line before")
            periods.append(period)
    except ValueError as error:
        raise RunFolderError(f"{path} is damaged (line {number}: {error}); restore it from a copy") from error
    return Trace(header, periods)


def _read_header(path: Path, line: bytes) -> tuple[TraceHeader, bytes]:
    """Return the header and its seal."""
    tree = parsed(line)
    version = tree.get("format")
    if type(version) is not int or version < 1:
        raise ValueError("it is not the first line of a trace, which names its format")
    if version > TRACE_FORMAT:
        raise RunFolderError(
            f"{path} is of format {version}, and this version reads up to {TRACE_FORMAT}: use the fedtide that wrote it"
        )
    body, seal = _unsealed(line, b"", version)
    tree = parsed(body)
    check_header(tree, _header_fields(version))
    return TraceHeader(**tree), seal


def _header_fields(version: int) -> list[str]:
    return [each for each in TraceHeader._fields if version != _UNSEALED or each != "experiment"]


def _unsealed(line: bytes, before: bytes, version: int) -> tuple[bytes, bytes]:
    """Return what a line says, and its seal; raise if the seal does not fit."""
    if version == _UNSEALED:
        return line, b""
    found = _SEAL.search(line)
    if found is None:
        raise ValueError("it does not end with its seal")
    body = line[: found.start()] + b"}"
    if _sealed(body, before) != found[1]:
        raise ValueError("it does not fit its seal: it, or a line before it, was changed, lost or moved")
    return body, found[1]
