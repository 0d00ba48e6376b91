"""Remark 3: how much slower the simulated system contracts than gradient descent of the same step size.

Time is counted in iterations until ||theta(t) - theta*||^2 has fallen by FACTOR, far above the noise floor. A seed draws the task,
the fleet, theta(1) and the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedtide.errors import FedtideError
from fedtide.types import Floats, Tick
from fedtide_lab.theory import bound, measure
from fedtide_lab.theory.heterogeneity import CLAIM_SEEDS
from fedtide_lab.theory.measure import Problem, SayLine, make_problem, silent, squared_distance
from fedtide_lab.theory.objectives import Curvature, Objective
from fedtide_lab.theory.options import Options, make_options

FACTOR = 100.0
TIMED_STEPS = {"least_squares": 0.006, "softmax": 0.015}  # alpha, below the paper's limit in every setting
_PLENTY = 1e5  # symbols per parameter in every aggregation: r = d
_SCARCE = {"least_squares": 7.5, "softmax": 4.5}
_PLANNED_TICKS = 2000  # in which r_min and the ages are counted
_LONGER = 1.3  # times as many aggregations as are expected


class TimedSystem(NamedTuple):
    """A system whose contraction is timed."""

    task: str
    period: float  # T~ in units of T_max
    symbols: str  # plenty: r = d; scarce
    speeds: str  # spread: T_k ~ U(0, T_max]; same: T_k = T_max for all


TIMED_SYSTEMS = [
    TimedSystem(task, period, symbols, speeds)
    for task in TIMED_STEPS
    for symbols, speeds in (("plenty", "spread"), ("scarce", "spread"), ("plenty", "same"))
    for period in (1.0, 0.5, 0.25, 0.125)
    if not (speeds == "same" and period == 1.0)  # which is synchronous anyway
]


class Slowdown(NamedTuple):
    """Iterations that one system needs to reduce the squared distance by FACTOR."""

    task: str
    period: float
    symbols: str
    speeds: str
    seed: int
    nominal: float  # by (1 - mu alpha)^(2t)
    descent: float  # gradient descent on F, measured
    system: float  # the simulated system, measured
    theorem: float  # by the first term of Theorem 1 as printed
    sharp: float  # by that of our bound
    age: float  # age + 1, mean over the ready devices, then over the rounds
    generation: float  # iterations per generation of models, mean over the ready devices
    kept: float  # mean r_t / d
    predicted: float  # iterations per full contraction: `generation` with r_t/d in it
    claimed: float  # 2 (a_lim + 1) d / r_min
    step_share: float  # alpha as a share of the paper's limit


def descent_rate(curvature: Curvature, alpha: float) -> float:
    """Return the factor on the squared distance that a step of gradient descent never exceeds: (1 - mu alpha)^2 up to 2/(mu + L)."""
    return max(abs(1 - curvature.mu * alpha), abs(1 - curvature.L * alpha)) ** 2


def descent_errors(objective: Objective, start: Floats, optimum: Floats, alpha: float, num_steps: int) -> Floats:
    """Return ||theta(t) - theta*||^2 of gradient descent on F, t = 1, ..., num_steps + 1."""
    model, errors = np.asarray(start, np.float64), []
    shares = objective.num_samples / objective.num_samples.sum()
    for _ in range(num_steps + 1):
        errors.append(squared_distance(model, optimum))
        slope = sum(share * objective.sample_gradients(k, model).mean(axis=0) for k, share in enumerate(shares))
        model = model - alpha * slope
    return np.array(errors)


def iterations_to(errors: Floats, factor: float) -> float:
    """Return after how many iterations the error has fallen by a factor, log-linear between two; errors[0] is theta(1)'s."""
    level = errors[0] / factor
    below = np.flatnonzero(errors <= level)
    if not len(below):
        raise FedtideError(f"the error has not fallen by {factor:g} in {len(errors) - 1} iterations; run more")
    last = int(below[0])
    over, under = errors[last - 1], errors[last]
    return last - 1 + float(np.log(over / level) / np.log(over / under))


def mean_generations(ticks: Sequence[Tick], kept: Mapping[tuple[int, ...], float]) -> float:
    """Return how many full contractions an iteration brings on average.

    `sharp` counts the generations of models by the stalest ready device; this averages over the ready devices, as the server
    does, and counts each generation as r_t/d of one. kept: r_t/d by ready set; without an entry it is 1.
    """
    counted = [0.0]
    for tick in ticks:
        share = kept.get(tuple(tick.ready.tolist()), 1.0)
        mean = float(np.mean([counted[s - 1] for s in tick.start])) + share if len(tick.ready) else counted[-1]
        counted.append(mean)
    half = len(counted) // 2
    return (counted[-1] - counted[half]) / (len(counted) - 1 - half)


def setting_options(setting: TimedSystem, seed: int, num_ticks: int) -> Options:
    """Return the options of a setting: N = 12, R = 4, random scheduling."""
    softmax = setting.task == "softmax"
    symbols = (_PLENTY if setting.symbols == "plenty" else _SCARCE[setting.task]) * (100 if softmax else 10)
    return make_options(
        **({"task": "softmax", "data": "mnist", "num_samples": 200, "batch_size": 50} if softmax else {}),
        period=setting.period,
        min_duration=1.0 if setting.speeds == "same" else 0.0,
        num_symbols=symbols * 0.25 / setting.period,
        num_ticks=num_ticks,
        num_draws=100,
        seed=seed,
    )


def slowdowns(
    settings: Sequence[TimedSystem] = TIMED_SYSTEMS, seeds: Sequence[int] = CLAIM_SEEDS, say: SayLine = silent
) -> Iterator[Slowdown]:
    """Time every setting with every seed. A seed's task and start are the same in all settings."""
    for seed in seeds:
        problems: dict[str, Problem] = {}
        for setting in settings:
            if setting.task not in problems:
                problems[setting.task] = make_problem(setting_options(setting, seed, _PLANNED_TICKS))
            yield slowdown(setting, problems[setting.task], seed)
        say(f"slowdown: seed {seed}")


def slowdown(setting: TimedSystem, problem: Problem, seed: int) -> Slowdown:
    """Time one system, beside gradient descent and the bounds."""
    alpha = TIMED_STEPS[setting.task]
    problem = _in_setting(problem, setting, seed, _PLANNED_TICKS)
    nominal = math.log(FACTOR) / -math.log(descent_rate(problem.objective.curvature(), alpha))
    kept = bound.kept_by_ready_set(problem)
    constants = bound.bound_of(problem, kept)
    shares = {each.ready: each.mean / constants.d for each in kept}
    predicted = 1 / mean_generations(problem.system.ticks, shares)
    problem = _in_setting(problem, setting, seed, math.ceil(_LONGER * nominal * predicted))
    start, optimum = problem.start.astype(np.float64), problem.optimum
    measured = measure.squared_errors(problem, alpha, 1)
    errors = np.concatenate([[squared_distance(start, optimum)], measured.squared_error[0]])
    system = iterations_to(errors, FACTOR)
    seen = problem.system.ticks[: math.ceil(system)]
    sent = measured.num_kept[0][: len(seen)]
    ages = [float((tick.index - tick.start + 1).mean()) for tick in seen if len(tick.ready)]
    acted = bound.SHARP.acted(constants, problem.system.ticks)
    descent = descent_errors(problem.objective, start, optimum, alpha, math.ceil(nominal) + 1)
    return Slowdown(
        *setting,
        seed=seed,
        nominal=nominal,
        descent=iterations_to(descent, FACTOR),
        system=system,
        theorem=(constants.a_lim + 1) * _to_factor(bound.PAPER_BOUND.contraction(constants, alpha)),
        sharp=_to_factor(bound.SHARP.contraction(constants, alpha)) * len(acted) / float(acted[-1]),
        age=float(np.mean(ages)),
        generation=1 / mean_generations(problem.system.ticks, {}),
        kept=float(sent[sent >= 0].mean() / constants.d),
        predicted=predicted,
        claimed=2 * (constants.a_lim + 1) / constants.rho,
        step_share=alpha / bound.PAPER_BOUND.step_limit(constants),
    )


def _in_setting(problem: Problem, setting: TimedSystem, seed: int, num_ticks: int) -> Problem:
    """Return the same task in the system of a setting."""
    options = setting_options(setting, seed, num_ticks)
    return problem._replace(options=options, system=measure.system_of(options, problem.objective))


def _to_factor(contraction: float) -> float:
    return math.log(FACTOR) / -math.log(contraction)
