"""A study as a table: each variant's mean, its reference, its paired difference; and its export."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from fedtide import config
from fedtide.core.files import write_output
from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError
from fedtide.studies.paths import note, on_one_path, paired
from fedtide.studies.results import COLUMNS, LATER, ZERO, RunResult
from fedtide.studies.spec import VARIANT, Cell, Run, Study
from fedtide.studies.statistics import (
    HELP,
    METRICS,
    Reaching,
    diverged,
    paired_difference,
    reaching_named,
    shared_seeds,
)
from fedtide.studies.store import Store

# Which variant each variant is compared with: the one that differs from it in one thing only.


class Reference(NamedTuple):
    """What a variant is compared with."""

    label: str
    text: str  # what of it differs, as a reader should see it


def references(study: Study, against: str | None = None) -> dict[str, Reference | None]:
    """Return every variant's reference by its label; None for a reference itself.

    Without `against` it is the cell with the first value on the first axis that has several (or the first variant), all other
    axes being equal. against: a variant's label, for all; or a part of labels (`scheduler=random`, a variant's name, a bare
    value; several with commas): the cell that has this, all else being equal.
    """
    cells = {label: study.cells.get(label, ((VARIANT, label),)) for label in study.labels}
    wanted = _first(cells) if against is None else _wanted(cells, against)
    by_cell = {cell: label for label, cell in cells.items()}
    found: dict[str, Reference | None] = {}
    for label, cell in cells.items():
        place = tuple((axis, wanted.get(axis, value)) for axis, value in cell)
        text = ", ".join(_shown(axis, value) for axis, value in place if axis in wanted)
        found[label] = None if place == cell else Reference(by_cell[place], text)
    return found


def _shown(axis: str, value: str) -> str:
    return value if axis == VARIANT else f"{axis.rpartition('.')[2]}={value}"


def _values(cells: Mapping[str, Cell]) -> dict[str, list[str]]:
    """Return every axis with its values, in order."""
    found: dict[str, dict[str, None]] = {}
    for cell in cells.values():
        for axis, value in cell:
            found.setdefault(axis, {})[value] = None
    return {axis: list(values) for axis, values in found.items()}


def _first(cells: Mapping[str, Cell]) -> dict[str, str]:
    axes = _values(cells)
    several = [axis for axis, values in axes.items() if len(values) > 1] or list(axes)
    return {axis: axes[axis][0] for axis in several[:1]}


def _wanted(cells: Mapping[str, Cell], against: str) -> dict[str, str]:
    """Return which value on which axis is meant."""
    if against in cells:
        return dict(cells[against])
    wanted: dict[str, str] = {}
    for word in [against] if _places(cells, against) else against.split(","):
        places = _places(cells, word.strip())
        if len(places) != 1:
            reason = "is no variant" if not places else f"is on several axes ({', '.join(axis for axis, _ in places)})"
            parts = [_shown(axis, value) for axis, values in _values(cells).items() for value in values]
            known = _listed(list(cells)) if len(_values(cells)) == 1 else f"{_listed(parts)}, and whole labels"
            raise FedtideError(f"--against {shown(word.strip())} {reason}; there are {known}")
        wanted |= dict(places)
    return wanted


def _places(cells: Mapping[str, Cell], word: str) -> list[tuple[str, str]]:
    """Return the (axis, value) pairs that a word may mean: `axis=value`, `key=value` or a value; the fullest form counts."""
    pairs = [(axis, value) for axis, values in _values(cells).items() for value in values]
    for found in (
        [(axis, value) for axis, value in pairs if word == f"{axis}={value}"],
        [(axis, value) for axis, value in pairs if word == _shown(axis, value)],
        [(axis, value) for axis, value in pairs if word == value],
    ):
        if found:
            return found
    return []


def _listed(words: list[str], most: int = 6) -> str:
    return ", ".join(map(repr, words[:most])) + (f" and {len(words) - most} more" if len(words) > most else "")


# A study as a table: every variant's mean (or median), and its paired difference from the variant it is compared with.


def by_label(study: Study, store: Store) -> dict[str, dict[int, RunResult]]:
    """Return the finished results of every variant, by seed."""
    found: dict[str, dict[int, RunResult]] = {label: {} for label in study.labels}
    for run in study.runs:
        if store.has(run.name):
            found[run.label][run.experiment.seed] = store.load(run.name)
    return found


def table_rows(study: Study, store: Store, metric: str, against: str | None = None) -> list[dict[str, Any]]:
    """Return one row per variant, as plain data; `against` as in `references`."""
    reaching = reaching_named(metric)
    if metric not in METRICS and reaching is None:
        raise FedtideError(f"--metric {metric!r} is not known; use one of {', '.join(METRICS)}, {HELP}")
    compared = references(study, against)
    measure: Callable[[RunResult], float] = METRICS[metric] if reaching is None else reaching
    results = by_label(study, store)
    even = shared_seeds(results)
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
            found = paired_difference(list(map(measure, ours)), list(map(measure, theirs)))
            row["paths_note"] = note(pairs)
            told = {"difference": found.mean, **{key: each for key, each in found._asdict().items() if key != "mean"}}
            row |= {key: _finite(value) for key, value in told.items()} | {"verdict": found.verdict}
        table.append(row)
    return table


def _lost_share(results: Sequence[RunResult]) -> float | None:
    """Return the share of uploads that did not arrive."""
    sent = [result.uploads_if_stored() for result in results]
    lost = [uploads.lost for uploads in sent if uploads is not None]
    if not results or len(lost) < len(sent):
        return None
    return sum(int(each.sum()) for each in lost) / max(sum(map(len, lost)), 1)


def _mean(runs: Sequence[RunResult], measure: Callable[[RunResult], float]) -> dict[str, float | None]:
    return {"mean": sum(map(measure, runs)) / len(runs) if runs else None}


def _median(runs: Sequence[RunResult], reaching: Reaching) -> dict[str, float | None]:
    found = reaching.over_seeds(runs)
    return {"median": _finite(found.median), "reached": found.reached, "reached_of": found.seeds}


def _finite(value: float | None) -> float | None:
    return value if value is None or math.isfinite(value) else None  # JSON has no infinity


def effect(row: Mapping[str, Any]) -> str:
    """Write an effect with its interval, and the seeds that would resolve it."""
    difference = row.get("difference", row.get("mean"))
    if difference is None:
        return "-" if row["verdict"] == "runs missing" else "runs too short to tell"
    note = "".join(f"; {row[each]}" for each in ("paths_note", "diverged_note") if row.get(each))
    if row["low"] is None:
        return f"{difference:+.4f} (one seed){note}"
    more = f"; about {row['seeds_needed']} would resolve it" if row["seeds_needed"] else ""
    return f"{difference:+.4f} ({row['low']:+.4f} to {row['high']:+.4f}; {row['num_seeds']} seeds{more}){note}"


def finite_or_none(tree: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: an interval of one seed is null."""
    return {
        key: None if isinstance(value, float) and abs(value) == float("inf") else value for key, value in tree.items()
    }


# A study as one long table on disk: a row per run and evaluation.


def long_rows(study: Study, store: Store) -> list[dict[str, Any]]:
    """Return a row per run and evaluation: the run, the keys that differ within the study, what made it, the columns.

    uploads and lost count up to then, as symbols and bits do; lost are those that were sent and did not arrive.
    """
    runs = [run for run in study.runs if store.has(run.name)]
    results = _results(runs, store)
    trees = [_flat(config.dump(run.experiment)) for run in runs]
    differing = [
        key for key in (trees[0] if trees else {}) if len({repr(tree[key]) for tree in trees}) > 1 or key == "seed"
    ]
    for key in differing:  # a column is of one kind
        if any(not isinstance(tree[key], (int, float, str, bool, NoneType)) for tree in trees):
            trees = [tree | {key: repr(tree[key])} for tree in trees]
    rows = []
    for run, tree in zip(runs, trees, strict=True):
        result = results[run.name]
        keys = {"study": study.name, "variant": run.label, "run": run.name} | {key: tree[key] for key in differing}
        source = result.provenance or {}
        keys |= {"path": result.path, "version": source.get("fedtide"), "date": source.get("date")}
        arrivals = _arrivals(result)
        columns = {column: _plain(result.columns[column]) for column in COLUMNS if column in result.columns}
        for position, arrival in enumerate(arrivals):
            values = {column: each[position] for column, each in columns.items()}
            rows.append(keys | dict.fromkeys(ZERO, 0.0) | dict.fromkeys(LATER) | values | arrival)
    return rows


def _arrivals(result: RunResult) -> list[dict[str, int | None]]:
    """Return how many uploads there were, and how many of them were lost, up to every evaluation; None: not stored."""
    index, sent = result.columns["index"], result.uploads_if_stored()
    if sent is None:
        return [{"uploads": None, "lost": None} for _ in index]
    total = np.concatenate([[0], np.cumsum(sent.lost)])
    # A run that diverged has evaluations after its last aggregation.
    ends = sent.offsets[np.minimum(index, len(sent.time))].tolist()
    return [{"uploads": end, "lost": int(total[end])} for end in ends]


def _plain(values: Any) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]  # a NaN is none


def _results(runs: Sequence[Run], store: Store) -> dict[str, RunResult]:
    """Return the results by name, every seed on the instruction path that most of its runs have."""
    names: dict[int, dict[str, None]] = {}
    for run in runs:
        names.setdefault(run.experiment.seed, {})[run.name] = None
    return {
        name: result
        for each in names.values()
        for name, result in zip(each, on_one_path(store.load(name) for name in each), strict=True)
    }


def export(study: Study, store: Store, path: Path) -> int:
    """Write CSV or Parquet, by the file's ending; return the number of rows."""
    rows = long_rows(study, store)
    if not rows:
        raise FedtideError(f"the study {study.name!r} has no finished run in {store.folder}; run it first")
    if path.suffix == ".csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        write_output(path, text.getvalue().encode(), rb"study,variant,run,", "the export of a study (CSV)")
    elif path.suffix == ".parquet":
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError as error:
            raise FedtideError(
                f"Parquet needs pyarrow ({error}): pip install 'fedtide[export]', or export to .csv"
            ) from error
        buffer = io.BytesIO()
        columns = {key: pa.array([row[key] for row in rows]) for key in rows[0]}
        empty = {key: pa.string() if key in ("version", "date") else pa.float64() for key in columns
                 if pa.types.is_null(columns[key].type)}  # fmt: skip
        pq.write_table(pa.table(columns | {key: columns[key].cast(kind) for key, kind in empty.items()}), buffer)
        write_output(path, buffer.getvalue(), rb"PAR1", "a Parquet file")
    else:
        raise FedtideError(f"{path} ends with {path.suffix!r}; name a .csv or .parquet file")
    return len(rows)


def _flat(tree: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= {f"{key}.{inner}": each for inner, each in value.items()} if isinstance(value, dict) else {key: value}
    return flat
