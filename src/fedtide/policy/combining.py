"""How arrived updates become the next model.

A combiner is a callable (model [d], starts [r d], updates [r d], weights [r], age [r]) -> model [d]; `starts` are the
models that the devices began from. One with takes_sum = True uses updates in sum_k w_k u_k alone, and so can
do without single ones: of updates that were sent at once (`radio.access`) every row is that sum, as the server heard it.
One with streams = True takes them one after the other (`streaming.py`).
Sums run in float64, one device after the other, so that the bits do not depend on threads or on a BLAS; the answer has the
type of `model`, which is float64 for a combiner inside another (`inner.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Protocol

import numpy as np

from fedtide.core.arguments import arg
from fedtide.policy.streaming import Sums, fed, of_models, of_updates
from fedtide.types import Floats, Ints, Vector


class Combiner(Protocol):
    """Makes the next global model."""

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Return theta(t+1) [d]."""
        ...


def weighted_sum(weights: Floats, vectors: Vector | Floats, start: Vector | None = None) -> Floats:
    """Return sum_k w_k v_k [d] in float64, one row of `vectors` [r d] after the other, from `start` [d] or 0."""
    total = np.zeros(vectors.shape[1]) if start is None else start.astype(np.float64)
    for weight, vector in zip(weights, vectors, strict=True):
        total += weight * vector
    return total


@dataclass(frozen=True)
class AverageModels:
    """The paper's: theta(t+1) = sum_k w_k [theta_k(t,0) + u_k]. Stale starts pull the model back."""

    takes_sum: ClassVar[bool] = True
    streams: ClassVar[bool] = True

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Average the devices' models."""
        made: Vector = fed(self.begin(model, weights, age), starts, updates)
        return made

    def begin(self, model: Vector, weights: Floats, age: Ints) -> Sums:
        """Begin to take models one after the other."""
        return of_models(weights, len(model), lambda arrived: arrived.astype(model.dtype))


@dataclass(frozen=True)
class AverageDeltas:
    """theta(t+1) = theta(t) + server_rate sum_k w_k u_k: updates are added to the current model wherever they began."""

    takes_sum: ClassVar[bool] = True
    streams: ClassVar[bool] = True
    server_rate: Annotated[float, arg("how far the server goes along the average")] = 1.0

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Add the weighted updates."""
        made: Vector = fed(self.begin(model, weights, age), starts, updates)
        return made

    def begin(self, model: Vector, weights: Floats, age: Ints) -> Sums:
        """Begin to take updates one after the other."""
        return of_updates(self.server_rate * weights, model)


@dataclass(frozen=True)
class Mix:
    """FedAsync: theta(t+1) = (1-m) theta(t) + m sum_k w_k [theta_k(t,0) + u_k], m = mixing (1 + mean age)^-staleness.

    The paper's footnote mixes in u_k itself, which taken literally shrinks the model; FedAsync mixes models.
    """

    takes_sum: ClassVar[bool] = True
    streams: ClassVar[bool] = True
    mixing: Annotated[float, arg("share of the device's model")] = 0.4
    staleness: Annotated[float, arg("power of 1 + age that the share falls with")] = 0.0

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Move towards the devices' models."""
        made: Vector = fed(self.begin(model, weights, age), starts, updates)
        return made

    def begin(self, model: Vector, weights: Floats, age: Ints) -> Sums:
        """Begin to take models one after the other."""
        share = self.mixing * (1 + float(weights @ age)) ** -self.staleness
        return of_models(
            weights, len(model), lambda arrived: np.asarray((1 - share) * model + share * arrived, model.dtype)
        )


@dataclass(frozen=True)
class BufferedMean:
    """FedBuff: theta(t+1) = theta(t) + server_rate sum_k w_k (1 + a_k)^-staleness u_k."""

    streams: ClassVar[bool] = True
    server_rate: Annotated[float, arg("how far the server goes along the average")] = 1.0
    staleness: Annotated[float, arg("power of 1 + age that updates are scaled down with")] = 0.5

    @property
    def takes_sum(self) -> bool:
        """Whether updates count by their weights alone."""
        return self.staleness == 0

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Add the updates, the stale ones scaled down."""
        made: Vector = fed(self.begin(model, weights, age), starts, updates)
        return made

    def begin(self, model: Vector, weights: Floats, age: Ints) -> Sums:
        """Begin to take updates one after the other."""
        return of_updates(self.server_rate * weights * (1.0 + age) ** -self.staleness, model)


# By name; as module:class, those that build on this module.
COMBINERS: Final[dict[str, Callable[..., Combiner] | str]] = {
    "average_models": AverageModels,
    "average_deltas": AverageDeltas,
    "mix": Mix,
    "buffered_mean": BufferedMean,
    "mix_hinge": "fedtide.policy.hinge:MixHinge",
    "server_momentum": "fedtide.policy.optimizers:ServerMomentum",
    "server_adam": "fedtide.policy.optimizers:ServerAdam",
    "server_yogi": "fedtide.policy.optimizers:ServerYogi",
    "fadas": "fedtide.policy.fadas:DelayAdaptive",
    "ca2fl": "fedtide.policy.ca2fl:CachedCalibration",
    "mifa": "fedtide.policy.mifa:LastOfEveryone",
    "fedat": "fedtide.policy.tiers:Tiers",
    "asyncfeded": "fedtide.policy.distance:DistanceMean",
    "median": "fedtide.policy.coordinatewise:Median",
    "trimmed_mean": "fedtide.policy.coordinatewise:TrimmedMean",
    "krum": "fedtide.policy.krum:Krum",
    "clipped_mean": "fedtide.policy.clipping:ClippedMean",
    "majority_vote": "fedtide.policy.majority_vote:MajorityVote",
    "ef21": "fedtide.policy.ef21:Ef21Sum",
    "scaffold": "fedtide.policy.scaffold:ControlVariates",
}
