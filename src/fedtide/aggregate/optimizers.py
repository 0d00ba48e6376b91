"""The server's own optimizer around any aggregator: FedAvgM, FedAdam, FedYogi, FADAS; and FedAC, which weighs updates itself.

What the inner aggregator would change is the pseudo-gradient, Delta_t = inner(theta(t), ...) - theta(t), in float64: a step that
is small beside the model would lose most of its digits in float32, and a server that divides by the size of steps would magnify
the error.

Hsu, Qi, Brown, Measuring the effects of non-identical data distribution for federated visual classification (2019), for
FedAvgM; Reddi et al., Adaptive federated optimization (ICLR 2021), for FedAdam and FedYogi; Wang, Wang, Lu, Chen, FADAS:
towards federated adaptive asynchronous optimization (ICML 2024), for FADAS, whose rate falls with the delay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from fedtide.aggregate.base import Around, Cohort, Inner, InnerArgs, weighted_sum
from fedtide.parts.arguments import arg
from fedtide.types import Floats, Ints, Memory, Vector, Vectors


class Optimizer(Around):
    """A step of the server's own along what the inner aggregator would change."""

    def moments(self, num_parameters: int) -> Memory:
        """Return what the optimizer remembers at first."""
        raise NotImplementedError

    def step(self, state: Memory, model: Vector, wanted: Any, delta: Floats, oldest: int) -> tuple[Floats, Memory]:
        """Return the next model, and what is remembered; oldest: the largest age of what arrived."""
        raise NotImplementedError

    @property
    def takes_sum(self) -> bool:
        """Whether the inner aggregator uses updates in their weighted sum alone."""
        return bool(getattr(self._inner, "takes_sum", False))

    def init(self, model: Vector, num_devices: int) -> Memory:
        """Return the moments, and what the inner aggregator begins with."""
        return {**self.moments(len(model)), **self.init_inner(model, num_devices)}

    def start(self, state: Memory, model: Vector, cohort: Cohort) -> tuple[int, Any]:
        """Note the largest age, and start the inner aggregator."""
        return int(cohort.age.max()), self.start_inner(state, _exact(model), cohort)

    def add(self, acc: tuple[int, Any], rows: slice, starts: Vectors, updates: Vectors) -> tuple[int, Any]:
        """Add to the inner aggregator."""
        return acc[0], self._inner.add(acc[1], rows, starts, updates)

    def finish(self, state: Memory, acc: tuple[int, Any], model: Vector) -> tuple[Vector, Memory]:
        """Step along what the inner aggregator would change."""
        wanted, inner = self.finish_inner(state, acc[1], _exact(model))
        new, moments = self.step(state, model, wanted, wanted - _exact(model), acc[0])
        return new.astype(model.dtype), {**moments, **inner}


def _exact(model: Vector) -> Any:
    """Return the model [d] in float64: the inner aggregator answers in the type of its model."""
    return model.astype(np.float64)


@dataclass(frozen=True)
class ServerMomentum(Optimizer):
    """FedAvgM: m_t = beta m_{t-1} + Delta_t, theta(t+1) = theta(t) + eta m_t; momentum (beta) 0 and rate (eta) 1 are inner."""

    rate: Annotated[float, arg("eta: the server's learning rate", gt=0)] = 1.0
    momentum: Annotated[float, arg("beta: momentum", ge=0, lt=1)] = 0.9
    inner: Inner = "average_deltas"
    inner_args: InnerArgs = None

    def moments(self, num_parameters: int) -> Memory:
        """Return m_0 = 0 [d]."""
        return {"momentum": np.zeros(num_parameters)}

    def step(self, state: Memory, model: Vector, wanted: Any, delta: Floats, oldest: int) -> tuple[Floats, Memory]:
        """Go along what is left of the last steps besides the inner one's."""
        left = self.momentum * state["momentum"]
        # theta + eta (delta + left), written from where the inner one arrives: with eta 1 and nothing left, to the bit
        return wanted + ((self.rate - 1) * delta + self.rate * left), {"momentum": left + delta}


@dataclass(frozen=True)
class ServerAdam(Optimizer):
    """FedAdam: theta(t+1) = theta(t) + eta m_t / (sqrt(v_t) + tau), m_t and v_t the mean and mean square of Delta.

    m_t = beta1 m_{t-1} + (1 - beta1) Delta_t, v_t = beta2 v_{t-1} + (1 - beta2) Delta_t^2; m_0 = 0, v_0 = tau^2.
    """

    rate: Annotated[float, arg("eta: the server's learning rate", gt=0)] = 0.01
    beta1: Annotated[float, arg("beta_1: decay rate of the mean step", ge=0, lt=1)] = 0.9
    beta2: Annotated[float, arg("beta_2: decay rate of the mean squared step", ge=0, lt=1)] = 0.99
    tau: Annotated[float, arg("added to the root to avoid division by zero", gt=0)] = 1e-3
    inner: Inner = "average_deltas"
    inner_args: InnerArgs = None

    def moments(self, num_parameters: int) -> Memory:
        """Return m_0 = 0 and v_0 = tau^2 [d]."""
        return {"mean": np.zeros(num_parameters), "square": np.full(num_parameters, self.tau**2)}

    def square(self, before: Floats, now: Floats) -> Floats:
        """Return v_t of v_{t-1} and Delta_t^2 [d]."""
        return np.asarray(self.beta2 * before + (1 - self.beta2) * now)

    def step(self, state: Memory, model: Vector, wanted: Any, delta: Floats, oldest: int) -> tuple[Floats, Memory]:
        """Step along the mean, each parameter by its own measure."""
        mean = self.beta1 * state["mean"] + (1 - self.beta1) * delta
        square = self.square(state["square"], delta**2)
        return model + self.rate * mean / (np.sqrt(square) + self.tau), {"mean": mean, "square": square}


@dataclass(frozen=True)
class ServerYogi(ServerAdam):
    """FedYogi: FedAdam, whose v_t goes to Delta_t^2 by steps that do not grow with the distance.

    v_t = v_{t-1} - (1 - beta2) Delta_t^2 sign(v_{t-1} - Delta_t^2).
    """

    def square(self, before: Floats, now: Floats) -> Floats:
        """Return v_t of v_{t-1} and Delta_t^2 [d]."""
        return np.asarray(before - (1 - self.beta2) * now * np.sign(before - now))


@dataclass(frozen=True)
class DelayAdaptive(Optimizer):
    """FADAS: theta(t+1) = theta(t) + eta_t m_t / (sqrt(vhat_t) + epsilon), eta_t = eta / tau_max if tau_max > tau_c, else eta.

    m_t = beta1 m_{t-1} + (1 - beta1) Delta_t, v_t = beta2 v_{t-1} + (1 - beta2) Delta_t^2, vhat_t = max(vhat_{t-1}, v_t), all
    begin with 0; tau_max is the largest age of what arrived, Delta_t what the inner aggregator would change. The authors' code
    corrects the bias of the beginning, as Adam does: m_t / (1 - beta1^t) and sqrt(vhat_t / (1 - beta2^t)) instead. Their
    paper does not: that is bias_correction=False. The paper writes eta_t = min(eta, 1/tau_max) beyond tau_c, which for a rate
    eta far below 1 never acts; the authors' code divides the rate, and so does this.
    """

    rate: Annotated[float, arg("eta: the server's learning rate", gt=0)] = 0.01
    beta1: Annotated[float, arg("beta_1: decay rate of the mean step", ge=0, lt=1)] = 0.9
    beta2: Annotated[float, arg("beta_2: decay rate of the mean squared step", ge=0, lt=1)] = 0.99
    epsilon: Annotated[float, arg("added to the root to avoid division by zero", gt=0)] = 1e-8
    threshold: Annotated[int, arg("tau_c: age up to which the rate is not reduced", unit="ticks", ge=0, le=10**7)] = 1
    bias_correction: Annotated[
        bool, arg("correct the bias of the first means, as the authors' code does; false: as in their paper")
    ] = True
    inner: Inner = "average_deltas"
    inner_args: InnerArgs = None

    def moments(self, num_parameters: int) -> Memory:
        """Return m_0 = v_0 = vhat_0 = 0 [d], and t = 0."""
        return {
            **{name: np.zeros(num_parameters) for name in ("mean", "square", "largest")},
            "steps": np.zeros((), np.int64),
        }

    def step(self, state: Memory, model: Vector, wanted: Any, delta: Floats, oldest: int) -> tuple[Floats, Memory]:
        """Step along the mean, the less the later the latest update is."""
        mean = self.beta1 * state["mean"] + (1 - self.beta1) * delta
        square = self.beta2 * state["square"] + (1 - self.beta2) * delta**2
        largest = np.maximum(state["largest"], square)
        rate = self.rate / max(1, oldest) if oldest > self.threshold else self.rate
        steps = int(state["steps"]) + 1
        first, second = (1 - beta**steps if self.bias_correction else 1.0 for beta in (self.beta1, self.beta2))
        new = model + rate / first * mean / (np.sqrt(largest / second) + self.epsilon)
        return new, {"mean": mean, "square": square, "largest": largest, "steps": np.array(steps, np.int64)}


@dataclass(frozen=True)
class ProspectiveMomentum:
    """FedAC: theta(t+1) = theta(t) + eta [beta1 m_t + (1 - beta1) Delta_t] / (sqrt(v_t) + epsilon), Delta_t = sum_k p_k u_k.

    m_t = beta1 m_{t-1} + (1 - beta1) Delta_t, v_t = beta2 v_{t-1} + (1 - beta2) Delta_t^2, both begin with 0. p_k is proportional
    to w_k max(cos_k, least), cos_k the cosine between u_k and theta(t) - theta_k(t,0), what the server did since device k began;
    cos_k = 1 if it did nothing since. The paper has policy.weighting=uniform.

    We found no code of the authors: formulas and defaults follow a public reimplementation, and another one differs from it
    (it takes |cos_k| and smaller betas). The paper's devices also correct their gradients by control variates, much as
    SCAFFOLD does; method=scaffold with policy.aggregator.inner=fedac comes close to that.

    Zang, Xue, Ou, Chu, Du, Long, Efficient asynchronous federated learning with prospective momentum aggregation and
    fine-grained correction (AAAI 2024).
    """

    rate: Annotated[float, arg("eta: the server's learning rate", gt=0)] = 0.01
    beta1: Annotated[float, arg("beta_1: decay rate of the mean step", ge=0, lt=1)] = 0.6
    beta2: Annotated[float, arg("beta_2: decay rate of the mean squared step", ge=0, lt=1)] = 0.9
    epsilon: Annotated[float, arg("added to the root to avoid division by zero", gt=0)] = 1e-8
    least: Annotated[
        float,
        arg("weight of an update that points away from the momentum, relative to one that agrees with it", gt=0, le=1),
    ] = 0.1

    def init(self, model: Vector) -> Memory:
        """Return m_0 = v_0 = 0 [d]."""
        return {"mean": np.zeros(len(model)), "square": np.zeros(len(model))}

    def __call__(
        self, memory: Memory, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints, device: Ints
    ) -> tuple[Vector, Memory]:
        """Step along the mean of updates that lead where the server goes."""
        moved, exact = model.astype(np.float64) - starts, updates.astype(np.float64)
        lengths = np.sqrt(np.square(moved).sum(axis=1) * np.square(exact).sum(axis=1))
        cosine = np.divide((moved * exact).sum(axis=1), lengths, out=np.ones(len(updates)), where=lengths > 0)
        share = weights * np.maximum(cosine, self.least)
        delta = weighted_sum(share / share.sum(), updates)
        mean = self.beta1 * memory["mean"] + (1 - self.beta1) * delta
        square = self.beta2 * memory["square"] + (1 - self.beta2) * delta**2
        ahead = self.beta1 * mean + (1 - self.beta1) * delta
        new = model + self.rate * ahead / (np.sqrt(square) + self.epsilon)
        return new.astype(model.dtype), {"mean": mean, "square": square}
