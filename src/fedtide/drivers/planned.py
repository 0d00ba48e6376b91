"""A run without its training: readiness, ages and channels never depend on the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fedtide.drivers.ticks import candidates_at, grant_at, is_lost, is_sending, link_at
from fedtide.system import System
from fedtide.types import Candidates, Grant, Memory, Tick


class Planned(NamedTuple):
    """One tick as the radio and the scheduler make it; grant is None while a scheduler waits for what devices report."""

    tick: Tick
    candidates: Candidates
    grant: Grant | None


def planned(system: System) -> Iterator[Planned]:
    """Plan every tick without training."""
    uploads = np.zeros(system.fleet.num_devices, np.int64)
    memory: Memory | None = None
    for tick in system.ticks:
        link = link_at(system, tick)
        rows = candidates_at(system, tick, uploads, link.believed)
        if system.policy.needs:
            yield Planned(tick, rows, None)
            continue
        grant = grant_at(system, tick, rows, memory)
        memory = grant.memory
        arrives = ~is_lost(link, grant) & is_sending(system, link, grant)
        uploads[rows.device[grant.picked[arrives]]] += 1
        yield Planned(tick, rows, grant)
