"""Servers that keep something of every device: CA2FL and MIFA its last update, EF21 and SCAFFOLD their sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from fedtide.aggregate.base import Around, Average, Cohort, Sums
from fedtide.errors import FedtideError
from fedtide.methods import pack, unpack
from fedtide.parts.arguments import MOST_MEMORY, arg
from fedtide.types import Floats, Memory, Vector, Vectors


def _zeros(num_devices: int, num_parameters: int, aggregator: str) -> Vector:
    """Return an update of zero for every device [N d]; raise if that is more than a part may remember."""
    size = 4.0 * num_devices * num_parameters
    if size > MOST_MEMORY:
        raise FedtideError(
            f"policy.aggregator={aggregator} keeps the last update of every device, fleet.num_devices={num_devices:,} times "
            f"{num_parameters:,} parameters in float32: {size / 1e9:,.3g} GB, more than the {MOST_MEMORY / 1e9:g} GB that a "
            "part may remember; take fewer devices, a smaller model, or another aggregator"
        )
    return np.zeros((num_devices, num_parameters), np.float32)


def _mean(kept: Vector) -> Floats:
    """Return the mean of all rows [d], one row after the other, so that the bits do not depend on the machine."""
    total = np.zeros(kept.shape[1])
    for row in kept:
        total += row
    return total / len(kept)


@dataclass
class _Kept:
    """What is kept of every device, and a sum over the cohort."""

    cohort: Cohort
    kept: Vector  # [N d]
    total: Floats  # [d]


@dataclass(frozen=True)
class CachedCalibration:
    """CA2FL: theta(t+1) = theta(t) + eta v_t, v_t = h_t + sum_{k in S_t} w_k (Delta_k - h_k), h_t = sum_k h_k / N.

    Then h_k = Delta_k for k in S_t, the buffer; all h_k begin with 0. The paper has w_k = 1/|S_t|, policy.weighting=uniform.
    With everybody in the buffer (and these weights) h_t cancels, and it is FedBuff without its discount of stale updates; so
    it is as long as all h_k are equal, as in the first aggregation. Fresh updates alone do not make it FedBuff.

    Wang, Cao, Wu, Chen, Chen, Tackling the data heterogeneity in asynchronous federated learning with cached update
    calibration (ICLR 2024).
    """

    server_rate: Annotated[float, arg("eta: how far the server goes along v")] = 1.0

    def init(self, model: Vector, num_devices: int) -> Memory:
        """Return h_k = 0 for every device [N d]."""
        return {"cached": _zeros(num_devices, len(model), "ca2fl")}

    def start(self, state: Memory, model: Vector, cohort: Cohort) -> _Kept:
        """Sum from 0."""
        return _Kept(cohort, state["cached"].copy(), np.zeros(len(model)))

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
class LastOfEveryone:
    """MIFA: theta(t+1) = theta(t) + eta alpha_t sum_k G_k / N, where G_k is the last update of device k over its learning rate.

    alpha_t is the devices' learning rate by now, relative to the first one (learning.schedule), and G_k = u_k / alpha of the
    model that device k began from: what was heard long ago counts by today's rate, as in the authors' code. G_k is 0 until
    device k was heard (the paper begins with an aggregation of all). Every device counts 1/N: policy.weighting has no say.

    Gu, Huang, Zhang, Huang, Fast federated learning in the presence of arbitrary device unavailability (NeurIPS 2021).
    """

    server_rate: Annotated[float, arg("eta: how far the server goes along the mean")] = 1.0

    def init(self, model: Vector, num_devices: int) -> Memory:
        """Return G_k = 0 for every device [N d]."""
        return {"last": _zeros(num_devices, len(model), "mifa")}

    def start(self, state: Memory, model: Vector, cohort: Cohort) -> _Kept:
        """Begin with the last update of everyone."""
        return _Kept(cohort, state["last"].copy(), np.zeros(0))

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
class Ef21Sum:
    """EF21: G' = G + (1/N) sum_k c_k, x' = x + rate G'; c_k = C(u_k - g_k) is what codec.name=ef21 sends.

    So G = (1/N) sum over all N devices of g_k: every aggregation goes along the last known updates of all devices, those that
    did not upload included. Devices count alike: weights would have to stay the same for ever, which those of arrivals do not.
    Memory: G [d] in float64, summed one device after the other.

    Richtarik, Sokolov, Fatkhullin, EF21: a new, simpler, theoretically better, and practically faster error feedback (2021).
    """

    method: ClassVar[str] = "ef21"
    rate: Annotated[float, arg("how far the server goes along the mean of all devices", gt=0)] = 1.0

    def init(self, model: Vector, num_devices: int) -> Memory:
        """Return G = 0."""
        return {"mean": np.zeros(len(model))}

    def start(self, state: Memory, model: Vector, cohort: Cohort) -> _Kept:
        """Begin with G."""
        return _Kept(cohort, np.zeros((0, 0), np.float32), state["mean"].copy())

    def add(self, acc: _Kept, rows: slice, starts: Vectors, updates: Vectors) -> _Kept:
        """Add the differences to the mean."""
        for update in updates:
            acc.total += update.astype(np.float64) / acc.cohort.num_devices
        return acc

    def finish(self, state: Memory, acc: _Kept, model: Vector) -> tuple[Vector, Memory]:
        """Add the mean to the model."""
        return (model + self.rate * acc.total).astype(np.float32), {"mean": acc.total}


@dataclass(frozen=True)
class ControlVariates(Around):
    """SCAFFOLD: x by the inner aggregator, c' = c + (1/N) sum_k dc_k over those that arrived; for learning.trainer=scaffold.

    So c = (1/N) sum over all N devices of c_k, however few of them arrive. The paper's x is inner=average_deltas (its
    server_rate is eta_g) with policy.weighting=uniform; c takes no weights. What travels is laid out in learning/scaffold.py.
    """

    method: ClassVar[str] = "scaffold"
    inner: Annotated[str, arg("the aggregator of the models, one of fedtide's own")] = "average_deltas"
    inner_args: Annotated[dict[str, Any] | None, arg("arguments of the inner aggregator")] = None

    def init(self, model: Vector, num_devices: int) -> Memory:
        """Return what the inner aggregator begins with."""
        return self.init_inner(unpack(model).model, num_devices)

    def start(self, state: Memory, model: Vector, cohort: Cohort) -> tuple[Any, Sums]:
        """Start the inner aggregator, and a sum from c."""
        payload, share = unpack(model), np.full(len(cohort.device), 1 / cohort.num_devices)
        return self.start_inner(state, payload.model, cohort), Sums(cohort, share, payload.control.astype(np.float64))

    def add(self, acc: tuple[Any, Sums], rows: slice, starts: Vectors, updates: Vectors) -> tuple[Any, Sums]:
        """Give the models to the inner aggregator; add to c what the devices' own ones changed by."""
        models, changes = [unpack(start).model for start in starts], [unpack(update) for update in updates]
        inner = self._inner.add(acc[0], rows, models, [change.model for change in changes])
        return inner, Average().add(acc[1], rows, models, [change.control for change in changes])

    def finish(self, state: Memory, acc: tuple[Any, Sums], model: Vector) -> tuple[Vector, Memory]:
        """Return both."""
        new, own = self.finish_inner(state, acc[0], unpack(model).model)
        return pack(new, acc[1].updates), own
