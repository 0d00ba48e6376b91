from __future__ import annotations

import numpy as np
import pytest

from aggregation import aggregated
from fedtide.aggregate.averages import AverageDeltas, AverageModels, BufferedMean, Mix

RNG = np.random.default_rng(0)
MODEL = RNG.standard_normal(7).astype(np.float32)
STARTS = RNG.standard_normal((3, 7)).astype(np.float32)
UPDATES = RNG.standard_normal((3, 7)).astype(np.float32)
WEIGHTS = np.array([0.5, 0.2, 0.3])
AGE = np.array([0, 2, 5])


def test_average_models_is_fedavg_when_all_start_equal() -> None:
    starts = np.stack([MODEL] * 3)
    expected = MODEL + sum(w * u for w, u in zip(WEIGHTS, UPDATES, strict=True))  # eq:syncFlAggregation
    for aggregator in (AverageModels(), AverageDeltas()):
        np.testing.assert_allclose(
            aggregated(aggregator, MODEL, starts, UPDATES, WEIGHTS, AGE), expected, rtol=1e-6, atol=1e-7
        )


def test_average_models_is_pulled_to_stale_starts_and_forgets_the_current_model() -> None:
    expected = sum(w * (s.astype(float) + u) for w, s, u in zip(WEIGHTS, STARTS, UPDATES, strict=True))
    np.testing.assert_allclose(
        aggregated(AverageModels(), MODEL, STARTS, UPDATES, WEIGHTS, AGE), expected, rtol=1e-6, atol=1e-7
    )
    np.testing.assert_array_equal(
        aggregated(AverageModels(), MODEL + 1, STARTS, UPDATES, WEIGHTS, AGE),
        aggregated(AverageModels(), MODEL, STARTS, UPDATES, WEIGHTS, AGE),
    )


@pytest.mark.parametrize("mixing", [0.0, 0.4, 0.8, 1.0])
def test_mix_moves_towards_the_devices_models(mixing: float) -> None:
    arrived = aggregated(AverageModels(), MODEL, STARTS, UPDATES, WEIGHTS, AGE)
    expected = (1 - mixing) * MODEL + mixing * arrived
    np.testing.assert_allclose(
        aggregated(Mix(mixing), MODEL, STARTS, UPDATES, WEIGHTS, AGE), expected, rtol=1e-5, atol=1e-6
    )


def test_mix_can_discount_staleness() -> None:
    one = aggregated(Mix(0.8, 0.5), MODEL, STARTS[:1], UPDATES[:1], np.ones(1), np.array([3]))
    np.testing.assert_allclose(
        one, aggregated(Mix(0.4), MODEL, STARTS[:1], UPDATES[:1], np.ones(1), np.array([3])), rtol=1e-5
    )


def test_mix_does_not_shrink_a_model_that_devices_leave_as_it_is() -> None:
    start, nothing = MODEL[None], np.zeros((1, 7), np.float32)
    np.testing.assert_allclose(
        aggregated(Mix(0.4), MODEL, start, nothing, np.ones(1), np.zeros(1, np.int64)), MODEL, rtol=1e-6
    )


def test_buffered_mean_scales_stale_updates_down() -> None:
    expected = MODEL + 0.5 * sum(w * u / np.sqrt(1 + a) for w, u, a in zip(WEIGHTS, UPDATES, AGE, strict=True))
    np.testing.assert_allclose(
        aggregated(BufferedMean(server_rate=0.5), MODEL, STARTS, UPDATES, WEIGHTS, AGE), expected, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        aggregated(BufferedMean(staleness=0), MODEL, STARTS, UPDATES, WEIGHTS, AGE),
        aggregated(AverageDeltas(), MODEL, STARTS, UPDATES, WEIGHTS, AGE),
        rtol=1e-6,
    )


def test_sums_do_not_lose_small_updates() -> None:
    starts = np.full((300, 1), 1.0, np.float32)
    updates = np.full((300, 1), 1e-9, np.float32)
    weights = np.full(300, 1 / 300)
    assert aggregated(AverageModels(), MODEL[:1], starts, updates, weights, np.zeros(300, np.int64))[0] == np.float32(
        1 + 1e-9
    )
