"""MIFA: the last update of every device counts, whoever is there.

Gu, Huang, Zhang, Huang, Fast federated learning in the presence of arbitrary device unavailability (NeurIPS 2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedtide.core.arguments import arg
from fedtide.policy import cached
from fedtide.types import Floats, Ints, Memory, Vector


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
        return {"last": cached.nothing_yet(self.num_devices, len(model), "mifa")}

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
        return (model + self.server_rate * rate * cached.mean(memory["last"])).astype(model.dtype), memory
