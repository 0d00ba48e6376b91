"""FedAT: tiers of devices of like speed, and rarely heard tiers weighing more.

Chai, Chen, Anwar, Zhao, Cheng, Rangwala, FedAT: a high-performance and communication-efficient federated learning system with
asynchronous tiers (SC 2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide.core.arguments import arg
from fedtide.policy.combining import weighted_sum
from fedtide.types import Floats, Ints, Memory, Vector


@dataclass(frozen=True)
class Tiers:
    """FedAT: theta(t+1) = sum_m W_m theta_m over M tiers; theta_m = sum_k w_k [theta_k(t,0) + u_k] of tier m, when last heard.

    W_m = (1 + T_{M+1-m}) / (M + T): T_m counts how often tier m was heard, T is their sum, and the fastest tier is weighed by
    how often the slowest was heard. All theta_m begin with the first model. The paper has no 1, and so stays at its first
    model until the slowest tier was heard. It sorts devices into tiers by their latency; here an update is of tier
    m = 1 + floor(age / width), or the last, since its age is how long it took.
    """

    tiers: Annotated[int, arg("M: how many tiers there are", ge=1, le=1000)] = 3
    width: Annotated[int, arg("ages that make up a tier", unit="ticks", ge=1, le=10**7)] = 1

    def init(self, model: Vector) -> Memory:
        """Return the tiers' models [M d], and how often each was heard [M]."""
        return {"models": np.stack([model] * self.tiers), "heard": np.zeros(self.tiers, np.int64)}

    def __call__(
        self, memory: Memory, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints, device: Ints
    ) -> tuple[Vector, Memory]:
        """Average what arrived within its tiers, then the tiers."""
        models, heard = memory["models"], memory["heard"]
        tier = np.minimum(age // self.width, self.tiers - 1)
        for each in np.unique(tier):
            which = tier == each
            total = weights[which].sum()
            share = weights[which] / total if total > 0 else np.full(which.sum(), 1 / which.sum())
            models[each] = weighted_sum(share, starts[which]) + weighted_sum(share, updates[which])
            heard[each] += 1
        new = weighted_sum((1 + heard[::-1]) / (self.tiers + heard.sum()), models)
        return new.astype(model.dtype), memory
