"""Servers for asynchronous updates. CA2FL, MIFA, ACE and FedASMU keep a vector of every device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedtide.aggregate.averages import AverageModels, mixed_average
from fedtide.aggregate.base import Cohort, Sums, weighted_sum
from fedtide.errors import FedtideError
from fedtide.parts.arguments import MOST_MEMORY, arg
from fedtide.types import Floats, Ints, Memory, Vector, Vectors


@dataclass(frozen=True)
class MixHinge(AverageModels):
    """FedAsync: theta(t+1) = (1-m) theta(t) + m sum_k w_k [theta_k(t,0) + u_k], m = mixing s(mean age).

    s(x) = 1 if x <= b, else 1 / (a (x - b) + 1). The paper has one device at a time, whose age the mean is. Its other two, the
    constant and (1 + x)^-a, are `mix`.

    Xie, Koyejo, Gupta, Asynchronous federated optimization (2019).
    """

    mixing: Annotated[float, arg("alpha: share of the device's model", gt=0, le=1)] = 0.4
    slope: Annotated[float, arg("a: how fast the share decays beyond the window", ge=0)] = 1.0
    window: Annotated[float, arg("b: age up to which the share does not decay", unit="ticks", ge=0)] = 4.0

    def finish(self, state: Memory, acc: Sums, model: Vector) -> tuple[Vector, Memory]:
        """Move towards the devices' average model."""
        beyond = max(float(acc.cohort.weights @ acc.cohort.age) - self.window, 0.0)
        return mixed_average(self.mixing / (self.slope * beyond + 1), acc, model), state


@dataclass(frozen=True)
class DistanceMean:
    """AsyncFedED: theta(t+1) = theta(t) + sum_k w_k eta_k u_k, eta_k = lambda / (gamma_k + epsilon).

    gamma_k = ||theta(t) - theta_k(t,0)|| / ||u_k||, the staleness in place of an age. The paper has one device at a time, and
    besides lets devices train longer or shorter by their staleness, which is not done here.

    Wang, Yang, He, Shi, Chen, AsyncFedED: asynchronous federated learning with Euclidean distance based adaptive weight
    aggregation (2022).
    """

    scale: Annotated[float, arg("lambda: server step size", gt=0)] = 1.0
    epsilon: Annotated[float, arg("added to the staleness, so a fresh update counts scale / epsilon", gt=0)] = 1.0

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Add the updates, the outrun ones scaled down."""
        moved = _norm(model.astype(np.float64) - starts)
        length = _norm(updates.astype(np.float64))
        below = moved + self.epsilon * length
        none = np.zeros_like(below)  # an update of 0 adds none
        rate = np.divide(self.scale * length, below, out=none, where=below > 0)
        return weighted_sum(weights * rate, updates, model).astype(model.dtype)


def _norm(vectors: Floats) -> Floats:
    """Return the lengths of rows [r]."""
    return np.asarray(np.sqrt(np.square(vectors).sum(axis=1)))


@dataclass(frozen=True)
class Tiers:
    """FedAT: theta(t+1) = sum_m W_m theta_m over M tiers; theta_m = sum_k w_k [theta_k(t,0) + u_k] of tier m, when last heard.

    W_m = (1 + T_{M+1-m}) / (M + T): T_m counts how often tier m was heard, T is their sum, and the fastest tier is weighed by
    how often the slowest was heard. All theta_m begin with the first model. The paper has no 1, and so stays at its first
    model until the slowest tier was heard. It sorts devices into tiers by their latency; here an update is of tier
    m = 1 + floor(age / width), or the last, since its age is how long it took.

    Chai, Chen, Anwar, Zhao, Cheng, Rangwala, FedAT: a high-performance and communication-efficient federated learning system
    with asynchronous tiers (SC 2021).
    """

    only_global: ClassVar[str] = "keeps models of tiers, which a cloud average of edges does not reach"
    tiers: Annotated[int, arg("M: number of tiers", ge=1, le=1000)] = 3
    width: Annotated[int, arg("number of ages per tier", unit="ticks", ge=1, le=10**7)] = 1

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


def _mean(kept: Vector) -> Floats:
    """Return the mean of all rows [d], one row after the other, so that the bits do not depend on the machine."""
    total = np.zeros(kept.shape[1])
    for row in kept:
        total += row
    return total / len(kept)


def zeros_per_device(called: str, num_devices: int, num_parameters: int, vectors: int = 1) -> Vector:
    """Return zeros [N d] for an aggregator that keeps so many vectors per device; raise if a part may not remember as much."""
    size = 4.0 * vectors * num_devices * num_parameters
    if size > MOST_MEMORY:
        what = "the last update" if vectors == 1 else f"{vectors} vectors"
        raise FedtideError(
            f"policy.aggregator={called} keeps {what} of every device, fleet.num_devices={num_devices:,} times "
            f"{num_parameters:,} parameters in float32: {size / 1e9:,.3g} GB, more than the {MOST_MEMORY / 1e9:g} GB that a "
            "part may remember; use fewer devices, a smaller model, or another aggregator"
        )
    return np.zeros((num_devices, num_parameters), np.float32)


@dataclass
class _Kept:
    """What is kept of every device, and a sum over the cohort."""

    cohort: Cohort
    kept: Vector  # [N d]
    total: Floats  # [d]


@dataclass(frozen=True)
class _LastUpdates:
    """A server that keeps the last update of every device [N d]."""

    only_global: ClassVar[str] = "keeps the last update of every device, and devices go from edge to edge"
    called: ClassVar[str]  # the aggregator's name
    memory: ClassVar[str]  # what its memory is called
    server_rate: Annotated[float, arg("eta: server step size")] = 1.0

    def init(self, model: Vector, num_devices: int) -> Memory:
        """Return an update of zero for every device [N d]; raise if that is more than a part may remember."""
        return {self.memory: zeros_per_device(self.called, num_devices, len(model))}

    def start(self, state: Memory, model: Vector, cohort: Cohort) -> _Kept:
        """Begin with the last update of everyone, and a sum from 0."""
        return _Kept(cohort, state[self.memory].copy(), np.zeros(len(model)))


@dataclass(frozen=True)
class CachedCalibration(_LastUpdates):
    """CA2FL: theta(t+1) = theta(t) + eta v_t, v_t = h_t + sum_{k in S_t} w_k (Delta_k - h_k), h_t = sum_k h_k / N.

    Then h_k = Delta_k for k in S_t, the buffer; all h_k begin with 0. The paper has w_k = 1/|S_t|, policy.weighting=uniform.

    Wang, Cao, Wu, Chen, Chen, Tackling the data heterogeneity in asynchronous federated learning with cached update
    calibration (ICLR 2024).
    """

    called: ClassVar[str] = "ca2fl"
    memory: ClassVar[str] = "cached"

    def add(self, acc: _Kept, rows: slice, starts: Vectors, updates: Vectors) -> _Kept:
        """Add by how much the updates differ from the cached ones, and cache them."""
        weights, device = acc.cohort.weights[rows], acc.cohort.device[rows].tolist()
        for weight, k, update in zip(weights, device, updates, strict=True):
            acc.total += weight * (update.astype(np.float64) - acc.kept[k])
            acc.kept[k] = update
        return acc

    def finish(self, state: Memory, acc: _Kept, model: Vector) -> tuple[Vector, Memory]:
        """Add the mean of what was cached before, corrected by what is new."""
        new = acc.total + _mean(state["cached"])
        return (model + self.server_rate * new).astype(model.dtype), {"cached": acc.kept}


@dataclass(frozen=True)
class LastOfEveryone(_LastUpdates):
    """MIFA: theta(t+1) = theta(t) + eta alpha_t sum_k G_k / N, where G_k is the last update of device k over its learning rate.

    alpha_t is the devices' learning rate by now, relative to the first one (learning.schedule), and G_k = u_k / alpha of the
    model that device k began from: what was heard long ago counts by today's rate, as in the authors' code. G_k is 0 until
    device k was heard (the paper begins with an aggregation of all). Every device counts 1/N: policy.weighting has no say.

    Gu, Huang, Zhang, Huang, Fast federated learning in the presence of arbitrary device unavailability (NeurIPS 2021).
    """

    called: ClassVar[str] = "mifa"
    memory: ClassVar[str] = "last"

    def add(self, acc: _Kept, rows: slice, starts: Vectors, updates: Vectors) -> _Kept:
        """Replace the updates of those that were heard."""
        device, rates = acc.cohort.device[rows].tolist(), acc.cohort.rates[rows]
        for k, rate, update in zip(device, rates, updates, strict=True):
            acc.kept[k] = update.astype(np.float64) / rate
        return acc

    def finish(self, state: Memory, acc: _Kept, model: Vector) -> tuple[Vector, Memory]:
        """Add the mean of all."""
        step = self.server_rate * acc.cohort.rate * _mean(acc.kept)
        return (model + step).astype(model.dtype), {"last": acc.kept}


@dataclass(frozen=True)
class AllClients(LastOfEveryone):
    """ACE, and ACED with a window: theta(t+1) = theta(t) + eta alpha_t sum_{k in A_t} G_k / |A_t|, G_k as in MIFA.

    A_t: the devices that were heard so far; with a window, those heard in the last `window` aggregations. MIFA divides by N and
    counts a device that was not heard yet as 0; the paper of ACE begins with an update of all devices, after which ACE and
    MIFA are the same. CA2FL weighs what has just arrived by 1/|S_t| and the rest by 1/N; ACE weighs all alike. The paper
    takes one step per device and aggregates at every arrival; here devices train and the server aggregates as the experiment
    says. The window counts from when a device was last heard.

    Chang, Yao, Krishnamurthy, Shelton, Chakraborty, Swami, Oymak, Roy-Chowdhury, Mitigating participation imbalance bias in
    asynchronous federated learning (2025).
    """

    called: ClassVar[str] = "ace"
    window: Annotated[
        int | None,
        arg("ACED: number of aggregations after which an update no longer counts; default: ACE", ge=1, le=10**9),
    ] = None

    def init(self, model: Vector, num_devices: int) -> Memory:
        """Return updates of zero [N d], and when each device was heard [N], 0 for never, at aggregation t = 0."""
        own = {"heard": np.zeros(num_devices, np.int64), "count": np.zeros((), np.int64)}
        return {**super().init(model, num_devices), **own}

    def finish(self, state: Memory, acc: _Kept, model: Vector) -> tuple[Vector, Memory]:
        """Add the mean of those that count."""
        now, heard = int(state["count"]) + 1, state["heard"].copy()
        heard[acc.cohort.device] = now
        counts = heard > (max(now - self.window, 0) if self.window is not None else 0)
        step = self.server_rate * acc.cohort.rate * _mean(acc.kept[counts])
        after = {"last": acc.kept, "heard": heard, "count": np.array(now, np.int64)}
        return (model + step).astype(model.dtype), after


@dataclass
class _Mixed:
    """One aggregation of FedASMU as far as it has come."""

    cohort: Cohort
    model: Floats  # theta(t) [d]
    after: Memory  # what is remembered then
    step: Floats  # sum of w_k alpha_k [theta_k(t,0) + u_k - theta(t)] so far [d]


@dataclass(frozen=True)
class LearnedMixing:
    """FedASMU: theta(t+1) = theta(t) + sum_k w_k alpha_k [theta_k(t,0) + u_k - theta(t)], alpha_k = mu xi_k / (1 + mu xi_k).

    xi_k = max(lambda_k / (sqrt(t) (a_k + 1)^sigma_k) + iota_k, 0), t the number of the aggregation. Every device has its own
    lambda, sigma and iota, which go down the gradient of its loss F_k: a change of its last alpha_k moved the model along
    v_k = theta_k(t',0) + u_k - theta(t'), and g_k = -u_k / (eta tau_k) is its gradient now, so that
    dF_k / dlambda_k = w_k g_k v_k dalpha_k / dlambda_k, and so for sigma_k and iota_k. u_k is over the tau_k steps of a device.
    The factor w_k is there because the model moves by w_k alpha_k v_k. sigma_k is clipped at 0. xi_k = 0 is final: its slope is
    0 as well, so that lambda_k, sigma_k and iota_k stay and the device no longer counts, unless another age or t lifts xi_k.

    The paper has one device at a time, policy.weighting=uniform with one upload. Left out: devices that take a fresher model
    in the middle of their training, and the bound beyond which updates are thrown away. The first values and the rates are
    not the authors', whose code is not public.

    Liu, Jia, Che, Huo, Ren, Zhou, Dai, Dou, FedASMU: efficient asynchronous federated learning with dynamic staleness-aware
    model update (AAAI 2024).
    """

    only_global: ClassVar[str] = "keeps a direction of every device, and devices go from edge to edge"
    mu: Annotated[float, arg("share of a device's model that the server takes", gt=0)] = 1.0
    scale: Annotated[float, arg("initial lambda: the part of xi that decays with time and age", ge=0)] = 1.0
    staleness: Annotated[float, arg("initial sigma: exponent of 1 + age", ge=0)] = 0.5
    floor: Annotated[float, arg("initial iota: the constant part of xi")] = 0.0
    control_rate: Annotated[float, arg("learning rate of lambda, sigma and iota; 0 keeps them constant", ge=0)] = 0.1
    learning_rate: Annotated[float, arg("learning rate eta of the devices", key="learning.learning_rate", gt=0)] = 0.01

    def init(self, model: Vector, num_devices: int) -> Memory:
        """Return directions v_k [N d], slopes of alpha_k [N 3], lambda, sigma and iota of every device [N 3], and t = 0."""
        first = np.array([self.scale, self.staleness, self.floor])
        return {
            "direction": zeros_per_device("fedasmu", num_devices, len(model)),
            "slope": np.zeros((num_devices, 3)),
            "control": np.tile(first, (num_devices, 1)),
            "count": np.zeros((), np.int64),
        }

    def start(self, state: Memory, model: Vector, cohort: Cohort) -> _Mixed:
        """Begin with what was remembered."""
        after = {name: value.copy() for name, value in state.items()}
        after["count"] += 1
        return _Mixed(cohort, model.astype(np.float64), after, np.zeros(len(model)))

    def add(self, acc: _Mixed, rows: slice, starts: Vectors, updates: Vectors) -> _Mixed:
        """Learn from each update how much its device should count, then count it."""
        cohort, after, now = acc.cohort, acc.after, float(acc.after["count"])
        steps = np.ones(len(cohort.device)) if cohort.steps is None else cohort.steps
        columns = (
            cohort.device[rows].tolist(),
            cohort.weights[rows],
            cohort.age[rows] + 1.0,
            cohort.rates[rows],
            steps[rows],
        )
        for k, weight, age, rate, tau, start, update in zip(*columns, starts, updates, strict=True):
            exact, way = update.astype(np.float64), self.learning_rate * rate * tau
            if way > 0:
                downhill = float((exact * after["direction"][k]).sum()) / way
                after["control"][k] += self.control_rate * downhill * after["slope"][k]
                after["control"][k, 1] = max(after["control"][k, 1], 0.0)
            scale, staleness, floor = after["control"][k].tolist()
            aged = 1 / (np.sqrt(now) * age**staleness)
            xi = max(scale * aged + floor, 0.0)
            slope = weight * self.mu / (1 + self.mu * xi) ** 2 * (xi > 0)
            after["slope"][k] = slope * np.array([aged, -scale * aged * np.log(age), 1.0])
            direction = start + exact - acc.model
            after["direction"][k] = direction
            acc.step += weight * self.mu * xi / (1 + self.mu * xi) * direction
        return acc

    def finish(self, state: Memory, acc: _Mixed, model: Vector) -> tuple[Vector, Memory]:
        """Move towards the devices' models."""
        return (acc.model + acc.step).astype(model.dtype), acc.after
