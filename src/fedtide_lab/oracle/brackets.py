"""What is scheduling worth at all? A look-ahead of one step on held-out samples, in the worlds of the league.

Every curve of a world is the reference of the league, random scheduling as it was tuned there, with one thing replaced: the
schedule, the codec or the radio. The held-out samples are training samples that follow those of the devices, so that devices
hold what they hold in the league: its runs are compared with the oracle's, seed by seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedtide.config import merge_nested
from fedtide.studies import (
    Comparison,
    RunResult,
    Store,
    Study,
    make_study,
    mean_accuracy,
    paired_difference,
    paired_results,
)
from fedtide_lab.league.tune import BASE, LEAGUE_WORLDS, LeagueWorld
from fedtide_lab.paper.figures import Tree, stored_runs

ORACLE_WORLDS = tuple(world for world in LEAGUE_WORLDS if world.is_whole)
ORACLE, ORACLE_REFERENCE = "oracle", "random"
ORACLE_SEEDS = 5
ORACLE_MARGIN = 0.01  # of mean accuracy: a difference that no schedule is worth changing for
NUM_HELD_OUT = 250  # samples
_MOST_SEEDS = 20  # seeds that are looked for
_ALL: Tree = {
    "policy": {"limit": 40},
    "radio": {"num_symbols": 10**9},
}  # all devices, and symbols for every bit of a packet
_IDEAL: Tree = {"codec": {"name": "ideal"}}
_RATES = {"paper": 0.09, "macro": 0.09, "phones": 0.2}  # random scheduling's as the league tuned it, with gamma = 0.5


def _schedule(name: str, **args: Any) -> Tree:
    return {"policy": {"scheduler": {"name": name, **args} if args else name}}


SCHEDULES: dict[str, Tree] = {
    ORACLE_REFERENCE: {},
    "proposed": _schedule("proposed"),
    "best_channel": _schedule("best_channel"),
    "soft_rate_label": _schedule("soft_rate_label", weight=10.0),
    "age_based": _schedule("age_based"),
    "round_robin": _schedule("round_robin"),
    "whittle_age": _schedule("whittle_age"),
    # with the settings that the league chose in two worlds or more
    "proportional_fair": _schedule("proportional_fair", window=80.0),
    "threshold": _schedule("threshold", least=1.5),
    "drift_plus_penalty": _schedule("drift_plus_penalty", gain="capacity", value=0.1),
    "max_loss": _schedule("max_loss", drawn=10),
    "oort": _schedule("oort", penalty=2.0),
    "pisces": _schedule("pisces", staleness=1.0),
}
ORACLE_CURVES: dict[str, Tree] = {
    **SCHEDULES,
    ORACLE: {**_schedule("oracle", search="exchange"), "data": {"num_held_out": NUM_HELD_OUT}},
    "ideal codec": _IDEAL,
    "everybody": _ALL,
    "everybody, ideal codec": merge_nested(_ALL, _IDEAL),
}


class Bracket(NamedTuple):
    """What is to be gained over random scheduling in a world: paired differences of the mean accuracy over the horizon."""

    world: LeagueWorld
    accuracy: Mapping[str, float]  # of every curve
    gain: Mapping[str, Comparison]  # of every curve over random scheduling
    regret: Mapping[str, Comparison]  # of every schedule: the oracle less it
    runs: tuple[RunResult, ...]

    @property
    def scheduling(self) -> Comparison:
        """What the oracle gains."""
        return self.gain[ORACLE]

    @property
    def paper_share(self) -> float | None:
        """How much of it the paper's schedule gains; None if the oracle is not known to gain anything."""
        whole, part = self.scheduling, self.gain.get("proposed")
        return part.mean / whole.mean if part and whole.verdict == "higher" else None


def oracle_study(world: LeagueWorld, seeds: Sequence[int] | None = None) -> Study:
    """Return the runs of a world."""
    tuned = {"policy": {"age_base": 0.5}, "learning": {"learning_rate": _RATES[world.name]}}
    base = merge_nested(merge_nested(BASE, world.tree), tuned)
    trees = {name: merge_nested(base, tree) for name, tree in ORACLE_CURVES.items()}
    return make_study(world.name, trees, seeds or range(ORACLE_SEEDS))


def schedule_regrets(
    oracle: Mapping[int, RunResult], schedules: Mapping[str, Mapping[int, RunResult]], margin: float = ORACLE_MARGIN
) -> dict[str, Comparison]:
    """Return the regret of every schedule, the oracle's mean accuracy less its own, by the seeds that both have.

    A regret that two one-sided tests show to be within the margin says so in its verdict.
    """
    return {name: found for name, runs in schedules.items() if (found := _difference(oracle, runs, margin))}


def world_bracket(world: LeagueWorld, *stores: Store) -> Bracket | None:
    """Return the bracket of a world from the runs in these stores; None without runs of the oracle or its reference."""
    curves: dict[str, dict[int, RunResult]] = {}
    for store in stores:
        for name, runs in stored_runs(oracle_study(world, range(_MOST_SEEDS)), store).items():
            curves[name] = {**runs, **curves.get(name, {})}
    reference, oracle = curves.get(ORACLE_REFERENCE, {}), curves.get(ORACLE, {})
    if not {*reference} & {*oracle}:
        return None
    gain = {name: _difference(runs, reference) for name, runs in curves.items() if name != ORACLE_REFERENCE}
    regret = schedule_regrets(oracle, {name: curves[name] for name in SCHEDULES if name in curves})
    accuracy = {
        name: sum(mean_accuracy(runs[seed]) for seed in oracle) / len(oracle)
        for name, runs in curves.items()
        if {*oracle} <= {*runs}
    }
    every = tuple(run for runs in curves.values() for run in runs.values())
    return Bracket(world, accuracy, {name: found for name, found in gain.items() if found}, regret, every)


def _difference(
    better: Mapping[int, RunResult], worse: Mapping[int, RunResult], margin: float = ORACLE_MARGIN
) -> Comparison | None:
    pairs = paired_results(better, worse).values()
    first, second = ([mean_accuracy(pair[side]) for pair in pairs] for side in (0, 1))
    return paired_difference(first, second, margin=margin) if first else None
