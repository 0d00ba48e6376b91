"""Energy of a CPU and a transmitter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide.core.arguments import arg
from fedtide.errors import FedtideError
from fedtide.types import Floats, Ints
from fedtide.world.frequency import check_frequencies, frequencies


@dataclass(frozen=True)
class Cmos:
    """J = kappa c n f_k^2 + P m / B: n samples of c cycles each at kappa f_k^2 a cycle, m symbols at power P and rate B.

    Tran et al., "Federated Learning over Wireless Networks: Optimization Model Design and Analysis", INFOCOM 2019; Yang et
    al., "Energy Efficient Federated Learning over Wireless Communication Networks", IEEE TWC 2021. f_k is that of
    duration=cycles.
    """

    kappa: Annotated[float, arg("effective capacitance of the chip", unit="J s^2 per cycle^3", ge=0)] = 1e-28
    cycles_per_sample: Annotated[float, arg("c", unit="cycles", ge=0, key="fleet.cycles_per_sample")] = 1e7
    min_frequency: Annotated[float, arg("f_k at least", unit="cycles/s", gt=0, key="fleet.min_frequency")] = 1e9
    max_frequency: Annotated[float, arg("f_k at most", unit="cycles/s", gt=0, key="fleet.max_frequency")] = 1e9
    power_watts: Annotated[float, arg("P of sending; 0: not counted", unit="W", ge=0)] = 0.0
    symbol_rate: Annotated[float, arg("B, symbols per unit of time", ge=0, key="radio.symbol_rate")] = 0.0
    unit_seconds: Annotated[float, arg("how long a unit of time is", unit="s", gt=0)] = 1.0

    def __post_init__(self) -> None:
        check_frequencies("energy=cmos", self.min_frequency, self.max_frequency)
        if self.power_watts > 0 and not self.symbol_rate > 0:
            raise FedtideError(
                f"energy=cmos: power_watts={self.power_watts:g} for how long? radio.symbol_rate={self.symbol_rate:g} does not "
                "say what a symbol takes; set it to the bandwidth, in symbols per unit of time"
            )

    def __call__(self, seed: int, device: Ints, samples: Ints, symbols: Floats) -> Floats:
        """Return the sum of computing and sending in J [m]."""
        speed = frequencies(seed, device, self.min_frequency, self.max_frequency)
        computed = self.kappa * self.cycles_per_sample * samples * speed**2
        if not self.power_watts:
            return computed
        return np.asarray(computed + self.power_watts * self.unit_seconds / self.symbol_rate * symbols)
