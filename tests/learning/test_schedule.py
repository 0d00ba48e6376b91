from __future__ import annotations

import numpy as np
import pytest

from fedtide.engine.step import step_learning_rates
from fedtide.engine.system import build
from fedtide.learning.trainer import RATE_SCHEDULES
from helpers import small, small_dataset

ELAPSED = np.array([0.0, 0.25, 0.4999, 0.5, 0.75, 1.0])


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("constant", [1, 1, 1, 1, 1, 1]),
        ("halved", [1, 1, 1, 0.5, 0.5, 0.5]),
        ("cosine", (1 + np.cos(np.pi * ELAPSED)) / 2),
    ],
)
def test_factors(name: str, factor: list[float]) -> None:
    np.testing.assert_allclose(RATE_SCHEDULES[name](ELAPSED), factor, atol=1e-15)


def test_the_rate_is_set_when_the_device_receives_its_model() -> None:
    system = build(small({"timeline": {"period": 0.25, "horizon": 2.0}}), dataset=small_dataset())
    # version v came to be at (v - 1) / 4; half-time is 1.0, which is version 5
    np.testing.assert_allclose(step_learning_rates(system, np.array([1, 4, 5, 8])), [0.1, 0.1, 0.05, 0.05])


@pytest.mark.parametrize(
    ("period", "horizon"), [(0.25, 35.0), (0.1, 35.0), (0.125, 35.0), (0.3, 6.0), (0.7, 14.0), (1 / 3, 2.0)]
)
def test_half_time_is_not_missed_by_a_rounding(period: float, horizon: float) -> None:
    system = build(small({"timeline": {"period": period, "horizon": horizon}}), dataset=small_dataset())
    half = round(horizon / 2 / period)
    np.testing.assert_allclose(step_learning_rates(system, np.array([half, half + 1])), [0.1, 0.05])
