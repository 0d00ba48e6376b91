"""Who is ahead, and how sure that is: ranks with the range that the seeds leave open, gains, and what a target costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedtide.studies import (
    CONFIDENCE,
    Comparison,
    Reaching,
    RunResult,
    Store,
    Study,
    final_accuracy,
    mean_accuracy,
    metric_margin,
    paired_difference,
    paired_results,
)
from fedtide_lab.league.methods import PAPER_METHOD, REFERENCE, LeagueMethod
from fedtide_lab.league.tune import (
    COMBINED,
    CONFIRMING,
    RANKING_SEEDS,
    Entry,
    LeagueWorld,
    ranking_study,
    tuned_entries,
)
from fedtide_lab.paper.figures import stored_runs

_SPENT = ("time", "bits", "joules")
_MOST_SEEDS = 20  # seeds that are looked for: those that rank, and the fresh ones
_STEPS = 20  # targets are whole multiples of 1/20 = 0.05

Runs = Mapping[str, Mapping[int, RunResult]]  # method -> seed -> result


class Cost(NamedTuple):
    """What is spent until the target is reached."""

    middle: float  # median over the seeds; infinite unless more than half reach it
    reached: int  # seeds that do
    seeds: int
    ratio: Comparison | None  # log of what it is of the reference's, seed by seed; None if a seed of either does not


class Standing(NamedTuple):
    """How a method did in a world."""

    entry: Entry
    rank: int
    highest: int  # the best rank that the intervals leave open
    lowest: int
    accuracy: float  # mean over the horizon and the seeds
    final: float
    over_reference: Comparison | None  # None: the method itself
    over_control: Comparison | None  # None: its control is the reference, itself, or has no runs
    over_paper: Comparison | None
    surely: str  # `ahead` or `behind` the reference among so many comparisons (Bonferroni), or nothing
    is_level: bool  # no run of it diverged, and its difference from the winner is not resolved
    diverged: int  # runs on the seeds that rank; they count as chance from then on
    diverged_fresh: int  # runs on the fresh seeds
    costs: Mapping[str, Cost]

    @property
    def name(self) -> str:
        """The method's name."""
        return self.entry.method.name

    @property
    def words(self) -> str:
        """The method's name in words."""
        return self.entry.method.words if self.name != COMBINED else COMBINED

    @property
    def is_finite(self) -> bool:
        """Whether no run of it diverged."""
        return not self.diverged + self.diverged_fresh


class Standings(NamedTuple):
    """A world's ranking."""

    world: LeagueWorld
    target: float  # accuracy
    seeds: tuple[int, ...]
    rows: tuple[Standing, ...]  # by rank
    left_out: Mapping[str, int]  # methods that lack runs, with how many they have
    confirmed: Mapping[
        str, Mapping[str, Comparison]
    ]  # method -> its gain on fresh seeds over reference and paper's schedule

    def row(self, name: str) -> Standing:
        """Return a method's row."""
        return next(each for each in self.rows if each.name == name)

    @property
    def winner(self) -> Standing:
        """The best method of which no run diverged, on the seeds that rank or on fresh ones; the best if all have one."""
        return next((each for each in self.rows if each.is_finite), self.rows[0])

    @property
    def digital(self) -> Standing | None:
        """The best such method that sends packets."""
        return next((each for each in self.rows if each.is_finite and not is_analog(each)), None)

    @property
    def level(self) -> list[Standing]:
        """Methods that are statistically tied with the winner."""
        return [each for each in self.rows if each.is_level and each is not self.winner]


def ranking_gain_over(
    one: Mapping[int, RunResult], other: Mapping[int, RunResult], confidence: float = CONFIDENCE
) -> Comparison | None:
    """Compare two methods by mean accuracy, seed by seed."""
    pairs = paired_results(one, other)
    if not pairs:
        return None
    first, second = ([mean_accuracy(pair[side]) for pair in pairs.values()] for side in (0, 1))
    return paired_difference(first, second, confidence, metric_margin("mean_accuracy"))


def _standings(world: LeagueWorld, entries: Sequence[Entry], runs: Runs) -> Standings | None:
    """Rank the methods of a world by their mean accuracy over the horizon; None if the reference has no runs.

    Means compare on the same seeds only: those that the reference and most methods have. A method that lacks one of them is
    left out, and said to be. A run that diverged counts as chance. A range of ranks: behind those that are ahead by a resolved
    difference (95 % interval), before those that are so behind.
    """
    names = [each.method.name for each in entries]
    seeds = [
        seed
        for seed in sorted(runs.get(REFERENCE, {}))
        if seed < RANKING_SEEDS and 2 * sum(seed in runs.get(name, {}) for name in names) > len(names)
    ]
    if not seeds:
        return None
    ranked = {name: {seed: found[seed] for seed in seeds if seed in found} for name, found in runs.items()}
    complete = [each for each in entries if len(ranked.get(each.method.name, {})) == len(seeds)]
    level = {each.method.name: _mean(ranked[each.method.name], mean_accuracy) for each in complete}
    order = sorted(complete, key=lambda each: -level[each.method.name])
    by_rank = [each.method.name for each in order]
    target = (
        math.floor(_mean(ranked[REFERENCE], final_accuracy) * _STEPS + 1e-9) / _STEPS
    )  # the decimal: 0.6, not 0.05 * 12
    fresh = {name: {seed: run for seed, run in found.items() if seed in CONFIRMING} for name, found in runs.items()}
    lost = {name: (_diverged(ranked[name]), _diverged(fresh[name])) for name in level}
    first = next((name for name in by_rank if not any(lost[name])), by_rank[0])

    def row(rank: int, each: Entry) -> Standing:
        name, control = each.method.name, each.method.control
        own, reference = ranked[name], ranked[REFERENCE]
        against = [_verdict(ranking_gain_over(own, ranked[other.method.name])) for other in order if other is not each]
        family = ranking_gain_over(own, reference, 1 - (1 - CONFIDENCE) / max(1, len(order) - 1))
        return Standing(
            each,
            rank,
            1 + against.count("lower"),
            len(order) - against.count("higher"),
            level[name],
            _mean(own, final_accuracy),
            None if name == REFERENCE else ranking_gain_over(own, reference),
            None if control in (name, REFERENCE) else ranking_gain_over(own, ranked.get(control, {})),
            None if name == PAPER_METHOD else ranking_gain_over(own, ranked.get(PAPER_METHOD, {})),
            {"higher": "ahead", "lower": "behind"}.get(_verdict(family), ""),
            not any(lost[name]) and (name == first or _verdict(ranking_gain_over(own, ranked[first])) != "lower"),
            *lost[name],
            {what: _cost(what, target, own, reference) for what in _SPENT},
        )

    again = {
        name: {
            other: found
            for other in (REFERENCE, PAPER_METHOD)
            if (found := ranking_gain_over(own, fresh.get(other, {}))) and name != other
        }
        for name, own in fresh.items()
    }
    return Standings(
        world,
        target,
        tuple(seeds),
        tuple(row(rank, each) for rank, each in enumerate(order, 1)),
        {name: len(ranked.get(name, {})) for name in names if len(ranked.get(name, {})) < len(seeds)},
        {name: each for name, each in again.items() if each},
    )


def is_analog(row: Standing) -> bool:
    """Say whether a method sends analog signals instead of bits."""
    return bool(row.entry.tree.get("method") == "over_the_air")


def _diverged(runs: Mapping[int, RunResult]) -> int:
    return sum(each.diverged is not None for each in runs.values())


def _verdict(comparison: Comparison | None) -> str:
    return comparison.verdict if comparison else ""


def _mean(runs: Mapping[int, RunResult], metric: Callable[[RunResult], float]) -> float:
    return float(np.mean([metric(each) for each in runs.values()]))


def _cost(what: str, target: float, own: Mapping[int, RunResult], reference: Mapping[int, RunResult]) -> Cost:
    until = Reaching(what, target)
    found = until.over_seeds(list(own.values()))
    pairs = list(paired_results(own, reference).values())
    first, second = (np.array([until(pair[side]) for pair in pairs]) for side in (0, 1))
    known = np.isfinite([*first, *second]).all() and min(*first, *second) > 0
    ratio = paired_difference(list(np.log(first)), list(np.log(second))) if known else None
    return Cost(*found, ratio)


# The benchmark from its store: what is still to run, and the tables of what has run.


def ranking_studies(
    worlds: Sequence[LeagueWorld], entries: Mapping[str, Sequence[Entry]], store: Store
) -> Iterator[tuple[str, list[Study]]]:
    """Yield what to run once methods are tuned: what ranks them, then fresh seeds for those that may win. entries: by world."""
    yield "ranking", [ranking_study(world, entries[world.name], range(RANKING_SEEDS)) for world in worlds]
    asked: set[str] = set()
    while True:  # a winner that diverges there gives way to the next
        tables = [(world, ranking_table(world, entries[world.name], store)) for world in worlds]
        finals = [ranking_study(world, _finalists(found[0]), CONFIRMING) for world, found in tables if found]
        names = {run.name for part in finals for run in part.runs}
        if names <= asked:
            return
        asked |= names
        yield "fresh seeds", finals


def ranking_table(world: LeagueWorld, entries: Sequence[Entry], store: Store) -> tuple[Standings, Runs] | None:
    """Return a world's table and the runs behind it; None if there are no runs."""
    runs = stored_runs(ranking_study(world, entries, range(_MOST_SEEDS)), store)
    made = _standings(world, entries, runs)
    return (made, runs) if made else None


def ranking_benchmark(
    worlds: Sequence[LeagueWorld], store: Store, own: Sequence[LeagueMethod] = ()
) -> list[tuple[Standings, Runs]]:
    """Return the tables of the worlds that have runs, each with the runs behind it. own: a user's methods."""
    entries = tuned_entries(worlds, store, own, only_stored=True)
    ranked = [
        world for world in worlds if 2 * len(entries[world.name]) > len(world.methods)
    ]  # else it has hardly begun
    return [found for world in ranked if (found := ranking_table(world, entries[world.name], store)) is not None]


def _finalists(found: Standings) -> list[Entry]:
    """Return who meets again on fresh seeds: the winner and those ranked before it, of packets too, paper and reference."""
    last = (found.digital or found.winner).rank
    return [row.entry for row in found.rows if row.rank <= last or row.name in (PAPER_METHOD, REFERENCE)]
