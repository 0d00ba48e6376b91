import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide_lab.theory import heterogeneity
from fedtide_lab.theory.claims import read_rows
from fedtide_lab.theory.heterogeneity import (
    IID,
    Spread,
    dealt_task,
    gamma_limit,
    gamma_of,
    global_minimum,
    local_minima,
)
from fedtide_lab.theory.objectives import LeastSquares, Softmax
from helpers import ROOT


def make(task, seed, sizes=(5, 8, 13), l2=0.2):
    rng = np.random.default_rng(seed)
    features = [rng.standard_normal((size, 3)) for size in sizes]
    if task == "least_squares":
        return LeastSquares(features, [rng.standard_normal(size) for size in sizes], l2)
    return Softmax(features, [rng.integers(0, 3, size) for size in sizes], 3, l2)


def measures(objective):
    optimum, local = global_minimum(objective), local_minima(objective)
    return gamma_of(objective, optimum, local), optimum, local


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_gamma_of_least_squares_is_a_quadratic_form_in_the_distances(seed):
    """Gamma = sum_k |S_k|/|S| (theta* - theta_k*)' H_k (theta* - theta_k*) / 2: exact, as every F_k is a quadratic."""
    objective = make("least_squares", seed)
    gamma, optimum, local = measures(objective)
    shares = objective.num_samples / objective.num_samples.sum()
    away = optimum - local
    form = sum(
        share * gap @ objective.hessian(k) @ gap / 2 for k, (share, gap) in enumerate(zip(shares, away, strict=True))
    )
    assert gamma == pytest.approx(form, rel=1e-9)
    assert gamma > 0


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_gamma_lies_between_what_curvature_makes_of_the_distances(seed):
    objective = make("softmax", seed)
    gamma, optimum, local = measures(objective)
    mu, L = objective.curvature()
    shares = objective.num_samples / objective.num_samples.sum()
    mean = shares @ ((local - optimum) ** 2).sum(axis=1)
    assert mu / 2 * mean <= gamma <= L / 2 * mean


@pytest.mark.parametrize("task", ["least_squares", "softmax"])
def test_devices_with_the_same_data_have_no_gamma(task):
    one = make(task, 3, sizes=(9,))
    second = {"targets": [one.targets[0]] * 4} if task == "least_squares" else {"labels": [one.labels[0]] * 4}
    gamma, *_ = measures(dataclasses.replace(one, features=[one.features[0]] * 4, **second))
    assert abs(gamma) < 1e-14


def test_the_limit_of_gamma_is_exact_for_the_curve_that_is_fitted():
    sizes = (2000, 4000, 8000, 16_000, 32_000, 60_000)
    gamma = [0.03 + 50 / size - 9000 / size**2 for size in sizes]
    assert gamma_limit(sizes, gamma) == pytest.approx(0.03, rel=1e-9)


@pytest.mark.parametrize("per_device", [1, 3, IID])
def test_every_sample_is_dealt_once_and_shards_hold_few_labels(per_device):
    rng = np.random.default_rng(0)
    pool = (rng.standard_normal((6000, 3)), rng.integers(0, 10, 6000))
    task = dealt_task(pool, 2400, per_device, seed=1)
    assert task.num_samples.tolist() == [60] * 40
    dealt = np.concatenate(task.features)
    assert len(np.unique(dealt, axis=0)) == 2400
    most = (task.label_counts > 0).sum(axis=1)
    assert most.max() <= 2 * per_device if per_device else most.min() > 6
    again = dealt_task(pool, 2400, per_device, seed=2)
    assert set(map(tuple, dealt)) != set(map(tuple, np.concatenate(again.features)))


def test_stored_numbers_are_what_the_command_comes_to():
    stored = read_rows(ROOT / "results" / "theory" / "spread.csv", Spread)
    smallest = heterogeneity.NUM_SAMPLES[0]
    wanted = [row for row in stored if (row.seed, row.samples) == (0, smallest)]
    made = list(heterogeneity._spreads_of_one_set(heterogeneity.mnist_pool(), smallest, 0))
    assert [row[:3] for row in made] == [row[:3] for row in wanted]
    np.testing.assert_allclose([row[3:] for row in made], [row[3:] for row in wanted], rtol=1e-5)


def test_a_run_from_the_optimum_settles_further_away_with_uneven_data(monkeypatch):
    monkeypatch.setattr(heterogeneity, "_TAIL", 40)
    monkeypatch.setitem(heterogeneity.PACES, 0.25, 120)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 2000)
    pool = (rng.standard_normal((10, 10))[labels] / 4 + rng.standard_normal((2000, 10)) / 6, labels)
    found = []
    for per_device in (1, IID):
        objective = dealt_task(pool, 2000, per_device, 0)
        found.append(heterogeneity._settled(objective, global_minimum(objective), 0, per_device, 0.25))
    assert found[0].error > 2 * found[1].error > 0
    assert found[0].loss > found[1].loss > 0
