"""Paired statistics: seeds share fading, durations, partitions and batches, so differences are taken seed by seed.

Results are compared on one instruction path, and where that cannot be, the row says so. Bits are the same on the same path
only, and the shift between two of them is as large as the smaller differences between variants. A pair on two paths is still
shown: rounding on another path is noise of its own, which widens an interval and does not take sides. But it is not what
pairing promises, so it is never shown without a word.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedtide.runs import UNKNOWN_PATH
from fedtide.studies.metrics import UNCOUNTED, counted_metric
from fedtide.studies.moderation import VariancePrior
from fedtide.studies.results import RunResult, SeedResults
from fedtide.types import Floats, Ints

WHY = (
    "Runs give the same bits on the same instruction path only; between two paths the mean accuracy of a run shifts by 0.0002 "
    "to 0.0022, and a pair that mixes them carries that shift."
)


def _on_one_path(results: Iterable[RunResult]) -> tuple[RunResult, ...]:
    """Return these results on the instruction path that most of them share; those without it on their own first one."""
    results = tuple(results)
    if len({result.path for result in results}) == 1 and not any(result.elsewhere for result in results):
        return results
    kept = [{each.path: each, **{other.path: other for other in each.elsewhere}} for each in results]
    counts = Counter(path for each in kept for path in each)
    best = max(
        counts, key=lambda path: (counts[path], pair_path_is_known(path)), default=UNKNOWN_PATH
    )  # the first of equals
    return tuple(each.get(best, result) for each, result in zip(kept, results, strict=True))


def pairs_on_shared_paths(curves: SeedResults) -> dict[str, dict[int, RunResult]]:
    """Return the runs of every curve, each seed on the instruction path that most curves have."""
    found: dict[str, dict[int, RunResult]] = {name: {} for name in curves}
    for seed in sorted({seed for runs in curves.values() for seed in runs}):
        names = [name for name, runs in curves.items() if seed in runs]
        for name, result in zip(names, _on_one_path(curves[name][seed] for name in names), strict=True):
            found[name][seed] = result
    return found


def pair_path_is_known(path: str) -> bool:
    """Say whether a result's path says anything."""
    return not path.endswith(UNKNOWN_PATH)


def paired_results(*sides: Mapping[int, RunResult]) -> dict[int, tuple[RunResult, ...]]:
    """Return the results of the seeds that all sides have, each seed on one path where the store has it."""
    seeds = sorted(set.intersection(*map(set, sides))) if sides else []
    return {seed: _on_one_path(side[seed] for side in sides) for seed in seeds}


def _is_mixed(group: Sequence[RunResult]) -> bool:
    """Say whether results that are compared may be on different paths. Variants that differ in the trainer do so on purpose."""
    found: dict[str, set[str]] = {}
    for each in group:
        found.setdefault(each.backend, set()).add(each.path)
    return any(len(paths) > 1 for paths in found.values())


def mixed_pairs_note(groups: Iterable[Sequence[RunResult]], what: str = "pair") -> str:
    """Say in few words how many of these pairs (or seeds) mix paths; nothing if none does."""
    groups = list(groups)
    bad = [group for group in groups if _is_mixed(group)]
    if not bad:
        return ""
    paths = sorted({each.path for group in bad for each in group})
    may = "" if sum(map(pair_path_is_known, paths)) > 1 else "may "  # an unknown path may be the same after all
    verb = f"{may}mix{'' if may or len(bad) > 1 else 'es'}"
    return f"{len(bad)} of {len(groups)} {what}{'s' * (len(groups) > 1)} {verb} instruction paths ({', '.join(paths)})"


def mixed_seeds_note(curves: SeedResults) -> str:
    """Say how many seeds are not on one path in all curves of a figure."""
    seeds = sorted({seed for runs in curves.values() for seed in runs})
    return mixed_pairs_note(([runs[seed] for runs in curves.values() if seed in runs] for seed in seeds), "seed")


def unknown_pairs_note(results: Iterable[RunResult]) -> str:
    """Say of how many results the path is not known; nothing if it is known of all."""
    paths = [each.path for each in results]
    count = sum(not pair_path_is_known(path) for path in paths)
    return f"The instruction path of {count} of {len(paths)} results is unknown." if count else ""


def pair_paths_summary(results: Iterable[RunResult]) -> str:
    """Say in one sentence on which paths results were made, each run once."""
    unique = {repr(each.experiment): each for each in results}
    counts = Counter(each.path for each in unique.values())
    words = ", ".join(f"{count} on {path}" for path, count in sorted(counts.items()) if pair_path_is_known(path))
    lost = sum(count for path, count in counts.items() if not pair_path_is_known(path))
    rest = f"{', ' if words else ''}{lost} on a path that is not known" if lost else ""
    return f"Instruction paths of the {len(unique)} runs: {words}{rest}." if unique else ""


# Differences with their intervals, and curves with their bands.


CONFIDENCE = 0.95
POWER = 0.8  # with which a stated number of seeds would resolve a difference
EQUIVALENCE_LEVEL = 0.05  # of each of the two one-sided tests that show a difference to be within a margin
EQUIVALENT = "no difference above"  # how such a verdict begins; the margin follows
FEWEST_SEEDS = 3  # seeds; with fewer there is no interval worth drawing


class Band(NamedTuple):
    """A mean curve with its confidence band, over the seeds."""

    x: Floats
    mean: Floats
    low: Floats
    high: Floats
    num_seeds: int
    curves: Floats  # of the seeds [num_seeds, len(x)]
    note: str = ""  # what is to be said about the paths of its pairs


class Comparison(NamedTuple):
    """The paired difference A - B."""

    mean: float
    low: float  # the interval; infinite with one seed
    high: float
    num_seeds: int
    seeds_needed: int | None  # that would resolve it with POWER; None if it is resolved, or too little is known
    within: float | None = (
        None  # the margin that it does not exceed, by two one-sided tests; None: not asked, or not shown
    )

    @property
    def verdict(self) -> str:
        """`higher`, `lower`, `no difference` (the same on every seed), `no difference above m`, or `not resolved`."""
        if self.mean == self.low == self.high == 0:
            return "no difference"
        if self.low > 0:
            return "higher"
        if self.high < 0:
            return "lower"
        return "not resolved" if self.within is None else f"{EQUIVALENT} {self.within:g}"


@functools.cache
def _student(share: float, freedom: float) -> float:
    """Return the quantile of Student's t. scipy.stats has the same, and takes half a second to import."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, share))


def half_width(values: Floats, confidence: float = CONFIDENCE) -> Floats:
    """Return the half-width of Student's interval of the mean over the first axis [n ...]."""
    n = len(values)
    if n < 2:
        return np.full(values.shape[1:], math.inf)
    return np.asarray(_student((1 + confidence) / 2, n - 1) * values.std(axis=0, ddof=1) / math.sqrt(n))


def aligned_seeds(curves: SeedResults) -> dict[str, dict[int, RunResult]]:
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
    return pairs_on_shared_paths({name: {seed: runs[seed] for seed in kept[name]} for name, runs in begun.items()})


def _smoothed(result: RunResult, column: str) -> Floats:
    """Return a column averaged over one T_max around every evaluation, half of it at the ends."""
    values, time = result.column(column), result.column("time")
    half = 0.5 * result.max_duration * (1 + 1e-9)  # both ends count, rounded or not
    first, last = np.searchsorted(time, time - half, "left"), np.searchsorted(time, time + half, "right")
    total = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray((total[last] - total[first]) / (last - first))


def curves_zigzag(results: Iterable[RunResult], column: str) -> bool:
    """Say whether curves go up and down so much that they hide one another: by 1 % on average, in some second half."""
    for each in results:
        late = slice(len(each.column(column)) // 2, None)
        values, mean = each.column(column)[late], _smoothed(each, column)[late]
        if np.abs(values - mean).mean() > 0.01 * np.abs(mean).mean():
            return True
    return False


def unmeasured_column(results: Iterable[RunResult], column: str, over: str) -> str:
    """Say why a column cannot be drawn over another one: one was not measured in some of these runs; nothing if it can be."""
    runs = list(results)
    for name in (column, over):
        if any(np.isnan(counted_metric(run, name)).all() for run in runs):
            reason = "it needs learning.training_loss=true" if name == "train_loss" else UNCOUNTED.get(name)
            return f"{name} was not measured in all of these runs" + (f": {reason}" if reason else "")
    if any(not np.any(counted_metric(run, over)) for run in runs):
        return f"{over} is 0 all the time in some of these runs: draw over something that they spend"
    return ""


def mean_band(
    results: Sequence[RunResult], column: str, over: str = "time", ratio: bool = False, smooth: bool = False
) -> Band:
    """Return the mean curve of one variant; curves on different grids are read off at the first one's points.

    With `ratio` the mean is the geometric one and the band is a factor either way: for losses, which stay above zero. With
    `smooth` every curve is averaged over one T_max first.
    """
    x = _reached(counted_metric(results[0], over), [counted_metric(each, over) for each in results])
    curves = np.stack(
        [
            np.interp(
                x, counted_metric(each, over), _smoothed(each, column) if smooth else counted_metric(each, column)
            )
            for each in results
        ]
    )
    if not ratio:
        return _band(x, curves)
    logs = _band(x, np.log(curves))
    return logs._replace(**{name: np.exp(getattr(logs, name)) for name in ("mean", "low", "high", "curves")})


def _band(x: Floats, curves: Floats, note: str = "") -> Band:
    """Return the mean of the seeds' curves [n len(x)] with its band; a single seed has none."""
    mean = curves.mean(axis=0)
    width = half_width(curves) if len(curves) > 1 else np.zeros_like(mean)
    return Band(x, mean, mean - width, mean + width, len(curves), curves, note)


def _reached(x: Floats, grids: Sequence[Floats]) -> Floats:
    """Return the points of x at which every curve has begun and none has ended; all, if there is no such point."""
    inside = (x >= max(float(grid[0]) for grid in grids)) & (x <= min(float(grid[-1]) for grid in grids))
    return np.asarray(x[inside]) if inside.any() else x


def _average_so_far(result: RunResult, column: str) -> Floats:
    """Return the average of a column up to every evaluation; at the end it is what mean_accuracy or mean_train_loss says."""
    values, time = counted_metric(result, column), result.column("time")
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
    pairs = list(paired_results(results, reference).values())
    if not pairs:
        return None
    x = max((counted_metric(each, over) for each in pairs[0]), key=lambda grid: (float(grid[0]), len(grid)))
    x = _reached(x, [counted_metric(each, over) for pair in pairs for each in pair])
    one, other = (
        np.stack(
            [np.interp(x, counted_metric(pair[side], over), _average_so_far(pair[side], column)) for pair in pairs]
        )
        for side in (0, 1)
    )
    return _band(x, one - other, mixed_pairs_note(pairs))


def paired_difference(
    a: Sequence[float],
    b: Sequence[float],
    confidence: float = CONFIDENCE,
    margin: float | None = None,
    prior: VariancePrior | None = None,
) -> Comparison:
    """Compare two variants by a number per seed, a[i] and b[i] of the same seed.

    margin: the smallest difference that matters. A difference that is not resolved is then tested for equivalence: two
    one-sided tests at 5 % each show it to be within (-margin, margin) if its 90 % interval is. None: not asked.
    prior: what its variance has in common with those of the other differences of a table; None: it stands alone.
    """
    difference = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    n, mean, same = len(difference), float(np.mean(difference)), bool(np.all(difference == 0))
    width, narrow = (float(half_width(difference, level)) for level in (confidence, 1 - 2 * EQUIVALENCE_LEVEL))
    spread = None
    if n > 1 and same:
        width = narrow = 0.0
    elif n > 1 and prior is not None:
        variance, freedom = prior.moderated(float(difference.var(ddof=1)), n - 1)
        spread = math.sqrt(variance)
        width, narrow = (
            _student(share, freedom) * spread / math.sqrt(n) for share in ((1 + confidence) / 2, 1 - EQUIVALENCE_LEVEL)
        )
    resolved = abs(mean) > width or (mean == 0 and width == 0)
    within = margin if margin is not None and abs(mean) + narrow < margin else None
    needed = None if resolved or within is not None else seeds_needed(difference, confidence, spread=spread)
    return Comparison(mean, mean - width, mean + width, n, needed, within)


def seeds_needed(
    difference: Floats,
    confidence: float = CONFIDENCE,
    power: float = POWER,
    most: int = 10_000,
    spread: float | None = None,
) -> int | None:
    """Return how many seeds, more than there are, would resolve a mean of this size with this spread, so often.

    None if not even `most` would, and with few seeds, whose spread says too little. spread: None: that of the differences.
    """
    if len(difference) < FEWEST_SEEDS:
        return None
    mean = abs(float(difference.mean()))
    spread = float(difference.std(ddof=1)) if spread is None else spread
    counts, quantiles = _quantiles(len(difference) + 1, most, confidence, power)
    enough = np.flatnonzero(quantiles * spread / np.sqrt(counts) < mean)
    return int(counts[enough[0]]) if len(enough) else None


@functools.lru_cache(maxsize=128)
def _quantiles(least: int, most: int, confidence: float, power: float) -> tuple[Ints, Floats]:
    """Return numbers of seeds, and for each how many standard errors a difference needs to be resolved."""
    counts = np.unique(np.geomspace(least, most, 400).astype(int))
    widths = [_student((1 + confidence) / 2, n - 1) + _student(power, n - 1) for n in counts.tolist()]
    return counts, np.array(widths)


def diverged_runs_note(results: Sequence[RunResult]) -> str:
    """Say how many of these runs did not stay finite; nothing if all did."""
    count = sum(each.diverged is not None for each in results)
    return f"{count} of {len(results)} diverged" if count else ""
