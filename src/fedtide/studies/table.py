"""A study as a table: every variant's mean (or median), and its paired difference from the variant it is compared with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from fedtide.errors import FedtideError
from fedtide.studies.against import references
from fedtide.studies.pairing import note, paired
from fedtide.studies.reaching import HELP, Reaching, named
from fedtide.studies.result import RunResult, Store
from fedtide.studies.spec import Study
from fedtide.studies.statistics import METRICS, compare, diverged, shared


def by_label(study: Study, store: Store) -> dict[str, dict[int, RunResult]]:
    """Return the finished results of every variant, by seed."""
    found: dict[str, dict[int, RunResult]] = {label: {} for label in study.labels}
    kept = store.all_files()
    for run in study.runs:
        if run.name in kept:
            found[run.label][run.experiment.seed] = store.load(run.name, kept)
    return found


def rows(study: Study, store: Store, metric: str, against: str | None = None) -> list[dict[str, Any]]:
    """Return one row per variant, as plain data; `against` as in `references`."""
    reaching = named(metric)
    if metric not in METRICS and reaching is None:
        raise FedtideError(f"--metric {metric!r} is not known; use one of {', '.join(METRICS)}, {HELP}")
    compared = references(study, against)
    measure: Callable[[RunResult], float] = METRICS[metric] if reaching is None else reaching
    results = by_label(study, store)
    even = shared(results)
    table = []
    for label in study.labels:
        runs, reason = results[label], ""
        if reaching is not None:
            reason = reaching.reason(list(runs.values()))
        elif any(math.isnan(measure(result)) for result in runs.values()):
            need = (
                "with learning.training_loss=true" if "loss" in metric else "with more evaluations in their second half"
            )
            raise FedtideError(f"--metric {metric} needs runs {need}; {label!r} has none")
        reference = compared[label]
        pairs = list(paired(runs, results[reference.label]).values()) if reference else []
        alike = even.get(label, [])  # on the seeds that all have
        row: dict[str, Any] = {
            "variant": label,
            "seeds": sum(run.label == label for run in study.runs),
            "done": len(runs),
            **(_mean(alike, measure) if reaching is None else _median(alike, reaching)),
            "lost_share": _lost_share(even.get(label, [])),  # of the uploads, on these seeds; None: not stored
            "verdict": "",
            "reason": reason,  # why there is no mean, or nothing to compare
            "paths": dict(
                Counter(path for each in runs.values() for path in each.paths)
            ),  # a run may be there on several
            "paths_note": "",
            "diverged_note": diverged(list(runs.values())),
            "against": reference.label if reference else None,
            "against_part": reference.text if reference else None,  # what of it differs from this variant
        }
        ours, theirs = [one for one, _ in pairs], [other for _, other in pairs]
        if reaching is not None and reference and not reason:
            other = reaching.reason(theirs)
            row["reason"] = reaching.reason(ours) or (f"{reference.label}: {other}" if other else "")
        if pairs and not row["reason"]:
            found = compare(list(map(measure, ours)), list(map(measure, theirs)))
            row["paths_note"] = note(pairs)
            told = {"difference": found.mean, **{key: each for key, each in found._asdict().items() if key != "mean"}}
            row |= {key: _finite(value) for key, value in told.items()} | {"verdict": found.verdict}
        table.append(row)
    return table


def _lost_share(results: Sequence[RunResult]) -> float | None:
    """Return the share of uploads that did not arrive."""
    if not results or any(result.rounds is None for result in results):
        return None
    lost = [result.ragged("lost")[0] for result in results]
    return sum(int(each.sum()) for each in lost) / max(sum(map(len, lost)), 1)


def _mean(runs: Sequence[RunResult], measure: Callable[[RunResult], float]) -> dict[str, float | None]:
    return {"mean": sum(map(measure, runs)) / len(runs) if runs else None}


def _median(runs: Sequence[RunResult], reaching: Reaching) -> dict[str, float | None]:
    found = reaching.over_seeds(runs)
    return {"median": _finite(found.median), "reached": found.reached, "reached_of": found.seeds}


def _finite(value: float | None) -> float | None:
    return value if value is None or math.isfinite(value) else None  # JSON has no infinity
