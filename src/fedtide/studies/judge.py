"""A judge: is a part better than another one, world by world? Equal tuning, seeds derived from the file, a certificate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fedtide.config import PART_KEYS, Experiment
from fedtide.engine.making import refuse_wrong_arguments
from fedtide.errors import FedtideError
from fedtide.parts.checks import checked_callback
from fedtide.report.notebook import notebook_columns, notebook_frame
from fedtide.studies.certificate import (
    SIDES,
    UNRESOLVED,
    Record,
    decide,
    make_certificate,
    measured_or_none,
    refuse_other_certificate,
    side_experiment,
    tuned_settings,
    world_record,
    world_verdict,
    write_certificate,
)
from fedtide.studies.judge_checks import check_judged_parts
from fedtide.studies.judge_input import (
    TUNING_SEEDS,
    JudgedPart,
    JudgedWorld,
    Settings,
    check_settings,
    derived_seeds,
    judged_part,
    judged_world,
    reference_part,
    tuning_fidelity,
    tuning_grids,
)
from fedtide.studies.metrics import metric_margin, metric_named
from fedtide.studies.race_input import Budget, race_budget
from fedtide.studies.results import RunResult, core_seconds
from fedtide.studies.run import Outcome, failed_run_error, run_study, study_backend
from fedtide.studies.spec import Given, make_study
from fedtide.studies.statistics import pairs_on_shared_paths
from fedtide.studies.store import Store, kept_results
from fedtide.studies.table import by_label
from fedtide.types import documented


@documented
class WorldVerdict(NamedTuple):
    """What was found in one world. Differences are positive if the part is better."""

    world: str
    verdict: str  # better, worse, no difference above m, not resolved
    difference: float | None  # mean paired difference of the metric
    low: float | None  # its interval, which holds however often one looks
    high: float | None
    num_seeds: int  # after which it was decided
    settings: dict[str, Any]  # chosen for the part
    against_settings: dict[str, Any]
    note: str


@documented
class Judgement(NamedTuple):
    """Whether a part is better than another one, world by world, with a certificate that others can verify."""

    part: str  # the judged part
    against: str  # the part that it is compared with
    metric: str  # the number per run that is compared
    margin: float | None  # the smallest difference that matters; None: no margin
    worlds: tuple[WorldVerdict, ...]  # a verdict per world
    num_runs: int  # number of runs
    seconds: float  # core time of the runs
    certificate: dict[str, Any]  # the verdicts, and everything needed to verify them, with a digest

    def table(self) -> Any:
        """Return one row per world: a pandas DataFrame, or a dict of NumPy arrays if pandas is not installed.

        Columns: world; verdict (better, worse, no difference above a margin, not resolved); difference, positive if the part is
        better, with its interval low to high; num_seeds; settings and against_settings (chosen in tuning); note.
        """
        return notebook_frame(notebook_columns(row._asdict() for row in self.worlds))

    def as_json(self) -> dict[str, Any]:
        """Return the verdicts and the digest of the certificate as plain data that can be written as JSON."""
        told = {key: value for key, value in self._asdict().items() if key != "certificate"}
        return {**told, "worlds": [row._asdict() for row in self.worlds], "digest": self.certificate["digest"]}

    def __repr__(self) -> str:
        lines = [f"<{self.part} against {self.against}: {self.metric}, {self.num_runs} runs"]
        for row in self.worlds:
            lines.append(
                f"  {row.world}: {row.verdict}  {difference_text(row)}  {row.num_seeds} seeds  {row.note}".rstrip()
            )
        return "\n".join(lines) + ">"


def difference_text(row: WorldVerdict) -> str:
    """Write a difference with its interval."""
    if row.difference is None:
        return "-"
    known = row.low is not None and row.high is not None
    return f"{row.difference:+.4f}" + (f" ({row.low:+.4f} to {row.high:+.4f})" if known else "")


@dataclass
class _Judge:
    """A judgement under way. What it decides follows from the results in the store alone."""

    sides: Mapping[str, JudgedPart]
    tune: Mapping[str, Sequence[Any]]
    metric: str
    margin: float | None
    level: float
    seeds: int  # at most, that judge
    salt: str
    store: Store
    how: Mapping[str, Any]  # where runs are done, and who is told of them: what `run_study` takes
    num_runs: int = 0
    seconds: float = 0.0
    paths: set[str] = field(default_factory=set)  # instruction paths of all runs

    def run(self, entries: Mapping[str, Experiment], seeds: Sequence[int]) -> list[list[RunResult]]:
        """Run experiments on all of these seeds; return the results of each, in the order of the seeds."""
        study = make_study("judge", entries, seeds)
        for failed in run_study(study, self.store, **self.how):
            raise failed_run_error(failed)
        found = pairs_on_shared_paths(by_label(study, self.store))
        return [[runs[seed] for seed in seeds] for runs in found.values()]

    def counted(self, name: str, runs: Sequence[RunResult]) -> list[float | None]:
        """Count what some runs took; return their numbers."""
        self.num_runs, self.seconds = self.num_runs + len(runs), self.seconds + core_seconds(runs)
        self.paths.update(run.path for run in runs)
        return [measured_or_none(run, self.metric, name) for run in runs]

    def tuned(
        self, world: JudgedWorld, side: str, grid: Sequence[Settings], tuning: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Run a side with every setting on all tuning seeds; return the settings with their numbers."""
        keys = self.sides[side].keys
        entries = {
            f"{world.name}, {side}, setting {number}": side_experiment(
                world.experiment, tuning["changed"], keys, settings
            )
            for number, settings in enumerate(grid, 1)
        }
        return [
            {"settings": settings, "values": self.counted(name, runs)}
            for settings, name, runs in zip(grid, entries, self.run(entries, tuning["seeds"]), strict=True)
        ]

    def world(self, world: JudgedWorld, share: Budget) -> Record:
        """Tune both sides and judge them in one world. share: what it may spend."""
        derived = [derived_seeds(self.sides["part"], world.digest, self.tune, self.salt, use, count)
                   for use, count in (("tuning", TUNING_SEEDS), ("judging", self.seeds))]  # fmt: skip
        before = Budget(self.num_runs, self.seconds)
        tuning: dict[str, Any] = {"changed": tuning_fidelity(world.experiment), "seeds": derived[0]}
        for side, grid in zip(SIDES, tuning_grids(self.sides["part"], world, self.tune), strict=True):
            tuning[side] = self.tuned(world, side, grid, tuning)
            if side == "part" and 2 * (self.seconds - before.seconds) > share.seconds:
                raise FedtideError(
                    f"budget: tuning takes about {2 * (self.seconds - before.seconds):.0f} s of the {share.seconds:.0f} s that "
                    f"{world.name} has: raise --budget or name fewer worlds; finished runs are kept"
                )
        chosen = {side: tuned_settings(tuning[side], self.metric) for side in SIDES}
        left = Budget(share.runs - self.num_runs + before.runs, share.seconds - self.seconds + before.seconds)
        judging = self.judged(world, chosen, derived[1], left)
        record = {**world_record(world), "tuning": tuning, "chosen": chosen, "judging": judging}
        return {**record, "verdict": world_verdict(record, self.metric, self.level, self.margin)}

    def judged(
        self, world: JudgedWorld, chosen: Mapping[str, Settings], seeds: Sequence[int], left: Budget
    ) -> dict[str, Any]:
        """Run both sides on the seeds that judge, until it is decided or the budget is used up.

        Workers may do seeds beyond the one that decides. These do not count, so the record does not depend on them.
        """
        entries = {
            f"{world.name}, {side}": side_experiment(world.experiment, self.sides[side].keys, chosen[side])
            for side in SIDES
        }
        runs: list[list[RunResult]] = [[], []]
        verdict: dict[str, Any] = {"verdict": UNRESOLVED, "num_seeds": 0}
        while verdict["verdict"] == UNRESOLVED:
            done = len(runs[0])
            pair = core_seconds([*runs[0], *runs[1]]) / max(done, 1)
            pairs = left.runs / 2 if left.seconds > 0 else 0.0
            room = min(pairs, left.seconds / pair if pair else math.inf) - done
            more = seeds[done : done + max(0, int(min(room, self.how["workers"] // 2 or 1)))]
            if not more:
                break
            runs = [[*old, *new] for old, new in zip(runs, self.run(entries, more), strict=True)]
            part, against = ([measured_or_none(run, self.metric, world.name) for run in found] for found in runs)
            verdict = decide(part, against, self.metric, self.level, self.margin)
        used = verdict["num_seeds"]
        values = {side: self.counted(world.name, found[:used]) for side, found in zip(SIDES, runs, strict=True)}
        return {**values, "seeds": list(seeds[:used])}


def judge(
    part: Any,
    *,
    worlds: Sequence[Given] = ("paper",),
    kind: str | None = None,
    against: Any = None,
    tune: Mapping[str, Sequence[Any]] | None = None,
    metric: str = "mean_accuracy",
    margin: float | None = None,
    level: float = 0.05,
    seeds: int = 20,
    budget: int | str | None = "10m",
    salt: str = "",
    allow: Sequence[str] = (),
    whole: bool = False,
    out: Path | str | None = None,
    store: Path | str | None = None,
    workers: int = 1,
    on_done: Callable[[Outcome], None] | None = None,
    on_world: Callable[[WorldVerdict], None] | None = None,
) -> Judgement:
    """Judge a part against another one in each world: better, worse, no difference above a margin, or not resolved.

    Both parts are tuned alike, on separate seeds and samples. Then both run on the test set, on seeds that are derived from the
    part's file, its parameters, the world and `salt`.

    part: `mine.py:Part`, `policy.scheduler=mine.py:Part`, a mapping of keys, or a function or class from a file.
    worlds: names of scenarios, experiment files or experiments; they are shortened so that a run takes some seconds.
    kind: the kind of the part, if its arguments are ambiguous.
    against: another part of the same kind; None: the paper's choice.
    tune: parameters of the part (dotted keys) with values to try; the other side tries as many additional learning rates.
    metric: the number per run that is compared, as in `StudyResult.table`.
    margin: the smallest difference that matters; None: 0.01 for accuracies.
    level: upper bound on the probability of a wrong verdict in a world, if paired differences are about normal; twice that if
        runs diverge or miss the target of the metric.
    seeds: the maximum number of seeds per world.
    budget: total core time such as `10m`, or a number of runs; None: no limit.
    salt: a text that changes all seeds.
    allow: dotted names that the source may use despite the checks.
    whole: use the full worlds instead of shortened ones.
    out: file of the certificate; None writes none.
    store: folder of the results; None stores nothing.
    workers: number of parallel runs.
    on_done: a function that is called with every finished run.
    on_world: a function that is called with every verdict.

    Returns: One verdict per world, and the certificate.

    Raises: FedtideError if the source of the part is refused, its kind is ambiguous, or the budget is too small.
    """
    judged = judged_part(part, kind, allow)
    sides = {"part": judged, "against": reference_part(judged, against)}
    made = [judged_world(each, whole) for each in ([worlds] if isinstance(worlds, str) else worlds)]
    tune = {key: list(values) for key, values in (tune or {}).items()}
    limit = race_budget(budget)
    metric_named(metric)  # raises if there is none
    check_settings(level, seeds, salt, tune, judged.keys, sides["against"].keys)
    needed = _needed_runs(made, sides, tune, limit)
    for world in made:
        check_judged_parts(judged, world.experiment)
    if out is not None:
        refuse_other_certificate(Path(out))
    how = {**study_backend(workers), "on_done": checked_callback("on_done", on_done) or (lambda _: None)}
    tell = checked_callback("on_world", on_world) or (lambda _: None)
    with kept_results(store) as kept:
        state = _Judge(sides, tune, metric, metric_margin(metric, margin), level, seeds, salt, kept, how)
        records = []
        for number, world in enumerate(made):
            left = len(made) - number
            beyond = (limit.runs - state.num_runs - sum(needed[number:])) / left  # what no world needs in any case
            share = Budget(needed[number] + beyond, (limit.seconds - state.seconds) / left)
            records.append(state.world(world, share))
            tell(record_verdict(records[-1]))
    settings = {"metric": metric, "margin": state.margin, "level": level, "seeds": seeds, "salt": salt, "tune": tune}
    certificate = make_certificate(
        sides, {**settings, "budget": budget}, records, sorted(state.paths), made[0].experiment
    )
    if out is not None:
        write_certificate(Path(out), certificate)
    rows = tuple(map(record_verdict, records))
    told = (
        judged.label,
        sides["against"].label,
        metric,
        state.margin,
        rows,
        state.num_runs,
        state.seconds,
        certificate,
    )
    return Judgement(*told)


def record_verdict(record: Mapping[str, Any]) -> WorldVerdict:
    """Return what a certificate says of a world as a row."""
    chosen = record["chosen"]
    settings = {"settings": chosen["part"], "against_settings": chosen["against"]}
    return WorldVerdict(world=record["world"], **record["verdict"], **settings)


def _needed_runs(
    worlds: Sequence[JudgedWorld], sides: Mapping[str, JudgedPart], tune: Mapping[str, Any], limit: Budget
) -> list[int]:
    """Return how many runs tuning and one pair take in each world; raise if they cannot be made."""
    names = [world.name for world in worlds]
    if not names or len({*names}) < len(names):
        raise FedtideError(f"worlds={', '.join(names) or 'none'}: give at least one, and each once")
    if sides["part"].keys == sides["against"].keys:
        raise FedtideError(f"{sides['part'].label} is compared with itself: name another part with --against")
    needed = []
    for world in worlds:
        needed.append(0)
        for side, grid in zip(SIDES, tuning_grids(sides["part"], world, tune), strict=True):
            for settings in grid:  # raises, and says why
                made = side_experiment(world.experiment, sides[side].keys, settings)
                refuse_wrong_arguments(made, [PART_KEYS[key] for key in sides[side].keys])
            needed[-1] += len(grid) * TUNING_SEEDS + 1
    if limit.runs < sum(needed):
        raise FedtideError(
            f"budget={limit.runs:g} runs: tuning both sides and one pair in each world need {sum(needed)}; raise it"
        )
    return needed
