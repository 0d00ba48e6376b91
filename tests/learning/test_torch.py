from __future__ import annotations

import functools
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
from fedtide.parts import registry
from fedtide.rng import stream
from fedtide.runs import trainer_name
from fedtide.types import Job
from helpers import small_dataset

DATA = small_dataset(num_train=24)
PARTITION = [np.arange(0, 10), np.arange(10, 24)]


def task(model: Any, work: LocalWork | None = None, seed: int = 0, shape: tuple[int, ...] = (1, 8, 8)) -> Task:
    return Task(model, work or LocalWork(), seed, shape, 3)


@pytest.mark.parametrize("name", ["paper_cnn", "mcmahan_cnn", "mlp", "softmax", "small_cnn", "lenet"])
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


# ---- what it can be told -----------------------------------------------------------------------------------------------


def two_steps(**options: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """Train two steps on the whole data; return the first and the last model, and the gradient at any."""
    model = MODELS["softmax"]((1, 8, 8), 3)
    start = initialize(model, stream(0, "initial_model"))
    work = LocalWork(24, None, 2, proximal=0.3)
    update = TorchTrainer(task(model, work), **options).train([Job(0, 1, start, 0.1, DATA.train, np.arange(24))])[0]

    def gradient(theta: np.ndarray) -> np.ndarray:
        x = DATA.train.images.reshape(24, 64).astype(np.float64)
        logits = x @ theta[:192].reshape(3, 64).T + theta[192:]
        share = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        error = (share - np.eye(3)[DATA.train.labels]) / 24
        return np.concatenate([(error.T @ x).ravel(), error.sum(axis=0)]) + 0.3 * (theta - start)

    return start.astype(np.float64), start + update, gradient


def test_momentum_and_weight_decay_by_hand() -> None:
    for momentum, decay in ((0.0, 0.0), (0.9, 0.0), (0.0, 0.5), (0.9, 0.5)):
        start, found, gradient = two_steps(momentum=momentum, weight_decay=decay)
        first = gradient(start) + decay * start
        theta = start - 0.1 * first
        velocity = momentum * first + gradient(theta) + decay * theta
        np.testing.assert_allclose(found, theta - 0.1 * velocity, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(("optimizer", "decay"), [("adam", 0.0), ("adam", 0.5), ("adamw", 0.5)])
def test_adam_by_hand(optimizer: str, decay: float) -> None:
    theta, found, gradient = two_steps(optimizer=optimizer, weight_decay=decay, beta1=0.8, beta2=0.99)
    mean, square = np.zeros(195), np.zeros(195)
    for step in (1, 2):
        inside = decay * theta if optimizer == "adam" else 0.0
        slope = gradient(theta) + inside
        theta = theta - (0.1 * decay * theta if optimizer == "adamw" else 0.0)
        mean, square = 0.8 * mean + 0.2 * slope, 0.99 * square + 0.01 * slope**2
        theta = theta - 0.1 * (mean / (1 - 0.8**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
    np.testing.assert_allclose(found, theta, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("options", [{"momentum": 0.9}, {"weight_decay": 0.1}, {"optimizer": "adam"}], ids=str)
def test_an_optimizer_remembers_nothing_of_other_jobs(options: dict[str, Any]) -> None:
    model = MODELS["mlp"]((1, 8, 8), 3)
    start = initialize(model, stream(0, "initial_model"))
    jobs = [Job(k, 1, start, 0.05, DATA.train, PARTITION[k]) for k in (0, 1)]
    trainer = TorchTrainer(task(model, LocalWork(4, 2)), **options)
    both = trainer.train(jobs)
    assert np.isfinite(both).all()
    for k in (1, 0):
        assert np.array_equal(trainer.train([jobs[k]])[0], both[k])
    assert np.array_equal(TorchTrainer(task(model, LocalWork(4, 2))._replace(threads=2), **options).train(jobs), both)
    assert not np.array_equal(TorchTrainer(task(model, LocalWork(4, 2))).train(jobs), both)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"device": "abacus"}, "device='abacus' cannot be used"),
        ({"device": "meta"}, "device='meta' cannot be used"),
        ({"optimizer": "lbfgs"}, "'sgd', 'adam' or 'adamw'"),
        ({"momentum": 1.0}, "momentum=1.0 cannot be"),
        ({"momentum": True}, "momentum=True cannot be: input should be a valid number"),
        ({"weight_decay": -0.1}, "weight_decay=-0.1 cannot be"),
        ({"optimizer": "adam", "momentum": 0.5}, "momentum=0.5 is an option of sgd"),
        ({"beta1": 0.5}, "beta1=0.5 is an option of adam and adamw"),
    ],
    ids=str,
)
def test_options_that_cannot_be_are_one_line(options: dict[str, Any], says: str) -> None:
    with pytest.raises(FedtideError, match=says) as error:
        registry.resolve("trainer", "torch", options, {"run.task": task(MODELS["softmax"]((1, 8, 8), 3))}.__getitem__)
    assert "\n" not in str(error.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_trains_on_the_cpu_unless_told_otherwise() -> None:
    softmax = MODELS["softmax"]((1, 8, 8), 3)
    assert TorchTrainer(task(softmax)).device == "cpu"
    with pytest.raises(FedtideError, match=r"device='cuda' cannot be used .* choose device=cpu"):
        TorchTrainer(task(softmax), device="cuda")


def test_its_name_tells_what_makes_other_bits() -> None:
    softmax = task(MODELS["softmax"]((1, 8, 8), 3))
    assert trainer_name(TorchTrainer(softmax, device="cpu")) == "torch"
    assert trainer_name(TorchTrainer(softmax, "cpu", momentum=0.9)) == "torch with momentum=0.9"
    assert trainer_name(TorchTrainer(softmax, "cpu", "adam", beta2=0.9)) == "torch with optimizer=adam, beta2=0.9"


def test_what_makes_a_module_is_named_whatever_its_arguments() -> None:
    made = functools.partial(functools.partial(Broken), fails="making")
    with pytest.raises(
        FedtideError, match=r"learning\.model='Broken' raised KeyError: 'width' \(.*test_torch\.py:\d+\)"
    ):
        TorchTrainer(task(made))
    assert TorchTrainer(task(functools.partial(Broken, ""))).initial_model(0).shape == (64 * 3 + 3 + 1,)
