"""What is recorded of one aggregation, and how it is written."""

from __future__ import annotations

import base64
import binascii
import functools
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError

from fedtide.core.yaml12 import shown
from fedtide.types import documented

# Columns as text: numbers, one per device, in a fraction of what a JSON list of them takes, and exact.
#
# A packed column is `<i8:`, `<f8:` or `<f4:` (NumPy's names for its numbers) and base64 of zlib of its bytes. Whole numbers
# are written as their differences, so that ascending devices are small ones; bytes of one significance lie together in a
# plane, so that zlib finds them alike.


SHORT_COLUMN_ENTRIES: Final = 256  # entries; up to here a JSON list is as good, and can be read
MOST_COLUMN_ENTRIES: Final = 2**24  # entries; no fleet has more devices
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
    """Return the list that `write_column` was given; raise ValueError if it is none, or longer than `most`."""
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


# What is recorded of one aggregation: a line of JSON in rounds.jsonl, long columns packed.


ROUND_FORMAT: Final = 1


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
    sent_bits: list[int | float]  # payloads, at most the budget
    overhead_bits: list[int]  # headers and checksums, which no budget counts
    num_kept: list[int]
    label_variance: float
    proved_minimal: bool | None
    weight: list[float]
    test_accuracy: float | None
    test_loss: float | None
    train_loss: float | None
    ledger: Ledger
    # The defaults are shared by all records and never changed, as their types say.
    lost: Sequence[int] = []  # those picked whose update was sent and did not arrive
    metrics: Mapping[str, FiniteFloat] = {}  # whatever else was measured, by name
    unnamed: Annotated[int, Field(ge=0)] = 0  # ready devices besides those in `ready`: all of them in a large fleet

    @property
    def num_ready(self) -> int:
        """How many devices were ready."""
        return len(self.ready) + self.unnamed

    def to_json(self) -> str:
        """Return one line of JSON."""
        tree = {"format": ROUND_FORMAT, **self._asdict(), "ledger": self.ledger._asdict()}
        tree |= {name: write_column(tree[name]) for name in _COLUMNS}
        return json.dumps(tree, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str, num_devices: int = MOST_COLUMN_ENTRIES) -> RoundRecord:
        """Read one line of JSON; raise ValueError if it is no round of so many devices."""
        tree = json.loads(line)
        if not isinstance(tree, dict):
            raise ValueError(f"a round is a mapping, not a {type(tree).__name__}")
        kind = tree.pop("format", None)
        if kind != ROUND_FORMAT or type(kind) is not int:
            raise ValueError(f"a round of format {shown(kind, 40)}; this fedtide reads format {ROUND_FORMAT}")
        tree |= {name: read_column(tree[name], num_devices) for name in _COLUMNS if name in tree}
        try:
            record = _reader().validate_python(tree)
        except ValidationError as error:
            raise ValueError(problem(error)) from None
        record._check(num_devices)
        return record

    def _check(self, num_devices: int) -> None:
        """Raise ValueError if columns differ in length or name devices that there are not."""
        for name in _PER_UPLOAD:
            if len(getattr(self, name)) != len(self.picked):
                raise ValueError(
                    f"a round has {len(getattr(self, name))} entries of {name} and {len(self.picked)} uploads"
                )
        for name in ("ready", "picked", "lost"):
            devices = getattr(self, name)
            if devices and not 0 <= min(devices) <= max(devices) < num_devices:
                raise ValueError(f"a round's {name} has a device that is not one of {num_devices:,}")
        if self.num_ready > num_devices:
            raise ValueError(f"a round has {self.num_ready:,} ready devices, and there are {num_devices:,}")


def problem(error: ValidationError) -> str:
    """Say in one line what is wrong with a stored value: the first thing that was found."""
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'it'}={shown(first['input'], 40)}: {first['msg']}"


@functools.cache
def _reader() -> TypeAdapter[RoundRecord]:
    return TypeAdapter(RoundRecord, config=ConfigDict(strict=True))


_PER_UPLOAD: Final = ("age", "capacity", "symbols", "budget_bits", "sent_bits", "overhead_bits", "num_kept", "weight")
_COLUMNS: Final = ("ready", "picked", *_PER_UPLOAD, "lost")
