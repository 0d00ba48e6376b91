"""A race: candidates run seed by seed, worse ones are dropped as soon as that is sure, and the winner is confirmed on fresh seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from fedtide.errors import FedtideError
from fedtide.parts.checks import checked_callback
from fedtide.studies import spec
from fedtide.studies.metrics import metric_margin
from fedtide.studies.race_input import Budget, Stage, check_race, race_budget, race_entries, race_stage
from fedtide.studies.race_state import RaceResult, RaceRow, RaceState, Steps
from fedtide.studies.run import Outcome, missing_runs, run_study, study_backend
from fedtide.studies.sequential import affordable_candidates
from fedtide.studies.spec import Given, Study
from fedtide.studies.store import Store, kept_results

__all__ = ["RaceResult", "RaceRow", "race", "races"]

_MOST_SEEDS: Final = 10_000


def race(
    candidates: Mapping[str, Any] | Sequence[Any],
    *,
    base: Given = {},  # noqa: B006  # read only
    seeds: int | Sequence[int] = 20,
    fidelities: Sequence[Mapping[str, Any]] = (),
    budget: int | str | None = None,
    metric: str = "mean_accuracy",
    margin: float | None = None,
    level: float = 0.05,
    validation: float | None = 0.1,
    confirm: int = 5,
    against: str | None = None,
    block: int = 1,
    name: str = "race",
    store: Path | str | None = None,
    workers: int = 1,
    backend: str | None = None,
    address: str | None = None,
    on_done: Callable[[Outcome], None] | None = None,
    on_step: Callable[[RaceResult], None] | None = None,
) -> RaceResult:
    """Find the best candidate with few runs: all run on the same seeds, and clearly worse ones are dropped early.

    candidates: a mapping of names to the keys that differ from `base`; a list of such keys; or a grid of keys with lists of
        values.
    base: the experiment that all share.
    seeds: the maximum number of seeds, or a list of seeds.
    fidelities: cheaper versions to start with, each a mapping of keys such as `{"timeline.horizon": 2.5, "seeds": 6}`; the
        experiment itself comes last.
    budget: the maximum number of runs, or total core time such as `20m`, including the confirmation; None: no limit.
    metric: the number per run that is compared, as in `StudyResult.table`.
    margin: the race ends when all remaining candidates are shown to be within this margin; None: 0.01 for accuracies.
    level: upper bound on the probability of dropping one of the truly best candidates, if paired differences are about normal.
    validation: share of the training samples on which the race is decided; 0 uses the test set.
    confirm: number of fresh seeds on which the winner is confirmed, on the test set.
    against: the candidate that the winner is compared with there; None: the first one, or the runner-up if the first one wins.
    block: number of seeds between two decisions.
    name: the name of the race.
    store: folder of the results; the same call continues an interrupted race and reaches the same decision. None stores
        nothing.
    workers: number of parallel runs.
    backend: local (processes on this machine), dask, or here (this process).
    address: the address of a Dask scheduler.
    on_done: a function that is called with every finished run.
    on_step: a function that is called with the current standing after every decision.

    Returns: The winner, the outcome of every candidate, and the winner's gain on fresh seeds.

    Raises: FedtideError if there are no candidates, two are the same experiment, or a key or argument is invalid.

    >>> import fedtide
    >>> small = {"data.name": "synthetic", "learning.model": "softmax", "timeline.horizon": 0.5}
    >>> small |= {"data.num_train": 400, "data.num_test": 100}
    >>> found = fedtide.race({"R = 2": {"policy.limit": 2}, "R = 4": {"policy.limit": 4}}, base=small, seeds=2, confirm=0)
    >>> [row.candidate for row in found.rows]
    ['R = 2', 'R = 4']
    """
    asked = {
        "candidates": candidates, "base": base, "seeds": seeds, "fidelities": fidelities, "budget": budget,
        "metric": metric, "margin": margin, "level": level, "validation": validation, "confirm": confirm,
        "against": against, "block": block, "on_step": on_step,
    }  # fmt: skip
    where: dict[str, Any] = {
        "store": store,
        "workers": workers,
        "backend": backend,
        "address": address,
        "on_done": on_done,
    }
    return races({name: asked}, name=name, **where)[name]


def races(
    asked: Mapping[str, Mapping[str, Any]],
    *,
    name: str = "races",
    store: Path | str | None = None,
    workers: int = 1,
    backend: str | None = None,
    address: str | None = None,
    on_done: Callable[[Outcome], None] | None = None,
    only_stored: bool = False,
    on_fault: Callable[[str, FedtideError], None] | None = None,
) -> dict[str, RaceResult]:
    """Run several races side by side, so that few candidates keep many workers busy; return their results by name.

    asked: what each race is given, as arguments of `race`. Where and how runs are done, and the name under which they are kept,
    is the same for all. only_stored: do no runs, and leave out races that lack some. A race that fails on the way does
    not stop the others: on_fault is told which and why; without it, the first error is raised in the end.
    """
    how = {
        **study_backend(workers, backend, address),
        "on_done": checked_callback("on_done", on_done) or (lambda _: None),
    }
    found: dict[str, RaceResult] = {}
    faults: list[FedtideError] = []
    told = checked_callback("on_fault", on_fault) or (lambda _, error: faults.append(error))
    with kept_results(store) as kept:
        waiting = {label: _race_steps(kept, label, **each) for label, each in asked.items()}
        failures: dict[str, Any] = dict.fromkeys(waiting)  # None: the race has not begun
        while waiting:
            studies: dict[str, Study] = {}
            for label, steps in waiting.items():
                try:
                    studies[label] = steps.send(failures[label])
                except StopIteration as end:
                    found[label] = end.value
                except FedtideError as error:
                    if failures[label] is None:  # what it is given is wrong: say so before anything runs
                        raise
                    told(label, error)
            if only_stored:
                studies = {label: study for label, study in studies.items() if not missing_runs(study, kept)}
            failed = {} if only_stored or not studies else _run_together(name, studies, kept, how)
            waiting = {label: waiting[label] for label in studies}
            failures = {
                label: [failed[run.name]._replace(run=run) for run in study.runs if run.name in failed]
                for label, study in studies.items()
            }
    if faults:
        raise faults[0]
    return {label: found[label] for label in asked if label in found}


def _run_together(name: str, studies: Mapping[str, Study], store: Store, how: Mapping[str, Any]) -> dict[str, Outcome]:
    """Do what some studies lack, each run once; return what failed, by the run's name."""
    runs = {run.name: run for study in studies.values() for run in study.runs}
    together = Study(name, tuple(runs.values()))
    return {failed.run.name: failed for failed in run_study(together, store, **how)}


def _race_steps(
    store: Store,
    name: str,
    *,
    candidates: Any,
    base: Given = {},  # noqa: B006  # read only
    seeds: int | Sequence[int] = 20,
    fidelities: Sequence[Mapping[str, Any]] = (),
    budget: int | str | None = None,
    metric: str = "mean_accuracy",
    margin: float | None = None,
    level: float = 0.05,
    validation: float | None = 0.1,
    confirm: int = 5,
    against: str | None = None,
    block: int = 1,
    on_step: Callable[[RaceResult], None] | None = None,
) -> Steps[RaceResult]:
    """Check what a race is given, and go through it."""
    entries = race_entries(candidates, base, name)
    if isinstance(seeds, int) and seeds > _MOST_SEEDS:
        raise FedtideError(f"seeds={seeds} is more than any race needs: give at most {_MOST_SEEDS:,}")
    listed = list(spec.checked_seeds(spec.listed_seeds(seeds)))
    check_race(entries, listed, level, validation, confirm, against, block)
    limit = race_budget(budget)
    tell = checked_callback("on_step", on_step) or (lambda _: None)
    stages = [race_stage(each, listed) for each in fidelities] + [Stage({}, listed)]
    state = RaceState(name, entries, stages, metric, metric_margin(metric, margin), level, validation, store)
    yield from _run_stages(state, limit, block, confirm, tell)
    found = state.so_far()
    if confirm:
        other = against or next(iter(entries))
        fresh = range(max(listed) + 1, max(listed) + 1 + confirm)
        found = yield from state.confirmed(found, _runner_up(found) if other == found.leader else other, fresh)
    return found


def _run_stages(
    state: RaceState, limit: Budget, block: int, confirm: int, tell: Callable[[RaceResult], None]
) -> Steps[None]:
    """Run fidelity after fidelity, seeds after seeds, until the race is decided or the budget is used up."""
    for number, stage in enumerate(state.stages):
        state.values.append({name: [] for name in state.entries})
        start = 0
        while start < len(stage.seeds):
            if state.stopped:
                return
            left = state.runs_left(number, limit, confirm)
            if state.num_runs:
                state.set_aside(affordable_candidates(len(state.alive), start, len(stage.seeds), left))
            seeds = stage.seeds[start : start + max(1, int(min(block, left / len(state.alive))))]
            if len(state.alive) * len(seeds) > left:
                if not state.num_runs:
                    raise FedtideError(
                        f"budget={limit.runs:g} runs: one seed of {len(state.alive)} candidates and the runs that confirm need "
                        f"{limit.runs + len(state.alive) * len(seeds) - left:g}; raise it, or give fewer candidates or confirm=0"
                    )
                state.stopped = "the budget is used up"
                return
            yield from state.step(number, seeds)
            tell(state.so_far())
            start += len(seeds)
    state.stopped = state.stopped or f"all {len(state.stages[-1].seeds)} seeds are used"


def _runner_up(found: RaceResult) -> str:
    """Return who came closest to the leader: of those still in the race, else of those dropped as worse; or the leader itself."""
    others = [row for row in found.rows if row.behind is not None]
    last = sorted(others, key=lambda row: (bool(row.reason), -row.fidelity, -row.num_seeds, row.behind))
    return last[0].candidate if last else found.leader
