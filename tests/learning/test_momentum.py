"""Local momentum: the heavy ball, written out, natively and in PyTorch; without it nothing changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide import config
from fedtide.engine.system import build, make_trainer
from fedtide.errors import FedtideError
from fedtide.learning import native
from fedtide.learning.model import MODELS
from fedtide.learning.native import NativeTrainer
from fedtide.learning.trainer import LocalWork, Task
from fedtide.types import Job
from helpers import small, small_dataset

DATA = small_dataset(num_train=40, side=28)


def made(momentum: float | None, model: str = "softmax", work: LocalWork | None = None, threads: int = 1) -> Any:
    work = work or LocalWork(4, 2, proximal=0.3)
    args = {} if momentum is None else {"momentum": momentum}
    return NativeTrainer(Task(MODELS[model]((1, 28, 28), 3), work, 3, (1, 28, 28), 3, threads), **args)


def jobs(trainer: Any) -> list[Job]:
    return [Job(k, k + 1, trainer.initial_model(k), 0.05, DATA.train, np.arange(k, 40, 3)) for k in range(4)]


def heavy_ball(start: Any, mine: Any, rate: float, steps: int, momentum: float, proximal: float) -> Any:
    """Softmax regression on whole batches, in float64: v <- mu v + g, y <- y - eta v."""
    inputs, labels = DATA.train.images[mine].reshape(len(mine), -1).astype(float), DATA.train.labels[mine]
    y, v = start.astype(float), np.zeros(len(start))
    for _ in range(steps):
        logits = inputs @ y[:-3].reshape(3, -1).T + y[-3:]
        slope = np.exp(logits - logits.max(axis=1, keepdims=True))
        slope /= slope.sum(axis=1, keepdims=True)
        slope[np.arange(len(labels)), labels] -= 1
        g = np.concatenate([(slope.T @ inputs).ravel(), slope.sum(axis=0)]) / len(labels)
        v = momentum * v + g + proximal * (y - start)
        y = y - rate * v
    return y - start


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_it_is_the_heavy_ball(momentum: float) -> None:
    trainer = made(momentum, work=LocalWork(40, None, 6, proximal=0.3))
    for job in jobs(trainer):
        wanted = heavy_ball(job.start, job.indices, 0.05, 6, momentum, 0.3)
        np.testing.assert_allclose(trainer.train([job])[0], wanted, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("model", ["softmax", "paper_cnn"])
def test_none_is_the_old_bits(model: str) -> None:
    plain, none, some = made(None, model), made(0.0, model), made(0.5, model)
    assert np.array_equal(plain.train(jobs(plain)), none.train(jobs(none)))
    assert not np.allclose(plain.train(jobs(plain)), some.train(jobs(some)), rtol=1e-2)


@pytest.mark.parametrize("isa", native.isas())
def test_every_path_agrees_with_pytorch(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from fedtide.learning.torch import TorchTrainer

    monkeypatch.setenv("FEDTIDE_ISA", isa)
    model = MODELS["paper_cnn"]((1, 28, 28), 3)
    from fedtide.learning.model import without_dropout

    task = Task(without_dropout(model), LocalWork(4, 2, proximal=0.3), 3, (1, 28, 28), 3)
    ours, theirs = NativeTrainer(task, momentum=0.8), TorchTrainer(task, device="cpu", momentum=0.8)
    np.testing.assert_allclose(ours.train(jobs(ours)), theirs.train(jobs(theirs)), rtol=2e-2, atol=2e-5)


def test_every_job_begins_at_rest() -> None:
    one, two = made(0.9, "paper_cnn"), made(0.9, "paper_cnn", threads=2)
    together = one.train(jobs(one))
    assert np.array_equal(together, np.concatenate([one.train([job]) for job in jobs(one)]))
    assert np.array_equal(together, two.train(jobs(two)))


@pytest.mark.parametrize("momentum", [1.5, 1.0, -0.1, "much"])
@pytest.mark.parametrize("trainer", ["native", "torch"])
def test_a_bad_value_is_one_line(momentum: Any, trainer: str) -> None:
    if trainer == "torch":
        pytest.importorskip("torch")
    wanted = small({"learning": {"trainer": {"name": trainer, "momentum": momentum}}})
    with pytest.raises(FedtideError, match=r"momentum=.*cannot be") as caught:
        make_trainer(build(wanted, dataset=small_dataset()))
    assert "\n" not in str(caught.value)


def test_it_is_part_of_what_a_run_is_known_by(tmp_path: Path) -> None:
    plain = small({"learning": {"trainer": "native"}})
    some = config.experiment(plain, {"learning": {"trainer": {"momentum": 0.5}}})
    assert config.digest(plain) == config.digest(config.experiment(plain, {"learning": {"trainer": {}}}))
    assert config.digest(plain) != config.digest(some)
    fedtide.simulate(some, tmp_path / "run", dataset=small_dataset())
    with pytest.raises(FedtideError):
        fedtide.simulate(plain, tmp_path / "run", dataset=small_dataset())
    assert made(0.5).name == "native with momentum=0.5"
    task = Task(MODELS["softmax"]((1, 28, 28), 3), LocalWork(), 3, (1, 28, 28), 3)
    assert NativeTrainer(task, fast=True).name == "native with fast=True"
    assert NativeTrainer(task, 0.5, True).name == "native with momentum=0.5, fast=True"
    assert made(0.0).name == made(None).name == "native"
