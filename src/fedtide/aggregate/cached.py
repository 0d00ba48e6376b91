"""Servers that keep an update or a control variate of every device: CA2FL, MIFA, EF21, SCAFFOLD."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from fedtide.aggregate import averages
from fedtide.aggregate.averages import weighted_sum
from fedtide.errors import FedtideError
from fedtide.parts.arguments import MOST_MEMORY, arg
from fedtide.types import Floats, Ints, Memory, Vector

# The last update of every device, for aggregators that remember it.


def nothing_yet(num_devices: int, num_parameters: int, aggregator: str) -> Vector:
    """Return an update of zero for every device [N d]; raise if that is more than a part may remember."""
    size = 4.0 * num_devices * num_parameters
    if size > MOST_MEMORY:
        raise FedtideError(
            f"policy.aggregator={aggregator} keeps the last update of every device, fleet.num_devices={num_devices:,} times "
            f"{num_parameters:,} parameters in float32: {size / 1e9:,.3g} GB, more than the {MOST_MEMORY / 1e9:g} GB that a "
            "part may remember; take fewer devices, a smaller model, or another aggregator"
        )
    return np.zeros((num_devices, num_parameters), np.float32)


def mean(kept: Vector) -> Floats:
    """Return the mean of all rows [d], one row after the other, so that the bits do not depend on the machine."""
    total = np.zeros(kept.shape[1])
    for row in kept:
        total += row
    return total / len(kept)


# CA2FL: the last update of every device stands in for those that are not in the buffer.
#
# Wang, Cao, Wu, Chen, Chen, Tackling the data heterogeneity in asynchronous federated learning with cached update
# calibration (ICLR 2024).


@dataclass(frozen=True)
class CachedCalibration:
    """CA2FL: theta(t+1) = theta(t) + eta v_t, v_t = h_t + sum_{k in S_t} w_k (Delta_k - h_k), h_t = sum_k h_k / N.

    Then h_k = Delta_k for k in S_t, the buffer; all h_k begin with 0. The paper has w_k = 1/|S_t|, policy.weighting=uniform.
    With everybody in the buffer (and these weights) h_t cancels, and it is FedBuff without its discount of stale updates; so
    it is as long as all h_k are equal, as in the first aggregation. Fresh updates alone do not make it FedBuff.
    """

    server_rate: Annotated[float, arg("eta: how far the server goes along v")] = 1.0
    num_devices: Annotated[int, arg("N", key="fleet.num_devices", ge=1, le=10**8)] = 1

    def init(self, model: Vector) -> Memory:
        """Return h_k = 0 for every device [N d]."""
        return {"cached": nothing_yet(self.num_devices, len(model), "ca2fl")}

    def __call__(
        self, memory: Memory, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints, device: Ints
    ) -> tuple[Vector, Memory]:
        """Add the mean of what is cached, corrected by what is new."""
        kept = memory["cached"]
        new = weighted_sum(weights, updates.astype(np.float64) - kept[device]) + mean(kept)
        kept[device] = updates
        return (model + self.server_rate * new).astype(model.dtype), memory


# MIFA: the last update of every device counts, whoever is there.
#
# Gu, Huang, Zhang, Huang, Fast federated learning in the presence of arbitrary device unavailability (NeurIPS 2021).


@dataclass(frozen=True)
class LastOfEveryone:
    """MIFA: theta(t+1) = theta(t) + eta alpha_t sum_k G_k / N, where G_k is the last update of device k over its learning rate.

    alpha_t is the devices' learning rate by now, relative to the first one (learning.schedule), and G_k = u_k / alpha of the
    model that device k began from: what was heard long ago counts by today's rate, as in the authors' code. G_k is 0 until
    device k was heard (the paper begins with an aggregation of all). Every device counts 1/N: policy.weighting has no say.
    """

    needs_rates: ClassVar[bool] = True

    server_rate: Annotated[float, arg("eta: how far the server goes along the mean")] = 1.0
    num_devices: Annotated[int, arg("N", key="fleet.num_devices", ge=1, le=10**8)] = 1

    def init(self, model: Vector) -> Memory:
        """Return G_k = 0 for every device [N d]."""
        return {"last": nothing_yet(self.num_devices, len(model), "mifa")}

    def __call__(
        self,
        memory: Memory,
        model: Vector,
        starts: Vector,
        updates: Vector,
        weights: Floats,
        age: Ints,
        device: Ints,
        rates: Floats | None = None,
        rate: float = 1.0,
    ) -> tuple[Vector, Memory]:
        """Replace the updates of those that were heard, and add the mean of all. rates: alpha of each [r]; rate: alpha_t."""
        memory["last"][device] = updates if rates is None else updates / rates[:, None]
        return (model + self.server_rate * rate * mean(memory["last"])).astype(model.dtype), memory


# The server of EF21 (Richtarik, Sokolov and Fatkhullin 2021), for updates that codec.name=ef21 encoded.
#
#     G' = G + (1/N) sum_k c_k      c_k = C(u_k - g_k), what arrived; so G = (1/N) sum over all N devices of g_k
#     x' = x + rate G'
#
# Every aggregation goes along the last known updates of all devices, those that did not upload included. Devices count
# alike: weights would have to stay the same for ever, which those of arrivals do not.


@dataclass(frozen=True)
class Ef21Sum:
    """Go along the mean of the last known updates of all devices; goes with codec.name=ef21.

    Memory: G [d] in float64, summed one device after the other.
    """

    num_devices: Annotated[int, arg("N", key="fleet.num_devices", ge=1, le=10**8)]
    codec: Annotated[str, arg("who sends the differences", key="codec.name")] = "ef21"
    rate: Annotated[float, arg("how far the server goes along the mean of all devices", gt=0)] = 1.0

    def __post_init__(self) -> None:
        if self.codec != "ef21" and ":" not in self.codec:
            raise FedtideError(
                f"aggregator='ef21' adds up how updates differ from the last ones, and codec.name={self.codec!r} sends updates: "
                "add codec.name=ef21"
            )

    def init(self, model: Vector) -> Memory:
        """Return G = 0."""
        return {"mean": np.zeros(len(model))}

    def __call__(
        self, memory: Memory, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints, device: Ints
    ) -> tuple[Vector, Memory]:
        """Add the differences to the mean, and the mean to the model."""
        mean = memory["mean"].copy()
        for each in updates:
            mean += each.astype(np.float64) / self.num_devices
        return (model + self.rate * mean).astype(np.float32), {"mean": mean}


# The server of SCAFFOLD (Karimireddy et al. 2020), for what learning.trainer=scaffold sends.
#
#     x' = x + eta_g mean of dy_k          over the devices S that arrived
#     c' = c + (|S| / N) mean of dc_k      so that c = (1/N) sum over all N devices of c_k, however few of them arrive
#
# What travels is both, one after the other: model (x, S c) and updates (dy_k, S dc_k), [2d]; S is the trainer's scale.


@dataclass(frozen=True)
class ControlVariates:
    """SCAFFOLD: x by the inner aggregator, c by the sum of the dc_k over N; goes with learning.trainer=scaffold.

    The paper's x is inner=average_deltas (its server_rate is eta_g) with policy.weighting=uniform; c takes no weights.
    """

    num_devices: Annotated[int, arg("N", key="fleet.num_devices", ge=1, le=10**8)]
    trainer: Annotated[str, arg("who sends control variates", key="learning.trainer")] = "scaffold"
    inner: Annotated[str, arg("the aggregator of the models, one of fedtide's own")] = "average_deltas"
    inner_args: Annotated[dict[str, Any] | None, arg("arguments of the inner aggregator")] = None

    def __post_init__(self) -> None:
        """Raise at once if the trainer sends no control variates, or the inner aggregator cannot be made."""
        if self.trainer != "scaffold" and ":" not in self.trainer:
            raise FedtideError(
                f"aggregator='scaffold' takes the second half of an update for a control variate, and learning.trainer="
                f"{self.trainer!r} sends none: add learning.trainer=scaffold"
            )
        object.__setattr__(self, "inner_args", averages.canonical_inner(self.inner_args))
        self._inner  # noqa: B018

    @functools.cached_property
    def _inner(self) -> Any:
        return averages.resolve_inner(self.inner, self.inner_args, self.num_devices, self)

    @property
    def needs_rates(self) -> bool:
        """Whether the inner aggregator is told learning rates."""
        return averages.needs_rates(self._inner)

    def init(self, model: Vector) -> Memory:
        """Return what the inner aggregator begins with."""
        return averages.init_inner(self._inner, model[: _half(model)])

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
        """Combine the models; add to c what the devices' own ones changed by."""
        half = _half(model)
        given = (model[:half], starts[:, :half], updates[:, :half], weights, age, device, *rates)
        new, own = averages.call_inner(self._inner, memory, *given)
        share = np.full(len(updates), 1 / self.num_devices)
        control = weighted_sum(share, updates[:, half:], model[half:])
        return np.concatenate([new, control]).astype(np.float32), own


def _half(model: Vector) -> int:
    return (len(model) + 1) // 2
