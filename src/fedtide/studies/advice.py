"""Advice as a value: what to set, what each choice is worth, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from fedtide import config
from fedtide.config import Experiment
from fedtide.studies.metrics import Reaching
from fedtide.studies.pruning import Pruned
from fedtide.studies.race_state import RaceResult, RaceRow
from fedtide.studies.results import RunResult
from fedtide.studies.statistics import Comparison
from fedtide.studies.table import finite_table_value
from fedtide.types import documented

_NEAREST: Final = 2  # settings without a verdict that are named as alternatives
_SPENT: Final = ("time", "air_time", "joules")


class Worth(NamedTuple):
    """One choice: what the base has, what is advised, and what that is worth."""

    choice: str
    key: str  # of an experiment
    base: str
    advice: str
    gain: Comparison | None = None  # over the advice with the base's option; positive is better; None: not measured
    note: str = ""  # why it was not measured

    @property
    def is_sure(self) -> bool:
        """Say whether the interval of the gain is above 0."""
        return self.gain is not None and self.gain.low > 0


class Reached(NamedTuple):
    """On how many fresh seeds the target is reached."""

    advice: int
    base: int
    num_seeds: int


class FrontPoint(NamedTuple):
    """What a setting spends up to the target, on average over fresh seeds; None: not counted."""

    setting: str
    time: float
    air_time: float | None
    joules: float | None
    num_runs: int
    on_front: bool = False  # no other setting is better in one of these and as good in all others


@documented
class Advice(NamedTuple):
    """Recommended settings for a network, what each is worth, and how sure that is."""

    base: Experiment  # the experiment that was given
    experiment: Experiment  # the base with the advice
    keys: dict[str, Any]  # the keys that the advice changes
    goal: str  # the objective: accuracy, time, airtime or joules
    metric: str  # the metric that decided the race
    worth: tuple[Worth, ...]  # what each choice is worth
    worth_share: float  # share of the horizon on which the gains of the choices were measured
    race: RaceResult  # the race between the base and the best settings of the short runs, with the gain on fresh seeds
    pruned: Pruned  # settings that plans ruled out
    notes: tuple[str, ...]  # settings that were not considered, and why
    screened: int  # number of settings that had a short run
    screened_share: float  # share of the horizon that the short runs had
    front: tuple[FrontPoint, ...]  # the trade-off of time, airtime and joules to the target
    target: float | None  # target accuracy of the front; None: the base has no run on fresh seeds
    reached: Reached | None  # number of fresh seeds that reach the target; None: the goal is accuracy
    seeds: str  # which seeds chose, raced and confirmed
    num_runs: int  # number of runs
    seconds: float  # core time of the runs
    provenance: dict[str, Any]  # version, commit and instruction path

    @property
    def changes(self) -> bool:
        """Whether the advice changes anything."""
        return bool(self.keys)

    @property
    def is_confirmed(self) -> bool:
        """Whether fresh seeds confirm the gain: its interval is above 0, or only the advice reaches the target."""
        found, reached = self.race.confirmed, self.reached
        if found is None:
            return self.changes and reached is not None and reached.advice == reached.num_seeds and not reached.base
        return self.changes and found.low > 0

    @property
    def headline(self) -> str:
        """The advice in one sentence."""
        found = self.race.confirmed
        if not self.changes:
            return (
                f"Keep the settings of the base: none of the {len(self.race.rows) - 1} settings that raced did better."
            )
        if found is None and self.reached is not None:
            advice, base, count = self.reached
            bases = (
                f"reaches {self.target:g} on {base} of {count} fresh seeds"
                if base
                else f"does not reach {self.target:g}"
            )
            return f"The base {bases} within the horizon; the advice does on {advice} of {count} fresh seeds."
        if found is None:
            return f"Not compared with the base on fresh seeds: {self.race.note or 'no fresh seed was run'}."
        gain = f"{found.mean:+.4g} (95 % interval {found.low:+.4g} to {found.high:+.4g}, {found.num_seeds} fresh seeds)"
        what = "mean accuracy" if self.metric == "mean_accuracy" else f"{self.metric}, positive is less"
        return f"Gain over the base in {what}: {gain}{'' if self.is_confirmed else ', not confirmed'}."

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons that could change the advice: unresolved choices, and settings tied with the winner."""
        changed = [row for row in self.worth if row.advice != row.base]
        found = [
            f"{row.choice}: {row.base} is {'better' if row.gain.high < 0 else 'as good, as far as can be told'}, the worth of "
            f"{row.advice} being {gain_text(row.gain)}"
            for row in changed
            if row.gain is not None and not row.is_sure
        ]
        found += [f"{row.choice}: {row.note}" for row in changed if row.note]
        found += [f"statistically tied with the advice: {name}" for name in self.race.tied]
        last = max(row.fidelity for row in self.race.rows)
        aside = [row for row in self.race.rows if row.outcome == "set aside" and row.fidelity == last]
        near = sorted((row.behind, row) for row in aside if row.behind is not None and row.candidate != "base")
        found += [
            f"not shown to be worse, {behind:.4g} behind the advice on {row.num_seeds} seed{'s' * (row.num_seeds > 1)}: "
            f"{row.candidate}"
            for behind, row in near[:_NEAREST]
        ]
        if self.changes and not self.is_confirmed:
            found.append("the gain over the base is not confirmed: keep the base, or give a larger budget")
        return tuple(found)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain data that can be written as JSON."""
        rows = [{**row._asdict(), "gain": row.gain and finite_table_value(row.gain._asdict())} for row in self.worth]
        return {
            **self._asdict(),
            "base": config.dump(self.base),
            "experiment": config.dump(self.experiment),
            "headline": self.headline,
            "confirmed": self.is_confirmed,
            "doubts": list(self.doubts),
            "worth": rows,
            "race": self.race.as_json(),
            "pruned": self.pruned._asdict(),
            "reached": self.reached and self.reached._asdict(),
            "front": [point._asdict() for point in self.front],
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Advice:
        """Return an advice from the data of `as_json`, also if an older version wrote it."""
        race: dict[str, Any] = {**told["race"], "rows": tuple(RaceRow(**row) for row in told["race"]["rows"])}
        values: dict[str, Any] = {
            **{name: told.get(name) for name in cls._fields},
            **{name: config.experiment(told[name]) for name in ("base", "experiment")},
            "worth": tuple(Worth(**{**row, "gain": _comparison(row["gain"])}) for row in told["worth"]),
            "race": RaceResult(**{**race, "confirmed": _comparison(race["confirmed"])}),
            "pruned": Pruned(**told["pruned"]),
            "notes": tuple(told["notes"]),
            "front": tuple(FrontPoint(**point) for point in told["front"]),
            "reached": Reached(**told["reached"]) if told.get("reached") else None,
        }
        return cls(**values)

    def __repr__(self) -> str:
        lines = [f"<advice for {self.goal}: {self.headline}"]
        lines += [
            f"  {row.choice}: {row.base} -> {row.advice}  {gain_text(row.gain)}".rstrip()
            for row in self.worth
            if row.advice != row.base
        ]
        return "\n".join([*lines, *(f"  {line}" for line in self.doubts)]) + ">"


def _comparison(told: Mapping[str, Any] | None) -> Comparison | None:
    if told is None:
        return None
    ends = {name: end if told[name] is None else told[name] for name, end in (("low", -math.inf), ("high", math.inf))}
    return Comparison(**{name: told[name] for name in Comparison._fields if name in told} | ends)


def gain_text(gain: Comparison | None) -> str:
    """Write a gain with its interval; nothing if it was not measured."""
    if gain is None:
        return ""
    return f"{gain.mean:+.4g} ({gain.low:+.4g} to {gain.high:+.4g}; {gain.num_seeds} seeds)"


def front_points(results: Mapping[str, Sequence[RunResult]], target: float) -> tuple[FrontPoint, ...]:
    """Return what every setting spends up to the target, if all of its runs reach it, and who is on the Pareto front."""
    points = []
    for setting, runs in results.items():
        time, *others = (_mean_spent(runs, what, target) for what in _SPENT)
        if time is not None:
            points.append(FrontPoint(setting, time, others[0], others[1], len(runs)))
    return tuple(point._replace(on_front=not _is_beaten(point, points)) for point in points)


def count_reached(runs: Mapping[int, RunResult], target: float) -> int:
    """Return how many runs reach an accuracy; one that diverged does not."""
    return sum(_reaches(run, target) for run in runs.values())


def _reaches(run: RunResult, target: float) -> bool:
    return run.diverged is None and bool((run.column("test_accuracy") >= target).any())


def _mean_spent(runs: Sequence[RunResult], what: str, target: float) -> float | None:
    if not runs or not all(_reaches(run, target) for run in runs):
        return None
    mean = float(np.mean([Reaching(what, target)(run) for run in runs]))
    return None if np.isnan(mean) else mean


def _is_beaten(point: FrontPoint, points: Iterable[FrontPoint]) -> bool:
    own = np.array([getattr(point, what) or 0.0 for what in _SPENT])
    for other in points:
        theirs = np.array([getattr(other, what) or 0.0 for what in _SPENT])
        if (theirs <= own).all() and (theirs < own).any():
            return True
    return False
