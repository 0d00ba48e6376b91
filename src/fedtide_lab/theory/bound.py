"""Theorem 1's right-hand side over t (ieq:thm_rslt), its constants, and two bounds of our own beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fedtide.engine import grant_at_tick, planned, step_candidates
from fedtide.schedule import scheduler_looks_back
from fedtide.types import Floats, Grant, Ints, Tick
from fedtide_lab.theory.measure import Problem, at_seed, squared_distance

# Theorem 1's right-hand side over t (ieq:thm_rslt), its parts, and two bounds of our own beside the paper's.
#
# `PAPER` is the theorem as printed. `TIGHT` replaces two constants that are looser than needed: a_lim by a_lim - 1, and the
# quantiser's d/(4 nu^2) by sqrt(d)/nu where that is smaller. `SHARP` is another proof of ours with the same assumptions
# (docs/theory.md): the variance is split instead of doubled, and gradients are bounded by losses.
#
# Symbols: e(t) = E||theta(t) - theta*||^2, alpha the step size, rho = r_min/d, q the relative variance of the quantiser.


class Constants(NamedTuple):
    """Everything that the bounds depend on but the step size."""

    d: int  # parameters
    nu: int  # quantisation levels
    mu: float  # strong convexity
    L: float  # smoothness
    C_1: float
    C_2: float  # second moment of the stochastic gradient (eq:asmp3_2)
    zeta: float  # max_k ||theta* - theta_k*||^2 (eq:noniid_b1)
    local_gap: float  # max_k F_k(theta*) - F_k*, at most L zeta / 2 (ieq:applymuL)
    r_min: float  # least E[r_k(t)] (ieq:rmin)
    a_lim: int  # ceil(T_max/T~), the paper's
    initial: float  # ||theta(1) - theta*||^2

    @property
    def rho(self) -> float:
        """r_min/d."""
        return self.r_min / self.d


class Variant(NamedTuple):
    """One reading of the bound, e(t+1) <= asymptote + distance C-bar^acted(t): functions of the constants and of alpha."""

    name: str
    about: str
    step_limit: Callable[[Constants], float]  # alpha must lie below
    contraction: Callable[[Constants, float], float]  # C-bar, per generation of models
    asymptote: Callable[[Constants, float], float]
    distance: Callable[[Constants, float], float]  # what the contraction acts on
    acted: Callable[[Constants, Sequence[Tick]], Ints]  # how often it has acted on theta(t+1), t = 1, 2, ...


def paper_quantiser(c: Constants) -> float:
    """Return d/(4 nu^2): E||Q(u) - u||^2 <= q ||u||^2."""
    return c.d / (4 * c.nu**2)


def tight_quantiser(c: Constants) -> float:
    """Return min(d/(4 nu^2), sqrt(d)/nu); QSGD's d/nu^2 is never the least of the three."""
    return min(paper_quantiser(c), math.sqrt(c.d) / c.nu)


def C_3(c: Constants, q: float) -> float:
    """Return 8 L^2 [(1 + q) C_2 + 1]; the paper's has q = d/(4 nu^2)."""
    return 8 * c.L**2 * ((1 + q) * c.C_2 + 1)


def _curvature_term(c: Constants, q: float) -> float:
    """Return 2 L^2 + C_3, the coefficient of alpha^2 in C-bar."""
    return 2 * c.L**2 + C_3(c, q)


def _epsilon(c: Constants, alpha: float, q: float) -> float:
    """Return epsilon = zeta L + alpha [zeta (2 L^2 + C_3) + 4 C_1 (1 + q)] (eq:epsilon)."""
    return c.zeta * c.L + alpha * (c.zeta * _curvature_term(c, q) + 4 * c.C_1 * (1 + q))


def _theorem(name: str, about: str, quantiser: Callable[[Constants], float], earlier: int) -> Variant:
    """Make Theorem 1 with this quantiser variance and a_lim - earlier."""

    def step_limit(c: Constants) -> float:
        return c.mu * c.rho / _curvature_term(c, quantiser(c))

    def contraction(c: Constants, alpha: float) -> float:
        return 1 - c.mu * alpha * c.rho + alpha**2 * _curvature_term(c, quantiser(c))

    def asymptote(c: Constants, alpha: float) -> float:
        q = quantiser(c)
        return _epsilon(c, alpha, q) / (c.mu * c.rho - alpha * _curvature_term(c, q))

    return Variant(
        name,
        about,
        step_limit,
        contraction,
        asymptote,
        distance=lambda c, alpha: c.initial,
        acted=lambda c, ticks: _exponents(c.a_lim - earlier, len(ticks)),
    )


def _exponents(age_limit: int, num_ticks: int) -> Ints:
    """Return floor((t - 1)/(a_lim + 1)) + 1 for t = 1..num_ticks: how often C-bar has acted on theta(t+1)."""
    return np.arange(num_ticks, dtype=np.int64) // (age_limit + 1) + 1


def _planned_exponents(ticks: Sequence[Tick]) -> Ints:
    """Return how often C-bar has surely acted on theta(t+1), t = 1, 2, ..., for this very timeline [len(ticks)].

    n(t) = 1 + min over the ready devices of n(s_k(t) - 1), with n(0) = 0; in an empty round theta(t+1) = theta(t), so
    n(t) = n(t-1). This is the theorem's induction with the true starts in place of the worst ones.
    """
    acted = [0]
    for tick in ticks:
        starts = np.unique(tick.start)
        acted.append(1 + min(acted[int(start) - 1] for start in starts) if len(starts) else acted[-1])
    return np.array(acted[1:], np.int64)


def empty_rounds(ticks: Sequence[Tick]) -> int:
    """Return in how many rounds nobody is ready."""
    return sum(len(tick.ready) == 0 for tick in ticks)


def _sharp_asymptote(c: Constants, alpha: float) -> float:
    """Return [2 max_k (F_k(theta*) - F_k*) + alpha (1 + q) C_1] / mu: r_min has no part in it."""
    return (2 * c.local_gap + alpha * (1 + tight_quantiser(c)) * c.C_1) / c.mu


PAPER_BOUND = _theorem("paper", "Theorem 1 as printed", paper_quantiser, 0)
TIGHT = _theorem("tight", "Theorem 1 with a_lim - 1 and the smaller quantiser variance", tight_quantiser, 1)

SHARP = Variant(
    "sharp",
    "our bound under the same assumptions",
    step_limit=lambda c: 1 / (c.L * (1 + tight_quantiser(c)) * c.C_2),
    contraction=lambda c, alpha: 1 - c.mu * alpha * c.rho,
    asymptote=_sharp_asymptote,
    distance=lambda c, alpha: max(c.initial - _sharp_asymptote(c, alpha), 0.0),
    acted=lambda c, ticks: _planned_exponents(ticks),
)

VARIANTS = (PAPER_BOUND, TIGHT, SHARP)


class BoundCurve(NamedTuple):
    """A bound on e(t) for a system and a step size; `values` is None where the bound says nothing."""

    variant: str
    step_limit: float
    contraction: float
    asymptote: float
    values: Floats | None  # of e(2), e(3), ..., e(num_ticks + 1) [num_ticks]
    problem: str | None  # why it says nothing

    @property
    def holds(self) -> bool:
        """Are the conditions met?"""
        return self.problem is None


def bound_curve(variant: Variant, c: Constants, alpha: float, ticks: Sequence[Tick]) -> BoundCurve:
    """Evaluate a variant on a timeline; say so, and give no values, where its conditions are not met."""
    limit, planned = variant.step_limit(c), _planned_exponents(ticks)
    acted = variant.acted(c, ticks)
    problem = None
    if c.r_min <= 0:
        problem = "r_min = 0: Assumption 4 fails, the radio carries nothing; give it more symbols"
    elif not alpha < limit:
        problem = f"the step size {alpha:.4g} is not below the limit {limit:.4g}: the theorem's condition is broken"
    elif np.any(acted > planned):
        first = int(np.argmax(acted > planned)) + 1
        problem = (
            f"{empty_rounds(ticks)} rounds have no ready device (theta(t+1) = theta(t)), which the proof leaves out: at "
            f"t = {first} it counts {acted[first - 1]} contractions where {planned[first - 1]} are sure"
        )
    contraction = variant.contraction(c, alpha)
    if problem:
        return BoundCurve(variant.name, limit, contraction, math.nan, None, problem)
    floor = variant.asymptote(c, alpha)
    values = floor + variant.distance(c, alpha) * contraction ** acted.astype(np.float64)
    return BoundCurve(variant.name, limit, contraction, floor, values, None)


# The constants of Theorem 1 for a problem, each with how it was obtained.


_DRAW_SEEDS = 2**32  # channel draws for r_min come from seeds of their own, apart from those of the runs
_CONFIDENCE = 3.0  # standard errors that r_min is put below its estimate


class KeptElements(NamedTuple):
    """r_t of one set of ready devices over the channel."""

    ready: tuple[int, ...]  # K(t)
    mean: float
    standard_error: float
    share_of_zero: float  # how often nothing at all got through


def kept_by_ready_set(problem: Problem) -> list[KeptElements]:
    """Estimate E[r_t] for every set of ready devices that the timeline has, over channel and schedule.

    Schedulers that go by the tick alone: num_draws draws for each set. With those that look back the schedule itself is
    planned, round by round, num_draws/10 times, and rounds with the same ready set are pooled.
    """
    samples: dict[tuple[int, ...], list[int]] = {}
    if scheduler_looks_back(problem.system.policy.scheduler):
        for draw in range(max(problem.options.num_draws // 10, 2)):
            for each in planned(at_seed(problem, _DRAW_SEEDS + draw, 1.0)):
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
    drawn = (at_seed(problem, _DRAW_SEEDS + draw, 1.0) for draw in range(problem.options.num_draws))
    return [_num_kept(problem, grant_at_tick(each, tick, step_candidates(each, tick, nobody))) for each in drawn]


def _num_kept(problem: Problem, grant: Grant) -> int:
    return problem.system.codec.num_kept(problem.objective.num_parameters, float(grant.bits[0]))


def _kept(ready: tuple[int, ...], values: Floats) -> KeptElements:
    error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
    return KeptElements(ready, float(values.mean()), error, float((values == 0).mean()))


def _least_kept(kept: list[KeptElements]) -> float:
    """Return r_min: the least E[r_t] over the ready sets, three standard errors to the safe side."""
    return max(min((each.mean - _CONFIDENCE * each.standard_error for each in kept), default=0.0), 0.0)


def bound_of(problem: Problem, kept: list[KeptElements] | None = None) -> Constants:
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
        r_min=_least_kept(kept_by_ready_set(problem) if kept is None else kept),
        a_lim=math.ceil(1 / options.period * (1 - 1e-12)),
        initial=squared_distance(problem.start, problem.optimum),
    )
