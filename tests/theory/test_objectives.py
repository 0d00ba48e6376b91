from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.errors import FedtideError
from fedtide_lab.theory.objectives import LeastSquares, Softmax, _batch_factor, _gradient

NAMES = ["least_squares", "softmax"]


def make(name, seed, num_devices=3, num_samples=6, width=3, l2=0.2):
    rng = np.random.default_rng(seed)
    features = [rng.standard_normal((num_samples, width)) for _ in range(num_devices)]
    if name == "least_squares":
        return LeastSquares(features, [rng.standard_normal(num_samples) for _ in features], l2)
    return Softmax(features, [rng.integers(0, 3, num_samples) for _ in features], 3, l2)


seeds = st.integers(0, 10_000)


@pytest.mark.parametrize("name", NAMES)
def test_the_minimiser_is_one_to_machine_precision(name):
    objective = make(name, 1, num_samples=40)
    shares = np.array([0.5, 0.3, 0.2])
    for weights in (shares, np.array([0.0, 1.0, 0.0])):
        model = objective.minimiser(weights)
        slope = sum(w * _gradient(objective, k, model) for k, w in enumerate(weights))
        assert np.linalg.norm(slope) < 1e-13


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_is_the_slope_of_the_loss(name):
    objective = make(name, 2)
    model = np.random.default_rng(0).standard_normal(objective.num_parameters)
    for k in range(3):
        numeric = [
            (objective.loss(k, model + step) - objective.loss(k, model - step)) / 2e-5
            for step in 1e-5 * np.eye(len(model))
        ]
        np.testing.assert_allclose(_gradient(objective, k, model), numeric, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(seed=seeds, scale=st.floats(0.01, 30))
def test_smooth_and_strongly_convex_as_assumed(name, seed, scale):
    objective = make(name, seed)
    mu, L = objective.curvature()
    rng = np.random.default_rng(seed + 1)
    one, two = scale * rng.standard_normal((2, objective.num_parameters))
    gap = one - two
    for k in range(3):
        rise = objective.loss(k, one) - objective.loss(k, two) - _gradient(objective, k, two) @ gap
        assert mu / 2 * (gap @ gap) <= rise * (1 + 1e-9) + 1e-9
        assert rise <= L / 2 * (gap @ gap) * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(seed=seeds, batch=st.integers(1, 6), scale=st.floats(0, 100))
def test_the_second_moment_bound_holds_for_every_model(name, seed, batch, scale):
    objective = make(name, seed)
    moments = objective.moments(batch)
    model = scale * np.random.default_rng(seed + 1).standard_normal(objective.num_parameters)
    for k in range(3):
        gradients = objective.sample_gradients(k, model)
        drawn = [gradients[list(which)].mean(axis=0) for which in combinations(range(6), batch)]
        second = np.mean([g @ g for g in drawn])
        slope = gradients.mean(axis=0)
        assert second <= (moments.C_1 + moments.C_2 * (slope @ slope)) * (1 + 1e-9) + 1e-12
        spread = ((gradients - slope) ** 2).sum(axis=1).mean()
        assert second - slope @ slope == pytest.approx(_batch_factor(6, batch) * spread, abs=1e-9 * (1 + second))


def test_no_smaller_C_1_goes_with_the_C_2_of_least_squares():
    objective = make("least_squares", 5)
    C_1, C_2 = objective.moments(2)
    reached = []
    for k in range(3):
        growth, cross, _ = objective._variance_form(k, 2)
        worst = np.linalg.solve((C_2 - 1) * np.eye(3) - growth, cross)
        model = objective.minimiser(np.eye(3)[k]) + np.linalg.solve(objective.hessian(k), worst)
        gradients = objective.sample_gradients(k, model)
        slope = gradients.mean(axis=0)
        variance = _batch_factor(6, 2) * ((gradients - slope) ** 2).sum(axis=1).mean()
        reached.append(variance - (C_2 - 1) * (slope @ slope))
    assert max(reached) == pytest.approx(C_1)


@pytest.mark.parametrize("name", NAMES)
def test_full_batches_make_no_noise(name):
    assert make(name, 1).moments(6) == (0.0, 1.0)


def test_an_objective_that_is_not_strongly_convex_is_refused():
    with pytest.raises(FedtideError, match="not strongly convex"):
        make("least_squares", 1, num_samples=2, l2=0.0).curvature()
