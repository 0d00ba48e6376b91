"""What every tracker promises: it sits through a run, an interrupted one too, and changes nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import fedtide
from fedtide.parts.kinds import builtin_parts
from fedtide.trackers import Trackers
from helpers import run, small

# Of the packages about one another: see tests/trackers/conftest.py.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*noload.*"),
    pytest.mark.filterwarnings("ignore:.*utcnow:DeprecationWarning"),
]
PACKAGES = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}  # which need not be there


class Log:
    """A tracker of a user's own with all three methods."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def begin(self, experiment: Any, folder: Any, total: int) -> None:
        self.seen.append(total)

    def round(self, record: Any) -> None:
        self.seen.append(record.index)

    def end(self, result: Any) -> None:
        self.seen.append(result is not None)


OTHERS = {"a function": lambda record: None, "an object": Log()}


@pytest.fixture(scope="module")
def result() -> fedtide.Result:
    return run(small(learning={"evaluate_every": 0.5}))


def slowly(name: str) -> Any:
    """MLflow takes seconds to make a store."""
    return pytest.param(name, marks=pytest.mark.slow) if name == "mlflow" else name


@pytest.mark.parametrize("name", [*map(slowly, builtin_parts("tracker")), *OTHERS])
def test_contract(name: str, result: fedtide.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    monkeypatch.chdir(tmp_path)
    folder, before, model = tmp_path / "run", repr(result), result.model.tobytes()
    folder.mkdir()
    warnings: list[str] = []
    for rounds, finished in ((result.rounds[:5], False), (result.rounds[3:], True)):  # stopped, and gone on with
        trackers = Trackers([OTHERS.get(name, name)], warnings.append)
        trackers.begin(result.experiment, folder, len(result.rounds))
        for record in rounds:
            trackers.round(record)
        trackers.end(result if finished else None)
    assert warnings == []
    assert repr(result) == before
    assert result.model.tobytes() == model
    assert os.listdir(tmp_path) == ["run"]  # what it writes lies in the run's folder
