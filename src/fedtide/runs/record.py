"""What is recorded of one aggregation, and how it is written."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError
from fedtide.help_text import documented

# Columns as text: numbers, one per device, in a fraction of what a JSON list of them takes, and exact.
#
# A packed column is `<i8:`, `<f8:` or `<f4:` (NumPy's names for its numbers) and base64 of zlib of its bytes. Whole numbers
# are written as their differences, so that ascending devices are small ones; bytes of one significance lie together in a
# plane, so that zlib finds them alike.


SHORT_COLUMN_ENTRIES: Final = 256  # entries; up to here a JSON list is as good, and can be read
MOST_COLUMN_ENTRIES: Final = 2**24  # entries of a column; nobody has more devices
_LEVEL: Final = 6  # of zlib: the same bytes every time
_KINDS: Final[dict[str, np.dtype[Any]]] = {"<i8": np.dtype("<i8"), "<f8": np.dtype("<f8"), "<f4": np.dtype("<f4")}
_PACKED = re.compile(r"(<[if][48]):([A-Za-z0-9+/=]*)")
_EXACT: Final = 2**63  # whole numbers below it fit


def write_column(values: Sequence[Any]) -> Sequence[Any] | str:
    """Return a list as a record has it: packed if it is long and of one kind of number, else as it is."""
    if len(values) <= SHORT_COLUMN_ENTRIES:
        return values
    kinds = set(map(type, values))
    if kinds == {float}:
        return pack_column(np.array(values, np.float64))
    if kinds == {int} and min(values) >= -_EXACT and max(values) < _EXACT:
        return pack_column(np.array(values, np.int64))
    return values


def read_column(value: Any, most: int = MOST_COLUMN_ENTRIES) -> list[Any]:
    """Return the list that `written` was given; raise ValueError if it is none, or longer than `most`."""
    found: list[Any] = value if isinstance(value, list) else unpack_column(value, most).tolist()
    if len(found) > most:
        raise ValueError(f"a column has {len(found):,} entries, and {most:,} are the most")
    return found


def pack_column(values: npt.NDArray[Any]) -> str:
    """Return a column [m] of int64, float64 or float32 as text."""
    kind = values.dtype.newbyteorder("<").str
    if kind not in _KINDS or values.ndim != 1:
        raise ValueError(f"a column is of int64, float64 or float32 [m], not {values.dtype}{list(values.shape)}")
    numbers = _differences(values) if kind == "<i8" else values
    table = numbers.astype(kind).view(np.uint8).reshape(len(values), _KINDS[kind].itemsize)  # [m bytes]
    # Z_RLE: runs of one byte are all that the planes repeat, and looking for more makes them longer.
    zipper = zlib.compressobj(_LEVEL, strategy=zlib.Z_RLE)
    content = zipper.compress(table.T.tobytes()) + zipper.flush()
    return f"{kind}:{base64.b64encode(content).decode()}"


def unpack_column(text: Any, most: int = MOST_COLUMN_ENTRIES) -> npt.NDArray[Any]:
    """Return a packed column [m]; raise ValueError if it is none, or longer than `most`: a bomb is not unpacked."""
    found = _PACKED.fullmatch(text) if isinstance(text, str) else None
    if found is None or found[1] not in _KINDS:
        raise ValueError("a column is neither a list of numbers nor a packed one")
    dtype = _KINDS[found[1]]
    unzip = zlib.decompressobj()
    try:
        content = unzip.decompress(base64.b64decode(found[2], validate=True), most * dtype.itemsize + 1)
    except (zlib.error, binascii.Error) as error:
        raise ValueError(f"a packed column is broken: {error}") from None
    if len(content) > most * dtype.itemsize:
        raise ValueError(f"a packed column has more than {most:,} entries")
    if not unzip.eof or unzip.unused_data or len(content) % dtype.itemsize:
        raise ValueError("a packed column is broken: it ends too early or too late")
    table = np.frombuffer(content, np.uint8).reshape(dtype.itemsize, -1)
    numbers = np.ascontiguousarray(table.T).reshape(-1).view(dtype)
    return _sums(numbers) if dtype.kind == "i" else numbers.astype(dtype.newbyteorder("="))


def _differences(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return each number less the one before, modulo 2^64, the sign in the lowest bit: 0, -1, 1, -2 become 0, 1, 2, 3."""
    steps = np.diff(values, prepend=np.int64(0))
    return np.asarray((steps << 1) ^ (steps >> 63))


def _sums(steps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Undo `_differences`."""
    unsigned = steps.astype(np.uint64)
    return np.cumsum((unsigned >> np.uint64(1)) ^ -(unsigned & np.uint64(1)), dtype=np.uint64).view(np.int64)


# What is recorded of one aggregation.
#
# Format 1 has no number in it. Format 2 begins with it, adds lost, metrics and the ledger's control_bits, and packs long
# columns. Format 3 adds bits_down, air_time and joules to the ledger. Format 4, of fleets of more than 10,000 devices,
# counts the ready devices instead of naming them: a plan knows who they were. A reader takes all formats and passes over
# fields that it does not know.


ROUND_FORMAT: Final = 3
COUNTING: Final = 4  # the format of large fleets


@documented
class Ledger(NamedTuple):
    """What the run has spent so far, whether it arrived or not."""

    symbols: float = 0.0
    bits: float = 0.0
    samples_used: int = 0  # visited in trainings whose updates were sent
    samples_trained: int = 0  # visited by all ready devices; the rest of it was wasted
    control_bits: float = 0.0  # for statistics that devices reported before scheduling
    bits_down: float = 0.0  # of new models to the devices that were ready; a shared transmission counts once
    air_time: float = 0.0  # of the uplink, at radio.symbol_rate; 0: not counted
    joules: float = 0.0  # of training and sending; 0: not counted


@documented
class RoundRecord(NamedTuple):
    """One aggregation. Lists run over the picked devices, ascending."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    time: float
    ready: list[int]
    picked: list[int]
    age: list[int]
    capacity: list[float]  # bit/symbol
    symbols: list[float]
    budget_bits: list[float]
    sent_bits: list[float]  # payloads, at most the budget
    overhead_bits: list[int]  # headers and checksums, which no budget counts
    num_kept: list[int]
    label_variance: float
    proved_minimal: bool | None
    weight: list[float]
    test_accuracy: float | None
    test_loss: float | None
    train_loss: float | None
    ledger: Ledger
    # The defaults are shared by all records: nobody may add to them, as their types say.
    lost: Sequence[int] = []  # those picked whose update was sent and did not arrive
    metrics: Mapping[str, float] = {}  # whatever else was measured, by name; finite numbers
    unnamed: int = 0  # how many were ready besides those in `ready`: all of them in a large fleet

    @property
    def num_ready(self) -> int:
        """How many devices were ready."""
        return len(self.ready) + self.unnamed

    def to_json(self, format: int = ROUND_FORMAT) -> str:
        """Return one line of JSON. Older formats leave out what they do not know: a run that was begun in one stays in it."""
        tree = {**self._asdict(), "ledger": dict(zip(counted_in(format), self.ledger, strict=False))}
        if format < COUNTING:
            del tree["unnamed"]
        if format == 1:
            for later in _LATER[:2]:
                del tree[later]
        else:
            tree |= {name: write_column(tree[name]) for name in _COLUMNS}
            tree = {
                "format": format,
                **tree,
                "metrics": {name: _finite(name, each) for name, each in self.metrics.items()},
            }
        return json.dumps(tree, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str, most: int = MOST_COLUMN_ENTRIES) -> RoundRecord:
        """Read one line of JSON; raise ValueError if it is no round. most: the devices that there can be."""
        tree = json.loads(line)
        kind = format_of(tree)
        ledger = tree.get("ledger")
        lacking = [name for name in _REQUIRED if name not in tree]
        lacking += (
            [] if isinstance(ledger, dict) and {*ledger} >= {*_LEDGER} else ["a whole ledger"] * ("ledger" in tree)
        )
        if lacking:
            newer = f"; it is of format {kind}, and this fedtide knows up to {COUNTING}" if kind > COUNTING else ""
            raise ValueError(f"a round lacks {', '.join(lacking[:3])}{newer}")
        known = {name: tree[name] for name in cls._fields if name in tree}
        known |= {name: read_column(known[name], most) for name in _COLUMNS if name in known}
        known |= {"lost": known.get("lost", []), "metrics": _metrics(known.get("metrics", {}))}
        unnamed = known.setdefault("unnamed", 0)
        if type(unnamed) is not int or not 0 <= unnamed <= most - len(known["ready"]):
            raise ValueError(
                f"a round counts {shown(unnamed, 40)} devices that it does not name, and there are {most:,}"
            )
        return cls(**{**known, "ledger": Ledger(**{name: ledger[name] for name in Ledger._fields if name in ledger})})


_ONE_PER_DEVICE = "ready picked age capacity symbols budget_bits sent_bits overhead_bits num_kept weight lost"
_COLUMNS: Final = tuple(_ONE_PER_DEVICE.split())
_LATER: Final = ("lost", "metrics", "unnamed")
_REQUIRED: Final = tuple(name for name in RoundRecord._fields if name not in _LATER)
_LEDGER: Final = Ledger._fields[:4]


def counted_in(format: int) -> tuple[str, ...]:
    """Return what the ledger of a format counts."""
    return Ledger._fields[: {1: 4, 2: 5}.get(format)]


def format_of(tree: Any) -> int:
    """Return the format of a round that was read as JSON; the first one does not say."""
    if not isinstance(tree, dict):
        raise ValueError(f"a round is a mapping, not a {type(tree).__name__}")
    kind = tree.get("format", 1)
    if type(kind) is not int or kind < 1:
        raise ValueError(f"a round of format {shown(kind, 40)}; formats count from 1")
    return kind


def _metrics(tree: Any) -> dict[str, float]:
    if not isinstance(tree, dict):
        raise ValueError(f"a round's metrics are a {type(tree).__name__}, not a mapping")
    for name, value in tree.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"the metric {shown(name, 40)} is {shown(value, 40)}, not a finite number")
    return tree


def _finite(name: Any, value: Any) -> float:
    """Return a metric as JSON can hold it."""
    if not isinstance(name, str) or isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise FedtideError(
            f"the metric {shown(name)} is {shown(value)}: metrics are finite numbers by name; leave out what is not known"
        )
    return float(value)
