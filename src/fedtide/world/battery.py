"""Devices that are there while their battery lasts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide import columns
from fedtide.core.arguments import arg
from fedtide.errors import FedtideError
from fedtide.types import Floats, Ints
from fedtide.world.intervals import repeating


@dataclass(frozen=True)
class Battery:
    """On until empty, for restart C / (drain - harvest), then off until recharged, for restart C / harvest, and so on.

    It is there for harvest/drain of the time, whatever it is asked to do meanwhile. Where in this cycle a device begins is
    drawn. Without harvest it begins with U(0, C) and empties for good after C/(2 drain) on average;
    with harvest >= drain it is always there.
    """

    capacity_joules: Annotated[float, arg("C", unit="J", gt=0)] = 40.0
    compute_watts: Annotated[float, arg("drain while it is on", unit="W", gt=0)] = 10.0
    harvest_watts: Annotated[float, arg("what it is charged with, on or off", unit="W", ge=0)] = 5.0
    restart: Annotated[float, arg("share of the capacity at which it is on again", gt=0, le=1)] = 1.0
    unit_seconds: Annotated[float, arg("how long a unit of time is", unit="s", gt=0)] = 1.0

    def __post_init__(self) -> None:
        if not self.always and not (math.isfinite(self._on) and self._on > 0):
            raise FedtideError(
                f"availability=battery: capacity_joules={self.capacity_joules:g} at compute_watts={self.compute_watts:g} lasts "
                f"{self._on:g}; give numbers of one size"
            )

    @property
    def always(self) -> bool:
        """Is it charged faster than it is drained?"""
        return self.harvest_watts >= self.compute_watts

    @property
    def _on(self) -> float:
        """How long it lasts from when it is on again."""
        share = self.restart if math.isfinite(self._off) else 1.0
        return share * self.capacity_joules / (self.compute_watts - self.harvest_watts) / self.unit_seconds

    @property
    def _off(self) -> float:
        """How long it takes to be on again."""
        filled = self.restart * self.capacity_joules / self.unit_seconds
        return filled / self.harvest_watts if self.harvest_watts > 1e-300 * filled else math.inf

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return when each is next there [m]."""
        if self.always:
            return time.copy()
        begun = columns.uniform(seed, "battery", device)
        if not math.isfinite(self._off):
            return np.where(time < (1 - begun) * self._on, time, np.inf)
        period = np.full(len(device), self._on + self._off)
        return repeating(time, -begun * period, np.full(len(device), self._on), period)
