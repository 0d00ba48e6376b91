"""Remarks 2 and 3 as sweeps: one key moves, the step size stays, bound and measurement side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedtide.errors import FedtideError
from fedtide.studies import half_width
from fedtide.types import Ints, Tick
from fedtide_lab.theory import bound, measure
from fedtide_lab.theory.bound import VARIANTS, BoundCurve, Constants, bound_curve
from fedtide_lab.theory.measure import Problem, SayLine, make_problem, symbols_per_tick_of
from fedtide_lab.theory.options import Options, make_options

_TAIL = 0.25  # share of the run, at its end, over which the measured floor is averaged


class Sweep(NamedTuple):
    """What moves, and the axis it is shown on."""

    key: str
    values: Callable[[Problem], list[Any]]
    axis: str
    position: Callable[[Point], float]


class Point(NamedTuple):
    """One value of the key."""

    value: Any
    constants: Constants
    alpha: float
    curves: dict[str, BoundCurve]  # by variant
    half_life: dict[str, float]  # ticks until the bound's first term has halved, by variant; nan: says nothing
    floor: float  # measured over the last TAIL of runs that start at theta* itself: where the error settles
    floor_half_width: float
    measured_half_life: float  # ticks until the measured error has halved; nan: it has not
    settled: bool  # was the run for the floor four such half-lives long? If not, the floor is a lower estimate


def _heterogeneities(problem: Problem) -> list[Any]:
    return [0.0, 0.25, 0.5, 1.0] if problem.options.task == "softmax" else [0.0, 0.1, 0.3, 1.0]


SWEEPS = {
    "num_levels": Sweep(
        "num_levels", lambda _: [1, 2, 4, 8, 16], r"levels $\nu$ ($n$ fixed)", lambda p: float(p.value)
    ),
    "num_symbols": Sweep(
        "num_symbols",
        lambda p: [share * symbols_per_tick_of(p.options, p.objective) for share in (0.5, 0.6, 0.8, 1.5)],
        r"$r_{\min}/d$ (through $n$)",
        lambda p: p.constants.rho,
    ),
    "period": Sweep(
        "period", lambda _: [1.0, 0.5, 0.25, 0.125], r"$a_{\lim}$ (through $\tilde{T}$)", lambda p: p.constants.a_lim
    ),
    "heterogeneity": Sweep(
        "heterogeneity", _heterogeneities, r"$\zeta$ (through the data)", lambda p: p.constants.zeta
    ),
    "step_share": Sweep(
        "step_share", lambda _: [0.1, 0.25, 0.5, 0.75, 0.95], r"$\alpha$ / the paper's limit", lambda p: float(p.value)
    ),
}


def run_sweep(options: Options, which: Sweep, say: SayLine) -> list[Point]:
    """Evaluate and measure every value. alpha is step_share of the least limit above 0 (or learning_rate itself)."""
    shorter = {**options.model_dump(), "num_ticks": options.sweep_ticks}
    base = make_problem(make_options(**shorter))
    problems = [make_problem(make_options(**{**shorter, which.key: value})) for value in which.values(base)]
    found = [bound.bound_of(problem) for problem in problems]
    limits = [limit for c in found if (limit := VARIANTS[0].step_limit(c)) > 0]
    if not limits:
        raise FedtideError(f"r_min = 0 for every {which.key} of the sweep: nothing gets through; raise num_symbols")
    points = []
    for problem, c in zip(problems, found, strict=True):
        value = getattr(problem.options, which.key)
        share = problem.options.step_share
        alpha = (
            share * min(limits) if options.learning_rate is None or which.key == "step_share" else options.learning_rate
        )
        falling = measure.squared_errors(problem, alpha, options.sweep_seeds, num_ticks=options.sweep_ticks // 2)
        settled = measure.squared_errors(_from_optimum(problem), alpha, options.sweep_seeds)
        points.append(_point(value, problem.system.ticks, c, alpha, falling, settled))
        say(f"{which.key}={value:g}: measured")
    return points


def _from_optimum(problem: Problem) -> Problem:
    return problem._replace(start=problem.optimum.astype(np.float32))


def _point(
    value: Any, ticks: Sequence[Tick], c: Constants, alpha: float, falling: measure.Measured, settled: measure.Measured
) -> Point:
    curves = {variant.name: bound_curve(variant, c, alpha, ticks) for variant in VARIANTS}
    half_life = {
        variant.name: _half_life_in_ticks(curves[variant.name], variant.acted(c, ticks)) for variant in VARIANTS
    }
    tail = settled.squared_error[:, -max(1, round(_TAIL * len(ticks))) :].mean(axis=1)
    halved = np.flatnonzero(falling.mean <= c.initial / 2)
    measured_half_life = float(halved[0] + 1) if len(halved) else math.nan
    return Point(
        value=value,
        constants=c,
        alpha=alpha,
        curves=curves,
        half_life=half_life,
        floor=float(tail.mean()),
        floor_half_width=float(half_width(tail)),
        measured_half_life=measured_half_life,
        settled=4 * measured_half_life <= len(ticks),
    )


def _half_life_in_ticks(evaluated: BoundCurve, acted: Ints) -> float:
    """Return how many ticks the bound's first term needs to halve: log(1/2)/log(C-bar) generations of models."""
    if not evaluated.holds:
        return math.nan
    if evaluated.contraction >= 1:
        return math.inf  # the step is so small that it is lost in rounding
    return math.log(0.5) / math.log(evaluated.contraction) * len(acted) / float(acted[-1])
