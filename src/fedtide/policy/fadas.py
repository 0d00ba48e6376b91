"""FADAS: an adaptive optimizer of an asynchronous server, whose rate falls with the delay.

Wang, Wang, Lu, Chen, FADAS: towards federated adaptive asynchronous optimization (ICML 2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from fedtide.core.arguments import arg
from fedtide.policy import inner
from fedtide.policy.optimizers import Inner, InnerArgs, NumDevices
from fedtide.policy.streaming import Sums
from fedtide.types import Floats, Ints, Memory, Vector


@dataclass(frozen=True)
class DelayAdaptive(inner.Around):
    """FADAS: theta(t+1) = theta(t) + eta_t m_t / (sqrt(vhat_t) + epsilon), eta_t = eta / tau_max if tau_max > tau_c, else eta.

    m_t = beta1 m_{t-1} + (1 - beta1) Delta_t, v_t = beta2 v_{t-1} + (1 - beta2) Delta_t^2, vhat_t = max(vhat_{t-1}, v_t), all
    begin with 0; tau_max is the largest age of what arrived, Delta_t what the inner combiner would change. The authors' code
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
        return {**first, **inner.first(self._inner, model)}

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
        asked = inner.asked(self._inner, memory, inner.exact(model), starts, updates, weights, age, device, *rates)
        return self._stepped(memory, model, age, *asked)

    def begin(self, memory: Memory, model: Vector, weights: Floats, age: Ints, device: Ints) -> Sums:
        """Begin to take updates one after the other."""
        given = (memory, inner.exact(model), weights, age, device)
        return inner.begun(self._inner, *given, lambda wanted, own: self._stepped(memory, model, age, wanted, own))

    def _stepped(self, memory: Memory, model: Vector, age: Ints, wanted: Vector, own: Memory) -> tuple[Vector, Memory]:
        delta = wanted - inner.exact(model)
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
