"""What is recorded of one aggregation.

Format 1 has no number in it. Format 2 begins with it, adds lost, metrics and the ledger's control_bits, and packs long
columns. Format 3 adds bits_down, air_time and joules to the ledger. Format 4, of fleets of more than 10,000 devices, counts
the ready devices instead of naming them: a plan knows who they were. A reader takes all formats and passes over fields that it
does not know.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Final, NamedTuple

from fedtide.core.forms import shown
from fedtide.documented import documented
from fedtide.errors import FedtideError
from fedtide.records import columns

FORMAT: Final = 3
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

    def to_json(self, format: int = FORMAT) -> str:
        """Return one line of JSON. Older formats leave out what they do not know: a run that was begun in one stays in it."""
        tree = {**self._asdict(), "ledger": dict(zip(counted_in(format), self.ledger, strict=False))}
        if format < COUNTING:
            del tree["unnamed"]
        if format == 1:
            for later in LATER[:2]:
                del tree[later]
        else:
            tree |= {name: columns.written(tree[name]) for name in COLUMNS}
            tree = {
                "format": format,
                **tree,
                "metrics": {name: _finite(name, each) for name, each in self.metrics.items()},
            }
        return json.dumps(tree, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str, most: int = columns.MOST) -> RoundRecord:
        """Read one line of JSON; raise ValueError if it is no round. most: the devices that there can be."""
        tree = json.loads(line)
        kind = format_of(tree)
        ledger = tree.get("ledger")
        lacking = [name for name in REQUIRED if name not in tree]
        lacking += (
            [] if isinstance(ledger, dict) and {*ledger} >= {*LEDGER} else ["a whole ledger"] * ("ledger" in tree)
        )
        if lacking:
            newer = f"; it is of format {kind}, and this fedtide knows up to {COUNTING}" if kind > COUNTING else ""
            raise ValueError(f"a round lacks {', '.join(lacking[:3])}{newer}")
        known = {name: tree[name] for name in cls._fields if name in tree}
        known |= {name: columns.read(known[name], most) for name in COLUMNS if name in known}
        known |= {"lost": known.get("lost", []), "metrics": _metrics(known.get("metrics", {}))}
        unnamed = known.setdefault("unnamed", 0)
        if type(unnamed) is not int or not 0 <= unnamed <= most - len(known["ready"]):
            raise ValueError(
                f"a round counts {shown(unnamed, 40)} devices that it does not name, and there are {most:,}"
            )
        return cls(**{**known, "ledger": Ledger(**{name: ledger[name] for name in Ledger._fields if name in ledger})})


_ONE_PER_DEVICE = "ready picked age capacity symbols budget_bits sent_bits overhead_bits num_kept weight lost"
COLUMNS: Final = tuple(_ONE_PER_DEVICE.split())
LATER: Final = ("lost", "metrics", "unnamed")
REQUIRED: Final = tuple(name for name in RoundRecord._fields if name not in LATER)
LEDGER: Final = Ledger._fields[:4]


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
