"""The anytime-valid t test: its slow twin, its error rate over many looks, and what it does with odd numbers."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from fedtide.studies.sequential import (
    _SCALES,
    affordable_candidates,
    anytime_margins,
    anytime_quantile,
    log_evidence,
    pair_level,
    within_margin,
    worse_candidates,
)

Floats = npt.NDArray[np.float64]


def twin(t: float, n: int) -> float:
    """Return E_n by numerical integration over effect sizes of the noncentral t density against the central one."""

    def ratio(effect: float) -> float:
        return float(stats.nct.pdf(t, n - 1, effect * math.sqrt(n)) / stats.t.pdf(t, n - 1))

    found = [
        integrate.quad(
            lambda d, s=scale: ratio(d) * 2 * stats.norm.pdf(d, 0, s), 0, 8 * scale, limit=200, points=[0.5, 2]
        )[0]
        for scale in _SCALES
    ]
    return float(np.mean(found))


@pytest.mark.parametrize(
    ("t", "n"), [(0.0, 3), (1.5, 3), (-2.0, 4), (4.0, 5), (3.0, 10), (-0.5, 12), (6.0, 8), (2.5, 20)]
)
def test_the_closed_form_is_the_mixture_of_likelihood_ratios(t: float, n: int) -> None:
    assert math.exp(log_evidence(t, n)) == pytest.approx(twin(t, n), rel=1e-4)


@given(st.integers(2, 30), st.floats(-30, 30), st.floats(1e-3, 5))
def test_evidence_rises_with_t(n: int, t: float, more: float) -> None:
    """Which makes the test valid for all means below 0, and turns evidence into a quantile."""
    assert log_evidence(t + more, n) > log_evidence(t, n) - 1e-12


@pytest.mark.parametrize("level", [0.05, 0.0025, 0.0001])
def test_a_quantile_is_where_the_evidence_is_enough(level: float) -> None:
    quantiles = [anytime_quantile(level, n) for n in range(2, 31)]
    for n, quantile in enumerate(quantiles, 2):
        if math.isfinite(quantile):
            assert math.exp(log_evidence(quantile, n)) == pytest.approx(1 / level, rel=1e-6)
            assert quantile > stats.t.ppf(1 - level, n - 1)  # looking often costs something
    finite = [quantile for quantile in quantiles if math.isfinite(quantile)]
    assert finite == sorted(finite, reverse=True)
    assert quantiles[0] == math.inf  # two seeds show nothing


def raced(values: Floats, level: float = 0.05) -> set[int]:
    """Look after every seed; return who is dropped."""
    alive = np.ones(len(values), bool)
    for n in range(2, values.shape[1] + 1):
        for each in worse_candidates(values[:, :n], alive, level):
            alive[each] = False
    return set(np.flatnonzero(~alive).tolist())


@pytest.mark.parametrize("num_candidates", [2, 5, 20])
def test_null_races_drop_nobody_in_95_of_100(num_candidates: int) -> None:
    """Seeds share most of their noise, some candidates vary more than others; 20 looks each."""
    rng = np.random.default_rng(num_candidates)
    spread = rng.uniform(0.2, 3, (num_candidates, 1))
    wrong = [
        bool(raced(rng.normal(size=(1, 20)) * 5 + spread * rng.normal(size=(num_candidates, 20)))) for _ in range(200)
    ]
    assert np.mean(wrong) <= 0.05


def test_a_test_at_a_fixed_number_of_seeds_would_not_stand_that() -> None:
    rng = np.random.default_rng(0)
    wrong = []
    for _ in range(200):
        x = rng.normal(size=20)
        t = [math.sqrt(n) * x[:n].mean() / x[:n].std(ddof=1) for n in range(3, 21)]
        wrong.append(any(each > stats.t.ppf(0.95, n - 1) for n, each in enumerate(t, 3)))
    assert np.mean(wrong) > 0.1


def test_the_worse_are_dropped_and_the_best_are_not() -> None:
    rng = np.random.default_rng(1)
    level = np.array([0.9, 0.9, 0.87, 0.5, 0.1])[:, None]
    values = level + 0.05 * rng.normal(size=(1, 12)) + 0.005 * rng.normal(size=(5, 12))
    assert raced(values) == {2, 3, 4}
    found = worse_candidates(values, np.ones(5, bool), 0.05)
    assert all(found[each] in (0, 1) for each in (2, 3, 4))
    assert not worse_candidates(values[:, :2], np.ones(5, bool), 0.05)


@given(st.integers(2, 6), st.integers(2, 12), st.integers(0, 1000))
def test_scale_and_shift_and_order_do_not_matter(num_candidates: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(num_candidates, n)) + rng.normal(0, 3, (num_candidates, 1))
    found = set(worse_candidates(values, np.ones(num_candidates, bool), 0.05))
    assert set(worse_candidates(1e-3 * values + 7, np.ones(num_candidates, bool), 0.05)) == found
    turned = set(worse_candidates(values[::-1], np.ones(num_candidates, bool), 0.05))
    assert {num_candidates - 1 - each for each in turned} == found


def test_numbers_on_a_grid_are_not_taken_for_exact() -> None:
    """Times that are counted in periods differ by one period on every seed: that alone shows little."""
    one = np.array([5.0] * 4)
    assert raced(np.stack([one, one - 0.25]), 0.05) == set()
    assert raced(np.stack([one, one]), 0.05) == set()  # the same numbers on every seed
    assert raced(np.stack([np.tile(one, 3), np.tile(one, 3) - 0.25])) == {1}


def test_the_interval_covers_at_all_times() -> None:
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(300):
        values = rng.normal([[0.3], [0.0]], 1.0, (2, 20))
        for n in range(2, 21):
            mean, width = anytime_margins(values[:, :n], pair_level(0.05, 2))
            if abs(mean[0, 1] - 0.3) > width[0, 1]:
                missed += 1
                break
    assert missed / 300 <= 0.05


def test_equivalence_needs_a_narrow_interval() -> None:
    rng = np.random.default_rng(4)
    values = 0.9 + 0.001 * rng.normal(size=(3, 15)) + np.array([[0.0], [0.002], [-0.02]])
    alive = np.ones(3, bool)
    assert within_margin(values, alive, 1, 0.05, 0.01).tolist() == [True, True, False]
    assert within_margin(values[:, :3], alive, 1, 0.05, 0.01).tolist() == [False, True, False]
    assert pair_level(0.05, 5, 2) == pytest.approx(0.05 / 8)


def test_a_budget_carries_as_many_as_halving_has_runs_for() -> None:
    assert affordable_candidates(16, 1, 20, 16 + 8 * 2 + 4 * 4 + 2 * 8) == 16
    assert affordable_candidates(16, 1, 20, 16 + 8 * 2 + 4 * 4 + 2 * 8 - 1) < 16
    assert affordable_candidates(16, 1, 20, math.inf) == 16
    assert affordable_candidates(16, 19, 20, 16) == 16  # one more seed for all of them
    assert affordable_candidates(5, 3, 20, 0) == 2  # whoever calls stops then
    assert affordable_candidates(1, 3, 20, 0) == 1
    counts = [affordable_candidates(20, 2, 20, runs) for runs in range(0, 200, 10)]
    assert counts == sorted(counts)
