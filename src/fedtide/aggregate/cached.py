"""Servers that keep the last update of every device: CA2FL and MIFA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide.aggregate.base import Cohort
from fedtide.errors import FedtideError
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
