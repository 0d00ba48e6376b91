"""Summary metrics of a run, and frames of its aggregations and uploads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from fedtide import config
from fedtide.config import Experiment
from fedtide.radio.allocation import symbols_sent

if TYPE_CHECKING:
    from fedtide.runs import RoundRecord

# The accuracy of guessing, as far as an experiment alone tells it.


# Labels of the sets that have a fixed number of them; of the others only the data tells.
_LABELS: Final = {
    "mnist": 10,
    "fashion_mnist": 10,
    "cifar10": 10,
    "svhn": 10,
    "synthetic": 10,
    "femnist": 62,
}


def chance(experiment: Experiment) -> float | None:
    """Return what guessing among equally frequent labels reaches; None if the number of labels is not known."""
    data = experiment.part("data")
    if data.name == "cifar100":
        return 1 / 20 if data.args.get("labels") == "coarse" else 1 / 100
    given = data.args.get("num_labels")
    count = given if isinstance(given, int) and given > 0 else _LABELS.get(data.name)
    return 1 / count if count else None


# A run in a dozen numbers.


TARGETS = (0.5, 0.8, 0.9, 0.95)


def evaluated(rounds: Sequence[RoundRecord]) -> list[RoundRecord]:
    """Return the rounds whose model was scored."""
    return [each for each in rounds if each.test_accuracy is not None]


def first_at(rounds: Sequence[RoundRecord], accuracy: float) -> RoundRecord | None:
    """Return the first round whose model's test accuracy reached a target, or None."""
    return next((each for each in evaluated(rounds) if (each.test_accuracy or 0.0) >= accuracy), None)


def _symbols_sent(each: RoundRecord) -> float:
    """Return the symbols that a round's packets take; what is sent uncoded, without any bits, takes what is granted."""
    if any(each.num_kept) and not any(each.sent_bits):
        return float(sum(each.symbols))
    return symbols_sent(each.sent_bits, each.capacity, each.symbols)


def arrived(each: RoundRecord) -> int:
    """Return how many updates arrived in a round: of those picked, some may be lost, silent or missing."""
    sent = zip(each.num_kept, each.sent_bits, each.overhead_bits, strict=True)
    return sum(any(of) for of in sent) - len(each.lost)


def summarise(
    experiment: Experiment, rounds: Sequence[RoundRecord], num_parameters: int | None, path: str | None = None
) -> dict[str, Any]:
    """Return the closing numbers of a run, complete or not; num_parameters is None before anything was saved.

    path: the instruction path that trained; None: not known, or another trainer's.
    """
    scored = evaluated(rounds)
    uploads = [kept for each in rounds for kept in each.num_kept]
    ages = [age for each in rounds for age in each.age]
    ledger = rounds[-1].ledger if rounds else None
    proved = [each.proved_minimal for each in rounds if each.proved_minimal is not None]
    reached = {str(target): first_at(rounds, target) for target in TARGETS}
    per_unit = experiment.fleet.energy.name == "per_unit" and bool(ledger and ledger.joules)
    sent = sum(map(_symbols_sent, rounds))
    return {
        "experiment": config.digest(experiment),
        "trainer": experiment.learning.trainer.name,
        "instruction_path": path,
        "aggregations": len(rounds),
        "time": rounds[-1].time if rounds else 0.0,
        "final_accuracy": scored[-1].test_accuracy if scored else None,
        "best_accuracy": max((each.test_accuracy or 0.0 for each in scored), default=None),
        "final_loss": scored[-1].test_loss if scored else None,
        "final_train_loss": scored[-1].train_loss if scored else None,
        "time_to_accuracy": {target: each.time if each else None for target, each in reached.items()},
        "bits_to_accuracy": {
            target: each.ledger.bits + each.ledger.control_bits if each else None for target, each in reached.items()
        },
        "joules_to_accuracy": {
            target: (each.ledger.joules or None) if each else None for target, each in reached.items()
        },
        "uploads": len(uploads),
        "arrived": sum(map(arrived, rounds)),
        "lost": sum(len(each.lost) for each in rounds),
        "mean_kept_share": float(np.mean(uploads)) / num_parameters if uploads and num_parameters else None,
        "mean_age": float(np.mean(ages)) if ages else None,
        "largest_age": max(ages, default=None),
        "mean_label_variance": float(np.mean([each.label_variance for each in rounds if each.picked]))
        if uploads
        else None,
        "proved_minimal_share": float(np.mean(proved)) if proved else None,
        "symbols": ledger.symbols if ledger else 0.0,
        "symbols_sent": sent,
        "bits": ledger.bits if ledger else 0.0,
        "control_bits": ledger.control_bits if ledger else 0.0,
        "bits_down": ledger.bits_down if ledger else 0.0,
        "air_time": ledger.air_time if ledger else 0.0,
        "air_time_sent": ledger.air_time * sent / ledger.symbols if ledger and ledger.symbols else 0.0,
        "joules": (ledger.joules or None) if ledger else None,
        "joules_sent": experiment.radio.joules_per_symbol * sent
        + experiment.fleet.joules_per_sample * ledger.samples_trained
        if ledger and per_unit
        else None,
        "overhead_bits": sum(bits for each in rounds for bits in each.overhead_bits),
        "samples_used": ledger.samples_used if ledger else 0,
        "samples_wasted": ledger.samples_trained - ledger.samples_used if ledger else 0,
    }


# Rows as columns: a pandas DataFrame where pandas is installed, else a mapping of NumPy arrays.


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
    found |= {name: [value for each in rounds for value in getattr(each, name)] for name in _UPLOAD}
    return found | {"lost": [device in each.lost for each in rounds for device in each.picked]}


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None
