"""Robust combiners by coordinate: the median and the trimmed mean.

Yin, Chen, Ramchandran, Bartlett, Byzantine-robust distributed learning: towards optimal statistical rates (ICML 2018).

They are taken over the updates u_k, and added to the current model: models start + update of asynchronous devices differ by
where they began, so that an honest stale device would be cut off as if it were an attacker. With equal starts it is the
same. Every device counts once, and policy.weighting has no say: an attacker would report as many samples as it likes.

What a sparse codec left out arrives as 0, and counts as such: a coordinate that fewer than half of the devices sent has the
median 0, and its trimmed mean falls short. To count only what was sent would leave such a coordinate to one attacker.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide.core.arguments import arg
from fedtide.types import Floats, Ints, Vector


@dataclass(frozen=True)
class Median:
    """theta(t+1) = theta(t) + eta median_k u_k, by coordinate: fewer than half cannot move it beyond the range of the others.

    Of one update it is that one, of two their mean.
    """

    server_rate: Annotated[float, arg("eta: how far the server goes along the median")] = 1.0

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Add the median."""
        return (model + self.server_rate * np.median(updates.astype(np.float64), axis=0)).astype(model.dtype)


@dataclass(frozen=True)
class TrimmedMean:
    """theta(t+1) = theta(t) + eta mean_k u_k, by coordinate without the floor(beta r) largest and as many smallest of r.

    trim (beta) 0 is the plain mean; so is one of so few updates that floor(beta r) is 0.
    """

    trim: Annotated[float, arg("beta: share that is cut off at either end", ge=0, lt=0.5)] = 0.2
    server_rate: Annotated[float, arg("eta: how far the server goes along the mean")] = 1.0

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Add the mean of what is left."""
        r = len(updates)
        cut = math.floor(self.trim * r + 1e-9)  # 0.29 * 100 is 28.999..., and means 29
        total = np.zeros(len(model))
        for row in np.sort(updates, axis=0)[cut : r - cut]:
            total += row
        return (model + self.server_rate * total / (r - 2 * cut)).astype(model.dtype)
