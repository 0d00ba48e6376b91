"""What the curves of a page spent, and in which settings they differ: plain rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fedtide.pages.family import Family, cut, even_runs
from fedtide.pages.pool import is_whole, spent

SPENT = ("bits", "symbols", "air_time", "joules", "samples_trained", "bits_down")
_ASIDE = ("seed", "tracker")  # in which runs differ that are compared


def ledger(family: Family) -> list[dict[str, Any]]:
    """Return what every curve spent up to its end, averaged over the seeds that its setting's curves share.

    A row has curve (its number), seeds, uploads, wasted (a share of the samples trained on), and SPENT; None: not counted.
    """
    even = even_runs(family)
    rows = []
    for number, curve in enumerate(family.curves):
        runs = list(even.get(curve.label, {}).values())
        if not runs:
            continue
        columns = [spent(run) for run in runs]
        ends = {
            name: float(np.mean([each[name][-1] for each in columns]))
            if all(is_whole(each[name]) for each in columns)
            else None
            for name in SPENT
        }
        trained, used = ends["samples_trained"], float(np.mean([run.column("samples_used")[-1] for run in runs]))
        uploads = float(np.mean([run.totals["uploads"] or 0.0 for run in runs]))
        wasted = None if not trained else 1 - used / trained
        rows.append({"curve": number, "seeds": len(runs), "uploads": uploads, "wasted": wasted, **ends})
    return rows


def differing(family: Family) -> dict[str, list[str]]:
    """Return the keys in which curves differ, each with a value per curve; "" if a curve has no run, or not this key."""
    trees = [next((_flat(run.experiment) for run in curve.runs.values()), {}) for curve in family.curves]
    known = [tree for tree in trees if tree]
    keys = dict.fromkeys(key for tree in known for key in tree)
    return {
        key: [cut(tree.get(key, "")) for tree in trees]
        for key in keys
        if key.partition(".")[0] not in _ASIDE and len({tree.get(key, "") for tree in known}) > 1
    }


def _flat(tree: Mapping[str, Any]) -> dict[str, str]:
    return {key: "none" if value is None or value == {} else str(value) for key, value in leaves(tree)}


def leaves(tree: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Return an experiment's keys, dotted, with their values."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value
