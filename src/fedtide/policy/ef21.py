"""The server of EF21 (Richtarik, Sokolov and Fatkhullin 2021), for updates that codec.name=ef21 encoded.

    G' = G + (1/N) sum_k c_k      c_k = C(u_k - g_k), what arrived; so G = (1/N) sum over all N devices of g_k
    x' = x + rate G'

Every aggregation goes along the last known updates of all devices, those that did not upload included. Devices count alike:
weights would have to stay the same for ever, which those of arrivals do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide.core.arguments import arg
from fedtide.errors import FedtideError
from fedtide.types import Floats, Ints, Memory, Vector


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
                f"combiner='ef21' adds up how updates differ from the last ones, and codec.name={self.codec!r} sends updates: "
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
