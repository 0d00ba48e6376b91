"""What is known of a tick before anything is trained: who is ready, over which links, and who is picked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedtide.core.versioned import VersionedArray
from fedtide.engine.step import plan_step
from fedtide.engine.system import System, parameter_count
from fedtide.radio import over_the_air
from fedtide.radio.modem import shannon_snr
from fedtide.radio.over_the_air import separate
from fedtide.rng import stream
from fedtide.types import Candidates, Floats, Grant, Ints, Link, Memory, Tick

# What is known of a tick before anything is trained: who is ready, over which links, and who is picked.


Bools = npt.NDArray[np.bool_]
_SLACK = 1 + 1e-9  # what rounding may add to a product


def link_at(system: System, tick: Tick) -> Link:
    """Return the links of a tick's ready devices [m]."""
    found = system.channel(system.experiment.seed, tick.index, tick.time, tick.ready)
    return found if isinstance(found, Link) else Link(found, found)


def carried_bits(link: Link, grant: Grant) -> Floats:
    """Return what the links of the picked devices carry in their symbols [r]; infinity where no grant can exceed it."""
    estimated, capacity = link.estimated_capacity[grant.picked], link.capacity[grant.picked]
    return np.where(estimated > capacity, grant.symbols * capacity * _SLACK, np.inf)


def is_lost(link: Link, grant: Grant, sent_bits: npt.ArrayLike) -> Bools:
    """Say which packets of so many bits [r] do not arrive: their links carry less, though the estimate was better [r].

    A packet of a codec that ignores its budget (`ideal`) counts for no more than its grant.
    """
    return np.asarray(np.minimum(sent_bits, grant.bits) > carried_bits(link, grant))


def is_sending(system: System, link: Link, grant: Grant) -> Bools:
    """Say which of the picked devices send at all [r]: of those that send at once, the weak stay silent."""
    if over_the_air.separate(system.access):
        return np.ones(len(grant.picked), np.bool_)
    return over_the_air.sends(system.access, snr_at(link, grant))


def snr_at(link: Link, grant: Grant) -> Floats:
    """Return the SNR at which the picked devices are received at full power, a number [r]."""
    return shannon_snr(link.capacity[grant.picked])


def candidates_at(
    system: System,
    tick: Tick,
    uploads: Ints | VersionedArray,
    estimated_capacity: Floats | None = None,
    reports: Mapping[str, Floats] | None = None,
) -> Candidates:
    """Return the ready devices of a tick over this tick's channel."""
    fleet, ready = system.fleet, tick.ready
    return Candidates(
        num_devices=fleet.num_devices,
        device=ready,
        num_samples=fleet.num_samples[ready],
        label_counts=fleet.label_counts[ready],
        age=tick.index - tick.start,  # a_k(t) = t - s_k(t) (eq:definition-alu)
        missed=tick.index - uploads[ready],
        capacity=link_at(system, tick).estimated_capacity if estimated_capacity is None else estimated_capacity,
        tick=tick.index,
        **(reports or {}),
    )


def grant_at(system: System, tick: Tick, rows: Candidates, memory: Memory | None = None) -> Grant:
    """Schedule one tick and share its symbols."""
    rng = stream(system.experiment.seed, "schedule", tick.index)
    return plan_step(system.policy, rows, system.num_symbols, rng, system.allocation, memory)


def learning_rates(system: System, start: Ints) -> Floats:
    """Return the learning rate of jobs that start from these versions [r]: set when the device receives the model."""
    return system.experiment.learning.learning_rate * system.relative_rates(start)


# A run without its training: readiness, ages and channels never depend on the model.


class Planned(NamedTuple):
    """One tick as the radio and the scheduler make it; grant is None while a scheduler waits for what devices report."""

    tick: Tick
    candidates: Candidates
    grant: Grant | None
    lost: Bools | None = None  # whose packets will not arrive [r]; of a codec whose packets have no known size, may not


def planned_bits(system: System, num_parameters: int, budgets: list[float]) -> list[int] | None:
    """Return what the codec will send under these budgets [r]; None if it depends on the updates."""
    if not separate(system.access):  # uncoded
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
        link = link_at(system, tick)
        rows = candidates_at(system, tick, uploads, link.estimated_capacity)
        if system.policy.needs:
            yield Planned(tick, rows, None)
            continue
        grant = grant_at(system, tick, rows, memory)
        memory = grant.memory
        lost = grant.bits > carried_bits(link, grant)
        if lost.any() and (sent := planned_bits(system, parameter_count(system), grant.bits.tolist())) is not None:
            lost = is_lost(link, grant, sent)
        uploads[rows.device[grant.picked[~lost & is_sending(system, link, grant)]]] += 1
        yield Planned(tick, rows, grant, lost)
