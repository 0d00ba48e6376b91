"""`fedtide deploy` and `fedtide replay`, short of starting a federation."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from memory_grid import Federation, terms
from rich.console import Console

from fedtide import config
from fedtide.cli.main import app
from fedtide.deploy import trace
from fedtide.deploy.demo import Demo, _paces, demo_table, demo_terms
from fedtide.deploy.settings import trust_doubts
from fedtide.errors import FedtideError
from fedtide.runs import read_rounds


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return re.sub(r"\x1b\[[0-9;]*m", "", result.output)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("federation") / "run"
    Federation(terms(), place).coordinator().run()
    return place


def test_replay(folder: Path, tmp_path: Path) -> None:
    assert "the same bits in all 8 periods" in run("replay", str(folder))
    told = json.loads(run("replay", str(folder), "--json"))
    assert told["same_bits"] is True
    assert told["accuracy"] == told["recorded_accuracy"]
    told = json.loads(
        run("replay", str(folder), "policy.scheduler=random", "--json", "--out", str(tmp_path / "what-if"))
    )
    assert told["same_bits"] is None
    assert len(read_rounds(tmp_path / "what-if")) == 8
    assert "on the devices it was" in run("replay", str(folder), "codec.name=ideal")
    run("replay", str(folder), "seed=4", code=2)
    run("replay", str(folder), "codec.name=ideal", "--out", str(tmp_path / "what-if"), code=4)
    before = contents(folder)
    run("replay", str(folder), "--out", str(folder), code=4)
    assert contents(folder) == before


def test_other_bits_are_told(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_bytes((folder / "experiment.yaml").read_bytes())
    recorded = trace.read_trace(folder)
    period = recorded.periods[2]
    # an isa is a node's own word: it may look like markup
    recorded.periods[2] = period.model_copy(update={"model": "0" * 64, "isa": ["[/another]"] * len(period.isa)})
    trace.write_trace(tmp_path, recorded)
    told = run("replay", str(tmp_path), code=1)
    assert "other bits from period 3 on" in told
    assert "[/another]" in told


def test_app_and_settings(tmp_path: Path) -> None:
    words = ["fleet.num_devices=20", "timeline.period=60", "timeline.horizon=6000", "-s", "min_nodes=20"]
    assert "20 devices, 100 periods of 60 s" in run("deploy", "app", str(tmp_path / "app"), *words)
    assert (tmp_path / "app" / "pyproject.toml").exists()
    assert "max_update_norm" in run("deploy", "app", "unused", "--settings")
    told = run("deploy", "app", str(tmp_path / "bad"), "-s", "min_node=3", code=2)
    assert "min_node is not a setting: did you mean min_nodes?" in told
    told = run("deploy", "app", str(tmp_path / "bad"), "-s", "nonsense=1", code=2)
    assert "nonsense is not a setting: use one of capacity, max_capacity," in told
    told = run("deploy", "app", str(tmp_path / "bad"), "-s", "deadline=2", code=2)
    assert "deadline=2 (share of a period that uploads may take): input should be less than or equal to 1" in told
    told = run("deploy", "app", str(tmp_path / "bad"), "-s", "poll=400", code=2)
    assert "poll=400.0 exceeds start_timeout=300.0; look more often" in told
    run("deploy", "app", str(tmp_path / "bad"), "framework=fedavg", code=2)
    told = run("deploy", "app", str(tmp_path / "bad"), "codec.name.bogus=1", code=2)
    assert "bogus" in told


def test_a_period_too_short_for_flower_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = run("deploy", "app", str(tmp_path / "app"), "fleet.num_devices=20", "-s", "min_nodes=20")
    assert "140 periods of 0.25 s" in told
    assert "warning: timeline.period=0.25 is in seconds on devices" in told
    assert "Lengthen timeline.period" in told
    times = ["timeline.period=10", "timeline.horizon=100"]
    told = run("deploy", "app", str(tmp_path / "slow"), *times, "policy.aggregator=reputation")
    assert "warning" not in told


@pytest.mark.parametrize(
    ("aggregator", "codec", "says"),
    [
        ("average_models", "ideal", "policy.aggregator=average_models is not robust"),
        ("clipped_mean", "ideal", "policy.aggregator=clipped_mean is not robust"),
        ("{name: server_momentum, inner: average_deltas}", "ideal", "policy.aggregator=average_deltas is not robust"),
        ("{name: server_momentum, inner: {name: reputation, least: 0.1}}", "ideal", ""),
        ("median", "sparse_quantized", "the model hardly learns. Say codec.name=ideal"),
        ("median", "ideal", ""),
        ("krum", "ideal", "say policy.aggregator.kept=null"),
        ("{name: krum, kept: null}", "ideal", ""),
        ("reputation", "sparse_quantized", ""),
        ("own.py:mean", "ideal", ""),
    ],
)
def test_a_server_that_one_liar_can_spoil_is_warned_of(
    aggregator: str, codec: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("def mean(model, starts, updates, weights, age):\n    return model\n")
    experiment = config.experiment(config.read_words([f"policy.aggregator={aggregator}", f"codec.name={codec}"]))
    found = trust_doubts(experiment)
    assert len(found) == bool(says)
    assert says in " ".join(found)
    assert not found or "policy.aggregator=reputation" in found[0]

    def nothing(*_: object) -> None:
        raise FedtideError("stop here")

    monkeypatch.setattr("fedtide.deploy.demo.run_demo", nothing)
    words = ["deploy", "demo", "--synthetic", "--out", str(tmp_path / "run"), "data.num_train=600", "data.num_test=50"]
    assert "warning: timeline.period=5 is in seconds" in run(*words, "--period", "5", code=2)
    assert "warning" not in run(*words, "--period", "10", code=2)


def test_keys(tmp_path: Path) -> None:
    told = run("deploy", "keys", str(tmp_path / "keys"), "--nodes", "2", "--host", "fl.example.org")
    assert len(told.split()) >= 7
    run("deploy", "keys", str(tmp_path / "keys"), code=2)


def test_privacy() -> None:
    words = ["data.name=synthetic", "fleet.num_devices=6", "policy.limit=2", "timeline.horizon=5", "--draws", "2"]
    told = json.loads(run("deploy", "privacy", *words, "-e", "0.1", "-e", "50", "--json"))
    assert [each["epsilon"] for each in told] == [0.1, 50]
    assert "random schedule" in run("deploy", "privacy", *words)


def test_the_demos_table(folder: Path) -> None:
    demo = Demo()
    experiment = demo_terms(demo, {}).experiment
    assert experiment.fleet.num_devices == 6
    assert round(experiment.timeline.horizon / experiment.timeline.period) == 20
    assert _paces(demo) == sorted(set(_paces(demo)))
    console = Console(record=True, width=120, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(demo_table(terms().experiment, read_rounds(folder), "training"))
    text = console.export_text()
    assert "period 8 of 8: training" in text
    assert "accuracy" in text
    console.file.close()


def test_the_demo_does_not_overwrite(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("!")
    run("deploy", "demo", "--synthetic", "--out", str(tmp_path), code=2)
