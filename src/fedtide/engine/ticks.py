"""A run without its training: readiness, ages and channels never depend on the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fedtide.engine.step import (
    Bools,
    lost_in_step,
    plan_step,
    sending_in_step,
    step_candidates,
    step_carried_bits,
    step_links,
)
from fedtide.engine.system import System, parameter_count
from fedtide.rng import stream
from fedtide.types import Candidates, Grant, Memory, Tick


def grant_at_tick(system: System, tick: Tick, rows: Candidates, memory: Memory | None = None) -> Grant:
    """Schedule one tick and share its symbols."""
    rng = stream(system.experiment.seed, "schedule", tick.index)
    return plan_step(system.policy, rows, system.num_symbols, rng, system.allocation, memory)


class Planned(NamedTuple):
    """One tick as the radio and the scheduler make it; grant is None while a scheduler waits for what devices report."""

    tick: Tick
    candidates: Candidates
    grant: Grant | None
    lost: Bools | None = None  # whose packets will not arrive [r]; of a codec whose packets have no known size, may not


def planned_tick_bits(system: System, num_parameters: int, budgets: list[float]) -> list[int] | None:
    """Return what the codec will send under these budgets [r]; None if it depends on the updates."""
    if system.over_the_air:  # uncoded
        return [0] * len(budgets)
    ask: Any = getattr(system.codec, "planned_bits", None)
    if ask is None:
        return None
    answers = {bits: int(ask(num_parameters, bits)) for bits in dict.fromkeys(budgets)}  # equal bits are asked for once
    return [answers[bits] for bits in budgets]


def planned(system: System) -> Iterator[Planned]:
    """Plan every tick without training."""
    uploads = np.zeros(system.fleet.num_devices, np.int64)
    memory: Memory | None = None
    for tick in system.ticks:
        link = step_links(system, tick)
        rows = step_candidates(system, tick, uploads, link.estimated_capacity)
        if system.policy.needs:
            yield Planned(tick, rows, None)
            continue
        grant = grant_at_tick(system, tick, rows, memory)
        memory = grant.memory
        lost = grant.bits > step_carried_bits(link, grant)
        if lost.any() and (sent := planned_tick_bits(system, parameter_count(system), grant.bits.tolist())) is not None:
            lost = lost_in_step(link, grant, sent)
        uploads[rows.device[grant.picked[~lost & sending_in_step(system, link, grant)]]] += 1
        yield Planned(tick, rows, grant, lost)
