"""Records of a short run, and what the trackers' packages warn of among themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedtide
from fedtide.trackers import Trackers
from helpers import run, small

OWN_WARNINGS = (  # of the packages about one another, none about what we ask of them
    "ignore:.*noload.*",  # mlflow's tables with SQLAlchemy 2.1
    "ignore:.*utcnow:DeprecationWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for each in OWN_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(each))


@pytest.fixture(scope="session")
def result() -> fedtide.Result:
    """A run of twelve aggregations, every other one without a score."""
    return run(small(learning={"evaluate_every": 0.5}))


class Session:
    """What a driver does with trackers in one session of a run."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.warnings: list[str] = []

    def __call__(
        self, wanted: list[Any], result: fedtide.Result, rounds: slice = slice(None), finished: bool = True
    ) -> Session:
        trackers = Trackers(wanted, self.warnings.append)
        trackers.begin(result.experiment, self.folder, len(result.rounds))
        for record in result.rounds[rounds]:
            trackers.round(record)
        trackers.end(result if finished else None)
        return self


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """Sessions of a run in a folder of its own."""
    folder = tmp_path / "run"
    folder.mkdir()
    return Session(folder)


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of MLflow's with nothing in it: making one takes seconds."""
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    folder = tmp_path_factory.mktemp("store")
    MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}").search_experiments()
    return folder
