"""Norm clipping: no update counts for more than a given length.

Sun, Kairouz, Suresh, McMahan, Can you really backdoor federated learning? (2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide.core.arguments import arg
from fedtide.policy.combining import weighted_sum
from fedtide.types import Floats, Ints, Vector


@dataclass(frozen=True)
class ClippedMean:
    """theta(t+1) = theta(t) + eta sum_k w_k u_k min(1, M / ||u_k||): one device moves the model by eta w_k M at most.

    Updates are clipped, not start + update: the length of a model says nothing of what a device did.
    """

    max_norm: Annotated[float, arg("M: the longest that an update may be", gt=0)] = 1.0
    server_rate: Annotated[float, arg("eta: how far the server goes along the mean")] = 1.0

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Add the updates, the long ones shortened."""
        norm = np.sqrt(np.square(updates.astype(np.float64)).sum(axis=1))
        scale = self.server_rate * weights * (self.max_norm / np.maximum(norm, self.max_norm))
        return weighted_sum(scale, updates, model).astype(model.dtype)
