import numpy as np
import pytest

from fedtide.codec.sparse_quantized import Ideal
from fedtide.engine.simulate import simulate
from fedtide.engine.ticks import planned
from fedtide_lab.theory import bound, measure
from fedtide_lab.theory.bound import PAPER_BOUND, SHARP
from fedtide_lab.theory.measure import at_seed, make_problem
from fedtide_lab.theory.objectives import _gradient
from fedtide_lab.theory.options import make_options
from fedtide_lab.theory.sweeps import SWEEPS, run_sweep

SMALL = {"num_devices": 8, "num_samples": 30, "num_features": 4, "num_ticks": 60, "num_draws": 100, "batch_size": 10}
SYSTEMS = {
    "least squares": {},
    "full batches": {"batch_size": 30},
    "single samples": {"batch_size": 1},
    "one level": {"num_levels": 1},
    "few symbols": {"num_symbols": 45},
    "best channel": {"scheduler": "best_channel", "limit": 2},
    "age based": {"scheduler": "age_based", "limit": 2},
    "fresh first": {"age_base": 0.5},
    "old first": {"age_base": 2.0},
    "synchronous pace": {"period": 1.0},
    "eighths": {"period": 0.125, "num_devices": 12, "num_symbols": 150},
    "different devices": {"heterogeneity": 2.0},
    "near the optimum": {"start_distance": 0.01, "heterogeneity": 0.0},
    "softmax": {"task": "softmax"},
    "softmax, sorted labels, the paper's scheduler": {
        "task": "softmax",
        "heterogeneity": 1.0,
        "scheduler": "proposed",
        "limit": 3,
    },
}


def problem_of(**given):
    return make_problem(make_options(**{**SMALL, **given}))


@pytest.mark.parametrize("given", SYSTEMS.values(), ids=SYSTEMS)
def test_the_measured_error_stays_below_every_bound_at_every_t(given):
    problem = problem_of(**given)
    c = bound.bound_of(problem)
    alpha = 0.5 * PAPER_BOUND.step_limit(c)
    curves = [bound.bound_curve(variant, c, alpha, problem.system.ticks) for variant in bound.VARIANTS]
    assert all(each.holds for each in curves)
    measured = measure.squared_errors(problem, alpha, 6)
    for each in curves:
        assert np.all(measured.mean <= each.values), each.variant
    assert np.all(measured.mean + measured.half_width <= curves[0].values)


def test_the_sharp_bound_holds_far_beyond_the_papers_step_limit():
    problem = problem_of(num_ticks=200)
    c = bound.bound_of(problem)
    alpha = 0.99 * SHARP.step_limit(c)
    assert alpha > 10 * PAPER_BOUND.step_limit(c)
    assert not bound.bound_curve(PAPER_BOUND, c, alpha, problem.system.ticks).holds
    measured = measure.squared_errors(problem, alpha, 6)
    assert np.all(measured.mean <= bound.bound_curve(SHARP, c, alpha, problem.system.ticks).values)


def test_an_empty_round_contradicts_the_theorem_as_printed():
    """All devices need four periods: theta(2) = theta(1), where the theorem promises a contraction and nearly no noise."""
    problem = problem_of(
        num_devices=3, limit=2, min_duration=0.9, heterogeneity=0.0, noise=0.0, l2=0.0, batch_size=30, num_ticks=40
    )
    c = bound.bound_of(problem)
    alpha = 0.5 * PAPER_BOUND.step_limit(c)
    ticks = problem.system.ticks
    measured = measure.squared_errors(problem, alpha, 2)
    printed = PAPER_BOUND.asymptote(c, alpha) + c.initial * PAPER_BOUND.contraction(c, alpha) ** bound._exponents(
        c.a_lim, len(ticks)
    )
    assert measured.mean[0] == c.initial
    assert printed[0] < (1 - 1e-4) * c.initial
    assert "no ready device" in bound.bound_curve(PAPER_BOUND, c, alpha, ticks).problem
    assert np.all(measured.mean <= bound.bound_curve(SHARP, c, alpha, ticks).values)


def test_the_simulator_agrees_with_the_recursion_in_float64():
    """theta(t+1) = sum_k w_k [theta(s_k) - alpha grad F_k(theta(s_k))]: float32 models do not matter to the comparison."""
    problem = problem_of(batch_size=30, num_ticks=400)
    problem = problem._replace(system=problem.system._replace(codec=Ideal()))
    alpha = 0.02
    measured = measure.squared_errors(problem, alpha, 2)
    system = at_seed(problem, problem.options.seed + 1, alpha)
    models = {1: problem.start.astype(np.float64)}
    for each in planned(system):
        device, start = (column[each.grant.picked] for column in (each.tick.ready, each.tick.start))
        weights = system.policy.weighting(system.fleet.num_samples[device], each.tick.index - start)
        moved = [
            models[s] - alpha * _gradient(problem.objective, int(k), models[s])
            for k, s in zip(device, start, strict=True)
        ]
        models[each.tick.index + 1] = weights @ np.array(moved)
    exact = [measure.squared_distance(models[t], problem.optimum) for t in range(2, 402)]
    np.testing.assert_allclose(measured.squared_error[0], exact, rtol=1e-4)


def test_runs_differ_in_their_draws_only():
    problem = problem_of(num_ticks=5)
    once, again = (measure.squared_errors(problem, 0.01, 2).squared_error for _ in range(2))
    np.testing.assert_array_equal(once, again)
    assert np.all(once[0] != once[1])


@pytest.mark.parametrize("task", ["least_squares", "softmax"])
def test_more_heterogeneity_means_a_larger_zeta(task):
    zetas = [bound.bound_of(problem_of(task=task, heterogeneity=h), []).zeta for h in (0.0, 0.5, 1.0)]
    assert zetas == sorted(zetas)
    assert zetas[2] > 2 * zetas[0]


def test_the_gap_is_within_what_smoothness_allows():
    c = bound.bound_of(problem_of(heterogeneity=1.0), [])
    assert c.mu / 2 * c.zeta <= c.local_gap * (1 + 1e-9)
    assert c.local_gap <= c.L / 2 * c.zeta * (1 + 1e-9)


def test_r_min_grows_with_the_symbols_and_falls_with_the_levels():
    def r_min(**given):
        return bound._least_kept(bound.kept_by_ready_set(problem_of(**given)))

    few, more, all_of_it = (r_min(num_symbols=n) for n in (40, 60, 1e6))
    assert 0 < few < more < all_of_it == 4.0
    assert r_min(num_symbols=60, num_levels=64) < r_min(num_symbols=60, num_levels=1)


def test_r_min_by_draws_and_by_the_schedule_planned_agree():
    problem = problem_of(num_draws=400, num_symbols=60, num_ticks=60)
    kept = bound.kept_by_ready_set(problem)
    sent = measure.squared_errors(problem, 0.01, 20).num_kept
    by_set = {}
    for tick, column in zip(problem.system.ticks, sent.T, strict=True):
        by_set.setdefault(tuple(tick.ready), []).extend(column.tolist())
    assert {each.ready for each in kept} == set(by_set)
    for each in kept:
        values = by_set[each.ready]
        error = np.hypot(each.standard_error, np.std(values) / np.sqrt(len(values)))
        assert abs(each.mean - np.mean(values)) < 5 * error


def test_measured_remarks_heterogeneity_lifts_the_floor_and_bits_speed_it_up():
    """And r_min does not move the floor, against Remark 2's reading of the bound (it is in our bound's favour)."""
    base = make_options(**{**SMALL, "sweep_ticks": 160, "sweep_seeds": 4, "num_symbols": 90})
    devices = run_sweep(base, SWEEPS["heterogeneity"], lambda _: None)
    assert devices[-1].floor > 10 * devices[0].floor
    assert [point.constants.zeta for point in devices] == sorted(point.constants.zeta for point in devices)
    symbols = run_sweep(base, SWEEPS["num_symbols"], lambda _: None)
    lives = [point.measured_half_life for point in symbols]
    assert lives == sorted(lives, reverse=True)
    assert symbols[0].constants.rho < 0.7 * symbols[-1].constants.rho
    for point in (*devices, *symbols):
        assert point.floor <= min(each.asymptote for each in point.curves.values())


def test_the_floor_of_asynchronous_training_is_bias_towards_the_devices_heard_most():
    """What the theorem has no term for: compare the mean model with the minimiser weighted by who is heard how often."""
    problem = problem_of(heterogeneity=2.0, num_ticks=300)
    problem = problem._replace(start=problem.optimum.astype(np.float32))
    seen = []

    class Watching(measure.ConvexTrainer):
        def evaluate(self, model, samples):
            seen.append(model.astype(np.float64))
            return super().evaluate(model, samples)

    for seed in (1, 2, 3):
        system = at_seed(problem, seed, 0.03)
        parts = (system.work, seed, problem.start, problem.optimum)
        simulate(system.experiment, system=system, trainer=Watching(problem.objective, *parts))
    settled = np.array(seen).reshape(3, 300, -1)[:, 150:] - problem.optimum
    bias = settled.mean(axis=(0, 1))
    heard = np.zeros(8)
    for tick in system.ticks:
        heard[tick.ready] += 1 / len(tick.ready)
    pull = problem.objective.minimiser(heard / heard.sum()) - problem.optimum
    assert bias @ bias > 0.5 * (settled**2).sum(axis=2).mean()
    assert bias @ pull > 0.9 * np.linalg.norm(bias) * np.linalg.norm(pull)
