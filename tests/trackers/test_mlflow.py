"""MLflow's store, read back with its own client."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide import config
from fedtide.config import nested_to_dotted
from fedtide.trackers import tracker_scalars

pytest.importorskip("mlflow")


@pytest.fixture
def stored(session: Any, tables: Path) -> Any:
    """Sessions of a run whose store is made already."""
    shutil.copytree(tables, session.folder / "mlflow")
    return session


def client(folder: Path) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=f"sqlite:///{folder.resolve() / 'mlflow' / 'mlflow.db'}")


def runs(store: Any, name: str = "fedtide") -> list[Any]:
    return list(store.search_runs([store.get_experiment_by_name(name).experiment_id]))


def check_metrics(store: Any, run: Any, result: fedtide.Result) -> None:
    rows = {(name, r.index): value for r in result.rounds for name, value in tracker_scalars(r).items()}
    names = {name for name, _ in rows}
    assert set(run.data.metrics) == names
    found = [
        (name, each.step, each.value) for name in names for each in store.get_metric_history(run.info.run_id, name)
    ]
    assert len(found) == len(rows)  # none is there twice
    assert {(name, step): value for name, step, value in found} == rows


def test_keys_numbers_and_the_model_are_there(
    session: Any, result: fedtide.Result, capfd: pytest.CaptureFixture[str]
) -> None:
    np.save(session.folder / "model.npy", result.model)
    session(["mlflow"], result)
    out, err = capfd.readouterr()
    assert out + err == ""
    assert session.warnings == []
    store = client(session.folder)
    (run,) = runs(store)
    check_metrics(store, run, result)
    assert run.data.params == {
        key: str(value) for key, value in nested_to_dotted(config.dump(result.experiment)).items()
    }
    assert run.data.params["fleet.num_devices"] == "6"
    assert run.info.status == "FINISHED"
    assert [each.path for each in store.list_artifacts(run.info.run_id)] == ["model.npy"]
    kept = store.download_artifacts(run.info.run_id, "model.npy")
    assert str(session.folder) in run.info.artifact_uri
    assert np.array_equal(np.load(kept), result.model)
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


@pytest.mark.parametrize("again", [8, 5, 0], ids=["next", "repeats three", "from the beginning"])
def test_a_resumed_run_goes_on_without_doubles(stored: Any, result: fedtide.Result, again: int) -> None:
    stored(["mlflow"], result, slice(8), finished=False)
    assert runs(client(stored.folder))[0].info.status == "KILLED"
    stored(["mlflow"], result, slice(again, None))
    stored(["mlflow"], result, slice(12, None))  # complete: nothing to add
    assert stored.warnings == []
    store = client(stored.folder)
    (run,) = runs(store)
    check_metrics(store, run, result)
    assert run.info.status == "FINISHED"


def test_a_run_that_the_store_lost_begins_anew(stored: Any, result: fedtide.Result) -> None:
    stored(["mlflow"], result, slice(8), finished=False)
    store = client(stored.folder)
    store.delete_run(runs(store)[0].info.run_id)
    stored(["mlflow"], result, slice(8, None))
    assert stored.warnings == []
    (run,) = runs(store)
    assert [each.step for each in store.get_metric_history(run.info.run_id, "time")] == [9, 10, 11, 12]


def test_another_store_and_no_folder(session: Any, result: fedtide.Result, tmp_path: Path, tables: Path) -> None:
    session.folder = None
    shutil.copytree(tables, tmp_path / "mlflow")
    uri = f"sqlite:///{tmp_path}/mlflow/mlflow.db"
    for _ in range(2):
        session([{"name": "mlflow", "experiment": "mine", "uri": uri}], result)
    assert session.warnings == []
    store = client(tmp_path)
    assert len(runs(store, "mine")) == 2
    check_metrics(store, runs(store, "mine")[0], result)


def test_names_that_it_refuses(stored: Any, result: fedtide.Result) -> None:
    class WithMetrics(type(result.rounds[0])):  # type: ignore[misc]
        metrics = {"joules [J]": 2.5}  # noqa: RUF012

    odd = result._replace(rounds=[WithMetrics(*result.rounds[0])])
    from fedtide.trackers.adapters import MLflow

    tracker = MLflow()
    tracker.begin(odd.experiment, stored.folder, 1)
    tracker.round(odd.rounds[0])
    tracker.end(odd)
    assert runs(client(stored.folder))[0].data.metrics["metrics/joules _J_"] == 2.5


def test_a_store_that_cannot_be_reached(session: Any, result: fedtide.Result, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    session([{"name": "mlflow", "uri": f"sqlite:///{tmp_path}/file/mlflow.db"}], result)
    assert len(session.warnings) == 1
    assert "raised" in session.warnings[0]
