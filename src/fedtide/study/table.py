"""A study as a table: every variant's mean, and its paired difference from the first variant."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from fedtide.errors import FedtideError
from fedtide.study.pairing import note, paired
from fedtide.study.result import RunResult, Store
from fedtide.study.spec import Study
from fedtide.study.statistics import METRICS, compare, shared


def by_label(study: Study, store: Store) -> dict[str, dict[int, RunResult]]:
    """Return the finished results of every variant, by seed."""
    found: dict[str, dict[int, RunResult]] = {label: {} for label in study.labels}
    kept = store.all_files()
    for run in study.runs:
        if run.name in kept:
            found[run.label][run.experiment.seed] = store.load(run.name)
    return found


def rows(study: Study, store: Store, metric: str) -> list[dict[str, Any]]:
    """Return one row per variant, as plain data."""
    if metric not in METRICS:
        raise FedtideError(f"--metric {metric!r} is not known; use one of {', '.join(METRICS)}")
    measure, results = METRICS[metric], by_label(study, store)
    first, even = results[study.labels[0]], shared(results)
    table = []
    for label in study.labels:
        runs = results[label]
        if any(math.isnan(measure(result)) for result in runs.values()):
            need = (
                "with learning.training_loss=true" if "loss" in metric else "with more evaluations in their second half"
            )
            raise FedtideError(f"--metric {metric} needs runs {need}; {label!r} has none")
        pairs = list(paired(runs, first).values())
        alike = [measure(result) for result in even.get(label, [])]  # on the seeds that all have
        row: dict[str, Any] = {
            "variant": label,
            "seeds": sum(run.label == label for run in study.runs),
            "done": len(runs),
            "mean_value": sum(alike) / len(alike) if alike else None,
            "verdict": "",
            "paths": dict(
                Counter(path for each in runs.values() for path in each.paths)
            ),  # a run may be there on several
            "paths_note": "",
        }
        if label != study.labels[0] and pairs:
            found = compare([measure(one) for one, _ in pairs], [measure(other) for _, other in pairs])
            row["paths_note"] = note(pairs)
            row |= {
                key: value if value is None or math.isfinite(value) else None for key, value in found._asdict().items()
            }
            row["verdict"] = found.verdict
        table.append(row)
    return table
