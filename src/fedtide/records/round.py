"""What is recorded of one aggregation."""

from __future__ import annotations

import json
from typing import NamedTuple

from fedtide.documented import documented


@documented
class Ledger(NamedTuple):
    """What the run has spent so far."""

    symbols: float = 0.0
    bits: float = 0.0
    samples_used: int = 0  # visited in trainings whose updates were sent
    samples_trained: int = 0  # visited by all ready devices; the rest of it was wasted


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

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps({**self._asdict(), "ledger": self.ledger._asdict()}, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> RoundRecord:
        """Read one line of JSON."""
        tree = json.loads(line)
        return cls(**{**tree, "ledger": Ledger(**tree["ledger"])})
