"""What devices spend in energy.

An energy is a callable (seed, device [m], samples [m], symbols [m]) -> J [m]: what each of these devices spends on visiting so
many samples in training and sending so many symbols. It depends on its arguments alone. If its attribute `counted` is False,
nothing is known of energy, and nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np

from fedtide.devices.duration import MaxFrequency, MinFrequency, check_duration_frequencies, duration_frequencies
from fedtide.errors import FedtideError
from fedtide.parts.arguments import arg
from fedtide.types import Floats, Ints

Energy: TypeAlias = Callable[[int, Ints, Ints, Floats], Floats]


@dataclass(frozen=True)
class PerUnit:
    """So much per symbol and so much per sample, the same for every device."""

    joules_per_symbol: Annotated[float, arg("of sending one", unit="J", ge=0, key="radio.joules_per_symbol")] = 0.0
    joules_per_sample: Annotated[float, arg("of visiting one", unit="J", ge=0, key="fleet.joules_per_sample")] = 0.0

    @property
    def counted(self) -> bool:
        """Is any of them given?"""
        return self.joules_per_symbol > 0 or self.joules_per_sample > 0

    def __call__(self, seed: int, device: Ints, samples: Ints, symbols: Floats) -> Floats:
        """Return the sum of both in J [m]."""
        return np.asarray(self.joules_per_symbol * symbols + self.joules_per_sample * samples)


def energy_is_counted(energy: Energy) -> bool:
    """Say whether anything is known of energy."""
    return bool(getattr(energy, "counted", True))


@dataclass(frozen=True)
class Cmos:
    """J = kappa c n f_k^2 + P m / B: n samples of c cycles each at kappa f_k^2 a cycle, m symbols at power P and rate B.

    Tran et al., "Federated Learning over Wireless Networks: Optimization Model Design and Analysis", INFOCOM 2019; Yang et
    al., "Energy Efficient Federated Learning over Wireless Communication Networks", IEEE TWC 2021. f_k is that of
    duration=cycles.
    """

    kappa: Annotated[float, arg("effective capacitance of the chip", unit="J s^2 per cycle^3", ge=0)] = 1e-28
    cycles_per_sample: Annotated[float, arg("c", unit="cycles", ge=0, key="fleet.cycles_per_sample")] = 1e7
    min_frequency: MinFrequency = 1e9
    max_frequency: MaxFrequency = 1e9
    power_watts: Annotated[float, arg("P of sending; 0: not counted", unit="W", ge=0)] = 0.0
    symbol_rate: Annotated[float, arg("B, symbols per unit of time", ge=0, key="radio.symbol_rate")] = 0.0
    unit_seconds: Annotated[float, arg("how long a unit of time is", unit="s", gt=0)] = 1.0

    def __post_init__(self) -> None:
        check_duration_frequencies("energy=cmos", self.min_frequency, self.max_frequency)
        if self.power_watts > 0 and not self.symbol_rate > 0:
            raise FedtideError(
                f"energy=cmos: power_watts={self.power_watts:g} for how long? radio.symbol_rate={self.symbol_rate:g} does not "
                "say what a symbol takes; set it to the bandwidth, in symbols per unit of time"
            )

    def __call__(self, seed: int, device: Ints, samples: Ints, symbols: Floats) -> Floats:
        """Return the sum of computing and sending in J [m]."""
        speed = duration_frequencies(seed, device, self.min_frequency, self.max_frequency)
        computed = self.kappa * self.cycles_per_sample * samples * speed**2
        if not self.power_watts:
            return computed
        return np.asarray(computed + self.power_watts * self.unit_seconds / self.symbol_rate * symbols)


ENERGIES: dict[str, Callable[..., Energy]] = {"per_unit": PerUnit, "cmos": Cmos}
