"""Frames of a run's aggregations and uploads: a pandas DataFrame, or a mapping of NumPy arrays without pandas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedtide.report.summary import arrived, mean
from fedtide.runs import RoundRecord

# What is recorded of every upload, in the order of a record's lists.
_UPLOAD = ("age", "capacity", "symbols", "budget_bits", "sent_bits", "overhead_bits", "num_kept", "weight")


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
            "index": record.index,
            "time": record.time,
            "num_ready": record.num_ready,
            "num_picked": len(record.picked),
            "num_arrived": arrived(record),
            "num_lost": len(record.lost),
            "mean_age": mean(record.age),
            "mean_capacity": mean(record.capacity),
            "mean_num_kept": mean(record.num_kept),
            "budget_bits": float(sum(record.budget_bits)),
            "sent_bits": float(sum(record.sent_bits)),
            "overhead_bits": int(sum(record.overhead_bits)),
            "label_variance": record.label_variance,
            "proved_minimal": record.proved_minimal,
            "test_accuracy": record.test_accuracy,
            "test_loss": record.test_loss,
            "train_loss": record.train_loss,
            **record.ledger._asdict(),
        }
        for record in rounds
    ]


def upload_columns(rounds: Iterable[RoundRecord]) -> dict[str, list[Any]]:
    """Return one row per upload, as columns: index, time, device, the values recorded for it, lost."""
    rounds = list(rounds)
    found: dict[str, list[Any]] = {
        "index": [record.index for record in rounds for _ in record.picked],
        "time": [record.time for record in rounds for _ in record.picked],
        "device": [device for record in rounds for device in record.picked],
    }
    found |= {name: [value for record in rounds for value in getattr(record, name)] for name in _UPLOAD}
    return found | {"lost": [device in record.lost for record in rounds for device in record.picked]}
