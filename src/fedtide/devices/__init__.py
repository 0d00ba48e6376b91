"""The devices, their clock and their uplink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtide.lazy import lazy_names

if TYPE_CHECKING:
    from fedtide.devices.availability import Always
    from fedtide.devices.duration import UniformDuration, first_duration
    from fedtide.devices.fleet import Fleet

__all__ = ["Always", "Fleet", "UniformDuration", "first_duration"]

__getattr__ = lazy_names(__name__, availability="Always", duration="UniformDuration first_duration", fleet="Fleet")
