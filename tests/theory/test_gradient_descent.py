import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.errors import FedtideError
from fedtide.timeline.timelines import Periodic
from fedtide_lab.theory import gradient_descent
from fedtide_lab.theory.claims import read_rows
from fedtide_lab.theory.gradient_descent import Slowdown, descent_errors, descent_rate, iterations_to, mean_generations
from fedtide_lab.theory.heterogeneity import global_minimum
from fedtide_lab.theory.measure import make_problem
from fedtide_lab.theory.objectives import Curvature, LeastSquares, Softmax
from helpers import ROOT, ticks_of


def make(task, seed, l2=0.2):
    rng = np.random.default_rng(seed)
    features = [rng.standard_normal((8, 3)) for _ in range(3)]
    if task == "least_squares":
        return LeastSquares(features, [rng.standard_normal(8) for _ in features], l2)
    return Softmax(features, [rng.integers(0, 3, 8) for _ in features], 3, l2)


@pytest.mark.parametrize("task", ["least_squares", "softmax"])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), share=st.floats(0.01, 1.0), scale=st.floats(0.1, 20))
def test_no_step_of_gradient_descent_contracts_less_than_remark_3_says(task, seed, share, scale):
    """For alpha <= 2/(mu + L) the squared distance falls at least by (1 - mu alpha)^2 per step."""
    objective = make(task, seed)
    mu, L = objective.curvature()
    alpha = share * 2 / (mu + L)
    optimum = global_minimum(objective)
    start = optimum + scale * np.random.default_rng(seed + 1).standard_normal(objective.num_parameters)
    errors = descent_errors(objective, start, optimum, alpha, 5)
    seen = errors > 1e-16 * errors[0]
    ratios = errors[1:][seen[1:]] / errors[:-1][seen[1:]]
    assert np.all(ratios <= (1 - mu * alpha) ** 2 * (1 + 1e-6))


@given(mu=st.floats(0.1, 1), ratio=st.floats(1.01, 20), share=st.floats(0.01, 1.4))
def test_a_quadratic_attains_the_rate_and_beyond_two_over_mu_plus_L_it_is_another(mu, ratio, share):
    L = mu * ratio
    alpha = share * 2 / (mu + L)
    rate = descent_rate(Curvature(mu, L), alpha)
    assert rate == max((1 - alpha * eigenvalue) ** 2 for eigenvalue in (mu, L))
    assert (rate > (1 - mu * alpha) ** 2 * (1 + 1e-12)) == (share > 1 and not np.isclose(share, 1, rtol=1e-9))


def test_iterations_are_counted_between_two_models():
    assert iterations_to(0.9 ** np.arange(60.0), 100) == pytest.approx(np.log(100) / -np.log(0.9))
    with pytest.raises(FedtideError, match="run more"):
        iterations_to(np.array([1.0, 0.5]), 100)


def test_generations_by_hand():
    for periods in (1, 2, 4):  # all of one speed: a generation takes as many iterations
        ticks = ticks_of(Periodic(1 / periods), np.full(3, 1.0), 64.0)
        assert mean_generations(ticks, {}) == pytest.approx(1 / periods)
        assert mean_generations(ticks, {(0, 1, 2): 0.5}) == pytest.approx(0.5 / periods)
    # ages 0, and 0 and 1 in turn: n(2) = 1 + (n(1) + n(0))/2, so two iterations bring three halves
    ticks = ticks_of(Periodic(0.5), np.array([0.2, 1.0]), 100.0)
    assert mean_generations(ticks, {}) == pytest.approx(3 / 4, rel=0.02)


def test_the_settings_differ_in_one_thing_and_stay_within_the_papers_limit():
    rows = read_rows(ROOT / "results" / "theory" / "slowdown.csv", Slowdown)
    assert all(row.step_share < 1 for row in rows)
    assert all(row.kept == 1 for row in rows if row.symbols == "plenty")
    assert all(row.kept < 0.9 for row in rows if row.symbols == "scarce")
    assert all(row.age == 1 for row in rows if row.period == 1)
    assert all(row.descent <= row.nominal for row in rows)


@pytest.mark.parametrize(
    "setting", [s for s in gradient_descent.TIMED_SYSTEMS if s.task == "least_squares"][1:9:3], ids=str
)
def test_a_stored_slowdown_is_what_the_command_comes_to(setting):
    stored = read_rows(ROOT / "results" / "theory" / "slowdown.csv", Slowdown)
    wanted = next(row for row in stored if row[:5] == (*setting, 3))
    problem = make_problem(gradient_descent.setting_options(setting, 3, 100))
    made = gradient_descent.slowdown(setting, problem, 3)
    np.testing.assert_allclose(made[4:], wanted[4:], rtol=1e-3)
