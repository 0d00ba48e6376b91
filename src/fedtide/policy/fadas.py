"""FADAS: an adaptive optimizer of an asynchronous server, whose rate falls with the delay.

Wang, Wang, Lu, Chen, FADAS: towards federated adaptive asynchronous optimization (ICML 2024).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from fedtide.core.arguments import arg
from fedtide.policy import inner
from fedtide.policy.optimizers import Inner, InnerArgs, NumDevices
from fedtide.policy.streaming import Sums
from fedtide.types import Floats, Ints, Memory, Vector


@dataclass(frozen=True)
class DelayAdaptive:
    """FADAS: theta(t+1) = theta(t) + eta_t m_t / (sqrt(vhat_t) + epsilon), eta_t = eta / tau_max if tau_max > tau_c, else eta.

    m_t = beta1 m_{t-1} + (1 - beta1) Delta_t, v_t = beta2 v_{t-1} + (1 - beta2) Delta_t^2, vhat_t = max(vhat_{t-1}, v_t), all
    begin with 0; tau_max is the largest age of what arrived, Delta_t what the inner combiner would change. The paper writes
    min(eta, 1/tau_max) for the late case, which for a rate eta far below 1 never acts; here the rate itself is divided.
    """

    rate: Annotated[float, arg("eta: the server's learning rate", gt=0)] = 0.01
    beta1: Annotated[float, arg("memory of the mean step", ge=0, lt=1)] = 0.9
    beta2: Annotated[float, arg("memory of the mean squared step", ge=0, lt=1)] = 0.99
    epsilon: Annotated[float, arg("what the root is kept above", gt=0)] = 1e-8
    threshold: Annotated[int, arg("tau_c: up to this age the rate stays whole", unit="ticks", ge=0, le=10**7)] = 1
    inner: Inner = "average_deltas"
    inner_args: InnerArgs = None
    num_devices: NumDevices = 1

    def __post_init__(self) -> None:
        """Bring the inner arguments into order; raise at once if the inner combiner cannot be made."""
        object.__setattr__(self, "inner_args", inner.ordered(self.inner_args))
        self._inner  # noqa: B018

    @functools.cached_property
    def _inner(self) -> Any:
        return inner.made(self.inner, self.inner_args, self.num_devices, self)

    @property
    def takes_sum(self) -> bool:
        """Whether the inner combiner does."""
        return inner.takes_sum(self._inner)

    @property
    def streams(self) -> bool:
        """Whether the inner combiner takes updates one after the other."""
        return inner.streams(self._inner)

    def init(self, model: Vector) -> Memory:
        """Return m_0 = v_0 = vhat_0 = 0 [d]."""
        first = {name: np.zeros(len(model)) for name in ("mean", "square", "largest")}
        return {**first, **inner.first(self._inner, model)}

    def __call__(
        self, memory: Memory, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints, device: Ints
    ) -> tuple[Vector, Memory]:
        """Step along the mean, the less the later the latest update is."""
        asked = inner.asked(self._inner, memory, model, starts, updates, weights, age, device)
        return self._stepped(memory, model, age, *asked)

    def begin(self, memory: Memory, model: Vector, weights: Floats, age: Ints, device: Ints) -> Sums:
        """Begin to take updates one after the other."""
        given = (memory, model, weights, age, device)
        return inner.begun(self._inner, *given, lambda wanted, own: self._stepped(memory, model, age, wanted, own))

    def _stepped(self, memory: Memory, model: Vector, age: Ints, wanted: Vector, own: Memory) -> tuple[Vector, Memory]:
        delta = wanted.astype(np.float64) - model
        mean = self.beta1 * memory["mean"] + (1 - self.beta1) * delta
        square = self.beta2 * memory["square"] + (1 - self.beta2) * delta**2
        largest = np.maximum(memory["largest"], square)
        oldest = int(age.max())
        rate = self.rate / max(1, oldest) if oldest > self.threshold else self.rate
        new = model + rate * mean / (np.sqrt(largest) + self.epsilon)
        return new.astype(np.float32), {"mean": mean, "square": square, "largest": largest, **own}
