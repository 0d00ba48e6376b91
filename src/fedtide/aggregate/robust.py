"""Robust aggregators: median, trimmed mean, Krum, norm clipping, majority vote.

They look at updates, not at models start + update: models of asynchronous devices differ by where they began, so that an honest
stale device would be cut off as if it were an attacker. Median, trimmed mean and Krum count every device once: an attacker would
report as many samples as it likes. What a sparse codec left out arrives as 0, and counts as such: to count only what was sent
would leave a coordinate that one attacker sent to it alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide.aggregate.base import weighted_sum
from fedtide.parts.arguments import arg
from fedtide.types import Floats, Ints, Vector


@dataclass(frozen=True)
class Median:
    """theta(t+1) = theta(t) + eta median_k u_k, by coordinate: fewer than half cannot move it beyond the range of the others.

    Of one update it is that one, of two their mean.

    Yin, Chen, Ramchandran, Bartlett, Byzantine-robust distributed learning: towards optimal statistical rates (ICML 2018).
    """

    server_rate: Annotated[float, arg("eta: server step size along the median")] = 1.0

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Add the median."""
        return (model + self.server_rate * np.median(updates.astype(np.float64), axis=0)).astype(model.dtype)


@dataclass(frozen=True)
class TrimmedMean:
    """theta(t+1) = theta(t) + eta mean_k u_k, by coordinate without the floor(beta r) largest and as many smallest of r.

    trim (beta) 0 is the plain mean; so is one of so few updates that floor(beta r) is 0. Of the same paper as the median.
    """

    trim: Annotated[float, arg("beta: share trimmed at either end", ge=0, lt=0.5)] = 0.2
    server_rate: Annotated[float, arg("eta: server step size along the mean")] = 1.0

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Add the mean of what is left."""
        r = len(updates)
        cut = math.floor(self.trim * r + 1e-9)  # 0.29 * 100 is 28.999..., and means 29
        total = np.zeros(len(model))
        for row in np.sort(updates, axis=0)[cut : r - cut]:
            total += row
        return (model + self.server_rate * total / (r - 2 * cut)).astype(model.dtype)


@dataclass(frozen=True)
class Krum:
    """theta(t+1) = theta(t) + eta mean of the m updates of lowest s_i, the sum of ||u_i - u_j||^2 over the r - f - 2 closest j.

    kept (m) 1 is Krum, more is multi-Krum; null: r - f, all but as many as may be false. Of updates with equal scores the shorter
    goes first. The paper's promise takes r >= 2 f + 3; with fewer, at least one neighbour counts: of two updates the shorter is
    taken, one alone is taken as it is.

    Blanchard, El Mhamdi, Guerraoui, Stainer, Machine learning with adversaries: Byzantine tolerant gradient descent (NIPS 2017).
    """

    attackers: Annotated[int, arg("f: number of updates that may be false", ge=0, le=10**8)] = 1
    kept: Annotated[int | None, arg("m: number of updates averaged; null: all but f", ge=1, le=10**8)] = 1
    server_rate: Annotated[float, arg("eta: server step size along their mean")] = 1.0

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Add the mean of the chosen."""
        r, exact = len(updates), updates.astype(np.float64)
        apart = np.zeros((r, r))
        for i in range(r):
            for j in range(i):
                apart[i, j] = apart[j, i] = np.square(exact[i] - exact[j]).sum()
        closest = np.sort(apart, axis=1)[:, 1 : 1 + max(r - self.attackers - 2, 1)]  # without itself, the first 0
        norm = np.square(exact).sum(axis=1)
        kept = max(r - self.attackers, 1) if self.kept is None else self.kept
        chosen = np.sort(np.lexsort((norm, closest.sum(axis=1)))[:kept])
        share = np.full(len(chosen), self.server_rate / len(chosen))
        return weighted_sum(share, updates[chosen], model).astype(model.dtype)


@dataclass(frozen=True)
class ClippedMean:
    """theta(t+1) = theta(t) + eta sum_k w_k u_k min(1, M / ||u_k||): one device moves the model by eta w_k M at most.

    Sun, Kairouz, Suresh, McMahan, Can you really backdoor federated learning? (2019).
    """

    max_norm: Annotated[float, arg("M: largest norm of an update", gt=0)] = 1.0
    server_rate: Annotated[float, arg("eta: server step size along the mean")] = 1.0

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Add the updates, the long ones shortened."""
        norm = np.sqrt(np.square(updates.astype(np.float64)).sum(axis=1))
        scale = self.server_rate * weights * (self.max_norm / np.maximum(norm, self.max_norm))
        return weighted_sum(scale, updates, model).astype(model.dtype)


@dataclass(frozen=True)
class MajorityVote:
    """signSGD with majority vote: theta(t+1) = theta(t) + rate sign(sum_k w_k sign(u_k)), element by element.

    sign(0) = 0: an element not sent is no vote. Votes are counted in float64, one device after the other; less than a millionth of
    all votes is even, and moves nothing.

    Bernstein, Zhao, Azizzadenesheli, Anandkumar, signSGD with majority vote is communication efficient and fault tolerant (2018).
    """

    rate: Annotated[float, arg("step of every element", gt=0)] = 0.001

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Move every element the way the majority wants."""
        votes = np.zeros(len(model))
        for weight, update in zip(weights, updates, strict=True):
            votes += weight * np.sign(update)
        votes[np.abs(votes) < 1e-6 * np.sum(weights)] = 0  # 0.1 + 0.2 - 0.3 is not zero
        return (model + self.rate * np.sign(votes)).astype(model.dtype)
