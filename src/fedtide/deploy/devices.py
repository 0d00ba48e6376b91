"""The nodes of a federation as the devices of a run: the simulator's step, with nodes that are asked over Flower.

Every period: see who is ready, plan, ask the picked ones for their update, wait until the deadline, absorb what arrived,
save, and send the new model to every ready node. Nodes that still train are never interrupted. Where the timeline or the fleet
react, a period lasts until the timeline says so: it is asked about the nodes as it is about simulated devices.

No step waits for a node, a connection or the disk, except for uploads until their deadline. A periodic server acts at its start
plus whole periods. If it is late, it acts at once, and uploads get less time, but at least half of what they may take; if
more than a whole period has passed, what it missed is left out. So lateness never adds up.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, get_args

import numpy as np

from fedtide.deploy.conversation import Conversation, ReceivedUpdate, Seat
from fedtide.deploy.protocol import capped_counts, measured_capacity
from fedtide.deploy.saver import Saver
from fedtide.deploy.settings import Terms
from fedtide.deploy.trace import PartWithMemory, Period, ReadyRows, Timing, trace_fingerprint, traced_candidates
from fedtide.engine.devices import aircomp_sum, analog_packets
from fedtide.engine.exchange import Announced, Delivered, ReadyDevices
from fedtide.engine.loop import Stopwatch, progress_of
from fedtide.engine.step import (
    SCALE_BITS,
    Info,
    ServerState,
    hold_versions,
    sending_in_step,
    step_attempt,
    step_learning_rates,
    step_links,
    step_snr,
)
from fedtide.engine.system import System
from fedtide.errors import FedtideError
from fedtide.radio.over_the_air import is_not_over_the_air
from fedtide.runs import RoundRecord
from fedtide.runs.record import Scores
from fedtide.timeline.clock import RecordedTimes
from fedtide.timeline.world import AWAY, FINISHED, GONE, IDLE, WORKING, Sends, World
from fedtide.types import Floats, Grant, Link, Tick

_log = logging.getLogger("fedtide.deploy")

_SHORTEST_SLEEP: Final = 1e-3  # seconds; what rounding leaves of a time may not be enough for a clock to go on


class RealDevices:
    """The nodes of a federation. saver: what saves its periods. sleep waits for some seconds."""

    def __init__(
        self, talk: Conversation, terms: Terms, system: System, saver: Saver, sleep: Callable[[float], None]
    ) -> None:
        self._talk, self._terms, self._system, self._saver, self._sleep = talk, terms, system, saver, sleep
        self._period = terms.experiment.timeline.period
        self.world = system.world() if system.world else None  # the nodes as a timeline that reacts sees them
        self._num_samples: dict[int, int] = {}  # by device, as reported
        self._tick: Tick  # the period at hand
        self._due: float | None = None  # when the server should act next or has acted, in seconds since the beginning
        self._watch = Stopwatch(lambda: talk.elapsed)  # what was done since the server last acted
        self._skipped = 0  # times that were left out before that
        self._timing: Timing | None = None  # of the period at hand
        self._rows: ReadyRows  # of the period at hand
        self._got: dict[int, ReceivedUpdate] = {}  # in the period at hand, by device

    def wait_for_nodes(self) -> None:
        """Wait until enough nodes are connected."""
        wanted, patience = self._terms.deployment.min_nodes, self._terms.deployment.start_timeout
        begun = self._talk.elapsed
        until = begun + patience
        while (found := self._talk.num_connected()) < wanted:
            if self._talk.elapsed >= until:
                raise FedtideError(
                    f"{found} nodes are connected after {patience:g} s and min_nodes={wanted}: start more SuperNodes"
                )
            self._sleep(self._terms.deployment.poll)
        if self.world is not None:
            self._talk.pass_over(self._talk.elapsed - begun)

    def prepare(self, state: ServerState, tick: Tick) -> ServerState | None:
        """Send the newest model to those that work on nothing, and wait until the period is over."""
        if self.world is not None:
            return self._wait_for_devices(state, self.world)
        sent = self._order(state)
        self._watch.lap("idle" if self._due is None else "work")
        begun = self._talk.elapsed
        self._due = (begun if self._due is None else self._due) + self._period
        self._wait_until(self._due, lambda: False)
        self._watch.lap("idle")
        now = self._talk.elapsed
        self._watch.seconds["overslept"] = max(0.0, now - max(self._due, begun))
        self._skipped = max(math.floor((now - self._due) / self._period), 0)
        self._due += self._skipped * self._period
        return state._replace(held=state.held.put(np.array(sent, np.int64), state.version))

    def _order(self, state: ServerState, devices: Sequence[int] | None = None) -> list[int]:
        """Send the newest model to those that work on nothing, or to these of them; return who could be sent it."""
        rate = float(step_learning_rates(self._system, np.array([state.version]))[0])
        model, needs = state.models[state.version], self._system.policy.needs
        return self._talk.order_training(state.version, model, rate, needs, devices)

    def _wait_for_devices(self, state: ServerState, world: World) -> ServerState | None:
        """Hand out models and look at the nodes until the timeline says that it is time; None: the horizon comes first."""
        settings, horizon = self._terms.deployment, self._terms.experiment.timeline.horizon
        latest = world.last + (settings.longest_wait or math.inf)
        if world.tick and not world.num_picked:
            # Or a full buffer of which nothing is picked would be counted as fast as the machine can.
            self._sleep(settings.poll)
            self._talk.poll()
        while True:
            now = self._talk.elapsed
            act = min(self._observe(world, now), max(latest, now))
            if act <= now:
                break
            if now >= horizon:
                break
            if len(chosen := world.choose()):
                world.handed(np.array(self._order(state, chosen.tolist()), np.int64))
            self._sleep(max(min(act, horizon, now + settings.poll) - now, _SHORTEST_SLEEP))
            self._talk.poll()
            if act <= self._talk.elapsed:  # whatever has come since
                break
        if act > horizon * (1 + 1e-12):
            self._check_end(world)
            return None
        held = [seat.order.version if seat.order else state.version for seat in self._talk.seats]
        return hold_versions(state, np.array(held, np.int64))

    def _check_end(self, world: World) -> None:
        """Raise if the horizon has come and nothing has happened."""
        if not world.tick:
            keys = self._terms.experiment.timeline
            raise FedtideError(
                f"timeline.name={keys.name} has not acted before timeline.horizon={keys.horizon:g} s, and "
                f"{len(world.finished)} updates wait: lengthen the horizon, lower what it waits for, or limit that (longest_wait)"
            )

    def _observe(self, world: World, now: float) -> float:
        """Show the world what nodes do now; return when the server acts if nothing happens before."""
        self._talk.look_around()
        seats = self._talk.seats
        told = [seat for seat in seats if seat.ready]
        sizes = map(sum, self._counts(told))
        self._num_samples |= {seat.device: size for seat, size in zip(told, sizes, strict=True)}
        usual = round(np.mean(list(self._num_samples.values()) or [1]))  # of those that have reported nothing yet
        world.num_samples = np.array([self._num_samples.get(seat.device, usual) for seat in seats], np.int64)
        return world.observe(
            now,
            np.array([self._phase(seat) for seat in seats], np.int8),
            np.array([seat.ready_at for seat in seats]),
            np.array([seat.order.version if seat.order else world.tick + 1 for seat in seats], np.int64),
        )

    def _phase(self, seat: Seat) -> int:
        """Return what the node of a seat is doing."""
        if not self._talk.is_here(seat):
            return GONE
        if seat.order is None:
            return IDLE if self._talk.is_idle(seat) else AWAY
        return FINISHED if seat.ready else WORKING

    def resume(self, state: ServerState, rounds: Sequence[RoundRecord], periods: Sequence[Period]) -> None:
        """Go on after these records. What nodes did for another process is not awaited."""
        for period in periods:
            self._num_samples |= dict(zip(period.ready, period.num_samples, strict=True))
        if self.world is not None:
            for record in rounds:
                self._append_time(record.time)
                scores = Scores(record.test_accuracy, record.test_loss, record.train_loss)
                self.told(progress_of(scores, record.metrics))
            self.world.restore(state.memory["world"])

    def _append_time(self, done: float) -> None:
        times = self._system.model_timestamps
        assert isinstance(times, RecordedTimes)
        times.append(done)

    def held(self, state: ServerState) -> ServerState:
        """Return the state as it is: who holds what is known when the time has passed."""
        return state

    def settle(self, state: ServerState, info: Info) -> tuple[ServerState, Info]:
        """Note what became of an aggregation; its model is there now."""
        assert self.world is not None
        world, done = self.world, self._talk.elapsed
        tick = self._tick._replace(num_receivers=world.num_receivers)
        picked = info.rows.device[info.grant.picked]
        world.settle(picked, done, Sends(num_lost=len(picked) - len(info.arrived)))
        self._append_time(done)
        return state._replace(memory={**state.memory, "world": world.state()}), info._replace(tick=tick, done=done)

    def told(self, progress: Mapping[str, float]) -> None:
        """Note what the last aggregation was found to be worth, by name."""
        if self.world is not None:
            self.world.progress = progress

    def _wait_until(self, due: float, is_done: Callable[[], bool]) -> None:
        """Look at the mailbox now and then until it is time, or nothing is left to wait for."""
        while not is_done():
            self._talk.poll()
            left = due - self._talk.elapsed
            if left <= 0 or is_done():
                return
            self._sleep(min(left, self._terms.deployment.poll))

    def ready(self, state: ServerState, tick: Tick) -> ReadyDevices:
        """Return the nodes that are ready and connected, with what they report."""
        wall, seats = self._talk.elapsed, self._talk.ready()
        self._timing = self._time_taken(wall, tick.index)
        orders = [seat.order for seat in seats if seat.order]
        reports = [seat.ready for seat in seats if seat.ready]
        device, start = (
            np.array([getattr(order, name) for order in orders], np.int64) for name in ("device", "version")
        )
        fresh = np.array([order.version > seat.trained for order, seat in zip(orders, seats, strict=True)], np.bool_)
        self._tick = tick = Tick(tick.index, tick.time, device, start)
        if self.world is not None:
            self._tick = tick = tick._replace(time=wall, fresh=fresh)
        link, counts = self._links(seats, tick), self._counts(seats)
        new = list(itertools.compress(reports, fresh))
        forgot = {kind: [row.device for row in new if kind in row.forgot] for kind in get_args(PartWithMemory)}
        self._rows = ReadyRows(
            tick=tick.index,
            wall=wall,
            ready=device.tolist(),
            start=start.tolist(),
            node=[seat.node or 0 for seat in seats],
            data=[report.data for report in reports],
            isa=[report.isa for report in reports],
            ready_at=[seat.ready_at for seat in seats],
            learning_rate=[order.learning_rate for order in orders],
            num_samples=[sum(row) for row in counts],
            label_counts=counts,
            capacity=link.estimated_capacity.tolist(),
            forgot={kind: devices for kind, devices in forgot.items() if devices} or None,
            **{name: [getattr(report, name) for report in reports] for name in self._system.policy.needs},
        )
        simulated = link if self._terms.deployment.capacity == "simulated" else None
        return ReadyDevices(traced_candidates(self._rows, self._system, state.uploads, simulated), link)

    def announce(self, state: ServerState, tick: Tick, ready: ReadyDevices, grant: Grant) -> Announced:
        """Ask the picked nodes for their updates, and wait for them until the deadline."""
        assert ready.link is not None
        link, tick = ready.link, self._tick
        picked, sending = ready.rows.device[grant.picked], sending_in_step(self._system, link, grant)
        self._talk.ask(picked[sending].tolist(), grant.bits[sending].tolist(), tick.index)
        now = self._talk.elapsed
        until = now + self._window if self._due is None else max(self._due + self._window, now + self._window / 2)
        self._watch.lap("work")
        self._wait_until(until, lambda: not self._talk.awaits_uploads)
        self._watch.lap("uploads")
        got = self._got = self._talk.got
        came = np.array([device in got for device in picked.tolist()], np.bool_)
        if not is_not_over_the_air(self._system.access):
            # Nodes cannot send at once, but their packets can be added over a simulated radio. Who was late was silent.
            lot, snr = picked[came].tolist(), step_snr(link, grant)[came]
            heard = aircomp_sum(self._system.access, self._terms.experiment.seed, tick.index, snr)
            analog = analog_packets(lot, [got[device].update for device in lot])
            return Announced(grant.picked[came], [lot], {}, analog, heard, float(SCALE_BITS * len(lot)))
        sent = {device: each.packet for device, each in got.items()}
        # Over a simulated radio a packet is lost that its link does not carry, whatever the network did.
        bits = [sent[device].bits if device in sent else 0 for device in picked.tolist()]
        came &= ~step_attempt(self._system, tick, link, grant, np.array(bits, np.float64)).lost
        return Announced(grant.picked[came], [picked[came].tolist()], {}, sent)

    def send(self, state: ServerState, tick: Tick, lot: list[int]) -> Delivered:
        """Return what these nodes sent."""
        return Delivered([self._got[device].update for device in lot], {})

    def _time_taken(self, wall: float, index: int) -> Timing | None:
        """Return how late the server acts, and why; None where nothing says when it should act. Begins to count anew."""
        self._watch.lap("work")
        spent, self._watch.seconds = self._watch.seconds, {}
        if self._due is None:
            return None
        timing = Timing(
            late=max(0.0, wall - self._due),
            skipped=self._skipped,
            uploads=spent.get("uploads", 0.0),
            work=spent.get("work", 0.0),
            overslept=spent.get("overslept", 0.0),
            disk=self._saver.seconds,
            unsaved=self._saver.num_waiting,
            silent=self._talk.silent,
        )
        (_log.warning if timing.why else _log.info)("period %d: %s", index, timing)
        return timing

    @property
    def _window(self) -> float:
        """Seconds that uploads may take."""
        return self._terms.deployment.deadline * self._period

    def _counts(self, seats: list[Seat]) -> list[list[int]]:
        """Return how many samples of each label these nodes have [m c], as far as they are believed."""
        of_all = [sum(seat.counts) for seat in self._talk.seats if seat.counts]
        return capped_counts([seat.counts or [] for seat in seats], of_all, self._terms.deployment.max_samples_ratio)

    def _links(self, seats: list[Seat], tick: Tick) -> Link:
        """Return the links of these seats [m]; what nodes report, and what was measured, is believed."""
        settings, device = self._terms.deployment, np.array([seat.device for seat in seats], np.int64)
        if settings.capacity == "simulated":
            return step_links(self._system, tick)
        if settings.capacity == "reported":
            found: Floats = np.array([(seat.ready.capacity if seat.ready else None) or 0.0 for seat in seats])
        else:
            found = measured_capacity(self._system, self._talk.rate, self._window, settings.max_capacity)[device]
        return Link(found, found)

    def trace_line(self, state: ServerState, info: Info) -> Period:
        """Return the line of the trace: what the period leaves behind besides its record."""
        rows, grant = info.rows, info.grant
        arrived, picked = rows.device[info.arrived].tolist(), rows.device[grant.picked].tolist()
        return Period(
            **dict(self._rows),
            picked=picked,
            symbols=grant.symbols.tolist(),
            bits=grant.bits.tolist(),
            arrived=arrived,
            arrived_at=[self._got[device].at for device in arrived],
            lost=[device for device in picked if device in info.sent and device not in arrived] or None,
            refused=self._talk.refusals,
            model=trace_fingerprint(state.models[state.version]),
            nodes={str(seat.device): seat.node for seat in self._talk.seats if seat.node is not None},
            rate={str(device): rate for device, rate in self._talk.rate.items()},
            timing=self._timing,
            enrolled=self._talk.enrolled or None,
            banned=self._talk.banned or None,
            done=info.done,
            receivers=info.tick.num_receivers,
        )
