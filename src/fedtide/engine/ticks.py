"""A run without its training: readiness, ages and channels never depend on the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fedtide.engine import uplink
from fedtide.engine.admission import admit_grant
from fedtide.engine.reaction import Reaction
from fedtide.engine.step import (
    Bools,
    granted_rates,
    plan_step,
    sending_in_step,
    step_attempt,
    step_candidates,
    step_links,
)
from fedtide.engine.system import System, parameter_count
from fedtide.radio.retransmission import max_attempts
from fedtide.rng import stream
from fedtide.types import Candidates, Grant, Link, Memory, Tick


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
    silent: Bools | None = None  # who is too weak to be heard over the air, and sends nothing [r]
    again: Bools | None = None  # whose packets are kept to be sent again [r]; None: nobody's
    time: float = 0.0  # when the model is there
    resent: Bools | None = None  # whose packets were sent before [r]; None: nobody's
    waiting: tuple[Tick, Candidates] | None = None  # who is ready, if they are not those whose uploads are in


def planned(system: System) -> Iterator[Planned]:
    """Plan every tick without training; of a world that reacts to what only a training tells, the first one."""
    uploads, d = np.zeros(system.fleet.num_devices, np.int64), parameter_count(system)
    reaction = Reaction(system, d) if system.world else None
    kept = reaction.first_memory().get("retransmission") if reaction else None
    scheduled: Memory | None = None
    pending: Memory | None = None
    for tick in reaction.ticks() if reaction else system.ticks:
        link = step_links(system, tick)
        rows = step_candidates(system, tick, uploads, link)
        if system.policy.needs or (reaction and _needs_training(system, reaction, d)):
            yield Planned(tick, rows, None, time=tick.time)
            if reaction:
                return
            continue
        grant = grant_at_tick(system, tick, rows, scheduled)
        scheduled = grant.memory
        grant = uplink.resized_grant(system.retransmission, grant, rows.device[grant.picked], kept)
        if system.admits:
            grant = admit_grant(system, d, tick, rows, grant)
        link = uplink.interfered_link(link, grant, system.modem)
        time, used, waiting = tick.time, tick, None
        resent = None if kept is None else kept["attempts"][rows.device[grant.picked]] > 0
        if reaction and not system.waits:
            sends, seed = uplink.sending_part(grant), system.experiment.seed
            granted = uplink.granted_uploads(system.modem, seed, tick, link, sends)
            waiting = tick, rows
            pending, used, link, grant = uplink.exchange_pending(pending, tick, granted)
            rows = step_candidates(system, used, uploads, link)
            tried = _attempt(system, used, link, grant, d, kept)
            rate = granted.link.estimated_capacity
            time = reaction.settle_grant(tick, granted.device, granted.grant, rate, None, int(tried.lost.sum()))
        else:
            tried = _attempt(system, tick, link, grant, d, kept)
            if reaction:
                device, again = rows.device[grant.picked], rows.device[grant.picked[tried.again]]
                time = reaction.settle_grant(
                    tick, device, grant, granted_rates(rows, grant), again, int(tried.lost.sum())
                )
                kept = None if tried.memory is None else reaction.forgotten(tried.memory)
        silent = ~sending_in_step(system, link, grant)
        uploads[rows.device[grant.picked[~(tried.lost | silent)]]] += 1
        yield Planned(used, rows, grant, tried.lost, silent, tried.again, time, resent, waiting)


def _needs_training(system: System, reaction: Reaction, num_parameters: int) -> bool:
    """Say whether what happens next depends on a training: on progress, or on the sizes of packets that may be sent again."""
    unknown = uplink.planned_tick_bits(system, num_parameters, [1.0]) is None
    resends = max_attempts(system.retransmission) > 1
    return bool(getattr(reaction.world.timeline, "needs_progress", False)) or (resends and unknown)


def _attempt(
    system: System, tick: Tick, link: Link, grant: Grant, num_parameters: int, kept: Memory | None
) -> uplink.Attempt:
    """Send what is granted; where something is lost, as many bits as the codec says, if it does. Who cannot pay loses nothing."""
    sends = uplink.sending_part(grant)
    tried = step_attempt(system, tick, link, sends, sends.bits, kept)
    if tried.lost.any() and (sent := uplink.planned_tick_bits(system, num_parameters, sends.bits.tolist())) is not None:
        tried = step_attempt(system, tick, link, sends, np.array(sent), kept)
    if grant.silent is None:
        return tried
    lost, again = np.zeros((2, len(grant.picked)), np.bool_)
    lost[~grant.silent], again[~grant.silent] = tried.lost, tried.again
    return tried._replace(lost=lost, again=again)
