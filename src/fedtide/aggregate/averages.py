"""Averages: how much each update counts, and aggregators that keep a weighted sum of updates or models."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Protocol

import numpy as np

from fedtide.aggregate.base import Aggregator, Average, Cohort, Sums
from fedtide.parts.arguments import arg
from fedtide.types import Floats, Ints, Memory, Vector


class Weighting(Protocol):
    """Says how much each arrived update counts."""

    def __call__(self, num_samples: Ints, age: Ints) -> Floats:
        """Return weights [r] that are not negative and sum to 1."""
        ...


@dataclass(frozen=True)
class AgeAware:
    """w_k proportional to |S_k| gamma^{a_k} (eq:wk_t_age): age_base (gamma) > 1 favours old, < 1 fresh, 1 neither."""

    age_base: Annotated[float, arg("gamma: below 1 favours fresh updates", key="policy.age_base", gt=0)] = 1.0

    def __call__(self, num_samples: Ints, age: Ints) -> Floats:
        """Powers are taken relative to the heaviest age, so that no age can overflow them."""
        heaviest = age.max() if self.age_base > 1 else age.min()
        weight = num_samples * self.age_base ** (age - heaviest).astype(np.float64)
        return np.asarray(weight / math.fsum(weight))


@dataclass(frozen=True)
class UniformWeights:
    """Every arrived update counts the same."""

    def __call__(self, num_samples: Ints, age: Ints) -> Floats:
        """Return 1/r each."""
        return np.full(len(age), 1 / len(age))


WEIGHTINGS: Final[dict[str, Callable[..., Weighting]]] = {"age_aware": AgeAware, "uniform": UniformWeights}


@dataclass(frozen=True)
class AverageModels(Average):
    """The paper's: theta(t+1) = sum_k w_k [theta_k(t,0) + u_k]. Stale starts pull the model back."""

    takes_sum: ClassVar[bool] = True

    def start(self, state: Memory, model: Vector, cohort: Cohort) -> Sums:
        """Sum starts and updates apart, both from 0."""
        return Sums(cohort, cohort.weights, np.zeros(len(model)), np.zeros(len(model)))

    def finish(self, state: Memory, acc: Sums, model: Vector) -> tuple[Vector, Memory]:
        """Return the devices' average model."""
        return acc.models.astype(model.dtype), state


@dataclass(frozen=True)
class AverageDeltas(Average):
    """theta(t+1) = theta(t) + server_rate sum_k w_k u_k: updates are added to the current model."""

    takes_sum: ClassVar[bool] = True
    server_rate: Annotated[float, arg("server step size along the average")] = 1.0

    def start(self, state: Memory, model: Vector, cohort: Cohort) -> Sums:
        """Sum from the current model."""
        return Sums(cohort, self.server_rate * cohort.weights, model.astype(np.float64))

    def finish(self, state: Memory, acc: Sums, model: Vector) -> tuple[Vector, Memory]:
        """Return the sum."""
        return acc.updates.astype(model.dtype), state


@dataclass(frozen=True)
class BufferedMean(AverageDeltas):
    """FedBuff: theta(t+1) = theta(t) + server_rate sum_k w_k (1 + a_k)^-staleness u_k."""

    staleness: Annotated[float, arg("exponent of 1 + age by which updates are scaled down")] = 0.5

    @property
    def takes_sum(self) -> bool:  # type: ignore[override]
        """Whether updates count by their weights alone."""
        return self.staleness == 0

    def start(self, state: Memory, model: Vector, cohort: Cohort) -> Sums:
        """Sum from the current model, stale updates scaled down."""
        scales = self.server_rate * cohort.weights * (1.0 + cohort.age) ** -self.staleness
        return Sums(cohort, scales, model.astype(np.float64))


@dataclass(frozen=True)
class Normalized(Average):
    """FedNova: theta(t+1) = theta(t) + server_rate tau_eff sum_k w_k u_k / |a_k|, tau_eff = sum_k w_k |a_k|.

    |a_k| is how far the tau_k steps of device k go under a gradient of 1, in units of learning.learning_rate: tau_k for plain SGD,
    (1 - (1 - alpha)^tau_k) / alpha with a proximal term, alpha = learning_rate lambda. So every device counts by its weight,
    whatever its number of steps (`learning.work`) and its learning rate; without that, those that step more count for more.

    Wang, Liu, Liang, Joshi, Poor, Tackling the objective inconsistency problem in heterogeneous federated optimization (NeurIPS
    2020).
    """

    learning_rate: Annotated[float, arg("learning rate eta of the devices", key="learning.learning_rate", gt=0)] = 0.01
    proximal: Annotated[float, arg("proximal weight lambda of the devices", key="learning.proximal", ge=0)] = 0.0
    momentum: Annotated[float, arg("momentum of the devices' steps, as in learning.trainer.momentum", ge=0, lt=1)] = 0.0
    server_rate: Annotated[float, arg("server step size along the average")] = 1.0

    def start(self, state: Memory, model: Vector, cohort: Cohort) -> Sums:
        """Sum from the current model, each update over the length of its way."""
        steps = np.ones(len(cohort.age), np.int64) if cohort.steps is None else cohort.steps
        way = unit_gradient_ways(steps, self.learning_rate * cohort.rates, self.proximal, self.momentum)
        way = way / self.learning_rate
        scales = np.divide(
            cohort.weights, way, out=np.zeros(len(way)), where=way > 0
        )  # without a step there is no update
        scales *= self.server_rate * float(cohort.weights @ way)
        return Sums(cohort, scales, model.astype(np.float64))

    def finish(self, state: Memory, acc: Sums, model: Vector) -> tuple[Vector, Memory]:
        """Return the sum."""
        return acc.updates.astype(model.dtype), state


def unit_gradient_ways(steps: Ints, learning_rate: Floats, proximal: float, momentum: float) -> Floats:
    """Return how far so many steps go [r] if every gradient is 1: SGD with a proximal term and the heavy ball."""
    if not proximal and not momentum:
        return np.asarray(steps * learning_rate)
    way, speed = np.zeros(len(steps)), np.zeros(len(steps))
    for step in range(int(np.max(steps, initial=0))):
        speed = momentum * speed + 1 - proximal * way
        way = np.where(step < steps, way + learning_rate * speed, way)
    return way


@dataclass(frozen=True)
class Mix(AverageModels):
    """FedAsync: theta(t+1) = (1-m) theta(t) + m sum_k w_k [theta_k(t,0) + u_k], m = mixing (1 + mean age)^-staleness.

    The paper's footnote mixes in u_k itself, which taken literally shrinks the model; FedAsync mixes models.
    """

    mixing: Annotated[float, arg("share of the device's model")] = 0.4
    staleness: Annotated[float, arg("exponent of 1 + age by which the share decays")] = 0.0

    def finish(self, state: Memory, acc: Sums, model: Vector) -> tuple[Vector, Memory]:
        """Move towards the devices' average model."""
        age = float(acc.cohort.weights @ acc.cohort.age)
        return mixed_average(self.mixing * (1 + age) ** -self.staleness, acc, model), state


def mixed_average(share: float, acc: Sums, model: Vector) -> Vector:
    """Return (1-m) theta(t) + m sum_k w_k [theta_k(t,0) + u_k] of a share m."""
    return np.asarray((1 - share) * model + share * acc.models, model.dtype)


# By name; as module:class, those that build on this module.
AGGREGATORS: Final[dict[str, Callable[..., Aggregator] | str]] = {
    "average_models": AverageModels,
    "average_deltas": AverageDeltas,
    "mix": Mix,
    "buffered_mean": BufferedMean,
    "fednova": Normalized,
    "mix_hinge": "fedtide.aggregate.asynchronous:MixHinge",
    "server_momentum": "fedtide.aggregate.optimizers:ServerMomentum",
    "server_adam": "fedtide.aggregate.optimizers:ServerAdam",
    "server_yogi": "fedtide.aggregate.optimizers:ServerYogi",
    "fadas": "fedtide.aggregate.optimizers:DelayAdaptive",
    "fedac": "fedtide.aggregate.optimizers:ProspectiveMomentum",
    "ca2fl": "fedtide.aggregate.asynchronous:CachedCalibration",
    "mifa": "fedtide.aggregate.asynchronous:LastOfEveryone",
    "ace": "fedtide.aggregate.asynchronous:AllClients",
    "fedasmu": "fedtide.aggregate.asynchronous:LearnedMixing",
    "hierarchical": "fedtide.aggregate.hierarchical:Hierarchical",
    "fedat": "fedtide.aggregate.asynchronous:Tiers",
    "asyncfeded": "fedtide.aggregate.asynchronous:DistanceMean",
    "median": "fedtide.aggregate.robust:Median",
    "trimmed_mean": "fedtide.aggregate.robust:TrimmedMean",
    "krum": "fedtide.aggregate.robust:Krum",
    "clipped_mean": "fedtide.aggregate.robust:ClippedMean",
    "majority_vote": "fedtide.aggregate.robust:MajorityVote",
    "kardam": "fedtide.aggregate.byzantine:LipschitzFilter",
    "basgd": "fedtide.aggregate.byzantine:Buffers",
    "reputation": "fedtide.aggregate.byzantine:Reputation",
    "aflguard": "fedtide.aggregate.byzantine:ServerGuard",
    "ef21": "fedtide.methods:Ef21Sum",
    "scaffold": "fedtide.methods:ControlVariates",
}
