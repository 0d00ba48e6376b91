"""The period loop of a real federation: the simulator's step, with nodes that are asked over Flower.

Every period: see who is ready, plan, ask the picked ones for their update, wait until the deadline, absorb what arrived,
save, and send the new model to every ready node. Nodes that still train are never interrupted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np

from fedtide import config
from fedtide.core.files import write_atomically
from fedtide.deploy import trace
from fedtide.deploy.conversation import Conversation, Mailbox, ReceivedUpdate
from fedtide.deploy.node import loader, remote_fleet
from fedtide.deploy.protocol import measured_capacity
from fedtide.deploy.seats import Seat
from fedtide.deploy.settings import Terms, check_terms
from fedtide.deploy.trace import PartWithMemory, Period, TraceHeader, fingerprint
from fedtide.engine.loop import Loop
from fedtide.engine.over_the_air import aircomp_sum, analog_packets
from fedtide.engine.step import SCALE_BITS, Announced, Delivered, Info, ReadyDevices, ServerState, initial_state
from fedtide.engine.system import System, build, make_trainer, parameter_count
from fedtide.engine.ticks import is_lost, is_sending, learning_rates, link_at, snr_at
from fedtide.engine.verify_replay import check_answers, check_own_parts
from fedtide.errors import FedtideError
from fedtide.learning import native
from fedtide.learning.trainer import Trainer
from fedtide.radio.over_the_air import separate
from fedtide.runs import Ledger, RoundRecord, RunFolder, costs, is_complete
from fedtide.runs.result import Result
from fedtide.schedule.schedulers import make_candidates
from fedtide.trackers import Trackers
from fedtide.types import Floats, Grant, Ints, Link, Tick, Vector

_log = logging.getLogger("fedtide.deploy")


class _Planned(NamedTuple):
    """What is known when a period is planned."""

    seats: list[Seat]  # of the ready nodes, by device
    link: Link  # [m]
    wall: float  # seconds since the federation began


@dataclass
class RealDevices:
    """The nodes of a federation. wait(seconds, is_done) lets time pass; `planned` and `got` are of the period at hand."""

    talk: Conversation
    terms: Terms
    system: System
    wait: Callable[[float, Callable[[], bool]], None]
    prepare: Callable[[ServerState, Tick], ServerState]  # hands out the newest model, and waits until a period is over
    planned: _Planned | None = None
    got: Mapping[int, ReceivedUpdate] | None = None

    def ready(self, state: ServerState, tick: Tick) -> ReadyDevices:
        """Return the nodes that are ready and connected, with what they report."""
        wall, seats = self.talk.elapsed, self.talk.ready()
        orders = [seat.order for seat in seats if seat.order]
        rows = [seat.ready for seat in seats if seat.ready]
        device = np.array([seat.device for seat in seats], np.int64)
        link = self._links(seats, tick, device)
        table = make_candidates(
            self.terms.experiment.fleet.num_devices,
            tick.index,
            device,
            np.array([order.version for order in orders], np.int64),
            np.array([row.num_samples for row in rows], np.int64),
            np.array([row.label_counts for row in rows], np.int64).reshape(len(rows), self.system.dataset.num_labels),
            link.estimated_capacity,
            state.uploads,
            {name: np.array([getattr(row, name) for row in rows], np.float64) for name in self.system.policy.needs},
        )
        return ReadyDevices(table, _Planned(seats, link, wall))

    def announce(self, state: ServerState, tick: Tick, ready: ReadyDevices, grant: Grant) -> Announced:
        """Ask the picked nodes for their updates, and wait for them until the deadline."""
        planned: _Planned = ready.kept
        self.planned = planned._replace(seats=[replace(seat) for seat in planned.seats])  # as they are now
        sending = is_sending(self.system, planned.link, grant)
        self.talk.ask([planned.seats[row] for row in grant.picked[sending]], grant.bits[sending].tolist(), tick.index)
        self.wait(self.window, lambda: not self.talk.is_waiting)
        got = self.got = dict(self.talk.got)
        picked = ready.rows.device[grant.picked]
        came = np.array([device in got for device in picked.tolist()], np.bool_)
        if not separate(self.system.access):
            # Nodes cannot send at once, but their packets can be added over a simulated radio. Who was late was silent.
            lot, snr = picked[came].tolist(), snr_at(planned.link, grant)[came]
            heard = aircomp_sum(self.system.access, self.terms.experiment.seed, tick.index, snr)
            analog = analog_packets(lot, [got[device].update for device in lot])
            return Announced(grant.picked[came], [lot], {}, analog, heard, float(SCALE_BITS * len(lot)))
        sent = {device: each.packet for device, each in got.items()}
        # Over a simulated radio a packet is lost that its link does not carry, whatever the network did.
        bits = [sent[device].bits if device in sent else 0 for device in picked.tolist()]
        came &= ~is_lost(planned.link, grant, bits)
        return Announced(grant.picked[came], [picked[came].tolist()], {}, sent)

    def send(self, state: ServerState, tick: Tick, lot: list[int]) -> Delivered:
        """Return what these nodes sent."""
        got = self.got or {}
        return Delivered([got[device].update for device in lot], {})

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
            found = measured_capacity(self.system, self.talk.rate, self.window, settings.max_capacity)[device]
        return Link(found, found)

    def trace_line(self, state: ServerState, info: Info) -> Period:
        """Return the line of the trace: what the period leaves behind besides its record."""
        assert self.planned is not None  # it was planned
        assert self.got is not None
        rows, grant, seats = info.rows, info.grant, self.planned.seats
        orders = [seat.order for seat in seats if seat.order]
        reports = [seat.ready for seat in seats if seat.ready]
        arrived = rows.device[info.arrived].tolist()
        picked = rows.device[grant.picked].tolist()
        kinds = get_args(PartWithMemory)
        forgot = {kind: [row.device for row in reports if kind in row.forgot] for kind in kinds}
        return Period(
            tick=info.tick.index,
            wall=self.planned.wall,
            ready=rows.device.tolist(),
            start=[order.version for order in orders],
            node=[seat.node or 0 for seat in seats],
            data=[report.data for report in reports],
            isa=[report.isa for report in reports],
            ready_at=[seat.ready_at for seat in seats],
            learning_rate=[order.learning_rate for order in orders],
            num_samples=rows.num_samples.tolist(),
            label_counts=rows.label_counts.tolist(),
            capacity=rows.capacity.tolist(),
            update_sq_norm=None if rows.update_sq_norm is None else rows.update_sq_norm.tolist(),
            loss=None if rows.loss is None else rows.loss.tolist(),
            picked=picked,
            symbols=grant.symbols.tolist(),
            bits=grant.bits.tolist(),
            arrived=arrived,
            arrived_at=[self.got[device].at for device in arrived],
            lost=[device for device in picked if device in info.sent and device not in arrived] or None,
            forgot={kind: devices for kind, devices in forgot.items() if devices} or None,
            refused=self.talk.refusals,
            model=fingerprint(state.models[state.version]),
            nodes={str(device): node for device, node in self.talk.seats.nodes.items()},
            rate={str(device): rate for device, rate in self.talk.rate.items()},
        )


class Status(NamedTuple):
    """How far a federation is; handed to on_round."""

    record: RoundRecord
    period: Period
    total: int


class Coordinator:
    """Runs one federation to its end, from wherever its run folder stopped.

    clock returns seconds, sleep waits for some; tests give virtual ones. mailbox is Flower's grid.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        terms: Terms,
        folder: Path,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        on_round: Callable[[Status], None] | None = None,
    ) -> None:
        self._mailbox, self._terms, self._folder = mailbox, terms, folder
        self._clock, self._sleep, self._on_round = clock, sleep, on_round
        check_terms(terms)
        dataset = loader(terms.deployment.loader)(terms.experiment, None)
        self._system: System = build(terms.experiment, dataset=dataset, fleet=remote_fleet(terms.experiment))
        self._trainer: Trainer = make_trainer(self._system)  # for the first model and the scores
        num_parameters = parameter_count(self._system, self._trainer)
        check_own_parts(self._system, num_parameters)
        self._talk = Conversation(mailbox, terms, self._system.codec, num_parameters, dataset.num_labels, clock)
        self._devices = RealDevices(self._talk, terms, self._system, self._wait, self._prepare)
        self._due: float | None = None  # when the period at hand ends
        self._last_ready: Collection[int] = ()  # devices that were ready in the last period
        self._acknowledged: dict[int, int] = {}  # by device, the tick of its last upload that was aggregated
        self._trained: dict[int, int] = {}  # by device, the version of its last training that was a candidate

    def run(self) -> Vector:
        """Run all periods that are left and return the final model."""
        folder = RunFolder.open(self._folder, self._terms.experiment)
        watching = Trackers([part.entry for part in self._terms.experiment.tracker], _log.warning)
        try:
            state, ledger, rounds, writer = self._load(folder)
            spend = costs(self._system, len(state.models[state.version]))
            total = len(self._system.ticks)
            watching.begin(self._terms.experiment, self._folder, total)

            def save(record: RoundRecord, state: ServerState, info: Info) -> None:
                period = self._devices.trace_line(state, info)
                self._note(period)
                self._last_ready = period.ready
                self._talk.close_period()
                writer.append(period)
                folder.append(record, state)
                folder.checkpoint()
                watching.round(record)
                if self._on_round:
                    self._on_round(Status(record, period, total))

            left = self._system.ticks[state.version - 1 :]
            if left:
                self._wait_for_nodes()
            sinks = [("records", save)]
            loop = Loop(self._system, self._trainer, self._devices, spend, state, ledger, rounds, sinks)
            model = loop.run(left)
            folder.finish(model)
            watching.end(Result(self._terms.experiment, rounds, model, {}))
            return model
        finally:
            watching.end(None)
            folder.close()

    def _load(self, folder: RunFolder) -> tuple[ServerState, Ledger, list[RoundRecord], trace.Writer]:
        """Return the state to go on from; nothing of an unfinished period is kept.

        Everything is checked before anything is cut back.
        """
        experiment, settings = self._terms.experiment, self._terms.deployment.model_dump(mode="json")
        before = trace.read_begun(self._folder, settings)
        if before is not None and not is_complete(self._folder):
            check_answers(self._folder, self._system, trace.answered(self._system, before), "in period")
        saved, count = folder.load(), experiment.fleet.num_devices
        if saved is None or before is None:
            header = TraceHeader(
                num_devices=count,
                num_symbols=self._system.num_symbols,
                isa=native.isa(),
                deployment=settings,
                experiment=config.digest(experiment),
            )
            writer = trace.write_trace(self._folder, trace.Trace(header, []))
            text = self._terms.deployment.model_dump_json(indent=2)
            write_atomically(self._folder / "deployment.json", text.encode())
            return initial_state(self._trainer.initial_model(experiment.seed), count), Ledger(), [], writer
        state, ledger, rounds = saved
        periods = before.trace.periods[: state.version - 1]
        writer = trace.write_trace(self._folder, before.trace._replace(periods=periods))
        for period in periods:
            self._note(period)
        if periods:
            last = periods[-1]
            nodes = {int(device): node for device, node in last.nodes.items()}
            self._talk.restore(nodes, {int(device): rate for device, rate in last.rate.items()}, last.wall)
        _log.info("continuing at period %d", state.version)
        return state, ledger, rounds, writer

    def _wait_for_nodes(self) -> None:
        """Wait until enough nodes are connected."""
        wanted, patience = self._terms.deployment.min_nodes, self._terms.deployment.start_timeout
        until = self._clock() + patience
        while len(found := self._mailbox.nodes() or {}) < wanted:
            if self._clock() >= until:
                raise FedtideError(
                    f"{len(found)} nodes are connected after {patience:g} s and min_nodes={wanted}: start more SuperNodes"
                )
            self._sleep(self._terms.deployment.poll)

    def _wait(self, seconds: float, is_done: Callable[[], bool]) -> None:
        self._wait_until(self._clock() + seconds, is_done)

    def _wait_until(self, due: float, is_done: Callable[[], bool]) -> None:
        """Look at the mailbox now and then until it is time, or nothing is left to wait for."""
        while not is_done():
            self._talk.poll()
            left = due - self._clock()
            if left <= 0 or is_done():
                return
            self._sleep(min(left, self._terms.deployment.poll))

    def _prepare(self, state: ServerState, tick: Tick) -> ServerState:
        """Send the newest model to those that were ready and those that work on nothing; wait until the period is over."""
        rate = float(learning_rates(self._system, np.array([state.version]))[0])
        model, needs, ready = state.models[state.version], self._system.policy.needs, self._last_ready
        sent = self._talk.order_training(ready, state.version, model, rate, needs, self._acknowledged, self._trained)
        begun = self._clock() if self._due is None else self._due
        self._due = max(begun + self._terms.experiment.timeline.period, self._clock())
        self._wait_until(self._due, lambda: False)
        return state._replace(held=state.held.put(np.array(sent, np.int64), state.version))

    def _note(self, period: Period) -> None:
        """Note what the server has seen of its devices: their memory goes on from there."""
        self._acknowledged |= dict.fromkeys(period.arrived, period.tick)
        self._trained |= dict(zip(period.ready, period.start, strict=True))
