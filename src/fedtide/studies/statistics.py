"""What it takes to reach an accuracy: time, bits or joules up to the first evaluation that shows it.

`time_to_0.9`, `bits_to_0.9`, `joules_to_0.9`, `bits_down_to_0.9` and `air_time_to_0.9` are metrics like others, for any
accuracy; but a run may never get there.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from fedtide.studies.paths import note, on_one_path, paired
from fedtide.studies.results import RunResult
from fedtide.types import Floats, Ints

_NAME = re.compile(r"(time|bits|joules|bits_down|air_time)_to_(0?\.\d+|1(?:\.0*)?)")
HELP: Final = "time_to_A, bits_to_A, joules_to_A, bits_down_to_A, air_time_to_A with an accuracy A such as 0.9"


def _bits(result: RunResult) -> Floats:
    return np.asarray(result.column("bits") + result.column("control_bits"))


def _if_counted(name: str) -> Callable[[RunResult], Floats]:
    """Return a reader of a column that is not stored if nothing of it was counted; NaN then."""
    return lambda result: result.column(name) if name in result.columns else np.full_like(result.column("time"), np.nan)


SPENT_BY_QUANTITY: Final[Mapping[str, Callable[[RunResult], Floats]]] = {
    "time": lambda result: result.column("time"),
    "bits": _bits,  # payloads and what was reported before scheduling
    "joules": _if_counted("joules"),
    "bits_down": lambda result: result.column("bits_down"),
    "air_time": _if_counted("air_time"),
}
UNCOUNTED: Final[Mapping[str, str]] = {
    "joules": "radio.joules_per_symbol and fleet.joules_per_sample are both 0: give one, or another fleet.energy, to count energy",
    "air_time": "radio.symbol_rate is 0: give it to count time on the air",
    "bits_down": "stored by an older fedtide, which did not count bits down: run it again",
}


class Reached(NamedTuple):
    """What several seeds spend until an accuracy is reached: a seed that does not reach it is later than all that do."""

    median: float  # infinite unless more than half of the seeds reach it
    reached: int
    seeds: int


@dataclass(frozen=True)
class Reaching:
    """A metric: what of something is spent until an accuracy is reached."""

    what: str  # time, bits, joules, bits_down, air_time
    accuracy: float

    def __call__(self, result: RunResult) -> float:
        """Return the amount at the first evaluation that shows the accuracy; NaN if none does, or nothing is known of it."""
        reached = np.flatnonzero(result.column("test_accuracy") >= self.accuracy)
        return float(SPENT_BY_QUANTITY[self.what](result)[reached[0]]) if len(reached) else math.nan

    def over_seeds(self, results: Sequence[RunResult]) -> Reached:
        """Return the median over these seeds, and how many reach the accuracy."""
        spent = np.array([self(each) for each in results])
        median = np.median(np.where(np.isnan(spent), math.inf, spent)) if len(spent) else math.inf
        return Reached(float(median), int(np.isfinite(spent).sum()), len(spent))

    def reason(self, results: Sequence[RunResult]) -> str:
        """Say why some of these runs have no such number; nothing if all have."""
        missing = [each for each in results if math.isnan(self(each))]
        if not missing:
            return ""
        if self.what in UNCOUNTED and any(np.isnan(SPENT_BY_QUANTITY[self.what](each)).all() for each in missing):
            return UNCOUNTED[self.what]
        return f"{len(results) - len(missing)} of {len(results)} seeds reach {self.accuracy:g}"


def reaching_named(name: str) -> Reaching | None:
    """Return the metric of this name; None if it is none of these."""
    found = _NAME.fullmatch(name)
    return Reaching(found[1], float(found[2])) if found and float(found[2]) > 0 else None


# Paired statistics: seeds share fading, durations, partitions and batches, so differences are taken seed by seed.


CONFIDENCE = 0.95
POWER = 0.8  # with which a stated number of seeds would resolve a difference
FEWEST_SEEDS = 3  # seeds; with fewer there is no interval worth drawing


class Band(NamedTuple):
    """A mean curve with its confidence band, over the seeds."""

    x: Floats
    mean: Floats
    low: Floats
    high: Floats
    num_seeds: int
    note: str = ""  # what is to be said about the paths of its pairs
    curves: Floats | None = None  # of the seeds [num_seeds, len(x)]


class Comparison(NamedTuple):
    """The paired difference A - B."""

    mean: float
    low: float  # the interval; infinite with one seed
    high: float
    num_seeds: int
    seeds_needed: (
        int | None
    )  # to resolve a difference of this size with POWER; None if resolved, or too little is known

    @property
    def verdict(self) -> str:
        """`higher`, `lower`, `no difference` (the same on every seed) or `not resolved`."""
        if self.mean == self.low == self.high == 0:
            return "no difference"
        if self.low > 0:
            return "higher"
        return "lower" if self.high < 0 else "not resolved"


def _student(share: float, freedom: Any) -> Any:
    """Return the quantile of Student's t. scipy.stats has the same, and takes half a second to import."""
    from scipy.special import stdtrit

    return stdtrit(freedom, share)


def half_width(values: Floats, confidence: float = CONFIDENCE) -> Floats:
    """Return the half-width of Student's interval of the mean over the first axis [n ...]."""
    n = len(values)
    if n < 2:
        return np.full(values.shape[1:], math.inf)
    return np.asarray(_student((1 + confidence) / 2, n - 1) * values.std(axis=0, ddof=1) / math.sqrt(n))


def aligned(curves: Mapping[str, Mapping[int, RunResult]]) -> dict[str, dict[int, RunResult]]:
    """Return each curve's runs on the seeds that all of them have, so that means compare; those without a run are left out.

    A curve with few seeds does not cost the others theirs: it keeps what it has, and so do all if they share too few. Every
    seed is read on the instruction path that most curves have.
    """
    begun = {name: runs for name, runs in curves.items() if runs}
    many = [set(runs) for runs in begun.values() if len(runs) >= FEWEST_SEEDS]
    seeds = sorted(set.intersection(*many)) if many else []
    kept = {
        name: seeds if len(seeds) >= FEWEST_SEEDS and len(runs) >= FEWEST_SEEDS else sorted(runs)
        for name, runs in begun.items()
    }
    found: dict[str, dict[int, RunResult]] = {name: {} for name in begun}
    for seed in sorted({seed for each in kept.values() for seed in each}):
        names = [name for name in begun if seed in kept[name]]
        for name, result in zip(names, on_one_path(begun[name][seed] for name in names), strict=True):
            found[name][seed] = result
    return found


def shared_seeds(curves: Mapping[str, Mapping[int, RunResult]]) -> dict[str, list[RunResult]]:
    """Return each curve's runs as `aligned` has them, seed by seed."""
    return {name: list(runs.values()) for name, runs in aligned(curves).items()}


def _max_duration(result: RunResult) -> float:
    """Return T_max."""
    return float(result.experiment["fleet"]["max_duration"])


def smoothed(result: RunResult, column: str) -> Floats:
    """Return a column averaged over one T_max around every evaluation, half of it at the ends."""
    values, time = result.column(column), result.column("time")
    half = 0.5 * _max_duration(result) * (1 + 1e-9)  # both ends count, rounded or not
    first, last = np.searchsorted(time, time - half, "left"), np.searchsorted(time, time + half, "right")
    total = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray((total[last] - total[first]) / (last - first))


def saws(results: Iterable[RunResult], column: str) -> bool:
    """Say whether curves go up and down so much that they hide one another: by 1 % on average, in some second half."""
    for each in results:
        late = slice(len(each.column(column)) // 2, None)
        values, mean = each.column(column)[late], smoothed(each, column)[late]
        if np.abs(values - mean).mean() > 0.01 * np.abs(mean).mean():
            return True
    return False


def unmeasured(results: Iterable[RunResult], column: str, over: str) -> str:
    """Say why a column cannot be drawn over another one: one was not measured in some of these runs; nothing if it can be."""
    runs = list(results)
    for name in (column, over):
        if any(np.isnan(_values(run, name)).all() for run in runs):
            reason = "it needs learning.training_loss=true" if name == "train_loss" else UNCOUNTED.get(name)
            return f"{name} was not measured in all of these runs" + (f": {reason}" if reason else "")
    if any(not np.any(_values(run, over)) for run in runs):
        return f"{over} is 0 all the time in some of these runs: draw over something that they spend"
    return ""


def _values(result: RunResult, column: str) -> Floats:
    """Return a column; what may not have been counted is NaN then, not 0."""
    return SPENT_BY_QUANTITY[column](result) if column in UNCOUNTED else result.column(column)


def band(
    results: Sequence[RunResult], column: str, over: str = "time", ratio: bool = False, smooth: bool = False
) -> Band:
    """Return the mean curve of one variant; curves on different grids are read off at the first one's points.

    With `ratio` the mean is the geometric one and the band is a factor either way: for losses, which stay above zero. With
    `smooth` every curve is averaged over one T_max first.
    """
    x = _reached(_values(results[0], over), [_values(each, over) for each in results])
    curves = np.stack(
        [
            np.interp(x, _values(each, over), smoothed(each, column) if smooth else _values(each, column))
            for each in results
        ]
    )
    curves = np.log(curves) if ratio else curves
    mean = curves.mean(axis=0)
    width = half_width(curves) if len(results) > 1 else np.zeros_like(mean)
    middle, low, high = (np.exp(line) if ratio else line for line in (mean, mean - width, mean + width))
    return Band(x, middle, low, high, len(results), curves=np.exp(curves) if ratio else curves)


def _reached(x: Floats, grids: Sequence[Floats]) -> Floats:
    """Return the points of x at which every curve has begun and none has ended; all, if there is no such point."""
    inside = (x >= max(float(grid[0]) for grid in grids)) & (x <= min(float(grid[-1]) for grid in grids))
    return np.asarray(x[inside]) if inside.any() else x


def average_so_far(result: RunResult, column: str) -> Floats:
    """Return the average of a column up to every evaluation; at the end it is what mean_accuracy or mean_train_loss says."""
    values, time = _values(result, column), result.column("time")
    if column != "test_accuracy":
        return np.asarray(np.cumsum(values) / np.arange(1, len(values) + 1))
    held = np.concatenate([[result.chance], values[:-1]])  # a model counts until the next one; chance before the first
    return np.asarray(np.cumsum(held * np.diff(time, prepend=0.0)) / time)


def difference_band(
    results: Mapping[int, RunResult], reference: Mapping[int, RunResult], column: str, over: str = "time"
) -> Band | None:
    """Return one variant's average so far less another's, over the seeds that both have, with its band; None without any.

    Averages, because accuracies of single aggregations swing too much to be told apart; the last point is the difference
    by which claims are decided.
    """
    pairs = list(paired(results, reference).values())
    if not pairs:
        return None
    x = max((_values(each, over) for each in pairs[0]), key=lambda grid: (float(grid[0]), len(grid)))
    x = _reached(x, [_values(each, over) for pair in pairs for each in pair])
    one, other = (
        np.stack([np.interp(x, _values(pair[side], over), average_so_far(pair[side], column)) for pair in pairs])
        for side in (0, 1)
    )
    mean = (one - other).mean(axis=0)
    width = half_width(one - other) if len(pairs) > 1 else np.zeros_like(mean)
    return Band(x, mean, mean - width, mean + width, len(pairs), note(pairs), one - other)


def paired_difference(a: Sequence[float], b: Sequence[float], confidence: float = CONFIDENCE) -> Comparison:
    """Compare two variants by a number per seed, a[i] and b[i] of the same seed."""
    difference = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    n, mean = len(difference), float(np.mean(difference))
    width = 0.0 if n > 1 and np.all(difference == 0) else float(half_width(difference, confidence))
    resolved = abs(mean) > width or (mean == 0 and width == 0)
    needed = None if resolved else seeds_needed(difference, confidence)
    return Comparison(mean, mean - width, mean + width, n, needed)


def seeds_needed(
    difference: Floats, confidence: float = CONFIDENCE, power: float = POWER, most: int = 10_000
) -> int | None:
    """Return how many seeds, more than there are, would resolve a mean of this size with this spread, so often.

    None if not even `most` would, and with few seeds, whose spread says too little.
    """
    if len(difference) < FEWEST_SEEDS:
        return None
    mean, spread = abs(float(difference.mean())), float(difference.std(ddof=1))
    counts, quantiles = _quantiles(len(difference) + 1, most, confidence, power)
    enough = np.flatnonzero(quantiles * spread / np.sqrt(counts) < mean)
    return int(counts[enough[0]]) if len(enough) else None


@functools.lru_cache(maxsize=128)
def _quantiles(least: int, most: int, confidence: float, power: float) -> tuple[Ints, Floats]:
    """Return numbers of seeds, and for each how many standard errors a difference needs to be resolved."""
    counts = np.unique(np.geomspace(least, most, 400).astype(int))
    return counts, _student((1 + confidence) / 2, counts - 1) + _student(power, counts - 1)


def diverged(results: Sequence[RunResult]) -> str:
    """Say how many of these runs did not stay finite; nothing if all did."""
    count = sum(each.diverged is not None for each in results)
    return f"{count} of {len(results)} diverged" if count else ""


# One number per run, for comparisons.


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
    horizon = float(result.experiment["timeline"]["horizon"])
    time = np.concatenate([[0.0], np.minimum(result.column("time"), horizon), [horizon]])
    return float(np.concatenate([[result.chance], result.column("test_accuracy")]) @ np.diff(time) / horizon)


def at_the_end(result: RunResult, column: str) -> float:
    """Return a column "at the end": the mean of its evaluations in the last tenth of the horizon, or of the last one."""
    time = result.column("time")
    late = min(0.9 * float(result.experiment["timeline"]["horizon"]), float(time[-1]))
    return float(result.column(column)[time >= late * (1 - 1e-9)].mean())


@_computed_once
def final_accuracy(result: RunResult) -> float:
    """Return the test accuracy at the end."""
    return at_the_end(result, "test_accuracy")


@_computed_once
def final_train_loss(result: RunResult) -> float:
    """Return the training loss at the end."""
    return at_the_end(result, "train_loss")


@_computed_once
def mean_train_loss(result: RunResult) -> float:
    """Return the training loss averaged over all evaluations."""
    return float(result.column("train_loss").mean())


def _second_half(result: RunResult) -> tuple[Floats, Floats]:
    """Return the times and test accuracies of the second half of a run."""
    time, accuracy = result.column("time"), result.column("test_accuracy")
    late = time >= 0.5 * time[-1]
    return time[late], accuracy[late]


@_computed_once
def roughness(result: RunResult) -> float:
    """Return how far the test accuracy strays from its own trend, a quadratic, in the second half: standard deviation.

    NaN if there are too few evaluations to tell.
    """
    time, accuracy = _second_half(result)
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
    time, accuracy, unit = result.column("time"), result.column("test_accuracy"), _max_duration(result)
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
