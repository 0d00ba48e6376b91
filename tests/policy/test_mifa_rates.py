"""MIFA under a learning-rate schedule: what is remembered counts by the rate of now, as in its authors' code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide.aggregate.averages import UniformWeights
from fedtide.engine.step import Arrived, Policy, absorb, initial_state
from fedtide.parts import registry
from fedtide.types import Job
from helpers import FakeTrainer, small, small_dataset

FACTOR = {
    "constant": lambda x: 1.0,
    "halved": lambda x: 1.0 if x < 0.5 else 0.5,
    "cosine": lambda x: (1 + math.cos(math.pi * x)) / 2,
}


def mifa(num_devices: int = 2, **args: Any) -> Any:
    return registry.resolve("aggregator", "mifa", args, {"fleet.num_devices": num_devices}.__getitem__)


def test_two_devices_at_two_rates() -> None:
    """Gradient 1 on both, rates 0.2 and then 0.1: the second step is 0.1 (1 + 1) / 2, not (0.2 + 0.1) / 2."""
    policy = Policy(None, 2, UniformWeights(), mifa())  # type: ignore[arg-type]
    state, rate = initial_state(np.zeros(3, np.float32), 2), {1: 0.2, 2: 0.1}
    for device in (0, 1):
        start, version = state.models[state.version], state.version
        came = Arrived(np.array([device]), np.array([version]), np.array([10]))
        update = np.full((1, 3), -rate[version], np.float32)
        relative = lambda versions: np.array([rate[int(each)] for each in versions]) / rate[1]  # noqa: E731
        state, _ = absorb(state, policy, np.array([0, 1]), came, update, None, relative)
    np.testing.assert_allclose(state.models[state.version] - start, -0.1, rtol=1e-6)


class Slope(FakeTrainer):
    """A gradient of its own for every device, the same at every place: an update is -rate times it."""

    def train(self, jobs: Sequence[Job]) -> np.ndarray:
        return np.stack(
            [np.full(self.num_parameters, -job.learning_rate * (1 + job.device), np.float32) for job in jobs]
        )


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("schedule", [*FACTOR])
def test_a_run_is_what_the_authors_code_does(schedule: str, outer: bool) -> None:
    """Their table holds u / eta, and a step goes eta of now times the mean of the table."""
    args: Any = {"aggregator": "mifa"}
    if outer:  # no momentum: the inner one's step, but told the rates through the outer one
        args = {"aggregator": {"name": "server_momentum", "momentum": 0.0, "inner": "mifa"}}
    wanted = small(policy=args, codec={"name": "ideal"}, learning={"schedule": schedule})
    trainer, born = Slope(), {1: 0.0}
    result = fedtide.simulate(wanted, dataset=small_dataset(), trainer=trainer)
    x, table = trainer.initial_model(wanted.seed).astype(np.float64), [0.0] * 6
    for record in result.rounds:
        eta = 0.1 * FACTOR[schedule](born[record.index] / 3.0)
        for device in record.picked:
            table[device] = -(1.0 + device)  # u / eta, whatever eta was
        x = x + eta * sum(table) / 6 if record.picked else x
        born[record.index + 1] = record.time
    np.testing.assert_allclose(result.model, x, atol=1e-5)
    assert len(result.rounds) > 8


def test_at_a_constant_rate_nothing_changes_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    model, updates = rng.standard_normal(5).astype(np.float32), rng.standard_normal((2, 5)).astype(np.float32)
    given = (model, updates, updates, np.full(2, 0.5), np.zeros(2, np.int64), np.arange(2))
    plain, told = mifa(server_rate=0.7), mifa(server_rate=0.7)
    before, kept = plain(plain.init(model), *given)
    after, memory = told(told.init(model), *given, np.ones(2), 1.0)
    assert np.array_equal(before, after)
    assert np.array_equal(kept["last"], memory["last"])
