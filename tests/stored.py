"""Results made by hand, as a run would have stored them."""

from __future__ import annotations

import csv
import functools
import gzip
import hashlib
import io
import json
from pathlib import Path

import numpy as np

from fedtide import config
from fedtide.studies.results import RunResult, _column_arrays, write_result_tables
from fedtide.studies.spec import Run, Study, make_study, spec_run_name
from fedtide.studies.store import Store

TINY = {
    "data": {"name": "synthetic", "num_train": 100, "num_test": 20, "num_shards": 10},
    "fleet": {"num_devices": 4},
    "timeline": {"horizon": 1},
    "policy": {"limit": 2},
    "learning": {"model": "softmax"},
}


@functools.cache
def committed(name: str) -> Store:
    """The committed results of the laboratory: read once for all tests of a process, and not written to."""
    return Store(Path(__file__).parents[1] / "results" / name)


def two_variants(seeds: int = 3) -> Study:
    return make_study("two", {"a": {"policy": {"limit": 1}}, "b": {"policy": {"limit": 2}}}, range(seeds), TINY)


def result(tree=None, isa: str | None = None, level: float = 0.5) -> RunResult:
    """A result of two evaluations; isa=None: of unknown provenance."""
    experiment = config.dump(config.experiment(TINY if tree is None else tree))
    columns = _column_arrays(
        {
            "index": [2, 4],
            "time": [0.5, 1.0],
            "test_accuracy": [level, level],
            "test_loss": [1.0, None],
            "train_loss": [None, None],
            "symbols": [10.0, 20.0],
            "bits": [5, 9.5],
            "samples_used": [3, 6],
            "samples_trained": [3, 8],
        }
    )
    totals = {
        "aggregations": 4, "uploads": 8, "mean_kept_share": 0.5, "mean_age": 0.0, "mean_label_variance": 2.0,
        "proved_minimal_share": None, "overhead_bits": 7, "seconds": 2.0,
    }  # fmt: skip
    source = (
        None if isa is None else {"isa": isa, "fedtide": "0.1", "date": "2026-11-17T00:00:00+00:00", "commit": None}
    )
    return RunResult(experiment, columns, totals, source)


def put(store: Store, run: Run, isa: str | None = None, level: float = 0.5) -> None:
    store.save(run.name, result(config.dump(run.experiment), isa, level))


def name(tree=None) -> str:
    return spec_run_name(config.experiment(TINY if tree is None else tree))


def tables(made: RunResult | None = None) -> dict[str, list[list[str]]]:
    """The tables of a store that holds one good result, as rows of cells."""
    made = result(isa="avx2") if made is None else made
    return {
        table: list(csv.reader(io.StringIO(text.decode())))
        for table, text in write_result_tables([(name(), made)]).items()
    }


def forge(folder: Path, found: dict[str, list[list[str]]], **index) -> None:
    """Write a store that vouches for these tables, whatever they hold."""
    folder.mkdir(parents=True, exist_ok=True)
    sums = {}
    for table, rows in found.items():
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        content = gzip.compress(text.getvalue().encode())
        (folder / f"{table}.csv.gz").write_bytes(content)
        sums[f"{table}.csv.gz"] = hashlib.sha256(content).hexdigest()
    (folder / "study.json").write_text(json.dumps({"format": 1, "studies": ["one"], "files": sums, **index}))


def forge_cell(folder: Path, table: str, column: str, value: str, row: int = 0, made: RunResult | None = None) -> None:
    """Write a store with one good result in which one cell is another."""
    found = tables(made)
    found[table][1 + row][found[table][0].index(column)] = value
    forge(folder, found)


def same(one: RunResult, other: RunResult) -> bool:
    """Say whether two results are equal in everything but wall time and provenance.

    Single uploads, and columns that some results lack, are compared if both have them.
    """
    totals = [{k: v for k, v in run.totals.items() if v is not None and k != "seconds"} for run in (one, other)]
    if totals[0] != totals[1] or (one.columns.keys() ^ other.columns.keys()) - {"bits_down"}:
        return False
    pairs = [(one.columns[name], other.columns[name]) for name in one.columns.keys() & other.columns.keys()]
    first_sent, second_sent = one.uploads_if_stored(), other.uploads_if_stored()
    if first_sent is not None and second_sent is not None:
        both = [*zip(first_sent, second_sent, strict=True)]
        if any((first is None) != (second is None) for first, second in both):
            return False
        pairs += [(first, second) for first, second in both if first is not None]
    return all(np.array_equal(first, second, equal_nan=first.dtype.kind == "f") for first, second in pairs)
