"""Results made by hand, as a run would have stored them."""

from __future__ import annotations

import copy
from pathlib import Path

from fedtide.studies.stored_format import pack_result

from fedtide import config
from fedtide.studies.results import RunResult
from fedtide.studies.spec import Run, Study, make_study, name_of
from fedtide.studies.store import Store

TINY = {
    "data": {"name": "synthetic", "num_train": 100, "num_test": 20, "num_shards": 10},
    "fleet": {"num_devices": 4},
    "timeline": {"horizon": 1},
    "policy": {"limit": 2},
    "learning": {"model": "softmax"},
}


def two_variants(seeds: int = 3) -> Study:
    return make_study("two", {"a": {"policy": {"limit": 1}}, "b": {"policy": {"limit": 2}}}, range(seeds), TINY)


def result(tree=None, isa: str | None = None, level: float = 0.5) -> RunResult:
    """A result of two evaluations; isa=None: as older versions stored it."""
    experiment = config.dump(config.experiment(TINY if tree is None else tree))
    columns = {
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
    return name_of(config.experiment(TINY if tree is None else tree))


def tree(**changes) -> dict:
    """What a good result's file holds, with changes by dotted key; `...` takes a key away."""
    found = copy.deepcopy({"format": FORMAT, **result(isa="avx2").stored()})
    for key, value in changes.items():
        *groups, last = key.split("__")
        place = found
        for group in groups:
            place = place[group]
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return found


def write(folder: Path, **changes) -> Path:
    """Write such a file under the name of the good one."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name()}.json.gz"
    file.write_bytes(pack_result(tree(**changes)))
    return file
