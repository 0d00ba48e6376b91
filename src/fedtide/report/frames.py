"""Rows as columns: a pandas DataFrame where pandas is installed, else a mapping of NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedtide.records import RoundRecord
from fedtide.report.summary import arrived

# What is recorded of every upload, in the order of a record's lists.
UPLOAD = ("age", "capacity", "symbols", "budget_bits", "sent_bits", "overhead_bits", "num_kept", "weight")


def frame(columns: Mapping[str, Sequence[Any]]) -> Any:
    """Return columns of one length as a DataFrame, or as a mapping of arrays without pandas. Missing numbers are NaN."""
    arrays = {name: _array(values) for name, values in columns.items()}
    try:
        import pandas as pd
    except ImportError:
        return arrays
    return pd.DataFrame(arrays)


def columns_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return rows as columns; a row that lacks a name has None there."""
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _array(values: Sequence[Any]) -> npt.NDArray[Any]:
    """Return one column: numbers as numbers, all else as the objects that they are."""
    if any(value is not None and not isinstance(value, (bool, int, float, np.number)) for value in values):
        column = np.empty(len(values), object)
        column[:] = values
        return column
    if any(value is None for value in values) or not len(values):
        return np.array([np.nan if value is None else float(value) for value in values], np.float64)
    return np.array(values)


def round_rows(rounds: Iterable[RoundRecord]) -> list[dict[str, Any]]:
    """Return one row of numbers per aggregation.

    index, time; num_ready, num_picked, num_arrived, num_lost; of the uploads the mean age (ticks), capacity (bit/symbol) and
    num_kept, and the sums of budget_bits, sent_bits and overhead_bits; label_variance, proved_minimal; test_accuracy,
    test_loss, train_loss (None where not measured); and what the run has spent up to then: symbols, bits, samples_used,
    samples_trained.
    """
    return [
        {
            "index": each.index,
            "time": each.time,
            "num_ready": each.num_ready,
            "num_picked": len(each.picked),
            "num_arrived": arrived(each),
            "num_lost": len(each.lost),
            "mean_age": _mean(each.age),
            "mean_capacity": _mean(each.capacity),
            "mean_num_kept": _mean(each.num_kept),
            "budget_bits": float(sum(each.budget_bits)),
            "sent_bits": float(sum(each.sent_bits)),
            "overhead_bits": int(sum(each.overhead_bits)),
            "label_variance": each.label_variance,
            "proved_minimal": each.proved_minimal,
            "test_accuracy": each.test_accuracy,
            "test_loss": each.test_loss,
            "train_loss": each.train_loss,
            **each.ledger._asdict(),
        }
        for each in rounds
    ]


def upload_columns(rounds: Iterable[RoundRecord]) -> dict[str, list[Any]]:
    """Return one row per upload, as columns: index, time, device, what is recorded of each (see UPLOAD), lost."""
    rounds = list(rounds)
    found: dict[str, list[Any]] = {
        "index": [each.index for each in rounds for _ in each.picked],
        "time": [each.time for each in rounds for _ in each.picked],
        "device": [device for each in rounds for device in each.picked],
    }
    found |= {name: [value for each in rounds for value in getattr(each, name)] for name in UPLOAD}
    return found | {"lost": [device in each.lost for each in rounds for device in each.picked]}


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None
