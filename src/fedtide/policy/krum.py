"""Krum and multi-Krum: the updates that lie closest to others.

Blanchard, El Mhamdi, Guerraoui, Stainer, Machine learning with adversaries: Byzantine tolerant gradient descent (NIPS 2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide.core.arguments import arg
from fedtide.policy.combining import weighted_sum
from fedtide.types import Floats, Ints, Vector


@dataclass(frozen=True)
class Krum:
    """theta(t+1) = theta(t) + eta mean of the m updates of lowest s_i, the sum of ||u_i - u_j||^2 over the r - f - 2 closest j.

    kept (m) 1 is Krum, more is multi-Krum. Of updates with equal scores the shorter goes first. The paper's promise takes
    r >= 2 f + 3; with fewer, at least one neighbour counts: of two updates the shorter is taken, one alone is taken as it is.
    Updates are compared, not models start + update: these differ by how stale they are, and an honest stale one would lie far
    from all others. policy.weighting has no say, since a device reports itself what it would weigh.
    """

    attackers: Annotated[int, arg("f: updates that may be anything", ge=0, le=10**8)] = 1
    kept: Annotated[int, arg("m: updates that are averaged", ge=1, le=10**8)] = 1
    server_rate: Annotated[float, arg("eta: how far the server goes along their mean")] = 1.0

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Add the mean of the chosen."""
        r, exact = len(updates), updates.astype(np.float64)
        apart = np.zeros((r, r))
        for i in range(r):
            for j in range(i):
                apart[i, j] = apart[j, i] = np.square(exact[i] - exact[j]).sum()
        closest = np.sort(apart, axis=1)[:, 1 : 1 + max(r - self.attackers - 2, 1)]  # without itself, the first 0
        norm = np.square(exact).sum(axis=1)
        chosen = np.sort(np.lexsort((norm, closest.sum(axis=1)))[: self.kept])
        share = np.full(len(chosen), self.server_rate / len(chosen))
        return weighted_sum(share, updates[chosen], model).astype(model.dtype)
