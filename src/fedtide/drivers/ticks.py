"""What is known of a tick before anything is trained: who is ready, over which links, and who is picked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fedtide.core.lasting import Column
from fedtide.policy.candidates import candidates
from fedtide.rng import stream
from fedtide.server.step import plan
from fedtide.system import System
from fedtide.types import Candidates, Floats, Grant, Ints, Link, Memory, Tick
from fedtide.world import access
from fedtide.world.estimation import snr_of

Bools = npt.NDArray[np.bool_]
SLACK = 1 + 1e-9  # what rounding may add to a product


def link_at(system: System, tick: Tick) -> Link:
    """Return the links of a tick's ready devices [m]."""
    found = system.channel(system.experiment.seed, tick.index, tick.time, tick.ready)
    return found if isinstance(found, Link) else Link(found, found)


def carried_bits(link: Link, grant: Grant) -> Floats:
    """Return what the links of the picked devices carry in their symbols [r]; infinity where no grant can exceed it."""
    believed, capacity = link.believed[grant.picked], link.capacity[grant.picked]
    return np.where(believed > capacity, grant.symbols * capacity * SLACK, np.inf)


def is_lost(link: Link, grant: Grant, sent_bits: npt.ArrayLike) -> Bools:
    """Say which packets of so many bits [r] do not arrive: their links carry less, having been believed better [r].

    A packet of a codec that ignores its budget (`ideal`) counts for no more than its grant.
    """
    return np.asarray(np.minimum(sent_bits, grant.bits) > carried_bits(link, grant))


def is_sending(system: System, link: Link, grant: Grant) -> Bools:
    """Say which of the picked devices send at all [r]: of those that send at once, the weak stay silent."""
    if access.separate(system.access):
        return np.ones(len(grant.picked), np.bool_)
    return access.sends(system.access, snr_at(link, grant))


def snr_at(link: Link, grant: Grant) -> Floats:
    """Return the SNR at which the picked devices are received at full power, a number [r]."""
    return snr_of(link.capacity[grant.picked])


def candidates_at(
    system: System,
    tick: Tick,
    uploads: Ints | Column,
    believed: Floats | None = None,
    reports: Mapping[str, Floats] | None = None,
) -> Candidates:
    """Return the ready devices of a tick over this tick's channel."""
    fleet, ready = system.fleet, tick.ready
    return candidates(
        fleet.num_devices,
        tick.index,
        ready,
        tick.start,
        fleet.num_samples[ready],
        fleet.label_counts[ready],
        link_at(system, tick).believed if believed is None else believed,
        uploads,
        reports,
    )


def grant_at(system: System, tick: Tick, rows: Candidates, memory: Memory | None = None) -> Grant:
    """Schedule one tick and share its symbols."""
    rng = stream(system.experiment.seed, "schedule", tick.index)
    return plan(system.policy, rows, system.num_symbols, rng, system.allocation, memory)


def learning_rates(system: System, start: Ints) -> Floats:
    """Return the learning rate of jobs that start from these versions [r]: set when the device receives the model."""
    return system.experiment.learning.learning_rate * system.relative_rates(start)
