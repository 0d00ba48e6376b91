"""The table of ready devices that a scheduler sees."""

from __future__ import annotations

from fedtide.types import Candidates, Floats, Ints, Tick
from fedtide.world.fleet import Fleet


def candidates(fleet: Fleet, tick: Tick, capacity: Floats, uploads: Ints) -> Candidates:
    """Collect the rows of the devices ready at this tick; capacity and uploads so far are of the whole fleet [N]."""
    ready = tick.ready
    return Candidates(
        num_devices=fleet.num_devices,
        device=ready,
        num_samples=fleet.num_samples[ready],
        label_counts=fleet.label_counts[ready],
        age=tick.index - tick.start,  # a_k(t) = t - s_k(t) (eq:definition-alu)
        missed=tick.index - uploads[ready],
        capacity=capacity[ready],
        tick=tick.index,
    )
