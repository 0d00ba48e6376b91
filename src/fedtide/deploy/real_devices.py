"""Real devices: nodes that are asked over Flower, and have until the deadline to answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fedtide.deploy import protocol
from fedtide.deploy.conversation import Conversation, ReceivedUpdate
from fedtide.deploy.seats import Seat
from fedtide.deploy.settings import Terms
from fedtide.engine.over_the_air import aircomp_sum, analog_packets
from fedtide.engine.step import SCALE_BITS, Delivered, ReadyDevices, ServerState, Uploads
from fedtide.engine.system import System
from fedtide.engine.ticks import is_lost, is_sending, link_at, snr_at
from fedtide.radio.over_the_air import separate
from fedtide.schedule.schedulers import make_candidates
from fedtide.types import Floats, Grant, Ints, Link, Tick


class _PeriodLinks(NamedTuple):
    """What is known when a period is planned."""

    seats: list[Seat]  # of the ready nodes, by device
    link: Link  # [m]
    wall: float  # seconds since the federation began


@dataclass
class Real:
    """The nodes of a federation. wait(seconds, is_done) lets time pass; `last` and `got` are of the period at hand."""

    talk: Conversation
    terms: Terms
    system: System
    wait: Callable[[float, Callable[[], bool]], None]
    prepare: Callable[[ServerState, Tick], ServerState]  # hands out the newest model, and waits until a period is over
    last: _PeriodLinks | None = None  # as it was planned
    got: dict[int, ReceivedUpdate] | None = None

    def ready(self, state: ServerState, tick: Tick) -> ReadyDevices:
        """Return the nodes that are ready and connected, with what they report."""
        wall, seats = self.talk.elapsed, self.talk.ready()
        orders = [seat.order for seat in seats if seat.order]
        rows = [seat.ready for seat in seats if seat.ready]
        device = np.array([seat.device for seat in seats], np.int64)
        found = self._links(seats, tick, device)
        counts = np.array([row.label_counts for row in rows], np.int64)
        needs = self.system.policy.needs
        table = make_candidates(
            self.terms.experiment.fleet.num_devices,
            tick.index,
            device,
            np.array([order.version for order in orders], np.int64),
            np.array([row.num_samples for row in rows], np.int64),
            counts.reshape(len(rows), self.system.dataset.num_labels),
            found.estimated_capacity,
            state.uploads,
            {name: np.array([getattr(row, name) for row in rows], np.float64) for name in needs},
        )
        return ReadyDevices(table, _PeriodLinks(seats, found, wall))

    def announce(self, state: ServerState, tick: Tick, ready: ReadyDevices, grant: Grant) -> Uploads:
        """Ask the picked nodes for their updates, and wait for them until the deadline."""
        kept: _PeriodLinks = ready.kept
        self.last = kept._replace(seats=[replace(seat) for seat in kept.seats])  # as they were when the plan was made
        sending = is_sending(self.system, kept.link, grant)
        picked, bits = grant.picked[sending], grant.bits[sending].tolist()
        self.talk.ask([kept.seats[each] for each in picked], bits, tick.index)
        self.wait(self.window, lambda: not self.talk.is_waiting)
        got = self.got = dict(self.talk.got)
        device = ready.rows.device[grant.picked]
        came = np.array([k in got for k in device.tolist()], np.bool_)
        if not separate(self.system.access):
            # Nodes cannot send at once; their packets can, over a simulated radio. Whoever missed the deadline was silent.
            lot, snr = device[came].tolist(), snr_at(kept.link, grant)[came]
            heard = aircomp_sum(self.system.access, self.terms.experiment.seed, tick.index, snr)
            analog = analog_packets(lot, [got[k].update for k in lot])
            return Uploads(grant.picked[came], [lot], {}, analog, heard, float(SCALE_BITS * len(lot)))
        sent = {device: each.packet for device, each in got.items()}
        # Over a simulated radio a packet is lost that its link does not carry, whatever the network did.
        came &= ~is_lost(kept.link, grant, [sent[k].bits if k in sent else 0 for k in device.tolist()])
        return Uploads(grant.picked[came], [device[came].tolist()], {}, sent)

    def send(self, state: ServerState, tick: Tick, lot: list[int]) -> Delivered:
        """Return what these nodes sent."""
        got = self.got or {}
        return Delivered([got[k].update for k in lot], {})

    @property
    def window(self) -> float:
        """Seconds that uploads may take."""
        return self.terms.deployment.deadline * self.terms.experiment.timeline.period

    def _links(self, seats: list[Seat], tick: Tick, device: Ints) -> Link:
        """Return the links of these seats [m]; what nodes report, and what was measured, is believed."""
        settings = self.terms.deployment
        if settings.capacity == "simulated":
            return link_at(self.system, tick._replace(ready=device))
        if settings.capacity == "reported":
            found: Floats = np.array([(seat.ready.capacity if seat.ready else None) or 0.0 for seat in seats])
        else:
            found = protocol.measured(self.system, self.talk.rate, self.window, settings.max_capacity)[device]
        return Link(found, found)
