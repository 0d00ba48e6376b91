"""The constants of Theorem 1 for a problem, each with how it was obtained."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedtide.drivers.planned import planned
from fedtide.drivers.ticks import candidates_at, grant_at
from fedtide.policy.scheduling import looks_back
from fedtide.theory.bound import Constants
from fedtide.theory.measure import squared_distance
from fedtide.theory.problem import Problem, at_seed
from fedtide.types import Floats, Grant, Tick

DRAW_SEEDS = 2**32  # channel draws for r_min come from seeds of their own, apart from those of the runs
CONFIDENCE = 3.0  # standard errors that r_min is put below its estimate


class Kept(NamedTuple):
    """r_t of one set of ready devices over the channel."""

    ready: tuple[int, ...]  # K(t)
    mean: float
    standard_error: float
    share_of_zero: float  # how often nothing at all got through


def kept_by_ready_set(problem: Problem) -> list[Kept]:
    """Estimate E[r_t] for every set of ready devices that the timeline has, over channel and schedule.

    Schedulers that go by the tick alone: num_draws draws for each set. With those that look back the schedule itself is
    planned, round by round, num_draws/10 times, and rounds with the same ready set are pooled.
    """
    samples: dict[tuple[int, ...], list[int]] = {}
    if looks_back(problem.system.policy.scheduler):
        for draw in range(max(problem.options.num_draws // 10, 2)):
            for each in planned(at_seed(problem, DRAW_SEEDS + draw, 1.0)):
                if each.grant is not None and len(each.grant.bits):
                    samples.setdefault(tuple(each.tick.ready.tolist()), []).append(_num_kept(problem, each.grant))
    else:
        for tick in problem.system.ticks:
            ready = tuple(tick.ready.tolist())
            if ready and ready not in samples:
                samples[ready] = _draw(problem, tick)
    return [_kept(ready, np.array(values, np.float64)) for ready, values in samples.items()]


def _draw(problem: Problem, tick: Tick) -> list[int]:
    """Return r_t of this tick for num_draws channels and schedules."""
    nobody = np.zeros(problem.system.fleet.num_devices, np.int64)
    drawn = (at_seed(problem, DRAW_SEEDS + draw, 1.0) for draw in range(problem.options.num_draws))
    return [_num_kept(problem, grant_at(each, tick, candidates_at(each, tick, nobody))) for each in drawn]


def _num_kept(problem: Problem, grant: Grant) -> int:
    return problem.system.codec.num_kept(problem.objective.num_parameters, float(grant.bits[0]))


def _kept(ready: tuple[int, ...], values: Floats) -> Kept:
    error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
    return Kept(ready, float(values.mean()), error, float((values == 0).mean()))


def least_kept(kept: list[Kept]) -> float:
    """Return r_min: the least E[r_t] over the ready sets, three standard errors to the safe side."""
    return max(min((each.mean - CONFIDENCE * each.standard_error for each in kept), default=0.0), 0.0)


def of(problem: Problem, kept: list[Kept] | None = None) -> Constants:
    """Compute every constant."""
    objective, options = problem.objective, problem.options
    curvature = objective.curvature()
    moments = objective.moments(options.batch_size)
    gaps = [objective.loss(k, problem.optimum) - objective.loss(k, own) for k, own in enumerate(problem.local_optima)]
    return Constants(
        d=objective.num_parameters,
        nu=options.num_levels,
        mu=curvature.mu,
        L=curvature.L,
        C_1=moments.C_1,
        C_2=moments.C_2,
        zeta=float(((problem.local_optima - problem.optimum) ** 2).sum(axis=1).max()),
        local_gap=max(0.0, *gaps),
        r_min=least_kept(kept_by_ready_set(problem) if kept is None else kept),
        a_lim=math.ceil(1 / options.period * (1 - 1e-12)),
        initial=squared_distance(problem.start, problem.optimum),
    )
