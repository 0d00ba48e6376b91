"""One aggregation, the simulator's loop, and the objects that an experiment becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtide.lazy import lazy_names

if TYPE_CHECKING:
    from fedtide.engine.system import System, build, durations
    from fedtide.engine.ticks import candidates_at, grant_at, planned

__all__ = ["System", "build", "candidates_at", "durations", "grant_at", "planned"]

__getattr__ = lazy_names(__name__, system="System build durations", ticks="candidates_at grant_at planned")
