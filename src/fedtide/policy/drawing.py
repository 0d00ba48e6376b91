"""Drawing some of many, by weight."""

from __future__ import annotations

import numpy as np

from fedtide.types import Floats, Ints, Rng


def by_weight(weight: Floats | Ints, count: int, rng: Rng) -> Ints:
    """Draw `count` positions without replacement, each next one with a probability proportional to its weight [m] >= 0.

    Exponential clocks of rate w_k: the first to ring is k with probability w_k / sum w, and so is the next among those left
    (Efraimidis and Spirakis 2006). Weight 0 rings last.
    """
    with np.errstate(divide="ignore", over="ignore"):
        rings = rng.exponential(size=len(weight)) / weight
    return np.argsort(rings, kind="stable")[:count]
