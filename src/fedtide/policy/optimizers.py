"""The server's own optimizer around any combiner: FedAvgM, FedAdam, FedYogi.

What the inner combiner would change is the pseudo-gradient, Delta_t = inner(theta(t), ...) - theta(t), in float64. Hsu, Qi,
Brown, Measuring the effects of non-identical data distribution for federated visual classification (2019), for FedAvgM; Reddi
et al., Adaptive federated optimization (ICLR 2021), for the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from fedtide.core.arguments import arg
from fedtide.policy import inner
from fedtide.policy.streaming import Sums
from fedtide.types import Floats, Ints, Memory, Vector

Inner = Annotated[str, arg("the combiner whose step is the pseudo-gradient, one of fedtide's own")]
InnerArgs = Annotated[dict[str, Any] | None, arg("arguments of the inner combiner")]
NumDevices = Annotated[int, arg("N, for an inner combiner that asks", key="fleet.num_devices", ge=1, le=10**8)]


@dataclass(frozen=True)
class ServerMomentum(inner.Around):
    """FedAvgM: m_t = beta m_{t-1} + Delta_t, theta(t+1) = theta(t) + eta m_t; momentum (beta) 0 and rate (eta) 1 are inner."""

    rate: Annotated[float, arg("eta: the server's learning rate", gt=0)] = 1.0
    momentum: Annotated[float, arg("beta: what is kept of the last step", ge=0, lt=1)] = 0.9
    inner: Inner = "average_deltas"
    inner_args: InnerArgs = None
    num_devices: NumDevices = 1

    def init(self, model: Vector) -> Memory:
        """Return m_0 = 0 [d]."""
        return {"momentum": np.zeros(len(model)), **inner.first(self._inner, model)}

    def __call__(
        self,
        memory: Memory,
        model: Vector,
        starts: Vector,
        updates: Vector,
        weights: Floats,
        age: Ints,
        device: Ints,
        *rates: Any,
    ) -> tuple[Vector, Memory]:
        """Go along what is left of the last steps besides the inner one's."""
        return self._gone(
            memory,
            model,
            *inner.asked(self._inner, memory, inner.exact(model), starts, updates, weights, age, device, *rates),
        )

    def begin(self, memory: Memory, model: Vector, weights: Floats, age: Ints, device: Ints) -> Sums:
        """Begin to take updates one after the other."""
        given = (memory, inner.exact(model), weights, age, device)
        return inner.begun(self._inner, *given, lambda wanted, own: self._gone(memory, model, wanted, own))

    def _gone(self, memory: Memory, model: Vector, wanted: Vector, own: Memory) -> tuple[Vector, Memory]:
        delta = wanted - inner.exact(model)
        left = self.momentum * memory["momentum"]
        # theta + eta (delta + left), written from where the inner one arrives: with eta 1 and nothing left, to the bit
        new = wanted + ((self.rate - 1) * delta + self.rate * left)
        return new.astype(model.dtype), {"momentum": left + delta, **own}


@dataclass(frozen=True)
class ServerAdam(inner.Around):
    """FedAdam: theta(t+1) = theta(t) + eta m_t / (sqrt(v_t) + tau), m_t and v_t the mean and mean square of Delta.

    m_t = beta1 m_{t-1} + (1 - beta1) Delta_t, v_t = beta2 v_{t-1} + (1 - beta2) Delta_t^2; m_0 = 0, v_0 = tau^2.
    """

    rate: Annotated[float, arg("eta: the server's learning rate", gt=0)] = 0.01
    beta1: Annotated[float, arg("memory of the mean step", ge=0, lt=1)] = 0.9
    beta2: Annotated[float, arg("memory of the mean squared step", ge=0, lt=1)] = 0.99
    tau: Annotated[float, arg("what the root is kept above", gt=0)] = 1e-3
    inner: Inner = "average_deltas"
    inner_args: InnerArgs = None
    num_devices: NumDevices = 1

    def init(self, model: Vector) -> Memory:
        """Return m_0 = 0 and v_0 = tau^2 [d]."""
        return _begun(self, model)

    def __call__(
        self,
        memory: Memory,
        model: Vector,
        starts: Vector,
        updates: Vector,
        weights: Floats,
        age: Ints,
        device: Ints,
        *rates: Any,
    ) -> tuple[Vector, Memory]:
        """Step along the mean, each parameter by its own measure."""
        asked = inner.asked(self._inner, memory, inner.exact(model), starts, updates, weights, age, device, *rates)
        return _stepped(self, memory, model, *asked)

    def begin(self, memory: Memory, model: Vector, weights: Floats, age: Ints, device: Ints) -> Sums:
        """Begin to take updates one after the other."""
        given = (memory, inner.exact(model), weights, age, device)
        return inner.begun(self._inner, *given, lambda wanted, own: _stepped(self, memory, model, wanted, own))

    def square(self, before: Floats, now: Floats) -> Floats:
        """Return v_t of v_{t-1} and Delta_t^2 [d]."""
        return np.asarray(self.beta2 * before + (1 - self.beta2) * now)


@dataclass(frozen=True)
class ServerYogi(inner.Around):
    """FedYogi: FedAdam, whose v_t goes to Delta_t^2 by steps that do not grow with the distance.

    v_t = v_{t-1} - (1 - beta2) Delta_t^2 sign(v_{t-1} - Delta_t^2).
    """

    rate: Annotated[float, arg("eta: the server's learning rate", gt=0)] = 0.01
    beta1: Annotated[float, arg("memory of the mean step", ge=0, lt=1)] = 0.9
    beta2: Annotated[float, arg("memory of the mean squared step", ge=0, lt=1)] = 0.99
    tau: Annotated[float, arg("what the root is kept above", gt=0)] = 1e-3
    inner: Inner = "average_deltas"
    inner_args: InnerArgs = None
    num_devices: NumDevices = 1

    def init(self, model: Vector) -> Memory:
        """Return m_0 = 0 and v_0 = tau^2 [d]."""
        return _begun(self, model)

    def __call__(
        self,
        memory: Memory,
        model: Vector,
        starts: Vector,
        updates: Vector,
        weights: Floats,
        age: Ints,
        device: Ints,
        *rates: Any,
    ) -> tuple[Vector, Memory]:
        """Step along the mean, each parameter by its own measure."""
        asked = inner.asked(self._inner, memory, inner.exact(model), starts, updates, weights, age, device, *rates)
        return _stepped(self, memory, model, *asked)

    def begin(self, memory: Memory, model: Vector, weights: Floats, age: Ints, device: Ints) -> Sums:
        """Begin to take updates one after the other."""
        given = (memory, inner.exact(model), weights, age, device)
        return inner.begun(self._inner, *given, lambda wanted, own: _stepped(self, memory, model, wanted, own))

    def square(self, before: Floats, now: Floats) -> Floats:
        """Return v_t of v_{t-1} and Delta_t^2 [d]."""
        return np.asarray(before - (1 - self.beta2) * now * np.sign(before - now))


def _begun(part: ServerAdam | ServerYogi, model: Vector) -> Memory:
    """Return m_0 = 0 and v_0 = tau^2 [d], and what the inner combiner begins with."""
    first = {"mean": np.zeros(len(model)), "square": np.full(len(model), part.tau**2)}
    return {**first, **inner.first(part._inner, model)}


def _stepped(
    part: ServerAdam | ServerYogi, memory: Memory, model: Vector, wanted: Vector, own: Memory
) -> tuple[Vector, Memory]:
    """Return theta(t) + eta m_t / (sqrt(v_t) + tau) and what is remembered; v_t by the part's own rule."""
    delta = wanted - inner.exact(model)
    mean = part.beta1 * memory["mean"] + (1 - part.beta1) * delta
    square = part.square(memory["square"], delta**2)
    new = model + part.rate * mean / (np.sqrt(square) + part.tau)
    return new.astype(model.dtype), {"mean": mean, "square": square, **own}
