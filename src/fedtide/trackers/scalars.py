"""The numbers that trackers show, and their names: the same with all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from fedtide.records.round import RoundRecord


def scalars(record: RoundRecord) -> dict[str, float]:
    """Return the numbers of one aggregation by name, without those that it does not have."""
    found: dict[str, Any] = {
        "test/accuracy": record.test_accuracy,
        "test/loss": record.test_loss,
        "train/loss": record.train_loss,
        "uplink/symbols": sum(record.symbols),
        "uplink/bits": sum(record.sent_bits),  # payloads
        "uplink/mean_capacity": _mean(record.capacity),  # bit/symbol
        "devices/ready": record.num_ready,
        "devices/picked": len(record.picked),
        "devices/mean_age": _mean(record.age),  # ticks
        "devices/label_variance": record.label_variance,
        "time": record.time,  # simulated
        **{f"spent/{name}": value for name, value in record.ledger._asdict().items()},  # so far
        **{f"metrics/{name}": value for name, value in getattr(record, "metrics", {}).items()},
    }
    return {name: float(value) for name, value in found.items() if isinstance(value, Real)}


def dotted(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return the leaves of a nested mapping by their dotted keys; an empty mapping is a leaf."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        deeper = isinstance(value, Mapping) and value
        flat.update(dotted(value, f"{above}{key}.") if deeper else {f"{above}{key}": value})
    return flat


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if len(values) else None
