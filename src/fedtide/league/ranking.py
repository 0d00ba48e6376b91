"""Who is ahead, and how sure that is: ranks with the range that the seeds leave open, gains, and what a target costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedtide.league.methods import PAPER, REFERENCE
from fedtide.league.playing import CONFIRMING, SEEDS, Arena, Entry
from fedtide.studies.pairing import paired
from fedtide.studies.reaching import Reaching
from fedtide.studies.result import RunResult
from fedtide.studies.statistics import CONFIDENCE, Comparison, compare, final_accuracy, mean_accuracy

SPENT = ("time", "bits", "joules")
STEP = 0.05  # targets are whole multiples of it

Runs = Mapping[str, Mapping[int, RunResult]]  # method -> seed -> result


class Cost(NamedTuple):
    """What is spent until the target is reached."""

    middle: float  # median over the seeds; infinite if fewer than half reach it
    reached: int  # seeds that do
    ratio: Comparison | None  # log of what it is of the reference's, seed by seed; None if a seed of either does not


class Row(NamedTuple):
    """A method's season in a world."""

    entry: Entry
    rank: int
    highest: int  # the best rank that the intervals leave open
    lowest: int
    accuracy: float  # mean over the horizon and the seeds
    final: float
    over_reference: Comparison | None  # None: the method itself, or no shared seed
    over_paper: Comparison | None
    surely: str  # `ahead` or `behind` the reference among so many comparisons (Bonferroni), or nothing
    costs: Mapping[str, Cost]

    @property
    def name(self) -> str:
        """The method's name."""
        return self.entry.method.name


class Table(NamedTuple):
    """A world's season."""

    arena: Arena
    target: float  # accuracy
    rows: tuple[Row, ...]  # by rank
    confirmed: Mapping[str, Comparison]  # the winner's gain on fresh seeds, over the reference and the paper's schedule

    def row(self, name: str) -> Row:
        """Return a method's row."""
        return next(each for each in self.rows if each.name == name)

    @property
    def winner(self) -> Row:
        """Who is first."""
        return self.rows[0]

    @property
    def level(self) -> list[Row]:
        """Who could be first as well: those whose range of ranks begins at 1."""
        return [each for each in self.rows[1:] if each.highest == 1]


def gain(
    one: Mapping[int, RunResult], other: Mapping[int, RunResult], confidence: float = CONFIDENCE
) -> Comparison | None:
    """Compare two methods by mean accuracy, seed by seed."""
    pairs = paired(one, other)
    if not pairs:
        return None
    first, second = ([mean_accuracy(pair[side]) for pair in pairs.values()] for side in (0, 1))
    return compare(first, second, confidence)


def table(arena: Arena, entries: Sequence[Entry], runs: Runs) -> Table | None:
    """Rank the methods of a world by their mean accuracy over the horizon; None if nobody has played.

    Means compare on the same seeds only: a method that lacks a seed of the reference is left out. A range of ranks: behind
    those that are ahead by a resolved difference (95 % interval), before those that are so behind.
    """
    wanted = [seed for seed in sorted(runs.get(REFERENCE, {})) if seed < SEEDS]
    ranked = {name: {seed: seeds[seed] for seed in wanted if seed in seeds} for name, seeds in runs.items()}
    played = [each for each in entries if len(ranked.get(each.method.name, {})) == len(wanted)]
    if not wanted:
        return None
    level = {each.method.name: _mean(ranked[each.method.name], mean_accuracy) for each in played}
    order = sorted(played, key=lambda each: -level[each.method.name])
    target = STEP * math.floor(_mean(ranked[REFERENCE], final_accuracy) / STEP)
    rows = []
    for rank, each in enumerate(order, 1):
        own = ranked[each.method.name]
        against = [_verdict(gain(own, ranked[other.method.name])) for other in order if other is not each]
        family = gain(own, ranked[REFERENCE], 1 - (1 - CONFIDENCE) / max(1, len(order) - 1))
        rows.append(
            Row(
                each,
                rank,
                1 + against.count("lower"),
                len(order) - against.count("higher"),
                level[each.method.name],
                _mean(own, final_accuracy),
                None if each.method.name == REFERENCE else gain(own, ranked[REFERENCE]),
                None if each.method.name == PAPER else gain(own, ranked.get(PAPER, {})),
                {"higher": "ahead", "lower": "behind"}.get(_verdict(family), ""),
                {what: _cost(what, target, own, ranked[REFERENCE]) for what in SPENT},
            )
        )
    first = rows[0].name
    fresh = {name: {seed: run for seed, run in seeds.items() if seed in CONFIRMING} for name, seeds in runs.items()}
    found = {name: gain(fresh.get(first, {}), fresh.get(name, {})) for name in (REFERENCE, PAPER) if name != first}
    return Table(arena, target, tuple(rows), {name: each for name, each in found.items() if each is not None})


def _verdict(comparison: Comparison | None) -> str:
    return comparison.verdict if comparison else ""


def _mean(runs: Mapping[int, RunResult], metric: Callable[[RunResult], float]) -> float:
    return float(np.mean([metric(each) for each in runs.values()]))


def _cost(what: str, target: float, own: Mapping[int, RunResult], reference: Mapping[int, RunResult]) -> Cost:
    until = Reaching(what, target)
    spent = np.array([until(each) for each in own.values()])
    middle = float(np.median(np.where(np.isnan(spent), math.inf, spent)))
    pairs = list(paired(own, reference).values())
    first, second = (np.log([until(pair[side]) for pair in pairs]) for side in (0, 1))
    ratio = compare(list(first), list(second)) if pairs and np.isfinite([*first, *second]).all() else None
    return Cost(middle, int(np.isfinite(spent).sum()), ratio)
