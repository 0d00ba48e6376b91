"""The period loop of a real federation: the simulator's step, with nodes that are asked over Flower.

Every period: see who is ready, plan, ask the picked ones for their update, wait until the deadline, absorb what arrived,
save, and send the new model to every ready node. Nodes that still train are never interrupted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np

from fedtide import config
from fedtide.core.files import write_atomically
from fedtide.deploy import trace
from fedtide.deploy.conversation import Conversation, Mailbox, ReceivedUpdate, Seat
from fedtide.deploy.node import node_loader, remote_fleet
from fedtide.deploy.protocol import measured_capacity
from fedtide.deploy.settings import Terms, check_terms
from fedtide.deploy.trace import PartWithMemory, Period, ReadyRows, TraceHeader, trace_fingerprint, traced_candidates
from fedtide.engine.devices import aircomp_sum, analog_packets
from fedtide.engine.loop import Loop
from fedtide.engine.preflight import preflight_answers, preflight_own_parts
from fedtide.engine.step import (
    SCALE_BITS,
    Announced,
    Delivered,
    Info,
    ReadyDevices,
    ServerState,
    initial_state,
    lost_in_step,
    sending_in_step,
    step_learning_rates,
    step_links,
    step_snr,
)
from fedtide.engine.system import System, build, make_trainer, parameter_count
from fedtide.errors import FedtideError, RunFolderError
from fedtide.learning import native
from fedtide.radio.over_the_air import is_not_over_the_air
from fedtide.runs import Ledger, RoundRecord, RunFolder, is_complete
from fedtide.runs.record import record_costs
from fedtide.runs.result import Result
from fedtide.trackers import Trackers
from fedtide.types import Floats, Grant, Link, Tick, Vector

_log = logging.getLogger("fedtide.deploy")


class RealDevices:
    """The nodes of a federation. sleep waits for some seconds."""

    def __init__(self, talk: Conversation, terms: Terms, system: System, sleep: Callable[[float], None]) -> None:
        self._talk, self._terms, self._system, self._sleep = talk, terms, system, sleep
        self._period = terms.experiment.timeline.period
        self._due: float | None = None  # when the period at hand ends, in seconds since the beginning
        self._rows: ReadyRows  # of the period at hand
        self._got: dict[int, ReceivedUpdate] = {}  # in the period at hand, by device

    def wait_for_nodes(self) -> None:
        """Wait until enough nodes are connected."""
        wanted, patience = self._terms.deployment.min_nodes, self._terms.deployment.start_timeout
        until = self._talk.elapsed + patience
        while (found := self._talk.num_connected()) < wanted:
            if self._talk.elapsed >= until:
                raise FedtideError(
                    f"{found} nodes are connected after {patience:g} s and min_nodes={wanted}: start more SuperNodes"
                )
            self._sleep(self._terms.deployment.poll)

    def prepare(self, state: ServerState, tick: Tick) -> ServerState:
        """Send the newest model to those that work on nothing, and wait until the period is over."""
        rate = float(step_learning_rates(self._system, np.array([state.version]))[0])
        model, needs = state.models[state.version], self._system.policy.needs
        sent = self._talk.order_training(state.version, model, rate, needs)
        begun = self._talk.elapsed if self._due is None else self._due
        self._due = max(begun + self._period, self._talk.elapsed)
        self._wait_until(self._due, lambda: False)
        return state._replace(held=state.held.put(np.array(sent, np.int64), state.version))

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
        orders = [seat.order for seat in seats if seat.order]
        reports = [seat.ready for seat in seats if seat.ready]
        link = self._links(seats, tick)
        forgot = {kind: [row.device for row in reports if kind in row.forgot] for kind in get_args(PartWithMemory)}
        self._rows = ReadyRows(
            tick=tick.index,
            wall=wall,
            ready=[seat.device for seat in seats],
            start=[order.version for order in orders],
            node=[seat.node or 0 for seat in seats],
            data=[report.data for report in reports],
            isa=[report.isa for report in reports],
            ready_at=[seat.ready_at for seat in seats],
            learning_rate=[order.learning_rate for order in orders],
            num_samples=[report.num_samples for report in reports],
            label_counts=[report.label_counts for report in reports],
            capacity=link.estimated_capacity.tolist(),
            forgot={kind: devices for kind, devices in forgot.items() if devices} or None,
            **{name: [getattr(report, name) for report in reports] for name in self._system.policy.needs},
        )
        return ReadyDevices(traced_candidates(self._rows, self._system, state.uploads), link)

    def announce(self, state: ServerState, tick: Tick, ready: ReadyDevices, grant: Grant) -> Announced:
        """Ask the picked nodes for their updates, and wait for them until the deadline."""
        link: Link = ready.kept
        picked, sending = ready.rows.device[grant.picked], sending_in_step(self._system, link, grant)
        self._talk.ask(picked[sending].tolist(), grant.bits[sending].tolist(), tick.index)
        self._wait_until(self._talk.elapsed + self._window, lambda: not self._talk.awaits_uploads)
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
        came &= ~lost_in_step(link, grant, bits)
        return Announced(grant.picked[came], [picked[came].tolist()], {}, sent)

    def send(self, state: ServerState, tick: Tick, lot: list[int]) -> Delivered:
        """Return what these nodes sent."""
        return Delivered([self._got[device].update for device in lot], {})

    @property
    def _window(self) -> float:
        """Seconds that uploads may take."""
        return self._terms.deployment.deadline * self._period

    def _links(self, seats: list[Seat], tick: Tick) -> Link:
        """Return the links of these seats [m]; what nodes report, and what was measured, is believed."""
        settings, device = self._terms.deployment, np.array([seat.device for seat in seats], np.int64)
        if settings.capacity == "simulated":
            return step_links(self._system, tick._replace(ready=device))
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
        )


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
        on_round: Callable[[RoundRecord], None] | None = None,
    ) -> None:
        check_terms(terms)
        self._terms, self._folder, self._on_round = terms, folder, on_round
        dataset = node_loader(terms.deployment.loader)(terms.experiment, None)
        self._system = build(terms.experiment, dataset=dataset, fleet=remote_fleet(terms.experiment))
        self._trainer = make_trainer(self._system)  # for the first model and the scores
        num_parameters = parameter_count(self._system, self._trainer)
        preflight_own_parts(self._system, num_parameters)
        self._talk = Conversation(mailbox, terms, self._system.codec, num_parameters, dataset.num_labels, clock)
        self._devices = RealDevices(self._talk, terms, self._system, sleep)

    def run(self) -> Vector:
        """Run all periods that are left and return the final model."""
        experiment, ticks = self._terms.experiment, self._system.ticks
        folder = RunFolder.open(self._folder, experiment)
        watching = Trackers([part.entry for part in experiment.tracker], _log.warning)
        try:
            state, ledger, rounds, writer = self._load(folder)
            spend = record_costs(self._system, len(state.models[state.version]))
            watching.begin(experiment, self._folder, len(ticks))

            def save(record: RoundRecord, state: ServerState, info: Info) -> None:
                period = self._devices.trace_line(state, info)
                self._talk.close_period(period)
                writer.append(period)
                folder.append(record, state)
                folder.checkpoint()
                watching.round(record)
                if self._on_round:
                    self._on_round(record)

            left = ticks[state.version - 1 :]
            if left:
                self._devices.wait_for_nodes()
            sinks = [("records", save)]
            loop = Loop(self._system, self._trainer, self._devices, spend, state, ledger, rounds, sinks)
            model = loop.run(left)
            folder.finish(model)
            watching.end(Result(experiment, rounds, model, {}))
            return model
        finally:
            watching.end(None)
            folder.close()

    def _load(self, folder: RunFolder) -> tuple[ServerState, Ledger, list[RoundRecord], trace.Writer]:
        """Return the state to go on from; nothing of an unfinished period is kept.

        Everything is checked before anything is cut back.
        """
        experiment, settings = self._terms.experiment, self._terms.deployment.model_dump(mode="json")
        place, saved, before = self._folder, folder.load(), None
        if (place / trace.NAME).exists():
            before = trace.read_trace_history(place)
            count = len(before.trace.periods)
            if count and before.trace.header.deployment != settings:
                raise RunFolderError(f"{place} was begun with other deployment settings; restore them or start anew")
            if count > 1 and saved is None:
                raise RunFolderError(
                    f"{place} has {count} periods in {trace.NAME} but no checkpoint.npz to go on from; restore it or start in "
                    "a new folder"
                )
            if not is_complete(place):
                preflight_answers(place, self._system, trace.traced_answers(self._system, before), "in period")
        elif saved is not None:
            raise RunFolderError(
                f"{place} holds a run but no {trace.NAME}: it is a simulation's, or its trace was lost; choose another folder "
                "or restore the trace"
            )
        if saved is None or before is None:
            num_devices = experiment.fleet.num_devices
            header = TraceHeader(
                num_devices=num_devices,
                num_symbols=self._system.num_symbols,
                isa=native.native_isa(),
                deployment=settings,
                experiment=config.digest(experiment),
            )
            writer = trace.write_trace(place, trace.Trace(header, []))
            write_atomically(place / "deployment.json", self._terms.deployment.model_dump_json(indent=2).encode())
            return initial_state(self._trainer.initial_model(experiment.seed), num_devices), Ledger(), [], writer
        state, ledger, rounds = saved
        periods = before.trace.periods[: state.version - 1]
        self._talk.restore(periods)
        _log.info("continuing at period %d", state.version)
        return state, ledger, rounds, trace.write_trace(place, before.trace._replace(periods=periods))
