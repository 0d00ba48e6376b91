"""MIFA under a learning-rate schedule: what is remembered counts by the rate of now, as in its authors' code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import fedtide
from aggregation import cohort, stepped
from fedtide.parts import registry
from fedtide.types import Job
from helpers import FakeTrainer, small, small_dataset

FACTOR = {
    "constant": lambda x: 1.0,
    "halved": lambda x: 1.0 if x < 0.5 else 0.5,
    "cosine": lambda x: (1 + math.cos(math.pi * x)) / 2,
}


def mifa(**args: Any) -> Any:
    return registry.resolve("aggregator", "mifa", args)


def test_two_devices_at_two_rates() -> None:
    """Gradient 1 on both, rates 0.2 and then 0.1: the second step is 0.1 (1 + 1) / 2, not (0.2 + 0.1) / 2."""
    model, state = np.zeros(3, np.float32), None
    for device, rate in ((0, 0.2), (1, 0.1)):
        start, update = model, np.full((1, 3), -rate, np.float32)
        who = cohort(np.ones(1), np.zeros(1, np.int64), np.array([device]), 2, (np.array([rate / 0.2]), rate / 0.2))
        model, state = stepped(mifa(), state, model, start[None], update, who)
    np.testing.assert_allclose(model - start, -0.1, rtol=1e-6)


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
