"""The server of SCAFFOLD (Karimireddy et al. 2020), for what learning.trainer=scaffold sends.

    x' = x + eta_g mean of dy_k          over the devices S that arrived
    c' = c + (|S| / N) mean of dc_k      so that c = (1/N) sum over all N devices of c_k, however few of them arrive

What travels is both, one after the other: model (x, S c) and updates (dy_k, S dc_k), [2d]; S is the trainer's scale.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from fedtide.core.arguments import arg
from fedtide.errors import FedtideError
from fedtide.policy import inner
from fedtide.policy.combining import weighted_sum
from fedtide.types import Floats, Ints, Memory, Vector


@dataclass(frozen=True)
class ControlVariates:
    """SCAFFOLD: x by the inner combiner, c by the sum of the dc_k over N; goes with learning.trainer=scaffold.

    The paper's x is inner=average_deltas (its server_rate is eta_g) with policy.weighting=uniform; c takes no weights.
    """

    num_devices: Annotated[int, arg("N", key="fleet.num_devices", ge=1, le=10**8)]
    trainer: Annotated[str, arg("who sends control variates", key="learning.trainer")] = "scaffold"
    inner: Annotated[str, arg("the combiner of the models, one of fedtide's own")] = "average_deltas"
    inner_args: Annotated[dict[str, Any] | None, arg("arguments of the inner combiner")] = None

    def __post_init__(self) -> None:
        """Raise at once if the trainer sends no control variates, or the inner combiner cannot be made."""
        if self.trainer != "scaffold" and ":" not in self.trainer:
            raise FedtideError(
                f"combiner='scaffold' takes the second half of an update for a control variate, and learning.trainer="
                f"{self.trainer!r} sends none: add learning.trainer=scaffold"
            )
        object.__setattr__(self, "inner_args", inner.ordered(self.inner_args))
        self._inner  # noqa: B018

    @functools.cached_property
    def _inner(self) -> Any:
        return inner.made(self.inner, self.inner_args, self.num_devices, self)

    @property
    def needs_rates(self) -> bool:
        """Whether the inner combiner is told learning rates."""
        return inner.needs_rates(self._inner)

    def init(self, model: Vector) -> Memory:
        """Return what the inner combiner begins with."""
        return inner.first(self._inner, model[: _half(model)])

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
        new, own = inner.asked(self._inner, memory, *given)
        share = np.full(len(updates), 1 / self.num_devices)
        control = weighted_sum(share, updates[:, half:], model[half:])
        return np.concatenate([new, control]).astype(np.float32), own


def _half(model: Vector) -> int:
    return (len(model) + 1) // 2
