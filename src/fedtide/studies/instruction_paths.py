"""Which runs of a study to do on which instruction path, so that the runs of a seed are all on one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Literal, NamedTuple

from fedtide.learning.trainer import trainer_backend
from fedtide.studies.spec import Run, Study
from fedtide.studies.statistics import pair_path_is_known
from fedtide.studies.store import Store

# any: on this machine's own path. pair: on the path of the runs of the same seed that are there. redo: where this machine
# has not that path, do the whole seed again on one that it has.
Mode = Literal["any", "pair", "redo"]


class PathPlan(NamedTuple):
    """What to run, on which path, and what is not run or not well paired, by reason."""

    todo: list[Run]
    path: Mapping[str, str]  # by the name of a run; without one: this machine's own
    warnings: list[str]


def offered_instruction_paths(trainer: str) -> list[str]:
    """Return the paths on which this machine can train, its own first."""
    if trainer == "native":
        from fedtide.learning.native import isas, native_isa

        return [native_isa(), *(each for each in isas() if each != native_isa())]
    try:
        return [f"{trainer} {version(trainer)}"]
    except PackageNotFoundError:
        return [trainer]


def plan_paths(studies: Sequence[Study], store: Store, mode: Mode = "any") -> PathPlan:
    """Plan what is missing of studies (of a paper's figures, say), seed by seed in each; runs of one seed are compared."""
    groups: dict[tuple[str, int, int], dict[str, Run]] = {}  # runs that are compared: of one trainer, study and seed
    for position, study in enumerate(studies):
        for run in study.runs:
            key = trainer_backend(run.experiment.learning.trainer), position, run.experiment.seed
            groups.setdefault(key, {})[run.name] = run
    wanted: dict[str, str] = {}
    away: dict[tuple[str, str], dict[str, Run]] = {}  # (the others' path, this machine's) -> runs that do not fit
    for (trainer, _, _), runs in groups.items():
        have = {name: store.load(name).paths if store.has(name) else [] for name in runs}
        missing = {name: run for name, run in runs.items() if not have[name]}
        counts, here = Counter(each for paths in have.values() for each in paths), offered_instruction_paths(trainer)
        if len(runs) in counts.values() or (mode != "redo" and not missing):
            continue  # all on one path; or nothing is asked for
        theirs = max(counts, key=lambda each: (pair_path_is_known(each), counts[each], each in here), default=here[0])
        fits = here[0] in counts or not counts if mode == "any" else mode == "redo" or theirs in here
        if not fits:
            away.setdefault((theirs, here[0]), {}).update(missing)
        target = theirs if theirs in here else max(here, key=lambda each: counts[each])  # the first of equals
        for name in runs if mode == "redo" else missing if fits or mode == "any" else ():
            if target not in have[name]:
                wanted.setdefault(name, target)
    unique = {run.name: run for study in studies for run in study.runs}
    # Seeds outermost, as a study has them: if it is stopped, it has complete pairs.
    todo = sorted((unique[name] for name in wanted), key=lambda run: run.experiment.seed)
    lines = [_line(store, mode, theirs, ours, list(runs.values())) for (theirs, ours), runs in away.items()]
    return PathPlan(todo, {} if mode == "any" else wanted, lines)


def _line(store: Store, mode: Mode, theirs: str, ours: str, runs: Sequence[Run]) -> str:
    """Say which runs do not fit to those of their seed, and what can be done."""
    seeds = sorted({run.experiment.seed for run in runs})
    which = f"{len(runs)} run{'s' * (len(runs) > 1)} (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))})"
    known = pair_path_is_known(theirs)
    there = f"on {theirs}" if known else "on an unknown instruction path"
    if mode == "any":
        return (
            f"{which} will be on {ours}, the others of the same seed are {there}: pairs that mix instruction paths; stop and "
            f"use --isa-strict for pairs on one"
        )
    first = f"do them on a machine with {theirs}" if known else "remove those"
    return (
        f"{which} left out: the others of the same seed are {there}{', which this machine does not offer' if known else ''}; "
        f"{first}, or use --isa-redo to do these seeds anew on {ours} and keep both"
    )
