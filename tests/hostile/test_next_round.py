"""What the tables of the other files do not hold: found by trying them from outside."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from companions import with_companions
from fedtide import config
from fedtide.engine.system import build, make_trainer
from fedtide.errors import DataError, FedtideError, RunFolderError, TrainingError
from fedtide.learning.trainer import TRAINERS
from fedtide.parts import checks
from helpers import run, small, small_dataset

COMBINE = "def mine(model, starts, updates, weights, age):\n"
MEAN = "    mean = model + (weights[:, None] * updates).sum(0)\n"
HIDDEN = {
    "a cache that is written to": (
        "@functools.lru_cache\ndef buffer(n):\n    return np.zeros(n)\n"
        f"{COMBINE}{MEAN}    b = buffer(len(model))\n    b += 0.001\n    return mean + b\n"
    ),
    "a context variable": (
        f"N = contextvars.ContextVar('n', default=0)\n{COMBINE}{MEAN}    N.set(N.get() + 1)\n"
        "    return mean * (1.5 if N.get() % 4 == 0 else 1)\n"
    ),
    "a queue": (
        f"Q = queue.Queue()\n{COMBINE}{MEAN}    Q.put(1)\n    return mean * (1.5 if Q.qsize() % 4 == 0 else 1)\n"
    ),
    "dice that were seeded": f"np.random.seed(1)\n{COMBINE}{MEAN}    return mean * np.random.uniform(0.9, 1)\n",
}


def with_aggregator(folder: Path, source: str) -> fedtide.Experiment:
    """Write an aggregator to a file of its own; modules are known by their path."""
    folder.mkdir()
    (folder / "mine.py").write_text(f"import contextvars, functools, queue\nimport numpy as np\n{source}")
    return small({"policy": {"aggregator": f"{folder / 'mine.py'}:mine"}})


@pytest.mark.parametrize("what", HIDDEN)
def test_state_that_cannot_be_seen_is_refused(tmp_path: Path, what: str) -> None:
    with pytest.raises(TrainingError, match="gives another answer when it is called again"):
        run(with_aggregator(tmp_path / "a", HIDDEN[what]))


# ---- what is handed over


@dataclass
class Slower:
    """An aggregator of a caller's own, with a setting."""

    share: Any

    def __call__(self, model: Any, starts: Any, updates: Any, weights: Any, age: Any) -> Any:
        return model + np.mean(self.share) * (weights[:, None] * updates).sum(0)


def slower(model: Any, starts: Any, updates: Any, weights: Any, age: Any, share: float) -> Any:
    return Slower(share)(model, starts, updates, weights, age)


def closed(share: float) -> Any:
    return lambda model, starts, updates, weights, age: slower(model, starts, updates, weights, age, share)


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (Slower(1.0), Slower(1.0), Slower(0.5)),
        (Slower(np.ones(2)), Slower(np.ones(2)), Slower(np.zeros(2))),
        (functools.partial(slower, share=1.0), functools.partial(slower, share=1.0), functools.partial(slower, share=0.5)),
        (closed(1.0), closed(1.0), closed(0.5)),
    ],
)  # fmt: skip
def test_a_policy_that_is_handed_over_keeps_its_settings(tmp_path: Path, one: Any, same: Any, other: Any) -> None:
    experiment = small()
    bare = build(experiment, dataset=small_dataset())

    def system(aggregator: Any) -> Any:
        return bare._replace(policy=bare.policy._replace(aggregator=aggregator))

    def stop(record: Any, total: int) -> None:
        if record.index == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "run", dataset=None, system=system(one), on_round=stop)
    with pytest.raises(RunFolderError, match=r"begun with something else .policies is"):
        run(experiment, tmp_path / "run", dataset=None, system=system(other))
    resumed = run(experiment, tmp_path / "run", dataset=None, system=system(same))
    assert np.array_equal(resumed.model, run(experiment, dataset=None, system=system(one)).model)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": 5}, "seed"),
        ({"learning": {"local_epochs": 2}}, "local work"),
        ({"learning": {"proximal": 0.5}}, "local work"),
        ({"learning": {"model": "mlp"}}, "model"),
        ({}, "shape of images"),
    ],
)
def test_a_trainer_of_another_system_is_refused(change: dict[str, Any], says: str) -> None:
    """It would train with its own batches and epochs, in the name of this experiment."""
    one = small({"learning": {"model": "softmax"}})
    system = build(one, dataset=small_dataset())
    other = build(config.experiment(one, change), dataset=small_dataset(side=8 if change else 9))
    with pytest.raises(FedtideError, match=f"another system .*{says}"):
        fedtide.simulate(one, system=system, trainer=make_trainer(other))
    assert fedtide.simulate(one, system=system, trainer=make_trainer(system)).rounds


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("part", ["train", "test"])
def test_data_that_a_trainer_cannot_take_is_told_before_a_run_begins(tmp_path: Path, trainer: str, part: str) -> None:
    data = small_dataset()
    wide = getattr(data, part)._replace(images=getattr(data, part).images.astype(np.float64))
    one = small(with_companions("trainer", trainer))
    with pytest.raises(FedtideError, match=r"images are float64 .* needs float32"):
        fedtide.simulate(one, tmp_path / "run", dataset=data._replace(**{part: wide}))
    assert not (tmp_path / "run").exists()


def test_a_trainer_trains_whatever_fleet_and_data_its_jobs_bring() -> None:
    one = small({"learning": {"model": "softmax"}})
    system = build(one, dataset=small_dataset())
    other = build(config.experiment(one, {"fleet": {"num_devices": 5}}), dataset=small_dataset(seed=4))
    handed = fedtide.simulate(one, system=system, trainer=make_trainer(other))
    assert np.array_equal(handed.model, fedtide.simulate(one, system=system).model)


@pytest.mark.parametrize("kind", ["scheduler", "weighting", "aggregator", "codec"])
def test_a_run_goes_on_where_its_policy_file_was_moved_to(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy is known by its name and its file's content, not by the folder in which the file lay."""
    source = {
        "scheduler": "def mine(candidates, limit, rng):\n    return np.arange(limit)\n",
        "weighting": "def mine(num_samples, age):\n    return num_samples / num_samples.sum()\n",
        "aggregator": f"{COMBINE}{MEAN}    return mean\n",
        "codec": "from fedtide.codec.sparse_quantized import Ideal\nclass mine(Ideal):\n    pass\n",
    }[kind]
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.py").write_text(f"import numpy as np\n{source}")
    experiment = small({"codec": {"name": "own.py:mine"}} if kind == "codec" else {"policy": {kind: "own.py:mine"}})

    def stop(record: Any, total: int) -> None:
        if record.index == 2:
            raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path / "here")
    whole = run(experiment)
    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "run", on_round=stop)
    monkeypatch.chdir(tmp_path / "there")
    assert np.array_equal(run(experiment, tmp_path / "run").model, whole.model)


# ---- policies that write to what they are given, or answer with what is no plain array

WRITE = """
def written(*arrays):
    for each in arrays:  # as an operation in place on torch.from_numpy(each) does, which takes no notice of flags
        while each is not None and not each.flags.writeable:
            each = each.base
        if each is not None:
            each[...] = 1
"""
WRITERS = {
    "scheduler": ("(candidates, limit, rng)", "*(x for x in candidates if isinstance(x, np.ndarray))", "np.arange(limit)"),
    "weighting": ("(num_samples, age)", "num_samples, age", "np.full(len(age), 1 / len(age))"),
    "aggregator": ("(model, starts, updates, weights, age)", "model, weights, age", "mean"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRITERS)
def test_what_a_policy_writes_to_is_not_ours(tmp_path: Path, kind: str) -> None:
    takes, these, gives = WRITERS[kind]
    results = []
    for name, line in (("quiet", "pass"), ("writes", f"written({these})")):
        (tmp_path / f"{name}.py").write_text(
            f"import numpy as np\n{WRITE}\ndef mine{takes}:\n    mean = {'model * 0.9' if kind == 'aggregator' else 0}\n"
            f"    {line}\n    return {gives}\n"
        )
        results.append(run(small({"policy": {kind: f"{tmp_path / name}.py:mine"}})))
    assert results[0].rounds == results[1].rounds
    assert np.array_equal(results[0].model, results[1].model)


class Stubborn:
    """As a tensor that needs its gradient: it does not become an array."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("call detach first")


@pytest.mark.parametrize(
    "answer", [Stubborn(), np.ma.array(np.ones(30), mask=np.arange(30) < 3), [[1.0], [1.0, 2.0]], {1.0}]
)
def test_an_answer_that_holds_no_plain_numbers_is_the_policy_s_fault(answer: Any) -> None:
    with pytest.raises(TrainingError, match=r"mine returned .*must give the 30 numbers"):
        checks.checked_vector(answer, 30, "mine")


@pytest.mark.parametrize("shape", [(0, 8, 8), (1, 0, 8), (1, 8, 0)])
def test_images_without_pixels_are_refused(shape: tuple[int, ...]) -> None:
    data = small_dataset()
    empty = data._replace(
        train=data.train._replace(images=np.zeros((len(data.train.labels), *shape), np.float32)),
        test=data.test._replace(images=np.zeros((len(data.test.labels), *shape), np.float32)),
    )
    with pytest.raises(DataError, match=r"images float32.*give float32"):
        fedtide.simulate(small({"learning": {"model": "softmax"}}), dataset=empty)
