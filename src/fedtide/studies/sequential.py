"""Paired differences tested after every seed: the error rate holds however often, and for whatever reason, one looks.

The test is Student's with larger quantiles. Let x_1, ..., x_n be paired differences (normal, mean mu, unknown variance) and t
their t statistic. For effect sizes mu/sigma = d > 0 with a half-normal prior of scale s, the likelihood ratio of t against
mu = 0 (sigma integrated out by its right Haar measure) is

    E_n = 2 (1 + n s^2)^(-1/2) (1 - k)^(-n/2) F_n(sign(t) sqrt(n k / (1 - k))),   k = n t^2 / (n - 1 + t^2) s^2 / (1 + n s^2)

with F_n the distribution function of Student's t with n degrees of freedom. Under mu = 0 it is a martingale in the filtration
of the t statistics (Lai 1976; Perez-Ortiz, Lardy, de Heide and Grunwald, Annals of Statistics 52, 2024; Wang and Ramdas,
arXiv:2310.03722), so it ever reaches 1/a with probability a at most (Ville). It rises with t. Shifting all x down lowers every
t, so the same holds for all mu <= 0. The average over a few scales s is such a martingale, too. Solved for t, E_n = 1/a gives
the quantile that is used here. Martingales of different pairs live in different filtrations, so they are never averaged or
multiplied: each pair gets its share of the level (`pair_level`).
"""

from __future__ import annotations

import functools
import math
from typing import Final

import numpy as np
import numpy.typing as npt

from fedtide.types import Floats

Bools = npt.NDArray[np.bool_]
_SCALES: Final = (2.0, 8.0)  # of effect sizes that are looked for: large enough to be found with 5 to 20 seeds
_LARGEST_T: Final = 1e9


def log_evidence(t: float, n: int) -> float:
    """Return log E_n: the evidence that the mean of n numbers, whose t statistic this is, exceeds 0."""
    from scipy.special import stdtr

    evidence = []
    for scale in _SCALES:
        spread = 1 + n * scale**2
        k = n * t**2 / (n - 1 + t**2) * scale**2 / spread
        side = float(stdtr(n, math.copysign(math.sqrt(n * k / (1 - k)), t)))
        evidence.append(math.log(2 * side) - 0.5 * math.log(spread) - 0.5 * n * math.log1p(-k))
    return float(np.logaddexp.reduce(evidence)) - math.log(len(_SCALES))


@functools.cache
def anytime_quantile(level: float, n: int) -> float:
    """Return the t that n normal numbers of mean 0 or less ever exceed, at any n, with this probability at most.

    Infinite if so few numbers cannot show it.
    """
    from scipy.optimize import brentq

    if n < 2 or log_evidence(_LARGEST_T, n) < -math.log(level):
        return math.inf
    return float(brentq(lambda t: log_evidence(t, n) + math.log(level), 0.0, _LARGEST_T, xtol=1e-9))


def anytime_margins(values: Floats, level: float) -> tuple[Floats, Floats]:
    """Return the mean paired differences of all pairs, row less column, and how far below them each may be [K K].

    values: a number per candidate and seed [K n]. Each difference minus its margin exceeds the true mean, at any n, with the
    probability `level` at most. Numbers on a grid (times that are counted in periods) may repeat by rounding alone: their
    deviation counts as no less than that of the rounding.
    """
    n = values.shape[1]
    mean = values.mean(axis=1)
    centred = values - mean[:, None]
    products = centred @ centred.T
    own = np.diag(products)
    rounding = _grid_step(values) ** 2 / 6  # the variance of a difference of two rounded numbers
    variance = np.maximum((own[:, None] + own - 2 * products) / max(n - 1, 1), rounding)
    quantile = anytime_quantile(level, n)
    width = np.full_like(products, math.inf) if math.isinf(quantile) else quantile * np.sqrt(variance / n)
    return mean[:, None] - mean, width


def _grid_step(values: Floats) -> float:
    """Return the smallest step between different numbers; 0 if there is one only."""
    found = np.diff(np.unique(values))
    found = found[found > 1e-12 * np.abs(values).max(initial=0.0)]
    return float(found.min()) if len(found) else 0.0


def pair_level(level: float, num_candidates: int, num_alive: int | None = None) -> float:
    """Return the level of one comparison such that all of them together err with the probability `level` at most.

    Every candidate has num_candidates - 1 rivals. As in Holm's procedure, only those that are still in the race count on the
    other side: as long as none was dropped wrongly, all of the best ones are among them.
    """
    return level / max((num_candidates if num_alive is None else num_alive) * (num_candidates - 1), 1)


def worse_candidates(values: Floats, alive: Bools, level: float) -> dict[int, int]:
    """Return which candidates are worse than another one, each with the one that shows it most clearly.

    values: higher is better; a number per candidate and seed, so far [K n]; rows of those out of the race are not read. alive:
    who is in the race [K]. Called after every seed, it ever drops one of the truly best with the probability `level` at most.
    """
    alive = alive.copy()
    found: dict[int, int] = {}
    while True:
        rows = np.flatnonzero(alive)
        mean, width = anytime_margins(values[rows], pair_level(level, len(alive), len(rows)))
        with np.errstate(invalid="ignore"):
            ahead = np.where(mean > 0, mean - width, -math.inf)  # of the row over the column
        worst = [int(each) for each in np.flatnonzero(ahead.max(axis=0, initial=-math.inf) > 0)]
        if not worst:
            return found
        for each in worst:
            found[int(rows[each])] = int(rows[ahead[:, each].argmax()])
            alive[rows[each]] = False


def within_margin(values: Floats, alive: Bools, leader: int, level: float, margin: float) -> Bools:
    """Return who in the race is shown to differ from the leader by less than a margin, at any time [K]."""
    rows = np.flatnonzero(alive)
    mean, width = anytime_margins(values[rows], pair_level(level, len(alive)))
    place = int(np.flatnonzero(rows == leader)[0])
    found = np.zeros(len(alive), np.bool_)
    found[rows] = np.abs(mean[place]) + width[place] < margin
    found[leader] = True
    return found


def affordable_candidates(num_alive: int, seeds_done: int, most_seeds: int, runs_left: float) -> int:
    """Return how many candidates a budget can carry on: as many as successive halving from here on has runs for.

    From here on, half of them are left whenever the number of seeds has doubled, and two in the end.
    """
    for count in range(num_alive, 2, -1):
        left, seeds, runs = count, seeds_done, 0
        while seeds < most_seeds and left > 1:
            more = min(max(seeds, 1), most_seeds - seeds)
            runs, seeds = runs + left * more, seeds + more
            left = 1 if left == 2 else math.ceil(left / 2)
        if runs <= runs_left:
            return count
    return min(num_alive, 2)
