"""Devices that are there at the same hours every day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide import columns
from fedtide.core.arguments import arg
from fedtide.errors import FedtideError
from fedtide.types import Floats, Ints
from fedtide.world.intervals import repeating


@dataclass(frozen=True)
class Daily:
    """There from `begin` to `end` every day, say while phones charge at night; time 0 is midnight.

    Each device's hours are its own, drawn once: both ends are moved by U(-jitter, jitter), and its midnight comes U(0, zones)
    later. On average a device is there for ((end - begin) mod day) / day of the time.
    """

    day: Annotated[float, arg("how long a day is", unit="units of time", gt=0)] = 24.0
    begin: Annotated[float, arg("when devices come, after midnight", unit="units of time", ge=0)] = 22.0
    end: Annotated[
        float, arg("when they leave, after midnight; before begin: the next day", unit="units of time", ge=0)
    ] = 6.0
    jitter: Annotated[float, arg("by how much both may differ from device to device", unit="units of time", ge=0)] = 1.0
    zones: Annotated[float, arg("over how much time the devices' midnights are spread", unit="units of time", ge=0)] = (
        0.0
    )

    def __post_init__(self) -> None:
        for name in ("begin", "end"):
            if getattr(self, name) > self.day:
                raise FedtideError(
                    f"availability=daily: {name}={getattr(self, name):g} lies beyond day={self.day:g}; give a time of the day"
                )
        if not 0 < self._stay < self.day:
            raise FedtideError(
                f"availability=daily: from begin={self.begin:g} to end={self.end:g} is all day or none of it; move one of "
                "them, or choose availability=always"
            )
        if self.jitter and 2 * self.jitter >= min(self._stay, self.day - self._stay):
            raise FedtideError(
                f"availability=daily: jitter={self.jitter:g} could swallow the stay of {self._stay:g} or the rest of the day; "
                f"keep it below {min(self._stay, self.day - self._stay) / 2:g}"
            )

    @property
    def _stay(self) -> float:
        return (self.end - self.begin) % self.day

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return when each is next there [m]."""
        start, stay = np.full(len(device), self.begin), np.full(len(device), self._stay)
        if self.jitter:
            early, late = (self.jitter * (2 * columns.uniform(seed, "daily", device, draw=i) - 1) for i in (0, 1))
            start, stay = start + early, stay + (late - early)
        if self.zones:
            start = start + self.zones * columns.uniform(seed, "daily", device, draw=2)
        return repeating(time, start, stay, np.full(len(device), self.day))
