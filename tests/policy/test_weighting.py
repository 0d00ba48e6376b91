from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.aggregate.averages import AgeAware, UniformWeights

rows = st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**6)), min_size=1, max_size=30)


@given(rows, st.floats(1e-6, 1e6))
def test_weights_sum_to_one_whatever_the_ages(devices: list[tuple[int, int]], gamma: float) -> None:
    num_samples, age = np.array(devices).T
    weights = AgeAware(gamma)(num_samples, age)
    assert np.all(np.isfinite(weights))
    assert np.all(weights >= 0)
    assert weights.sum() == pytest.approx(1, abs=1e-12)


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 9)), min_size=1, max_size=9), st.floats(0.3, 3))
def test_is_the_formula(devices: list[tuple[int, int]], gamma: float) -> None:
    mass = [samples * gamma**age for samples, age in devices]
    num_samples, age = np.array(devices).T
    np.testing.assert_allclose(AgeAware(gamma)(num_samples, age), np.array(mass) / sum(mass), rtol=1e-12)


def test_gamma_one_is_fedavg() -> None:
    assert AgeAware(1.0)(np.array([100, 300]), np.array([7, 0])).tolist() == [0.25, 0.75]


def test_gamma_favours_fresh_below_one_and_old_above() -> None:
    num_samples, age = np.array([5, 5, 5]), np.array([0, 1, 3])
    assert np.all(np.diff(AgeAware(0.5)(num_samples, age)) < 0)
    assert np.all(np.diff(AgeAware(2.0)(num_samples, age)) > 0)
    np.testing.assert_allclose(AgeAware(1e-9)(num_samples, age), [1, 0, 0], atol=1e-8)
    np.testing.assert_allclose(AgeAware(1e9)(num_samples, age), [0, 0, 1], atol=1e-8)


def test_huge_ages_do_not_overflow() -> None:
    weights = AgeAware(2.0)(np.array([1, 1]), np.array([100_000, 99_999]))
    np.testing.assert_allclose(weights, [2 / 3, 1 / 3])


def test_uniform() -> None:
    assert UniformWeights()(np.array([1, 9, 90, 900]), np.array([0, 0, 5, 5])).tolist() == [0.25] * 4
