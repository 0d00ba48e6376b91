"""What every metric promises: finite numbers by name, of a model and its context alone, in every record of a scored model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide import config, testing
from fedtide.engine.loop import metric_context
from fedtide.engine.making import load_dataset
from fedtide.engine.system import build, make_trainer
from fedtide.errors import FedtideError, RunFolderError, TrainingError
from fedtide.learning.metrics import Confusion, PerClassAccuracy, PerDeviceAccuracy, measure_model
from fedtide.pages.run import run_page
from fedtide.parts import registry
from fedtide.parts.kinds import builtin_parts
from fedtide.types import MetricContext

TINY: dict[str, Any] = {
    "data": {"name": "synthetic", "partition": "iid", "num_train": 120, "num_test": 100},
    "fleet": {"num_devices": 6},
    "timeline": {"horizon": 1.5},
    "policy": {"limit": 3},
    "radio": {"num_symbols": 400},
    "learning": {"model": "softmax", "local_epochs": 1, "batch_size": 10, "learning_rate": 0.1},
}
OWN = """
import numpy as np

def norm(model, context, power: float = 2.0):
    return {"norm": float(np.sum(np.abs(model) ** power)), "right": context.score(context.test).accuracy}
"""


def tiny(*metrics: Any, **learning: Any) -> fedtide.Experiment:
    return config.experiment(TINY, {"learning": {"metrics": list(metrics), **learning}})


@pytest.fixture(scope="module")
def context() -> tuple[np.ndarray, MetricContext]:
    experiment = tiny()
    system = build(experiment, dataset=load_dataset(experiment))
    trainer, model = make_trainer(system), fedtide.simulate(experiment).model
    return model, metric_context(system, trainer, model, 3, 0.75)


@pytest.mark.parametrize("name", builtin_parts("metric"))
def test_contract(name: str, context: tuple[np.ndarray, MetricContext]) -> None:
    part = registry.part("metric", name, {})
    found = measure_model([part], *context)
    assert found
    assert all(isinstance(value, float) and 0 <= value <= 1 for value in found.values())
    assert measure_model([part], *context) == found
    assert testing.check(name, "metric") == []


@pytest.mark.parametrize("name", builtin_parts("metric"))
def test_a_metric_changes_nothing_and_is_in_every_record_of_a_scored_model(name: str) -> None:
    plain, watched = (fedtide.simulate(tiny(*some, evaluate_every=0.5)) for some in ((), (name,)))
    assert np.array_equal(plain.model, watched.model)
    assert [each._replace(metrics={}) for each in watched.rounds] == [
        each._replace(metrics={}) for each in plain.rounds
    ]
    for with_it, without in zip(watched.rounds, plain.rounds, strict=True):
        more = with_it.metrics.keys() - without.metrics.keys()
        assert bool(more) == (with_it.test_accuracy is not None)
        assert {key: with_it.metrics[key] for key in without.metrics} == without.metrics
    frame = watched.frame()
    assert {f"metrics/{key}" for key in watched.rounds[-1].metrics} <= {*frame}


def test_numbers_by_hand(context: tuple[np.ndarray, MetricContext]) -> None:
    model, given = context
    labels, guess = given.test.labels, given.predict(given.test)
    assert np.mean(guess == labels) == pytest.approx(given.score(given.test).accuracy)
    by_class = [np.mean(guess[labels == label] == label) for label in range(10)]
    found = PerClassAccuracy()(model, given)
    assert [found[f"class_accuracy/{label}"] for label in range(10)] == pytest.approx(by_class)
    assert found["class_accuracy/worst"] == min(by_class)
    assert found["class_accuracy/mean"] == pytest.approx(np.mean(by_class))
    all_guesses = given.predict(given.train)
    by_device = [np.mean((all_guesses == given.train.labels)[each]) for each in given.holdings]
    fair = PerDeviceAccuracy()(model, given)
    assert fair["device_accuracy/mean"] == pytest.approx(np.mean(by_device))
    assert fair["device_accuracy/std"] == pytest.approx(np.std(by_device))
    assert fair["device_accuracy/worst_tenth"] == pytest.approx(min(by_device))
    some = PerDeviceAccuracy(most=2)(model, given)
    assert some["device_accuracy/mean"] == pytest.approx((by_device[0] + by_device[-1]) / 2)
    taken = Confusion()(model, given)
    assert len(taken) == 10 * 9
    for true in range(10):
        wrong = sum(taken[f"confusion/{true}_as_{other}"] for other in range(10) if other != true)
        assert wrong == pytest.approx(1 - by_class[true])
    with pytest.raises(TrainingError, match=r"10 labels make 90 numbers; raise most=3"):
        Confusion(most=3)(model, given)


def test_one_of_ones_own_with_an_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(OWN)
    result = fedtide.simulate(tiny({"name": "mine.py:norm", "power": 1.0}, "per_class_accuracy"), tmp_path / "run")
    last = result.rounds[-1]
    assert last.metrics["norm"] == pytest.approx(np.abs(result.model).sum(dtype=np.float64), rel=1e-5)
    assert last.metrics["right"] == last.test_accuracy
    assert fedtide.load(tmp_path / "run").rounds == result.rounds
    page = run_page([tmp_path / "run"])
    assert re.search(rf"<dt>norm, last</dt><dd>.*?{last.metrics['norm']:.4g}", page)


def test_a_folder_is_not_resumed_with_other_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run measures is a part of what it is: it has another digest, and its own file is known by its content."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(OWN)
    assert len({config.digest(tiny(*some)) for some in ((), ("confusion",), ("mine.py:norm",))}) == 3

    def stop(record: Any, total: int) -> None:
        if record.index == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedtide.simulate(tiny("mine.py:norm"), tmp_path / "run", on_round=stop)
    with pytest.raises(RunFolderError):
        fedtide.simulate(tiny("per_class_accuracy"), tmp_path / "run")
    Path("mine.py").write_text(OWN.replace("np.abs(model)", "np.abs(model) + 1"))
    with pytest.raises(FedtideError, match=r"mine\.py"):
        fedtide.simulate(tiny("mine.py:norm"), tmp_path / "run")
    Path("mine.py").write_text(OWN)
    resumed = fedtide.simulate(tiny("mine.py:norm"), tmp_path / "run")
    assert resumed.rounds == fedtide.simulate(tiny("mine.py:norm")).rounds


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("3.0", "returned 3.0: it must give numbers by name"),
        ("{'x': float('inf')}", "returned x=inf: it must be a finite number"),
        ("{'x': 'much'}", "returned x=much: it must be a finite number"),
        ("{'x': True}", "returned x=True: it must be a finite number"),
        ("{'': 1.0}", "a name is a short text"),
        ("{'class_accuracy/mean': 1.0}", "another of learning.metrics does: rename one"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_wrong_answer_is_one_line(answer: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.py").write_text(f"def wrong(model, context):\n    return {answer}\n")
    with pytest.raises(TrainingError) as caught:
        fedtide.simulate(tiny("per_class_accuracy", "wrong.py:wrong"))
    assert "wrong.py:wrong" in str(caught.value)
    assert says in str(caught.value).replace("'much'", "much").replace('"much"', "much")
    assert "\n" not in str(caught.value)


def test_dice_are_refused_before_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dice.py").write_text("import random\n\ndef dice(model, context):\n    return {'x': random.random()}\n")
    with pytest.raises(FedtideError, match=r"dice\.py:dice"):
        fedtide.simulate(tiny("dice.py:dice"))
    with pytest.raises(FedtideError, match=r"learning\.metrics='per_clas_accuracy' is not known; did you mean"):
        tiny("per_clas_accuracy")


def test_studies_compare_what_is_measured() -> None:
    found = fedtide.study(tiny("per_device_accuracy"), axes={"policy.limit": [1, 3]}, seeds=2)
    table = found.table("metrics/device_accuracy/std")
    assert len(table["mean"]) == 2
    assert "metrics/device_accuracy/worst_tenth" in found.frame()
