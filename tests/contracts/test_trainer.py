"""What every trainer promises."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import pytest

from fedtide.learning.model import MODELS, Model, num_parameters
from fedtide.learning.trainer import LocalWork
from helpers import small_dataset

TRAINERS = [("fedtide.learning.torch", "TorchTrainer"), ("fedtide.learning.native", "NativeTrainer")]
DATA = small_dataset(num_train=60, side=28)
PARTITION = [np.arange(k, 60, 4) for k in range(4)]
WORK = LocalWork(batch_size=4, epochs=1, proximal=0.02)

trainers = pytest.mark.parametrize("where", TRAINERS, ids=lambda where: where[1])


def make(
    where: tuple[str, str], model: str = "paper_cnn", threads: int = 1, work: LocalWork = WORK, seed: int = 3
) -> Any:
    module, name = where
    try:
        trainer_class = getattr(importlib.import_module(module), name)
        return trainer_class(description(model), DATA.train, PARTITION, work, seed, threads)
    except ImportError as error:
        pytest.skip(f"{name} is not built: {error}")


def description(name: str) -> Model:
    return MODELS[name]((1, 28, 28), 3)


def jobs(trainer: Any, r: int = 4) -> tuple[np.ndarray, ...]:
    start = trainer.initial_model(0)
    scale = np.linspace(1, 1.3, r, dtype=np.float32)[:, None]
    return start * scale, np.arange(r) % 4, np.arange(1, r + 1), np.linspace(0.01, 0.1, r)


def take(batch: tuple[np.ndarray, ...], rows: list[int]) -> tuple[np.ndarray, ...]:
    return tuple(each[rows] for each in batch)


@trainers
@pytest.mark.parametrize("model", ["paper_cnn", "softmax"])
def test_a_jobs_result_depends_on_the_job_alone(where: tuple[str, str], model: str) -> None:
    trainer = make(where, model)
    batch = jobs(trainer)
    updates = trainer.train(*batch)
    assert updates.shape == (4, num_parameters(description(model)))
    assert updates.dtype == np.float32
    assert np.isfinite(updates).all()
    for rows in ([2], [3, 1], [0, 1, 2, 3, 2, 0], [3, 2, 1, 0]):
        assert np.array_equal(trainer.train(*take(batch, rows)), updates[rows])


@trainers
def test_threads_do_not_change_a_bit(where: tuple[str, str]) -> None:
    one, two = make(where), make(where, threads=2)
    assert np.array_equal(one.train(*jobs(one, 6)), two.train(*jobs(two, 6)))


@trainers
def test_no_jobs(where: tuple[str, str]) -> None:
    trainer = make(where, "softmax")
    assert trainer.train(*take(jobs(trainer), [])).shape == (0, num_parameters(description("softmax")))


@trainers
def test_inputs_are_left_alone(where: tuple[str, str]) -> None:
    trainer = make(where, "softmax")
    batch = jobs(trainer)
    before = [each.copy() for each in batch]
    for each in batch:
        each.flags.writeable = False
    trainer.train(*batch)
    trainer.evaluate(batch[0][0], DATA.test)
    for each, old in zip(batch, before, strict=True):
        assert np.array_equal(each, old)


@trainers
def test_every_part_of_a_job_counts(where: tuple[str, str]) -> None:
    trainer = make(where, "softmax")
    start, device, version, rate = take(jobs(trainer), [0])
    base = trainer.train(start, device, version, rate)
    assert not np.array_equal(base, trainer.train(start + 0.1, device, version, rate))
    assert not np.array_equal(base, trainer.train(start, device + 1, version, rate))
    assert not np.array_equal(base, trainer.train(start, device, version + 1, rate))
    assert not np.array_equal(base, trainer.train(start, device, version, 2 * rate))
    assert not np.array_equal(base, make(where, "softmax", seed=4).train(start, device, version, rate))
    strong = LocalWork(4, 1, proximal=2.0)
    assert not np.array_equal(base, make(where, "softmax", work=strong).train(start, device, version, rate))


@trainers
def test_training_lowers_the_loss(where: tuple[str, str]) -> None:
    trainer = make(where, "softmax", work=LocalWork(5, 10, proximal=0.0))
    start = trainer.initial_model(0)
    update = trainer.train(start[None], np.array([1]), np.array([1]), np.array([0.02]))[0]
    mine = type(DATA.train)(DATA.train.images[PARTITION[1]], DATA.train.labels[PARTITION[1]])
    before, after = trainer.evaluate(start, mine), trainer.evaluate(start + update, mine)
    assert after.loss < before.loss
    assert after.accuracy >= before.accuracy


@trainers
def test_evaluation_of_a_model_that_knows_nothing(where: tuple[str, str]) -> None:
    trainer = make(where)
    score = trainer.evaluate(np.zeros_like(trainer.initial_model(0)), DATA.test)
    assert score.loss == pytest.approx(math.log(3), rel=1e-6)
    assert score.accuracy == pytest.approx(np.mean(DATA.test.labels == 0))


@trainers
def test_initial_model_follows_the_seed(where: tuple[str, str]) -> None:
    trainer = make(where)
    assert np.array_equal(trainer.initial_model(5), trainer.initial_model(5))
    assert not np.array_equal(trainer.initial_model(5), trainer.initial_model(6))
    assert trainer.initial_model(5).dtype == np.float32


def test_both_start_from_the_same_model_and_reach_the_same_update() -> None:
    one, two = (make(where, "softmax") for where in TRAINERS)
    assert np.array_equal(one.initial_model(0), two.initial_model(0))
    np.testing.assert_allclose(one.train(*jobs(one)), two.train(*jobs(two)), rtol=1e-3, atol=1e-6)
