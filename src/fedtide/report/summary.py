"""A run in a dozen numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedtide import config
from fedtide.config import Experiment
from fedtide.records import RoundRecord
from fedtide.records.energy import Prices, joules, prices
from fedtide.world.allocation import symbols_sent

TARGETS = (0.5, 0.8, 0.9, 0.95)


def evaluated(rounds: Sequence[RoundRecord]) -> list[RoundRecord]:
    """Return the rounds whose model was scored."""
    return [each for each in rounds if each.test_accuracy is not None]


def first_at(rounds: Sequence[RoundRecord], accuracy: float) -> RoundRecord | None:
    """Return the first round whose model's test accuracy reached a target, or None."""
    return next((each for each in evaluated(rounds) if (each.test_accuracy or 0.0) >= accuracy), None)


def _energy(each: RoundRecord, price: Prices) -> float | None:
    """Return what was spent up to a round in J, or None if nothing is known of it."""
    if each.ledger.joules:
        return each.ledger.joules
    return float(joules(each.ledger.symbols, each.ledger.samples_trained, *price)) if price.known else None


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
    price = prices(experiment)
    sent = sum(map(_symbols_sent, rounds))
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
        "time_to_accuracy": {target: each.time if each else None for target, each in reached.items()},
        "bits_to_accuracy": {
            target: each.ledger.bits + each.ledger.control_bits if each else None for target, each in reached.items()
        },
        "joules_to_accuracy": {target: _energy(each, price) if each else None for target, each in reached.items()},
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
        "joules": _energy(rounds[-1], price) if rounds else None,
        "joules_sent": float(joules(sent, ledger.samples_trained, *price)) if ledger and price.known else None,
        "overhead_bits": sum(bits for each in rounds for bits in each.overhead_bits),
        "samples_used": ledger.samples_used if ledger else 0,
        "samples_wasted": ledger.samples_trained - ledger.samples_used if ledger else 0,
    }
