"""What every aggregator promises."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregation import aggregated, cohort, stepped
from fedtide.parts.kinds import builtin_parts
from promises import part
from with_memory import REMEMBERING

NAMES = [*builtin_parts("aggregator"), "with memory"]
BY_SIGN = {"majority_vote"}  # declared: every element moves alike, whatever its size


BY_COORDINATE = {
    "server_adam",
    "server_yogi",
    "fadas",
    "fedac",
    "scaffold",
}  # each parameter is moved by a measure of its own


def make(name: str) -> Any:
    """Return how to ask for the next model, from no memory."""
    return functools.partial(
        aggregated, REMEMBERING["aggregator"]() if name == "with memory" else part("aggregator", name)
    )


@pytest.mark.parametrize("name", NAMES)
def test_contract(name: str) -> None:
    @settings(max_examples=30)
    @given(st.integers(1, 6), st.integers(1, 40), st.integers(0, 2**32))
    def check(r: int, d: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        model, starts, updates = (rng.standard_normal(shape).astype(np.float32) for shape in ((d,), (r, d), (r, d)))
        weights, age = rng.dirichlet(np.ones(r)), rng.integers(0, 5, r)
        given_values = (model, starts, updates, weights, age)
        before = [each.copy() for each in given_values]
        for each in given_values:
            each.flags.writeable = False
        aggregator = make(name)
        new = aggregator(*given_values)
        assert new.shape == (d,)
        assert new.dtype == np.float32
        assert np.isfinite(new).all()
        for each, old in zip(given_values, before, strict=True):
            assert np.array_equal(each, old)
        assert np.array_equal(new, aggregator(*given_values))

    check()


@pytest.mark.parametrize("name", NAMES)
def test_devices_that_all_hold_the_model_and_learn_nothing_leave_it(name: str) -> None:
    model = np.linspace(-1, 1, 9).astype(np.float32)
    nothing = np.zeros((3, 9), np.float32)
    new = make(name)(model, np.stack([model] * 3), nothing, np.array([0.2, 0.3, 0.5]), np.array([0, 1, 2]))
    np.testing.assert_allclose(new, model, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_one_fresh_device_moves_the_model_towards_its_own(name: str) -> None:
    model, update = np.ones(4, np.float32), np.array([[1, -1, 2, 0]], np.float32)
    new = make(name)(model, model[None], update, np.ones(1), np.zeros(1, np.int64))
    assert np.array_equal(np.sign(new - model), np.sign(update[0]))
    if name in BY_COORDINATE:
        assert np.all(np.abs(new - model) <= np.abs(update[0]))
        return
    update = np.sign(update) if name in BY_SIGN else update
    step = (new - model) @ update[0] / (update[0] @ update[0])
    assert 0 < step <= 1 + 1e-6
    np.testing.assert_allclose(new, model + step * update[0], rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_lots_change_no_bit(name: str) -> None:
    """Over several aggregations, what is remembered included."""
    rng = np.random.default_rng(1)
    aggregator = REMEMBERING["aggregator"]() if name == "with memory" else part("aggregator", name)
    one = other = (rng.standard_normal(20).astype(np.float32), None)
    for r in (5, 1, 7):
        starts, updates = rng.standard_normal((2, r, 20)).astype(np.float32)
        who = cohort(rng.dirichlet(np.ones(r)), rng.integers(0, 5, r))
        one = stepped(aggregator, one[1], one[0], starts, updates, who)
        other = stepped(aggregator, other[1], other[0], starts, updates, who, lot=2)
        assert np.array_equal(one[0], other[0])
        assert all(np.array_equal(one[1][key], other[1][key]) for key in one[1])  # type: ignore[attr-defined]
