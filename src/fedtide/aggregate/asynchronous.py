"""Servers for asynchronous updates: FedAsync's hinge, AsyncFedED, FedAT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide.aggregate.averages import AverageModels, mixed
from fedtide.aggregate.base import Sums, weighted_sum
from fedtide.parts.arguments import arg
from fedtide.types import Floats, Ints, Memory, Vector

# FedAsync with its hinge: the share of a device's model falls only beyond some age.
#
# Xie, Koyejo, Gupta, Asynchronous federated optimization (2019).


@dataclass(frozen=True)
class MixHinge(AverageModels):
    """FedAsync: theta(t+1) = (1-m) theta(t) + m sum_k w_k [theta_k(t,0) + u_k], m = mixing s(mean age).

    s(x) = 1 if x <= b, else 1 / (a (x - b) + 1). The paper has one device at a time, whose age the mean is. Its other two, the
    constant and (1 + x)^-a, are `mix`.
    """

    mixing: Annotated[float, arg("alpha: share of the device's model", gt=0, le=1)] = 0.4
    slope: Annotated[float, arg("a: how fast the share falls beyond the window", ge=0)] = 1.0
    window: Annotated[float, arg("b: age up to which the share stays whole", unit="ticks", ge=0)] = 4.0

    def finish(self, state: Memory, acc: Sums, model: Vector) -> tuple[Vector, Memory]:
        """Move towards the devices' average model."""
        beyond = max(float(acc.cohort.weights @ acc.cohort.age) - self.window, 0.0)
        return mixed(self.mixing / (self.slope * beyond + 1), acc, model), state


# AsyncFedED: an update counts the less, the further the model has moved since, measured by the update itself.
#
# Wang, Yang, He, Shi, Chen, AsyncFedED: asynchronous federated learning with Euclidean distance based adaptive weight
# aggregation (2022).


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


# FedAT: tiers of devices of like speed, and rarely heard tiers weighing more.
#
# Chai, Chen, Anwar, Zhao, Cheng, Rangwala, FedAT: a high-performance and communication-efficient federated learning system
# with asynchronous tiers (SC 2021).


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
