"""The server's own optimizer around any aggregator: FedAvgM, FedAdam, FedYogi, FADAS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from fedtide.aggregate import averages
from fedtide.aggregate.averages import Sums
from fedtide.parts.arguments import arg
from fedtide.types import Floats, Ints, Memory, Vector

# The server's own optimizer around any aggregator: FedAvgM, FedAdam, FedYogi.
#
# What the inner aggregator would change is the pseudo-gradient, Delta_t = inner(theta(t), ...) - theta(t), in float64. Hsu,
# Qi, Brown, Measuring the effects of non-identical data distribution for federated visual classification (2019), for
# FedAvgM; Reddi et al., Adaptive federated optimization (ICLR 2021), for the others.


Inner = Annotated[str, arg("the aggregator whose step is the pseudo-gradient, one of fedtide's own")]
InnerArgs = Annotated[dict[str, Any] | None, arg("arguments of the inner aggregator")]
NumDevices = Annotated[int, arg("N, for an inner aggregator that asks", key="fleet.num_devices", ge=1, le=10**8)]


@dataclass(frozen=True)
class ServerMomentum(averages.Around):
    """FedAvgM: m_t = beta m_{t-1} + Delta_t, theta(t+1) = theta(t) + eta m_t; momentum (beta) 0 and rate (eta) 1 are inner."""

    rate: Annotated[float, arg("eta: the server's learning rate", gt=0)] = 1.0
    momentum: Annotated[float, arg("beta: what is kept of the last step", ge=0, lt=1)] = 0.9
    inner: Inner = "average_deltas"
    inner_args: InnerArgs = None
    num_devices: NumDevices = 1

    def init(self, model: Vector) -> Memory:
        """Return m_0 = 0 [d]."""
        return {"momentum": np.zeros(len(model)), **averages.init_inner(self._inner, model)}

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
            *averages.call_inner(
                self._inner, memory, averages.exact(model), starts, updates, weights, age, device, *rates
            ),
        )

    def begin(self, memory: Memory, model: Vector, weights: Floats, age: Ints, device: Ints) -> Sums:
        """Begin to take updates one after the other."""
        given = (memory, averages.exact(model), weights, age, device)
        return averages.begin_inner(self._inner, *given, lambda wanted, own: self._gone(memory, model, wanted, own))

    def _gone(self, memory: Memory, model: Vector, wanted: Vector, own: Memory) -> tuple[Vector, Memory]:
        delta = wanted - averages.exact(model)
        left = self.momentum * memory["momentum"]
        # theta + eta (delta + left), written from where the inner one arrives: with eta 1 and nothing left, to the bit
        new = wanted + ((self.rate - 1) * delta + self.rate * left)
        return new.astype(model.dtype), {"momentum": left + delta, **own}


@dataclass(frozen=True)
class ServerAdam(averages.Around):
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
        asked = averages.call_inner(
            self._inner, memory, averages.exact(model), starts, updates, weights, age, device, *rates
        )
        return _stepped(self, memory, model, *asked)

    def begin(self, memory: Memory, model: Vector, weights: Floats, age: Ints, device: Ints) -> Sums:
        """Begin to take updates one after the other."""
        given = (memory, averages.exact(model), weights, age, device)
        return averages.begin_inner(self._inner, *given, lambda wanted, own: _stepped(self, memory, model, wanted, own))

    def square(self, before: Floats, now: Floats) -> Floats:
        """Return v_t of v_{t-1} and Delta_t^2 [d]."""
        return np.asarray(self.beta2 * before + (1 - self.beta2) * now)


@dataclass(frozen=True)
class ServerYogi(averages.Around):
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
        asked = averages.call_inner(
            self._inner, memory, averages.exact(model), starts, updates, weights, age, device, *rates
        )
        return _stepped(self, memory, model, *asked)

    def begin(self, memory: Memory, model: Vector, weights: Floats, age: Ints, device: Ints) -> Sums:
        """Begin to take updates one after the other."""
        given = (memory, averages.exact(model), weights, age, device)
        return averages.begin_inner(self._inner, *given, lambda wanted, own: _stepped(self, memory, model, wanted, own))

    def square(self, before: Floats, now: Floats) -> Floats:
        """Return v_t of v_{t-1} and Delta_t^2 [d]."""
        return np.asarray(before - (1 - self.beta2) * now * np.sign(before - now))


def _begun(part: ServerAdam | ServerYogi, model: Vector) -> Memory:
    """Return m_0 = 0 and v_0 = tau^2 [d], and what the inner aggregator begins with."""
    first = {"mean": np.zeros(len(model)), "square": np.full(len(model), part.tau**2)}
    return {**first, **averages.init_inner(part._inner, model)}


def _stepped(
    part: ServerAdam | ServerYogi, memory: Memory, model: Vector, wanted: Vector, own: Memory
) -> tuple[Vector, Memory]:
    """Return theta(t) + eta m_t / (sqrt(v_t) + tau) and what is remembered; v_t by the part's own rule."""
    delta = wanted - averages.exact(model)
    mean = part.beta1 * memory["mean"] + (1 - part.beta1) * delta
    square = part.square(memory["square"], delta**2)
    new = model + part.rate * mean / (np.sqrt(square) + part.tau)
    return new.astype(model.dtype), {"mean": mean, "square": square, **own}


# FADAS: an adaptive optimizer of an asynchronous server, whose rate falls with the delay.
#
# Wang, Wang, Lu, Chen, FADAS: towards federated adaptive asynchronous optimization (ICML 2024).


@dataclass(frozen=True)
class DelayAdaptive(averages.Around):
    """FADAS: theta(t+1) = theta(t) + eta_t m_t / (sqrt(vhat_t) + epsilon), eta_t = eta / tau_max if tau_max > tau_c, else eta.

    m_t = beta1 m_{t-1} + (1 - beta1) Delta_t, v_t = beta2 v_{t-1} + (1 - beta2) Delta_t^2, vhat_t = max(vhat_{t-1}, v_t), all
    begin with 0; tau_max is the largest age of what arrived, Delta_t what the inner aggregator would change. The authors' code
    corrects the bias of the beginning, as Adam does: m_t / (1 - beta1^t) and sqrt(vhat_t / (1 - beta2^t)) instead. Their
    paper does not: that is bias_correction=False. The paper writes eta_t = min(eta, 1/tau_max) beyond tau_c, which for a rate
    eta far below 1 never acts; the authors' code divides the rate, and so does this.
    """

    rate: Annotated[float, arg("eta: the server's learning rate", gt=0)] = 0.01
    beta1: Annotated[float, arg("memory of the mean step", ge=0, lt=1)] = 0.9
    beta2: Annotated[float, arg("memory of the mean squared step", ge=0, lt=1)] = 0.99
    epsilon: Annotated[float, arg("what the root is kept above", gt=0)] = 1e-8
    threshold: Annotated[int, arg("tau_c: up to this age the rate stays whole", unit="ticks", ge=0, le=10**7)] = 1
    bias_correction: Annotated[
        bool, arg("correct the bias of the first means, as the authors' code; false: their paper")
    ] = True
    inner: Inner = "average_deltas"
    inner_args: InnerArgs = None
    num_devices: NumDevices = 1

    def init(self, model: Vector) -> Memory:
        """Return m_0 = v_0 = vhat_0 = 0 [d], and t = 0."""
        first: Memory = {name: np.zeros(len(model)) for name in ("mean", "square", "largest")}
        first["steps"] = np.zeros((), np.int64)
        return {**first, **averages.init_inner(self._inner, model)}

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
        """Step along the mean, the less the later the latest update is."""
        asked = averages.call_inner(
            self._inner, memory, averages.exact(model), starts, updates, weights, age, device, *rates
        )
        return self._stepped(memory, model, age, *asked)

    def begin(self, memory: Memory, model: Vector, weights: Floats, age: Ints, device: Ints) -> Sums:
        """Begin to take updates one after the other."""
        given = (memory, averages.exact(model), weights, age, device)
        return averages.begin_inner(
            self._inner, *given, lambda wanted, own: self._stepped(memory, model, age, wanted, own)
        )

    def _stepped(self, memory: Memory, model: Vector, age: Ints, wanted: Vector, own: Memory) -> tuple[Vector, Memory]:
        delta = wanted - averages.exact(model)
        mean = self.beta1 * memory["mean"] + (1 - self.beta1) * delta
        square = self.beta2 * memory["square"] + (1 - self.beta2) * delta**2
        largest = np.maximum(memory["largest"], square)
        oldest = int(age.max())
        rate = self.rate / max(1, oldest) if oldest > self.threshold else self.rate
        steps = int(memory["steps"]) + 1
        first, second = (1 - beta**steps if self.bias_correction else 1.0 for beta in (self.beta1, self.beta2))
        new = model + rate / first * mean / (np.sqrt(largest / second) + self.epsilon)
        return new.astype(model.dtype), {
            "mean": mean,
            "square": square,
            "largest": largest,
            "steps": np.array(steps, np.int64),
            **own,
        }
