"""Every example runs, as its own text says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide import config
from fedtide.engine.system import build
from fedtide.engine.ticks import planned
from fedtide.studies.spec import read_study
from fedtide_lab.paper.figures import FIGURES
from fedtide_lab.paper.figures import figure_study as paper_study
from helpers import EXAMPLES, run, small, small_dataset


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def words_of(path: Path) -> list[str]:
    """Return the key=value words of the command in a file's text, with the path to this copy of the examples."""
    command = re.search(r"fedtide (?:run|plan) (.*=.*)", path.read_text())
    assert command, f"{path} shows no command"
    text = command[1].replace("examples/", f"{EXAMPLES}/")
    return [word.replace("'", "") for word in re.findall(r"(?:[^\s']|'[^']*')+", text)]


def example(name: str, *trees: dict[str, Any]) -> fedtide.Experiment:
    return small(config.parse_overrides(words_of(EXAMPLES / f"{name}.py")), *trees)


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.*")} == {
        *("my_scheduler.py", "my_weighting.py", "my_codec.py", "my_timeline.py"),
        *("latency_deadline.py", "drift_power.py"),  # tests/policy/test_joint_decisions.py
        "from_sionna.py",  # tests/radio/test_sionna.py
        *("own_module.py", "compare.py", "experiment.yaml", "study.yaml"),
        *("codec.yaml", "codec-weights.yaml", "gamma.yaml", "shakespeare.yaml", "million.yaml"),
        "edges.yaml",  # tests/test_edges.py
        "private.yaml",  # tests/docs/test_private_updates.py
    }


def test_shakespeare(monkeypatch: pytest.MonkeyPatch) -> None:
    play = "ACT I.\n\n" + "\n\n".join(f"ROLE {chr(65 + k)}.\n" + "What light is light? " * 99 for k in range(26))
    monkeypatch.setattr("fedtide.data.shakespeare._load_plays", lambda folder, say: ([play], "made up"))
    planned = fedtide.plan(EXAMPLES / "shakespeare.yaml")
    assert planned.summary["num_parameters"] == 64_089
    assert planned.summary["kept_share"]["mean"] > 0.9  # or nothing is learnt


def test_study() -> None:
    study = read_study(EXAMPLES / "study.yaml")
    assert study.labels == ["proposed", "random"]
    assert len(study.runs) == 10


def test_the_gamma_study_shares_the_papers_values() -> None:
    names = {run.name for run in paper_study(FIGURES["weights"], range(5)).runs}
    runs = read_study(EXAMPLES / "gamma.yaml").runs
    assert {run.experiment.policy.age_base for run in runs if run.name not in names} == {0.5, 2.0}
    assert len(runs) == 50


@pytest.mark.parametrize(("file", "figure", "settings"), [("codec", "R", 8), ("codec-weights", "weights", 2)])
def test_codec_studies_share_their_half_with_the_paper(file: str, figure: str, settings: int) -> None:
    study = read_study(EXAMPLES / f"{file}.yaml")
    seeds = range(3)
    names = {run.name for run in paper_study(FIGURES[figure], seeds).runs}
    by_codec = {
        codec: {run.name for run in study.runs if run.experiment.part("codec").name == codec}
        for codec in ("sparse_quantized", "dead_zone")
    }
    assert [len(each) for each in by_codec.values()] == [settings * len(seeds)] * 2
    assert by_codec["sparse_quantized"] <= names
    assert not by_codec["dead_zone"] & names


def test_scheduler() -> None:
    experiment = example("my_scheduler")
    assert experiment.policy.scheduler.name.endswith("my_scheduler.py:freshest_first")
    result = run(experiment)
    system = build(experiment, dataset=small_dataset())
    for record, tick in zip(result.rounds, system.ticks, strict=True):
        ages = sorted((tick.index - tick.start).tolist())
        assert sorted(record.age) == ages[: len(record.age)]


def test_weighting() -> None:
    result = run(example("my_weighting"))
    uneven = [record for record in result.rounds if len(set(record.age)) > 1]
    assert uneven
    for record in uneven:
        mass = (1 + np.array(record.age)) ** -0.5  # all devices hold the same number of samples
        np.testing.assert_allclose(record.weight, mass / mass.sum())


def test_codec() -> None:
    result = run(example("my_codec"))
    sent = [record for record in result.rounds if record.picked]
    assert all(max(record.sent_bits) <= min(record.budget_bits) for record in sent)
    assert {kept for record in sent for kept in record.num_kept} == {30}
    starved = run(example("my_codec", {"radio": {"num_symbols": 60}}))
    assert {kept for record in starved.rounds for kept in record.num_kept} >= {0, 30}


def test_timeline() -> None:
    experiment = example("my_timeline")
    assert experiment.part("timeline").args == {"growth": 1.02}
    times = [each.tick.time for each in planned(build(experiment, dataset=small_dataset()))]
    gaps = np.diff([0, *times])
    np.testing.assert_allclose(gaps[1:] / gaps[:-1], 1.02)
    assert len(run(experiment).rounds) == len(times)


def test_own_module() -> None:
    experiment = example("own_module", {"timeline": {"horizon": 0.5}, "data": {"num_train": 60, "num_test": 20}})
    one, two = fedtide.simulate(experiment), fedtide.simulate(experiment, threads=2)
    assert len(one.model) == 208 + 16 + 2890
    assert np.array_equal(one.model, two.model)


def test_experiment_file() -> None:
    tree = config.read_yaml_file(EXAMPLES / "experiment.yaml")
    experiment = config.experiment(tree, {"timeline": {"horizon": 0.5}, "learning": {"trainer": "torch"}})
    assert experiment.policy.age_base == 0.85
    assert len(fedtide.simulate(experiment).rounds) == 2


def test_the_curve_of_the_experiment_file_rises() -> None:
    """As a first example it must be seen to learn: far above the 0.1 of a guess among ten labels."""
    tree = config.read_yaml_file(EXAMPLES / "experiment.yaml")
    accuracy = [each.test_accuracy for each in fedtide.simulate(config.experiment(tree)).rounds]
    assert len(accuracy) == 20
    assert accuracy[0] < 0.4
    assert min(accuracy[-5:]) > 0.6


def test_compare(capsys: pytest.CaptureFixture[str]) -> None:
    gains = load("compare").main("torch", seeds=2)
    assert len(gains) == 2
    assert "mean gain" in capsys.readouterr().out
