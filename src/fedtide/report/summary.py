"""A run in a dozen numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedtide import config
from fedtide.config import Experiment
from fedtide.records import RoundRecord

TARGETS = (0.5, 0.8, 0.9, 0.95)


def evaluated(rounds: Sequence[RoundRecord]) -> list[RoundRecord]:
    """Return the rounds whose model was scored."""
    return [each for each in rounds if each.test_accuracy is not None]


def time_to(rounds: Sequence[RoundRecord], accuracy: float) -> float | None:
    """Return the simulated time at which the test accuracy first reached a target, or None."""
    for each in evaluated(rounds):
        if each.test_accuracy is not None and each.test_accuracy >= accuracy:
            return each.time
    return None


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
    return {
        "experiment": config.digest(experiment),
        "trainer": experiment.learning.trainer,
        "instruction_path": path,
        "aggregations": len(rounds),
        "time": rounds[-1].time if rounds else 0.0,
        "final_accuracy": scored[-1].test_accuracy if scored else None,
        "best_accuracy": max((each.test_accuracy or 0.0 for each in scored), default=None),
        "final_loss": scored[-1].test_loss if scored else None,
        "final_train_loss": scored[-1].train_loss if scored else None,
        "time_to_accuracy": {str(target): time_to(rounds, target) for target in TARGETS},
        "uploads": len(uploads),
        "mean_kept_share": float(np.mean(uploads)) / num_parameters if uploads and num_parameters else None,
        "mean_age": float(np.mean(ages)) if ages else None,
        "mean_label_variance": float(np.mean([each.label_variance for each in rounds if each.picked]))
        if uploads
        else None,
        "proved_minimal_share": float(np.mean(proved)) if proved else None,
        "symbols": ledger.symbols if ledger else 0.0,
        "bits": ledger.bits if ledger else 0.0,
        "overhead_bits": sum(bits for each in rounds for bits in each.overhead_bits),
        "samples_used": ledger.samples_used if ledger else 0,
        "samples_wasted": ledger.samples_trained - ledger.samples_used if ledger else 0,
    }
