"""CA2FL: the last update of every device stands in for those that are not in the buffer.

Wang, Cao, Wu, Chen, Chen, Tackling the data heterogeneity in asynchronous federated learning with cached update calibration
(ICLR 2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide.core.arguments import arg
from fedtide.policy import cached
from fedtide.policy.combining import weighted_sum
from fedtide.types import Floats, Ints, Memory, Vector


@dataclass(frozen=True)
class CachedCalibration:
    """CA2FL: theta(t+1) = theta(t) + eta v_t, v_t = h_t + sum_{k in S_t} w_k (Delta_k - h_k), h_t = sum_k h_k / N.

    Then h_k = Delta_k for k in S_t, the buffer; all h_k begin with 0. The paper has w_k = 1/|S_t|, policy.weighting=uniform.
    With everybody in the buffer (and these weights) h_t cancels, and it is FedBuff without its discount of stale updates; so
    it is as long as all h_k are equal, as in the first aggregation. Fresh updates alone do not make it FedBuff.
    """

    server_rate: Annotated[float, arg("eta: how far the server goes along v")] = 1.0
    num_devices: Annotated[int, arg("N", key="fleet.num_devices", ge=1, le=10**8)] = 1

    def init(self, model: Vector) -> Memory:
        """Return h_k = 0 for every device [N d]."""
        return {"cached": cached.nothing_yet(self.num_devices, len(model), "ca2fl")}

    def __call__(
        self, memory: Memory, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints, device: Ints
    ) -> tuple[Vector, Memory]:
        """Add the mean of what is cached, corrected by what is new."""
        kept = memory["cached"]
        new = weighted_sum(weights, updates.astype(np.float64) - kept[device]) + cached.mean(kept)
        kept[device] = updates
        return (model + self.server_rate * new).astype(model.dtype), memory
