"""A study as one long table on disk: a row per run and evaluation."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from fedtide import config
from fedtide.core.files import write_output
from fedtide.errors import FedtideError
from fedtide.studies.pairing import on_one_path
from fedtide.studies.result import COLUMNS, LATER, ZERO, RunResult, Store
from fedtide.studies.spec import Run, Study


def long_rows(study: Study, store: Store) -> list[dict[str, Any]]:
    """Return a row per run and evaluation: the run, the keys that differ within the study, what made it, the columns.

    uploads and lost count up to then, as symbols and bits do; lost are those that were sent and did not arrive.
    """
    kept = store.all_files()
    runs = [run for run in study.runs if run.name in kept]
    results = _results(runs, store, kept)
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
        for position in range(len(result.columns["time"])):
            values = {column: result.columns[column][position] for column in COLUMNS if column in result.columns}
            rows.append(keys | dict.fromkeys(ZERO, 0.0) | dict.fromkeys(LATER) | values | arrivals[position])
    return rows


def _arrivals(result: RunResult) -> list[dict[str, int | None]]:
    """Return how many uploads there were, and how many of them were lost, up to every evaluation; None: not stored."""
    index = result.columns["index"]
    if result.rounds is None:
        return [{"uploads": None, "lost": None} for _ in index]
    lost, offsets = result.ragged("lost")
    total = np.concatenate([[0], np.cumsum(lost)])
    ends = [int(offsets[int(each or 0)]) for each in index]
    return [{"uploads": end, "lost": int(total[end])} for end in ends]


def _results(runs: Sequence[Run], store: Store, kept: Mapping[str, Sequence[Path]]) -> dict[str, RunResult]:
    """Return the results by name, every seed on the instruction path that most of its runs have."""
    names: dict[int, dict[str, None]] = {}
    for run in runs:
        names.setdefault(run.experiment.seed, {})[run.name] = None
    return {
        name: result
        for each in names.values()
        for name, result in zip(each, on_one_path(store.load(name, kept) for name in each), strict=True)
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
