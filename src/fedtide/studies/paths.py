"""Instruction paths: runs of one seed are compared on one path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Literal, NamedTuple

from fedtide.learning.trainer import backend
from fedtide.runs import UNKNOWN_PATH
from fedtide.studies.results import RunResult
from fedtide.studies.spec import Run, Study
from fedtide.studies.store import Store

# Honest pairs: results are compared on one instruction path, and where that cannot be, the row says so.
#
# Bits are the same on the same path only, and the shift between two of them is as large as the smaller differences between
# variants. A pair on two paths is still shown: rounding on another path is noise of its own, which widens an interval and
# does not take sides. But it is not what pairing promises, so it is never shown without a word.


WHY = (
    "Runs give the same bits on the same instruction path only; between two paths the mean accuracy of a run shifts by 0.0002 "
    "to 0.0022, and a pair that mixes them carries that shift."
)


def on_one_path(results: Iterable[RunResult]) -> tuple[RunResult, ...]:
    """Return these results on the instruction path that most of them share; those without it on their own first one."""
    results = tuple(results)
    if len({result.path for result in results}) == 1 and not any(result.elsewhere for result in results):
        return results
    kept = [{each.path: each, **{other.path: other for other in each.elsewhere}} for each in results]
    counts = Counter(path for each in kept for path in each)
    best = max(counts, key=lambda path: (counts[path], is_known(path)), default=UNKNOWN_PATH)  # the first of equals
    return tuple(each.get(best, result) for each, result in zip(kept, results, strict=True))


def is_known(path: str) -> bool:
    """Say whether a result's path says anything."""
    return not path.endswith(UNKNOWN_PATH)


def paired(*sides: Mapping[int, RunResult]) -> dict[int, tuple[RunResult, ...]]:
    """Return the results of the seeds that all sides have, each seed on one path where the store has it."""
    seeds = sorted(set.intersection(*map(set, sides))) if sides else []
    return {seed: on_one_path(side[seed] for side in sides) for seed in seeds}


def is_mixed(group: Sequence[RunResult]) -> bool:
    """Say whether results that are compared may be on different paths. Variants that differ in the trainer do so on purpose."""
    found: dict[str, set[str]] = {}
    for each in group:
        found.setdefault(each.engine, set()).add(each.path)
    return any(len(paths) > 1 for paths in found.values())


def note(groups: Iterable[Sequence[RunResult]], what: str = "pair") -> str:
    """Say in few words how many of these pairs (or seeds) mix paths; nothing if none does."""
    groups = list(groups)
    bad = [group for group in groups if is_mixed(group)]
    if not bad:
        return ""
    paths = sorted({each.path for group in bad for each in group})
    may = "" if sum(map(is_known, paths)) > 1 else "may "  # an unknown path may be the same after all
    verb = f"{may}mix{'' if may or len(bad) > 1 else 'es'}"
    return f"{len(bad)} of {len(groups)} {what}{'s' * (len(groups) > 1)} {verb} instruction paths ({', '.join(paths)})"


def across(curves: Mapping[str, Mapping[int, RunResult]]) -> str:
    """Say how many seeds are not on one path in all curves of a figure."""
    seeds = sorted({seed for runs in curves.values() for seed in runs})
    return note(([runs[seed] for runs in curves.values() if seed in runs] for seed in seeds), "seed")


def unknown(results: Iterable[RunResult]) -> str:
    """Say of how many results the path is not known; nothing if it is known of all."""
    paths = [each.path for each in results]
    count = sum(not is_known(path) for path in paths)
    return f"The instruction path of {count} of {len(paths)} results is unknown." if count else ""


def summary(results: Iterable[RunResult]) -> str:
    """Say in one sentence on which paths results were made, each run once."""
    unique = {repr(each.experiment): each for each in results}
    counts = Counter(each.path for each in unique.values())
    words = ", ".join(f"{count} on {path}" for path, count in sorted(counts.items()) if is_known(path))
    lost = sum(count for path, count in counts.items() if not is_known(path))
    rest = f"{', ' if words else ''}{lost} on a path that is not known" if lost else ""
    return f"Instruction paths of the {len(unique)} runs: {words}{rest}." if unique else ""


# Which runs of a study to do on which instruction path, so that the runs of a seed are all on one.


# any: on this machine's own path. pair: on the path of the runs of the same seed that are there. redo: where this machine
# has not that path, do the whole seed again on one that it has.
Mode = Literal["any", "pair", "redo"]


class PathPlan(NamedTuple):
    """What to run, on which path, and what is not run or not well paired, by reason."""

    todo: list[Run]
    path: Mapping[str, str]  # by the name of a run; without one: this machine's own
    warnings: list[str]


def offered(trainer: str) -> list[str]:
    """Return the paths on which this machine can train, its own first."""
    if trainer == "native":
        from fedtide.learning.native import isa, isas

        return [isa(), *(each for each in isas() if each != isa())]
    try:
        return [f"{trainer} {version(trainer)}"]
    except PackageNotFoundError:
        return [trainer]


def plan_paths(studies: Sequence[Study], store: Store, mode: Mode = "any") -> PathPlan:
    """Plan what is missing of studies (of a paper's figures, say), seed by seed in each; runs of one seed are compared."""
    wanted: dict[str, str] = {}
    away: dict[
        tuple[str, str], dict[str, Run]
    ] = {}  # (path of the others, this machine's) -> runs that do not fit to them
    for (trainer, _, _), runs in _groups(studies).items():
        have = {name: store.load(name).paths if store.has(name) else [] for name in runs}
        missing = {name: run for name, run in runs.items() if not have[name]}
        counts, here = Counter(each for paths in have.values() for each in paths), offered(trainer)
        if len(runs) in counts.values() or (mode != "redo" and not missing):
            continue  # all on one path; or nothing is asked for
        theirs = max(counts, key=lambda each: (is_known(each), counts[each], each in here), default=here[0])
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


def _groups(studies: Sequence[Study]) -> dict[tuple[str, int, int], dict[str, Run]]:
    """Return the runs that are compared with each other, by name: of one trainer, study and seed."""
    groups: dict[tuple[str, int, int], dict[str, Run]] = {}
    for position, study in enumerate(studies):
        for run in study.runs:
            key = backend(run.experiment), position, run.experiment.seed
            groups.setdefault(key, {})[run.name] = run
    return groups


def _line(store: Store, mode: Mode, theirs: str, ours: str, runs: Sequence[Run]) -> str:
    """Say which runs do not fit to those of their seed, and what can be done."""
    seeds = sorted({run.experiment.seed for run in runs})
    which = f"{len(runs)} run{'s' * (len(runs) > 1)} (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))})"
    known = is_known(theirs)
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
