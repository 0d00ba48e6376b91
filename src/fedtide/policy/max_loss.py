"""Power of choice (Cho, Wang and Joshi, "Client selection in federated learning: convergence analysis and power-of-choice
selection strategies", arXiv:2010.01243, 2020, sec. 3).

    1. draw a set A of d ready devices without replacement, device k with probability p_k = |S_k| / sum |S_j|
    2. picked: the R devices of A with the largest local loss F_k(theta_k)

d >= R: with d = R it is random selection by data size (little bias, slow), with d = m the R largest losses of all (fast,
biased). The paper's devices of A compute F_k at the newest model and are as many as d; here F_k is of the model that device k
received, and every ready device reports it, which is counted: 32 bits each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedtide.core.arguments import arg
from fedtide.policy.drawing import by_weight
from fedtide.policy.scheduling import largest
from fedtide.types import Candidates, Ints, Rng


@dataclass(frozen=True)
class MaxLoss:
    """Power of choice: of d devices drawn by data size, the R with the largest local loss."""

    drawn: Annotated[int | None, arg("d: devices that are drawn, at least R; not given: 2 R", ge=1, le=10**8)] = None
    needs: ClassVar[tuple[str, ...]] = ("loss",)

    def __call__(self, candidates: Candidates, limit: int, rng: Rng) -> Ints:
        """Draw, then sort by loss."""
        assert candidates.loss is not None
        count = max(2 * limit if self.drawn is None else self.drawn, limit)
        pool = np.sort(by_weight(candidates.num_samples, count, rng))
        return pool[largest(candidates.loss[pool], limit)]
