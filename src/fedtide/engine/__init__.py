"""One aggregation, the simulator's loop, and the objects that an experiment becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtide.lazy import lazy_names

if TYPE_CHECKING:
    from fedtide.engine.step import candidates_at
    from fedtide.engine.system import System, build, durations
    from fedtide.engine.ticks import grant_at, planned

__all__ = ["System", "build", "candidates_at", "durations", "grant_at", "planned"]

__getattr__ = lazy_names(__name__, step="candidates_at", system="System build durations", ticks="grant_at planned")
