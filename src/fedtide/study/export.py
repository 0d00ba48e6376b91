"""A study as one long table on disk: a row per run and evaluation."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from fedtide import config
from fedtide.errors import FedtideError
from fedtide.records import write_atomically
from fedtide.study.result import COLUMNS, Store
from fedtide.study.spec import Study


def long_rows(study: Study, store: Store) -> list[dict[str, Any]]:
    """Return a row per run and evaluation: the run, the experiment's keys that differ within the study, the columns."""
    runs = [run for run in study.runs if store.has(run.name)]
    trees = [_flat(config.dump(run.experiment)) for run in runs]
    differing = [
        key for key in (trees[0] if trees else {}) if len({repr(tree[key]) for tree in trees}) > 1 or key == "seed"
    ]
    rows = []
    for run, tree in zip(runs, trees, strict=True):
        result = store.load(run.name)
        keys = {"study": study.name, "variant": run.label, "run": run.name} | {
            key: _cell(tree[key]) for key in differing
        }
        for position in range(len(result.columns["time"])):
            rows.append(keys | {column: result.columns[column][position] for column in COLUMNS})
    return rows


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
        write_atomically(path, text.getvalue().encode())
    elif path.suffix == ".parquet":
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError as error:
            raise FedtideError(
                f"Parquet needs pyarrow ({error}): pip install 'fedtide[export]', or export to .csv"
            ) from error
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), buffer)
        write_atomically(path, buffer.getvalue())
    else:
        raise FedtideError(f"{path} ends with {path.suffix!r}; name a .csv or .parquet file")
    return len(rows)


def _flat(tree: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= {f"{key}.{inner}": each for inner, each in value.items()} if isinstance(value, dict) else {key: value}
    return flat


def _cell(value: Any) -> Any:
    return value if isinstance(value, (int, float, str, bool)) or value is None else repr(value)
