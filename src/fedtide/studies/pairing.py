"""Honest pairs: results are compared on one instruction path, and where that cannot be, the row says so.

Bits are the same on the same path only, and the shift between two of them is as large as the smaller differences between
variants. A pair on two paths is still shown: rounding on another path is noise of its own, which widens an interval and does
not take sides. But it is not what pairing promises, so it is never shown without a word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from fedtide.records import UNKNOWN
from fedtide.studies.result import RunResult

WHY = (
    "Runs give the same bits on the same instruction path only; between two paths the mean accuracy of a run shifts by 0.0002 "
    "to 0.0022, and a pair that mixes them carries that shift."
)


def on_one_path(results: Iterable[RunResult]) -> tuple[RunResult, ...]:
    """Return these results on the instruction path that most of them share; those without it on their own first one."""
    results = tuple(results)
    kept = [{each.path: each, **{other.path: other for other in each.elsewhere}} for each in results]
    counts = Counter(path for each in kept for path in each)
    best = max(counts, key=lambda path: (counts[path], is_known(path)), default=UNKNOWN)  # the first of equals
    return tuple(each.get(best, result) for each, result in zip(kept, results, strict=True))


def is_known(path: str) -> bool:
    """Say whether a result's path says anything."""
    return not path.endswith(UNKNOWN)


def paired(*sides: Mapping[int, RunResult]) -> dict[int, tuple[RunResult, ...]]:
    """Return the results of the seeds that all sides have, each seed on one path where the store has it."""
    seeds = sorted(set.intersection(*map(set, sides))) if sides else []
    return {seed: on_one_path(side[seed] for side in sides) for seed in seeds}


def mixed(group: Sequence[RunResult]) -> bool:
    """Say whether results that are compared may be on different paths. Variants that differ in the trainer do so on purpose."""
    found: dict[str, set[str]] = {}
    for each in group:
        found.setdefault(each.engine, set()).add(each.path)
    return any(len(paths) > 1 for paths in found.values())


def note(groups: Iterable[Sequence[RunResult]], what: str = "pair") -> str:
    """Say in few words how many of these pairs (or seeds) mix paths; nothing if none does."""
    groups = list(groups)
    bad = [group for group in groups if mixed(group)]
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
