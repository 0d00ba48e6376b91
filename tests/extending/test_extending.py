"""Every example of docs/extending.md, from the page alone: run, resumed after SIGKILL, in a study, and on nodes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from page import ROOT, Case, cases

import fedtide
from fedtide import config

CASES = cases()
SMALL = [
    *("data.name=synthetic", "data.num_train=240", "data.num_test=60", "data.num_shards=24"),
    *("fleet.num_devices=6", "policy.limit=3", "timeline.horizon=3", "radio.num_symbols=12000"),
    *("learning.model=softmax", "learning.local_epochs=1", "learning.batch_size=10", "learning.learning_rate=0.05"),
]
# What a node of a federation cannot be told, or what real time does not use.
NOT_ON_NODES = (
    "timeline.name=growing",
    "fleet.duration",
    "fleet.availability",
    "learning.work",
    "radio.downlink",
    "radio.retransmission",
)


def ids(case: Case) -> str:
    return case.title


def experiment(case: Case, *more: str) -> fedtide.Experiment:
    given = config.merge_nested(config.read_words(SMALL), config.read_words(case.words))
    return config.experiment(config.merge_nested(given, config.read_words(more)))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """Work in a folder that holds the files of the case, and nothing else."""
    monkeypatch.chdir(tmp_path)
    request.getfixturevalue("case").write(tmp_path)
    return tmp_path


def test_the_page_has_an_example_of_every_kind() -> None:
    used = {word.partition("=")[0] for case in CASES for word in case.words}
    from fedtide.parts.kinds import KINDS

    assert {kind.key for kind in KINDS.values()} - used == set()


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_it_runs_and_makes_a_difference(case: Case, here: Path) -> None:
    result = fedtide.simulate(experiment(case))
    assert len(result.rounds) > 3
    assert np.isfinite(result.model).all()
    usual = fedtide.simulate(config.experiment(config.read_words(SMALL)))
    if not any(word.startswith("tracker=") for word in case.words):  # a metric makes a difference to the records
        assert result.rounds != usual.rounds


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_resumed_after_a_kill_it_ends_with_the_same_bytes(case: Case, here: Path) -> None:
    fedtide.simulate(experiment(case), "whole")
    given = config.dump(experiment(case))
    Path("mine.yaml").write_text(config_text(given))
    command = [sys.executable, str(ROOT / "tests/extending/slow_run.py"), "run", "mine.yaml"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE)
    rounds = Path("run/rounds.jsonl")
    until = time.monotonic() + 60
    while (not rounds.exists() or rounds.read_bytes().count(b"\n") < 4) and child.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert child.poll() is None, child.stderr.read().decode() if child.stderr else ""
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert not Path("run/model.npy").exists()
    fedtide.simulate(experiment(case), "run")
    for name in ("rounds.jsonl", "model.npy"):
        assert Path("run", name).read_bytes() == Path("whole", name).read_bytes()


def config_text(tree: object) -> str:
    from fedtide.core import yaml12

    return yaml12.to_yaml(tree)


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_in_a_study_it_is_run_once_and_found_again(case: Case, here: Path) -> None:
    from fedtide.studies import spec
    from fedtide.studies.run import missing_runs, run_study
    from fedtide.studies.store import Store

    study = spec.make_study("own", {"mine": config.dump(experiment(case, "timeline.horizon=1"))}, [1, 2])
    store = Store(here / "results")
    assert len(missing_runs(study, store)) == 2
    assert run_study(study, store, workers=1) == []
    assert missing_runs(study, store) == []


def _on_nodes(case: Case) -> bool:
    return not any(word.startswith(NOT_ON_NODES) for word in case.words)


@pytest.mark.parametrize("case", [case for case in CASES if _on_nodes(case)], ids=ids)
def test_on_nodes_and_in_a_replay_it_gives_the_same_bits(case: Case, here: Path) -> None:
    pytest.importorskip("flwr")
    from memory_grid import Federation, terms

    from fedtide.deploy.replay import replay

    wanted = terms(config.read_words(case.words), {"timeline": {"horizon": 60.0}})
    model = Federation(wanted, here / "federation").coordinator().run()
    replayed = replay(here / "federation")
    assert replayed.first_difference is None
    assert np.array_equal(replayed.model, model)
    assert replayed.rounds == fedtide.load(here / "federation").rounds
