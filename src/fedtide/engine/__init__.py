"""One aggregation, the simulator's loop, and the objects that an experiment becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtide.lazy import lazy_names

if TYPE_CHECKING:
    from fedtide.engine.making import system_durations
    from fedtide.engine.step import step_candidates
    from fedtide.engine.system import System, build
    from fedtide.engine.ticks import grant_at_tick, planned

__all__ = ["System", "build", "grant_at_tick", "planned", "step_candidates", "system_durations"]

__getattr__ = lazy_names(
    __name__,
    making="system_durations",
    step="step_candidates",
    system="System build",
    ticks="grant_at_tick planned",
)
