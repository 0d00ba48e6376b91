"""When the server acts, and with which devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtide.lazy import lazy_names

if TYPE_CHECKING:
    from fedtide.timeline.clock import make_clock, start_times
    from fedtide.timeline.timelines import PerArrival, Periodic, Synchronous

__all__ = ["PerArrival", "Periodic", "Synchronous", "make_clock", "start_times"]

__getattr__ = lazy_names(__name__, clock="make_clock start_times", timelines="PerArrival Periodic Synchronous")
