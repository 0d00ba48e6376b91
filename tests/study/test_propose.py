"""Candidates from Optuna: the good part of a space is found, trials go into a storage, and what cannot be is one line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import fedtide
from fedtide.errors import FedtideError
from fedtide.studies import propose_candidates

BASE: dict[str, Any] = {
    "data": {"name": "synthetic", "num_train": 200, "num_test": 50, "partition": "iid"},
    "fleet": {"num_devices": 4},
    "timeline": {"horizon": 1.5},
    "policy": {"limit": 2},
    "learning": {"model": "softmax", "local_epochs": 1},
}
SPACE = {"learning.learning_rate": {"low": 1e-5, "high": 0.3, "log": True}, "policy.scheduler": ["random", "proposed"]}


def test_without_optuna_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(FedtideError, match=r"pip install 'fedtide\[optuna\]', or race a grid"):
        propose_candidates(SPACE, base=BASE)


def test_the_best_trials_race_and_the_storage_has_them_all(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def study() -> Any:
        storage = f"sqlite:///{tmp_path / 'trials.db'}"
        sampler = optuna.samplers.RandomSampler(seed=1)
        return optuna.create_study(
            storage=storage, study_name="s", direction="maximize", load_if_exists=True, sampler=sampler
        )

    how = {"base": BASE, "keep": 2, "seeds": [1000], "store": tmp_path / "results"}
    propose_candidates(SPACE, trials=3, study=study(), **how)
    found = propose_candidates(SPACE, trials=6, study=study(), **how)
    assert len(study().trials) == 6  # the first three counted
    assert len(found) == 2
    best = study().best_trial
    assert next(iter(found.values())) == best.params
    assert next(iter(found)).startswith(f"trial {best.number}: learning_rate=")
    raced = fedtide.race(found, base=BASE, seeds=2, confirm=0, store=tmp_path / "results")
    assert raced.leader in found


def test_trials_that_diverge_are_not_proposed() -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with pytest.raises(FedtideError, match="all 2 trials diverged or have no mean_accuracy: give a smaller space"):
        propose_candidates({"learning.learning_rate": [1e300, 1e301]}, base=BASE, trials=2)
    for space, reason in (
        ({}, "is empty"),
        ({"learning.learning_rate": {"low": 2.0, "high": 1.0}}, "is not a range"),
        ({"learning.learning_rate": 3}, "is not a range"),
    ):
        with pytest.raises(FedtideError, match=reason):
            propose_candidates(space, base=BASE)
    with pytest.raises(FedtideError, match="the Optuna study is to minimize, and mean_accuracy is to maximize"):
        propose_candidates(SPACE, base=BASE, study=optuna.create_study(direction="minimize"))
