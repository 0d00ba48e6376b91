from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedtide.errors import FedtideError, TrainingError
from fedtide.learning.model import MODELS, initialize, num_parameters
from fedtide.learning.torch import TorchTrainer, build_module
from fedtide.learning.trainer import LocalWork, Task, batches
from fedtide.rng import stream
from fedtide.types import Job
from helpers import small_dataset

DATA = small_dataset(num_train=24)
PARTITION = [np.arange(0, 10), np.arange(10, 24)]


def task(model: Any, work: LocalWork | None = None, seed: int = 0, shape: tuple[int, ...] = (1, 8, 8)) -> Task:
    return Task(model, work or LocalWork(), seed, shape, 3)


@pytest.mark.parametrize("name", ["paper_cnn", "mcmahan_cnn", "mlp", "softmax", "small_cnn"])
def test_module_has_the_parameters_of_the_description(name: str) -> None:
    model = MODELS[name]((1, 28, 28), 10)
    module = build_module(model)
    assert sum(p.numel() for p in module.parameters()) == num_parameters(model)
    assert module(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_update_is_sgd_with_the_proximal_term_on_the_given_batches() -> None:
    """Against torch.optim.SGD on the regularised loss itself."""
    model = MODELS["mlp"]((1, 8, 8), 3)
    work = LocalWork(4, 2, None, proximal=0.3)
    trainer = TorchTrainer(task(model, work, seed=5))
    start = initialize(model, stream(0, "initial_model"))
    update = trainer.train([Job(1, 2, start, 0.2, DATA.train, PARTITION[1])])[0]

    module = build_module(model)
    nn.utils.vector_to_parameters(torch.from_numpy(start.copy()), module.parameters())
    origin = torch.from_numpy(start.copy())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.2)
    visited, bounds = batches(5, 1, 2, PARTITION[1], work)
    for begin, end in pairwise(bounds):
        chosen = visited[begin:end]
        logits = module(torch.from_numpy(DATA.train.images[chosen]))
        loss = nn.functional.cross_entropy(logits, torch.from_numpy(DATA.train.labels[chosen].astype(np.int64)))
        here = nn.utils.parameters_to_vector(module.parameters())
        loss = loss + 0.3 / 2 * (here - origin).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    expected = nn.utils.parameters_to_vector(module.parameters()).detach().numpy() - start
    np.testing.assert_allclose(update, expected, rtol=1e-4, atol=1e-7)
    assert np.abs(update).max() > 1e-3


def test_dropout_is_addressed_and_off_in_evaluation() -> None:
    model = MODELS["paper_cnn"]((1, 28, 28), 3)
    data = small_dataset(num_train=24, side=28)
    start = initialize(model, stream(0, "initial_model"))

    def update(seed: int, device: int, version: int) -> np.ndarray:
        trainer = TorchTrainer(task(model, LocalWork(50, 1), seed, shape=(1, 28, 28)))
        return trainer.train([Job(device, version, start, 0.1, data.train, PARTITION[device])])[0]

    assert np.array_equal(update(0, 0, 1), update(0, 0, 1))
    assert not np.array_equal(update(0, 0, 1), update(0, 0, 2))  # one batch of all samples: only dropout differs
    trainer = TorchTrainer(task(model, shape=(1, 28, 28)))
    assert trainer.evaluate(start, data.test) == trainer.evaluate(start, data.test)


def test_state_outside_the_parameters_is_refused() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 3))

    with pytest.raises(FedtideError, match="GroupNorm"):
        TorchTrainer(task(make))


def test_something_that_is_no_module_is_refused() -> None:
    with pytest.raises(FedtideError, match=r"not a torch\.nn\.Module"):
        TorchTrainer(task(lambda: 3))


class Broken(nn.Module):
    """A module that fails where it is told to."""

    def __init__(self, fails: str) -> None:
        super().__init__()
        if fails == "making":
            raise KeyError("width")
        self.fails, self.layer, self.unused = fails, nn.Linear(64, 3), nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fails == "forward" or (self.fails == "training" and self.training):
            raise RuntimeError("two shapes\ndo not fit")
        logits: torch.Tensor = self.layer(x.flatten(1)) + (0 if self.fails == "unused" else self.unused)
        return logits[:, 0] if self.fails == "shape" else logits


@pytest.mark.parametrize(
    ("fails", "message"),
    [
        ("making", r"raised KeyError: 'width' \(.*test_torch\.py:\d+\)"),
        ("forward", r"raised RuntimeError: two shapes do not fit \(.*test_torch\.py:\d+\)"),
        ("shape", r"to \(2,\); return logits \(2, 3\)"),
    ],
)
def test_a_users_module_that_cannot_work_is_one_line_before_the_run(fails: str, message: str) -> None:
    with pytest.raises(FedtideError, match=message):
        TorchTrainer(task(lambda: Broken(fails)))


@pytest.mark.parametrize(
    ("fails", "message"), [("training", "two shapes do not fit"), ("unused", "not have been used")]
)
def test_a_users_module_that_fails_in_training_is_one_line(fails: str, message: str) -> None:
    trainer = TorchTrainer(task(lambda: Broken(fails)))
    start = trainer.initial_model(0)
    with pytest.raises(TrainingError, match=message):
        trainer.train([Job(0, 1, start, 0.1, DATA.train, PARTITION[0])])


def test_initial_model_of_a_users_module_follows_the_seed_alone() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))

    trainer = TorchTrainer(task(make))
    torch.manual_seed(1)
    one = trainer.initial_model(4)
    before = torch.get_rng_state()
    assert np.array_equal(one, trainer.initial_model(4))
    assert torch.equal(before, torch.get_rng_state())
    assert not np.array_equal(one, trainer.initial_model(5))
