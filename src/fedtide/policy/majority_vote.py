"""signSGD with majority vote (Bernstein, Zhao, Azizzadenesheli and Anandkumar 2018), for codec.name=sign and any other.

    x' = x + rate sign(sum_k w_k sign(u_k))      element by element; sign(0) = 0: who did not send an element has no vote on it

With equal weights the sign that most devices have wins. Every element moves by `rate` or, if the votes are even, not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide.core.arguments import arg
from fedtide.types import Floats, Ints, Vector


@dataclass(frozen=True)
class MajorityVote:
    """Move every element by `rate` the way the weighted majority of the updates' signs wants.

    Votes are counted in float64, one device after the other; less than a millionth of all votes is even.
    """

    rate: Annotated[float, arg("how far every element moves", gt=0)] = 0.001

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Move every element the way the majority wants."""
        votes = np.zeros(len(model))
        for weight, update in zip(weights, updates, strict=True):
            votes += weight * np.sign(update)
        votes[np.abs(votes) < 1e-6 * np.sum(weights)] = 0  # 0.1 + 0.2 - 0.3 is not zero
        return (model + self.rate * np.sign(votes)).astype(model.dtype)
