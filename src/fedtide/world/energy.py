"""What devices spend in energy.

An energy is a callable (seed, device [m], samples [m], symbols [m]) -> J [m]: what each of these devices spends on visiting so
many samples in training and sending so many symbols. It depends on its arguments alone. If its attribute `counted` is False,
nothing is known of energy, and nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np

from fedtide.core.arguments import arg
from fedtide.types import Floats, Ints
from fedtide.world.cmos import Cmos


class Energy(Protocol):
    """What devices spend in energy."""

    def __call__(self, seed: int, device: Ints, samples: Ints, symbols: Floats, /) -> Floats:
        """Return what each device spends on so many samples and symbols, in J [m]."""
        ...


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


def counted(energy: Energy) -> bool:
    """Say whether anything is known of energy."""
    return bool(getattr(energy, "counted", True))


ENERGIES: dict[str, Callable[..., Energy]] = {"per_unit": PerUnit, "cmos": Cmos}
