"""One number per run, for comparisons: how good it is, and what it takes to reach an accuracy."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fedtide.errors import FedtideError
from fedtide.studies.results import COLUMNS, METRIC_PREFIX, RunResult
from fedtide.types import Floats

Metric = Callable[[RunResult], float]


def _computed_once(metric: Metric) -> Metric:
    """Remember a metric in the result that it is of, which never changes."""

    @functools.wraps(metric)
    def remembered(result: RunResult) -> float:
        if metric.__name__ not in result.measured:
            result.measured[metric.__name__] = metric(result)
        return result.measured[metric.__name__]

    return remembered


@_computed_once
def mean_accuracy(result: RunResult) -> float:
    """Return the test accuracy averaged over the horizon: it counts speed and level alike.

    From time 0 for everyone, whenever the first aggregation comes: a model counts from its evaluation to the next one, and
    before the first there is chance.
    """
    horizon = result.horizon
    time = np.concatenate([[0.0], np.minimum(result.column("time"), horizon), [horizon]])
    return float(np.concatenate([[result.chance], result.column("test_accuracy")]) @ np.diff(time) / horizon)


def _at_the_end(result: RunResult, column: str) -> float:
    """Return a column "at the end": the mean of its evaluations in the last tenth of the horizon, or of the last one."""
    time = result.column("time")
    late = min(0.9 * result.horizon, float(time[-1]))
    return float(result.column(column)[time >= late * (1 - 1e-9)].mean())


@_computed_once
def final_accuracy(result: RunResult) -> float:
    """Return the test accuracy at the end."""
    return _at_the_end(result, "test_accuracy")


@_computed_once
def final_train_loss(result: RunResult) -> float:
    """Return the training loss at the end."""
    return _at_the_end(result, "train_loss")


@_computed_once
def mean_train_loss(result: RunResult) -> float:
    """Return the training loss averaged over all evaluations."""
    return float(result.column("train_loss").mean())


@_computed_once
def roughness(result: RunResult) -> float:
    """Return how far the test accuracy strays from its own trend, a quadratic, in the second half: standard deviation.

    NaN if there are too few evaluations to tell.
    """
    time, accuracy = result.column("time"), result.column("test_accuracy")
    late = time >= 0.5 * time[-1]
    time, accuracy = time[late], accuracy[late]
    if len(time) <= 3:  # a quadratic goes through three points
        return math.nan
    strays = accuracy - np.polynomial.Polynomial.fit(time, accuracy, 2)(time)
    return float(np.sqrt(np.sum(strays**2) / (len(time) - 3)))


@_computed_once
def variation(result: RunResult) -> float:
    """Return how much the test accuracy goes up and down per unit of time in the second half: the length of its ups and downs.

    It is read once per T_max, whatever the period: whoever is evaluated more often would else go up and down more often. NaN
    if the second half is shorter than one T_max.
    """
    time, accuracy, unit = result.column("time"), result.column("test_accuracy"), result.max_duration
    first, last = math.ceil(0.5 * time[-1] / unit - 1e-9), math.floor(time[-1] / unit + 1e-9)
    if last <= first:
        return math.nan
    grid = unit * np.arange(first, last + 1)
    held = accuracy[np.maximum(np.searchsorted(time, grid * (1 + 1e-9), "right") - 1, 0)]
    return float(np.abs(np.diff(held)).sum() / (grid[-1] - grid[0]))


METRICS: Mapping[str, Metric] = {
    "mean_accuracy": mean_accuracy,
    "final_accuracy": final_accuracy,
    "mean_train_loss": mean_train_loss,
    "final_train_loss": final_train_loss,
    "variation": variation,
    "roughness": roughness,
}
LOWER_IS_BETTER: Final = ("mean_train_loss", "final_train_loss", "variation", "roughness")
MARGINS: Final[Mapping[str, float]] = {"mean_accuracy": 0.01, "final_accuracy": 0.01}  # differences that matter


def metric_margin(name: str, given: float | None = None) -> float | None:
    """Return the smallest difference that matters: as given (0: none is asked for), or the metric's own, if it has one."""
    if given is None:
        return MARGINS.get(name)
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given < math.inf:
        raise FedtideError(f"margin={given!r} must be a number of at least 0, in the metric's unit; 0 asks for none")
    return float(given) or None


# What became of the uploads, and what was measured besides: metrics as others are, which not every run has.


@dataclass(frozen=True)
class UploadShare:
    """A metric: the share of a run's uploads that arrived, were lost, stayed silent or were retransmitted."""

    fate: str

    def __call__(self, result: RunResult) -> float:
        """Return it; NaN if it is not stored."""
        sent = result.uploads_if_stored()
        if sent is None or (sent.silent is None and self.fate in ("arrived", "silent")):
            return math.nan
        retransmitted = np.zeros(1) if sent.retransmitted is None else sent.retransmitted
        counts = {"lost": sent.lost.sum(), "retransmitted": retransmitted.sum()}
        if sent.silent is not None:
            counts |= {"silent": sent.silent.sum(), "arrived": len(sent.lost) - sent.lost.sum() - sent.silent.sum()}
        return float(counts[self.fate] / max(len(sent.lost), 1))


@dataclass(frozen=True)
class Recorded:
    """A metric: what a scheduler or a part of learning.metrics measured, at the end."""

    column: str  # metrics/NAME

    def __call__(self, result: RunResult) -> float:
        """Return its mean over the last tenth of the horizon; NaN if it was not measured."""
        return _at_the_end(result, self.column) if self.column in result.columns else math.nan


@dataclass(frozen=True)
class Total:
    """A metric: a total of a run, such as how many updates were uploaded."""

    name: str

    def __call__(self, result: RunResult) -> float:
        """Return it; NaN if it is not known."""
        if self.name in COLUMNS:
            return float(counted_metric(result, self.name)[-1])
        value = result.totals.get(self.name)
        return math.nan if value is None else float(value)


def idle_share(result: RunResult) -> float:
    """Return the share of the symbols granted that no packet took; NaN if it was not counted."""
    granted, sent = float(result.column("symbols")[-1]), float(result.column("symbols_sent")[-1])
    return 1 - sent / granted if granted else math.nan


FATES: Final = ("arrived", "lost", "silent", "retransmitted")
SHARES: Final[Mapping[str, Metric]] = {
    **{f"{fate}_share": UploadShare(fate) for fate in FATES},
    "idle_share": idle_share,
}
TOTALS: Final[Mapping[str, Metric]] = {
    "uploads": Total("uploads"),
    "kept_share": Total("mean_kept_share"),
    "bits": Total("bits"),
    "bits_down": Total("bits_down"),
}


# What it takes to reach an accuracy: time, bits or joules up to the first evaluation that shows it. `time_to_0.9`,
# `bits_to_0.9` and the like are metrics as others are, for any accuracy; but a run may never get there.


_NAME = re.compile(r"(time|bits|joules|bits_down|air_time|co2_grams)_to_(0?\.\d+|1(?:\.0*)?)")
_HELP: Final = (
    "metrics/NAME for what was measured besides, "
    "time_to_A, bits_to_A, joules_to_A, bits_down_to_A, air_time_to_A, co2_grams_to_A with an accuracy A such as 0.9"
)
UNCOUNTED: Final[Mapping[str, str]] = {
    "joules": "radio.joules_per_symbol and fleet.joules_per_sample are both 0: give one, or another fleet.energy, to count energy",
    "air_time": "radio.symbol_rate is 0: give it to count time on the air",
    "co2_grams": "fleet.energy is not carbon: wrap it, fleet.energy={name: carbon, path: grid.csv, inner: ...}",
    "bits_down": "stored by an older fedtide, which did not count bits down: run it again",
}


_PRICED: Final = ("joules", "air_time")  # of the symbols sent; runs of older versions, of those granted


def counted_note(results: Iterable[RunResult]) -> str:
    """Say what airtime and joules of these runs count, if that is not what all of them sent; else nothing."""
    grants = [each.counts_grants for each in results if {*_PRICED} & {*each.columns}]
    if not any(grants):
        return ""
    if all(grants):
        return "airtime and joules count the symbols granted: the runs are of a version that did not count those sent"
    return (
        f"airtime and joules of {sum(grants)} of {len(grants)} runs count the symbols granted, of the others those sent: run "
        "the older ones again to compare them"
    )


def counted_metric(result: RunResult, column: str) -> Floats:
    """Return a column; what was not counted is NaN, not 0."""
    if column in UNCOUNTED and column not in result.columns:
        return np.full(len(result.columns["time"]), np.nan)
    return result.column(column)


def amount_spent(result: RunResult, what: str) -> Floats:
    """Return what of something was spent up to every evaluation. Bits: payloads and what was reported before scheduling."""
    if what == "bits":
        return np.asarray(result.column("bits") + result.column("control_bits"))
    return counted_metric(result, what)


@dataclass(frozen=True)
class Reaching:
    """A metric: what of something is spent until an accuracy is reached."""

    what: str  # time, bits, joules, bits_down, air_time, co2_grams
    accuracy: float

    def __call__(self, result: RunResult) -> float:
        """Return the amount at the first evaluation that shows the accuracy; NaN if none does, or nothing is known of it."""
        reached = np.flatnonzero(result.column("test_accuracy") >= self.accuracy)
        return float(amount_spent(result, self.what)[reached[0]]) if len(reached) else math.nan

    def at_least(self, result: RunResult) -> float:
        """Return the amount; of a run that does not reach the accuracy all that it spent, which is a lower bound."""
        amount = self(result)
        return float(amount_spent(result, self.what)[-1]) if math.isnan(amount) else amount

    def counted_note(self, results: Iterable[RunResult]) -> str:
        """Say what the numbers of these runs count, if that is not what all of them sent; else nothing."""
        return counted_note(results) if self.what in _PRICED else ""

    def over_seeds(self, results: Sequence[RunResult]) -> tuple[float, int, int]:
        """Return the median over these seeds, how many reach the accuracy, and how many there are.

        A seed that does not reach it is later than all that do: the median is infinite unless more than half do.
        """
        spent = np.array([self(each) for each in results])
        median = np.median(np.where(np.isnan(spent), math.inf, spent)) if len(spent) else math.inf
        return float(median), int(np.isfinite(spent).sum()), len(spent)

    def reason(self, results: Sequence[RunResult]) -> str:
        """Say why some of these runs have no such number; nothing if all have."""
        missing = [each for each in results if math.isnan(self(each))]
        if not missing:
            return ""
        if self.what in UNCOUNTED and any(np.isnan(amount_spent(each, self.what)).all() for each in missing):
            return UNCOUNTED[self.what]
        return f"{len(results) - len(missing)} of {len(results)} seeds reach {self.accuracy:g}"


def metric_named(name: str) -> Metric:
    """Return the metric of this name."""
    found = _NAME.fullmatch(name)
    if found and float(found[2]) > 0:
        return Reaching(found[1], float(found[2]))
    if name.startswith(METRIC_PREFIX):
        return Recorded(name)
    if name not in (known := {**METRICS, **SHARES, **TOTALS}):
        raise FedtideError(f"metric {name!r} is not known; use one of {', '.join(known)}, {_HELP}")
    return known[name]


def metric_if_reached(name: str, run: RunResult, label: str) -> float:
    """Return a run's number; NaN if it does not reach the accuracy. Raise if the metric is not known of such runs."""
    measure = metric_named(name)
    value = measure(run)
    if math.isnan(value) and run.diverged is None:
        if not isinstance(measure, Reaching):
            raise FedtideError(f"metric {name} is not known of {label}: let runs measure it, or choose another")
        if (why := measure.reason([run])) in UNCOUNTED.values():
            raise FedtideError(f"metric {name} is not known of {label}: {why}")
    return value


def metric_sign(name: str) -> int:
    """Return 1 if more of a metric is better, -1 if less is."""
    return -1 if name in LOWER_IS_BETTER or isinstance(metric_named(name), Reaching) else 1
