"""AsyncFedED: an update counts the less, the further the model has moved since, measured by the update itself.

Wang, Yang, He, Shi, Chen, AsyncFedED: asynchronous federated learning with Euclidean distance based adaptive weight
aggregation (2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide.core.arguments import arg
from fedtide.policy.combining import weighted_sum
from fedtide.types import Floats, Ints, Vector


@dataclass(frozen=True)
class DistanceMean:
    """AsyncFedED: theta(t+1) = theta(t) + sum_k w_k eta_k u_k, eta_k = lambda / (gamma_k + epsilon).

    gamma_k = ||theta(t) - theta_k(t,0)|| / ||u_k||, the staleness in place of an age. The paper has one device at a time, and
    besides lets devices train longer or shorter by their staleness, which is not done here.
    """

    scale: Annotated[float, arg("lambda: how far the server goes", gt=0)] = 1.0
    epsilon: Annotated[float, arg("what is added to the staleness; a fresh update counts scale / epsilon", gt=0)] = 1.0

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Add the updates, the outrun ones scaled down."""
        moved = _norm(model.astype(np.float64) - starts)
        length = _norm(updates.astype(np.float64))
        below = moved + self.epsilon * length
        rate = np.divide(
            self.scale * length, below, out=np.zeros_like(below), where=below > 0
        )  # an update of 0 adds none
        return weighted_sum(weights * rate, updates, model).astype(model.dtype)


def _norm(vectors: Floats) -> Floats:
    """Return the lengths of rows [r]."""
    return np.asarray(np.sqrt(np.square(vectors).sum(axis=1)))
