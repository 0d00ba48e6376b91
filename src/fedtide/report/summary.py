"""Summary metrics of a run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fedtide import config
from fedtide.config import Experiment
from fedtide.radio.allocation import symbols_sent

if TYPE_CHECKING:  # a plan needs no run folders
    from fedtide.runs import RoundRecord

NOT_REACHED = "not reached"
TARGETS = (0.5, 0.8, 0.9, 0.95)  # test accuracies
_AGES_LISTED = 10  # more ages than this are summarised
# Of the data sets whose number of labels is fixed.
_NUM_LABELS: Final = {"mnist": 10, "fashion_mnist": 10, "cifar10": 10, "svhn": 10, "synthetic": 10, "femnist": 62}


def chance_accuracy(experiment: Experiment) -> float | None:
    """Return the accuracy of guessing among equally frequent labels; None if the experiment does not tell their number."""
    data = experiment.part("data")
    if data.name == "cifar100":
        return 1 / 20 if data.args.get("labels") == "coarse" else 1 / 100
    given = data.args.get("num_labels")
    count = given if isinstance(given, int) and given > 0 else _NUM_LABELS.get(data.name)
    return 1 / count if count else None


def evaluated_rounds(rounds: Sequence[RoundRecord]) -> list[RoundRecord]:
    """Return the rounds whose model was scored."""
    return [record for record in rounds if record.test_accuracy is not None]


def _first_round_at_accuracy(rounds: Sequence[RoundRecord], accuracy: float) -> RoundRecord | None:
    """Return the first round whose model's test accuracy reached a target, or None."""
    return next((record for record in evaluated_rounds(rounds) if (record.test_accuracy or 0.0) >= accuracy), None)


def _symbols_sent(record: RoundRecord) -> float:
    """Return the symbols that a round's packets take, for runs of older versions, which did not count them."""
    if any(record.num_kept) and not any(record.sent_bits):
        return float(sum(record.symbols))
    return symbols_sent(record.sent_bits, record.capacity, record.symbols)


def summarise(
    experiment: Experiment, rounds: Sequence[RoundRecord], num_parameters: int | None, path: str | None = None
) -> dict[str, Any]:
    """Return the summary metrics of a run, complete or not; num_parameters is None before anything was saved.

    path: the instruction path that trained; None: not known, or not our trainer.
    """
    scored = evaluated_rounds(rounds)
    kept = [count for record in rounds for count in record.num_kept]
    ages = [age for record in rounds for age in record.age]
    from fedtide.runs import Ledger

    ledger = rounds[-1].ledger if rounds else Ledger()
    proved = [record.proved_minimal for record in rounds if record.proved_minimal is not None]
    reached = {str(target): _first_round_at_accuracy(rounds, target) for target in TARGETS}
    sent = ledger.symbols_sent if ledger.symbols_sent is not None else math.fsum(map(_symbols_sent, rounds))
    return {
        "experiment": config.digest(experiment),
        "trainer": experiment.learning.trainer.name,
        "instruction_path": path,
        "aggregations": len(rounds),
        "time": rounds[-1].time if rounds else 0.0,
        "final_accuracy": scored[-1].test_accuracy if scored else None,
        "best_accuracy": max((record.test_accuracy or 0.0 for record in scored), default=None),
        "final_loss": scored[-1].test_loss if scored else None,
        "final_train_loss": scored[-1].train_loss if scored else None,
        "time_to_accuracy": {target: at.time if at else None for target, at in reached.items()},
        "bits_to_accuracy": {
            target: at.ledger.bits + at.ledger.control_bits if at else None for target, at in reached.items()
        },
        "joules_to_accuracy": {target: (at.ledger.joules or None) if at else None for target, at in reached.items()},
        "uploads": len(kept),
        "arrived": sum(record.num_arrived for record in rounds),
        "lost": sum(len(record.lost) for record in rounds),
        "silent": sum(len(record.silent) for record in rounds),
        "retransmitted": sum(len(record.retransmitted) for record in rounds),
        "mean_kept_share": float(np.mean(kept)) / num_parameters if kept and num_parameters else None,
        "mean_age": summary_mean(ages),
        "largest_age": max(ages, default=None),
        "mean_label_variance": summary_mean([record.label_variance for record in rounds if record.picked]),
        "proved_minimal_share": summary_mean(proved),
        "symbols": ledger.symbols,
        "symbols_sent": sent,
        "idle_share": 1 - sent / ledger.symbols if ledger.symbols else None,  # of the symbols granted
        "bits": ledger.bits,
        "control_bits": ledger.control_bits,
        "bits_down": ledger.bits_down,
        "air_time": ledger.air_time,
        "joules": ledger.joules or None,
        **({} if ledger.co2_grams is None else {"co2_grams": ledger.co2_grams}),
        "air_time_and_joules_count": "sent" if ledger.counts_sent else "granted",  # symbols
        "overhead_bits": sum(bits for record in rounds for bits in record.overhead_bits),
        "samples_used": ledger.samples_used,
        "samples_wasted": ledger.samples_trained - ledger.samples_used,
        **_privacy(experiment, rounds),
    }


def _privacy(experiment: Experiment, rounds: Sequence[RoundRecord]) -> dict[str, Any]:
    """Return the epsilon that each device has spent, if the codec is `private`. Whoever was granted bits has sent."""
    codec = experiment.part("codec")
    if codec.name != "private":
        return {}
    from fedtide.codec.private import DELTA, Private, spent_epsilon

    noise = codec.args.get("noise", Private.noise)
    sent = [[k for k, bits in zip(each.picked, each.budget_bits, strict=True) if bits > 0] for each in rounds]
    return {"privacy": {"delta": DELTA, "epsilon": spent_epsilon(sent, noise)}}


def summary_texts(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return a summary as people read it, by name."""
    reached = {f"time to {target:.0%}": summary["time_to_accuracy"][str(target)] for target in TARGETS[1:3]}
    counted = summary["air_time_and_joules_count"]
    return {
        "final test accuracy": _formatted(summary["final_accuracy"], "{:.4f}"),
        "aggregations": f"{summary['aggregations']:,}",
        "best test accuracy": _formatted(summary["best_accuracy"], "{:.4f}"),
        "uploads": f"{summary['uploads']:,}",
        "updates arrived": f"{summary['arrived']:,}",
        "updates lost": f"{summary['lost']:,}",
        "retransmitted": f"{summary['retransmitted']:,}",
        "stayed silent": f"{summary['silent']:,}",
        "final test loss": _formatted(summary["final_loss"], "{:.4f}"),
        "kept share r/d, mean": _formatted(summary["mean_kept_share"], "{:.3f}"),
        **{name: _formatted(time, "{:g}", NOT_REACHED) for name, time in reached.items()},
        "age of updates, mean": _formatted(summary["mean_age"], "{:.2f}"),
        "largest age of updates": _formatted(summary["largest_age"], "{:,}"),
        "label variance, mean": _formatted(summary["mean_label_variance"]),
        "proved minimal": _formatted(summary["proved_minimal_share"], "{:.0%}"),
        "symbols granted": f"{summary['symbols']:,.0f}",
        "symbols sent": f"{summary['symbols_sent']:,.0f}",
        "symbols unused": _formatted(summary["idle_share"], "{:.1%}"),
        f"airtime {counted}": _formatted(summary["air_time"] or None),
        "joules" if counted == "sent" else "joules as granted": _formatted(summary["joules"]),
        **({"CO2 (g)": _formatted(summary["co2_grams"])} if "co2_grams" in summary else {}),
        "bits sent": f"{summary['bits']:,.0f}",
        "header bits, extra": f"{summary['overhead_bits']:,}",
        "downlink bits": f"{summary['bits_down']:,.0f}",
        "control bits": f"{summary['control_bits']:,.0f}",
        "samples used": f"{summary['samples_used']:,}",
        "samples wasted": f"{summary['samples_wasted']:,}",
        **_privacy_text(summary.get("privacy")),
        "trainer": summary["trainer"],
    }


def _privacy_text(spent: Mapping[str, Any] | None) -> dict[str, str]:
    if spent is None:
        return {}
    epsilon = sorted(spent["epsilon"].values()) or [0.0]
    return {
        f"epsilon at delta {spent['delta']:g}": f"{epsilon[-1]:,.4g} (largest), {epsilon[len(epsilon) // 2]:,.4g} (median)"
    }


def _formatted(value: Any, pattern: str = "{:,.4g}", missing: str = "-") -> str:
    """Return a number by a pattern; None as `missing`."""
    return missing if value is None else pattern.format(value)


def summary_mean(values: Sequence[float]) -> float | None:
    """Return the mean; None if there are no values."""
    return float(np.mean(values)) if len(values) else None


def ages_in_words(counts: Mapping[int, int]) -> str:
    """List how often each age occurs; if there are many ages, their mean, 95th percentile, maximum and the most frequent."""
    if len(counts) <= _AGES_LISTED:
        return ", ".join(f"{age}: {n:,}" for age, n in counts.items())
    ages, times = np.array(sorted(counts.items())).T
    percentile = ages[np.searchsorted(np.cumsum(times), math.ceil(0.95 * times.sum()))]
    most = ", ".join(f"{age}: {n:,}" for age, n in Counter(counts).most_common(5))
    return (
        f"{(ages * times).sum() / times.sum():.1f} on average, 95 % at most {percentile}, "
        f"largest {ages.max()}; most often {most}"
    )


def stale_warning(largest_age: int | None, aggregations: int) -> str | None:
    """Return a warning if an update was older than a tenth of the aggregations, and than ten of them."""
    if largest_age is None or largest_age <= max(aggregations / 10, 10):
        return None
    return (
        f"the oldest update started from the model of {largest_age:,} aggregations ago, of {aggregations:,} in all: its device "
        "was slow or away, or waited to be picked; let age count (policy.weighting, policy.age_base below 1) or pick fresh "
        "updates (policy.scheduler)"
    )
