"""A race under way: what ran so far, who is out and why, and what that decides."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fedtide import config
from fedtide.config import Experiment
from fedtide.core import faults
from fedtide.errors import FedtideError
from fedtide.parts import user_code
from fedtide.report.notebook import notebook_columns, notebook_frame
from fedtide.studies import spec
from fedtide.studies.metrics import metric_if_reached, metric_named, metric_sign
from fedtide.studies.race_input import Budget, Stage
from fedtide.studies.results import RunResult, core_seconds
from fedtide.studies.run import Outcome, expected_run_work, failed_run_error
from fedtide.studies.sequential import anytime_margins, pair_level, within_margin, worse_candidates
from fedtide.studies.spec import Study
from fedtide.studies.statistics import (
    EQUIVALENT,
    Comparison,
    mixed_seeds_note,
    paired_difference,
    pairs_on_shared_paths,
)
from fedtide.studies.store import Store
from fedtide.studies.table import by_label, finite_table_value
from fedtide.types import Floats, documented


class RaceRow(NamedTuple):
    """How one candidate did. Differences are from the leader, positive if the leader is better."""

    candidate: str
    outcome: str  # leader, tied, no difference above m, worse, set aside (no budget for it), diverged, failed, or target not reached
    reason: str  # why it left the race; empty if it did not
    fidelity: int  # in which it left, or came to: 0 is the first; the last one is the experiment itself
    num_seeds: int  # that it ran there
    mean: float | None  # of the metric, over these seeds
    behind: float | None = None  # the leader's mean less its own, over the seeds of both
    low: float | None = None  # its interval, which holds however often one looks, for all candidates at once
    high: float | None = None


@documented
class RaceResult(NamedTuple):
    """The result of a race: the winner, how sure that is, and when and why the others were dropped."""

    name: str  # name of the race
    metric: str  # the number per run that is compared
    level: float  # upper bound on the probability that the race drops one of the truly best
    leader: str  # name of the winner
    rows: tuple[RaceRow, ...]  # one per candidate, in the given order
    stopped: str  # why the race ended
    num_runs: int  # number of runs, including those that were already stored
    seconds: float  # core time of the runs
    note: str = ""  # notes on the fresh seeds and on pairs that mix instruction paths
    against: str | None = None  # the candidate that the winner was compared with on fresh seeds; None: it was not
    confirmed: Comparison | None = None  # the winner's gain there with a plain 95 % interval; positive is better

    @property
    def tied(self) -> tuple[str, ...]:
        """The candidates that are statistically tied with the leader."""
        return tuple(row.candidate for row in self.rows if not row.reason and row.candidate != self.leader)

    @property
    def eliminated(self) -> tuple[RaceRow, ...]:
        """The candidates that were dropped."""
        return tuple(row for row in self.rows if row.reason)

    def table(self) -> Any:
        """Return one row per candidate: a pandas DataFrame, or a dict of NumPy arrays if pandas is not installed.

        Columns: candidate; outcome (leader, tied, worse, set aside, diverged, ...); reason (why it was dropped); fidelity (the stage
        that it reached, from 0); num_seeds; mean; behind (the leader's mean minus its own) with its interval low to high, which
        holds for all candidates and looks together.
        """
        return notebook_frame(notebook_columns(row._asdict() for row in self.rows))

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain data that can be written as JSON."""
        confirmed = self.confirmed and {
            **finite_table_value(self.confirmed._asdict()),
            "verdict": self.confirmed.verdict,
        }
        return {**self._asdict(), "rows": [row._asdict() for row in self.rows], "confirmed": confirmed}

    def __repr__(self) -> str:
        lines = [f"<{self.name}: {self.leader} leads in {self.metric}; {self.stopped}; {self.num_runs} runs"]
        for row in self.rows:
            mean = "" if row.mean is None else f"  {row.mean:.4f} on {row.num_seeds} seeds"
            lines.append(f"  {row.candidate}{mean}  {row.reason or row.outcome}")
        if self.confirmed is not None:
            gain = self.confirmed
            interval = f"{gain.mean:+.4f} ({gain.low:+.4f} to {gain.high:+.4f}; {gain.num_seeds} fresh seeds)"
            lines.append(f"  against {self.against}: {interval} {gain.verdict}")
        return "\n".join([*lines, *([f"  {self.note}"] if self.note else [])]) + ">"


class NoCandidateLeftError(FedtideError):
    """Every candidate of a race diverged, failed, or did not reach the target."""


_Runs = dict[str, dict[int, RunResult]]  # candidate -> seed -> result
T = TypeVar("T")
Steps = Generator[
    Study, Sequence[Outcome], T
]  # yields runs that it waits for, is sent those that failed, returns an answer


@dataclass
class RaceState:
    """A race under way. What it decides follows from the results in the store alone."""

    name: str
    entries: dict[str, Experiment]
    stages: list[Stage]
    metric: str
    margin: float | None
    level: float
    validation: float | None
    store: Store
    values: list[dict[str, list[float]]] = field(default_factory=list)  # by fidelity and candidate; higher is better
    out: dict[str, tuple[str, str, int]] = field(default_factory=dict)  # candidate -> outcome, reason, fidelity
    num_runs: int = 0
    seconds: float = 0.0
    work: float = 0.0  # samples that these runs visit, about
    uncounted: list[spec.Run] = field(default_factory=list)  # runs whose work is not in it yet
    stopped: str = ""
    exit_code: int = FedtideError.exit_code  # of the last run that failed
    paths_note: str = ""

    @property
    def sign(self) -> int:
        """1 if a higher number is better, else -1."""
        return metric_sign(self.metric)

    @property
    def alive(self) -> list[str]:
        """Who is in the race."""
        return [name for name in self.entries if name not in self.out]

    @property
    def stage(self) -> int:
        """The last fidelity that has results."""
        return max((number for number, found in enumerate(self.values) if any(found.values())), default=0)

    @property
    def stage_level(self) -> float:
        """The level of one fidelity."""
        return self.level / len(self.stages)

    def matrix(self, number: int) -> tuple[Floats, Any]:
        """Return the numbers of a fidelity, without those of who left it [K n], and who is in the race [K]."""
        alive = np.array([name in self.alive for name in self.entries])
        count = max((len(self.values[number][name]) for name in self.alive), default=0)
        rows = [self.values[number][name] if name in self.alive else [math.nan] * count for name in self.entries]
        return np.array(rows, np.float64), alive

    def results(self, entries: Mapping[str, Experiment], seeds: Sequence[int]) -> Steps[_Runs]:
        """Ask for runs, and return their results; candidates whose run fails are out."""
        study = spec.make_study(self.name, entries, seeds)
        folder = user_code.user_code_folder()  # of a study file whose parts lie beside it
        study = study._replace(runs=tuple(run._replace(beside=folder) for run in study.runs))
        for failed in (yield study):
            if failed.exit_code == faults.MACHINE:
                raise failed_run_error(failed)
            reason = f"failed on seed {failed.run.experiment.seed}: {failed.reason}"
            self.out.setdefault(failed.run.label, ("failed", reason, self.stage))
            self.exit_code = failed.exit_code
        found = pairs_on_shared_paths(by_label(study, self.store))
        self.paths_note = mixed_seeds_note(found) or self.paths_note
        done = [run for runs in found.values() for run in runs.values()]
        self.num_runs += len(done)
        self.seconds += core_seconds(done)
        self.uncounted += study.runs
        return found

    def expected_seconds(self, entries: Mapping[str, Experiment], count: int) -> float:
        """Return what so many seeds of these would take, by what the runs so far took; 0 before the first."""
        self.work += math.fsum(map(expected_run_work, self.uncounted))
        self.uncounted.clear()
        runs = spec.make_study(self.name, entries, [0]).runs if self.seconds else ()
        return count * math.fsum(map(expected_run_work, runs)) * self.seconds / max(self.work, 1.0)

    def at_fidelity(self, number: int) -> dict[str, Experiment]:
        """Return those in the race as they run there."""
        keys = config.nest(self.stages[number].keys)
        held = {"data": {"validation": self.validation}} if self.validation else {}
        return {name: config.experiment(self.entries[name], keys, held) for name in self.alive}

    def runs_left(self, number: int, limit: Budget, confirm: int) -> float:
        """Return how many runs of this fidelity the budget has left; a cheaper one takes half of it."""
        if limit == Budget():
            return math.inf
        left = limit.runs - self.num_runs - confirm * min(2, len(self.entries))
        if math.isfinite(limit.seconds):
            pair = {name: self.entries[name] for name in self.alive[:2]}
            seconds = limit.seconds - self.seconds - self.expected_seconds(pair, confirm)
            one = self.expected_seconds(self.at_fidelity(number), 1) / len(self.alive)
            left = min(left, seconds / one if one else math.inf)
        return left if number == len(self.stages) - 1 or not self.num_runs else left / 2

    def set_aside(self, count: int) -> None:
        """Leave only the first so many in the race; the others are not shown to be worse."""
        found = self.values[self.stage]
        order = sorted(self.alive, key=lambda name: -float(np.mean(found[name])))
        for name in order[count:]:
            behind = float(np.mean(found[order[0]]) - np.mean(found[name]))
            reason = f"set aside for lack of budget, {behind:.4f} behind {order[0]} after {len(found[name])} seeds"
            self.out[name] = "set aside", reason, self.stage

    def step(self, number: int, seeds: Sequence[int]) -> Steps[None]:
        """Run some seeds of a fidelity, and drop who is worse."""
        found = yield from self.results(self.at_fidelity(number), seeds)
        for name, runs in found.items():
            for seed, run in runs.items() if name not in self.out else ():
                self.values[number][name].append(self.sign * self.measured(name, seed, run, number))
        if not self.alive:
            first, (_, reason, _) = next(iter(self.out.items()))
            error = NoCandidateLeftError(
                f"no candidate is left ({first}: {reason}); finished runs are kept: give others and race again"
            )
            error.exit_code = self.exit_code
            raise error
        values, alive = self.matrix(number)
        names = list(self.entries)
        for each, rival in worse_candidates(values, alive, self.stage_level).items():
            gap = float(values[rival].mean() - values[each].mean())
            reason = f"worse than {names[rival]} by {gap:.4f} after {values.shape[1]} seeds"
            self.out[names[each]] = "worse", reason, number
        if len(self.alive) == 1:
            self.stopped = "one candidate is left"
        elif number == len(self.stages) - 1 and self.margin is not None and self.alike(number).all():
            self.stopped = f"those left differ from the leader by less than {self.margin:g}"

    def measured(self, name: str, seed: int, run: RunResult, number: int) -> float:
        """Return a run's number; who has none, or did not stay finite, is out."""
        value = metric_if_reached(self.metric, run, name)
        if run.diverged is not None:
            self.out[name] = "diverged", f"diverged on seed {seed} at time {run.diverged:g}", number
        elif math.isnan(value):
            accuracy = self.metric.rpartition("_")[2]
            self.out[name] = "target not reached", f"does not reach {accuracy} on seed {seed}", number
        return value

    def leader(self) -> str:
        """Return who has the best mean so far."""
        found = self.values[self.stage]
        return max(self.alive, key=lambda name: float(np.mean(found[name])) if found[name] else -math.inf)

    def alike(self, number: int) -> Any:
        """Return whether each of those left is shown to be within the margin of the leader."""
        values, alive = self.matrix(number)
        place = list(self.entries).index(self.leader())
        found = within_margin(values, alive, place, self.stage_level, self.margin or 0.0)
        return found[alive]

    def rows(self) -> tuple[RaceRow, ...]:
        """Return how every candidate did."""
        leader = self.leader()
        alike = dict(zip(self.alive, self.alike(self.stage), strict=True)) if self.margin is not None else {}
        return tuple(self._row(name, leader, bool(alike.get(name))) for name in self.entries)

    def _row(self, name: str, leader: str, alike: bool) -> RaceRow:
        within = f"{EQUIVALENT} {self.margin:g}" if alike else "tied"
        outcome, reason, number = self.out.get(name, ("leader" if name == leader else within, "", self.stage))
        own, best = self.values[number][name], self.values[number][leader]
        count = min(len(own), len(best))
        mean = self.sign * float(np.mean(own)) if own and np.isfinite(own).all() else None
        row = RaceRow(name, outcome, reason, number, len(own), mean)
        if name == leader or not count or mean is None:
            return row
        gap, width = anytime_margins(
            np.array([best[:count], own[:count]]), pair_level(self.stage_level, len(self.entries))
        )
        ends = finite_table_value({"low": float(gap[0, 1] - width[0, 1]), "high": float(gap[0, 1] + width[0, 1])})
        return row._replace(behind=float(gap[0, 1]), **ends)

    def so_far(self) -> RaceResult:
        """Return how the race stands."""
        left = f"{len(self.alive)} of {len(self.entries)} candidates are left"
        told = (self.stopped or left, self.num_runs, self.seconds, self.paths_note)
        return RaceResult(self.name, self.metric, self.level, self.leader(), self.rows(), *told)

    def confirmed(self, found: RaceResult, against: str, seeds: Sequence[int]) -> Steps[RaceResult]:
        """Compare the leader with another candidate on fresh seeds and on the test set, as the experiments are."""
        pair = {name: self.entries[name] for name in dict.fromkeys((found.leader, against))}
        runs = yield from self.results(pair, seeds)
        notes = [self.paths_note]
        for name, each in runs.items():
            notes += [f"{name} {self.out[name][1]}"] if not each and name in self.out else []
            wild = [seed for seed, run in each.items() if run.diverged is not None]
            notes += [f"{name} diverged on the fresh seed{'s' * (len(wild) > 1)} {str(wild)[1:-1]}"] if wild else []
        shared = [seed for seed in seeds if all(seed in each for each in runs.values())]
        measure = metric_named(self.metric)
        numbers = [[self.sign * measure(runs[name][seed]) for seed in shared] for name in pair]
        told = found._replace(num_runs=self.num_runs, seconds=self.seconds)
        if np.isnan(numbers).any():
            notes.append(f"not every fresh seed has a {self.metric}, so nothing is compared on them")
        elif len(pair) == 2 and shared:
            gain = paired_difference(numbers[0], numbers[1], margin=self.margin)
            told = told._replace(against=against, confirmed=gain)
        return told._replace(note="; ".join(filter(None, notes)))
