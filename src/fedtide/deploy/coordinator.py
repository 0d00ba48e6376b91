"""The period loop of a real federation: the simulator's step, with real devices."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedtide import config
from fedtide.deploy import trace
from fedtide.deploy.conversation import Conversation, Mailbox
from fedtide.deploy.history import answered, is_begun
from fedtide.deploy.node import elsewhere, loader
from fedtide.deploy.real_devices import Real
from fedtide.deploy.settings import Terms, check_deployable_trainer, check_radio, check_timeline
from fedtide.deploy.trace import REMEMBERING, Period, Refusal, TraceHeader, fingerprint
from fedtide.engine.loop import Loop
from fedtide.engine.purity import PurityCheck
from fedtide.engine.step import Info, ServerState, initial_state
from fedtide.engine.system import System, build, make_trainer, parameter_count
from fedtide.engine.ticks import learning_rates
from fedtide.engine.verify_replay import check_answers
from fedtide.errors import FedtideError
from fedtide.learning import native
from fedtide.learning.trainer import Trainer
from fedtide.runs import Ledger, RoundRecord, RunFolder, costs, is_complete, write_atomically
from fedtide.runs.result import Result
from fedtide.trackers import Trackers
from fedtide.types import Tick, Vector

if TYPE_CHECKING:
    from fedtide.deploy.conversation import ReceivedUpdate
    from fedtide.deploy.seats import Seat


# What one period of a federation leaves behind besides its record: a line of the trace.


def trace_period(
    info: Info,
    seats: Sequence[Seat],
    got: Mapping[int, ReceivedUpdate],
    refused: Sequence[Refusal],
    wall: float,
    model: str,
    nodes: Mapping[int, int],
    rate: Mapping[int, float],
) -> Period:
    """Return the line of the trace. seats: as they were when the plan was made [m]; got: updates by device."""
    rows, grant = info.rows, info.grant
    orders = [seat.order for seat in seats if seat.order]
    reports = [seat.ready for seat in seats if seat.ready]
    came = rows.device[info.arrived].tolist()
    picked = rows.device[grant.picked].tolist()
    return Period(
        tick=info.tick.index,
        wall=wall,
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
        picked=picked,
        symbols=grant.symbols.tolist(),
        bits=grant.bits.tolist(),
        arrived=came,
        arrived_at=[got[device].at for device in came],
        refused=list(refused),
        model=model,
        nodes={str(device): node for device, node in nodes.items()},
        rate={str(device): each for device, each in rate.items()},
        loss=None if rows.loss is None else rows.loss.tolist(),
        lost=[device for device in picked if device in info.sent and device not in came] or None,
        forgot=_forgot(seats) or None,
    )


def _forgot(seats: Sequence[Seat]) -> dict[str, list[int]]:
    """Return which devices lost their memory, by kind of part."""
    found = {kind: [seat.device for seat in seats if seat.ready and kind in seat.ready.forgot] for kind in REMEMBERING}
    return {kind: devices for kind, devices in found.items() if devices}


# The period loop of a real federation: the simulator's step, with real devices.
#
# Every period: see who is ready, plan, ask the picked ones for their update, wait until the deadline, absorb what arrived,
# save, and send the new model to every ready node. Nodes that still train are never interrupted.


_log = logging.getLogger("fedtide.deploy")


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
        experiment = terms.experiment
        check_timeline(experiment)
        check_deployable_trainer(experiment)
        check_radio(terms)
        dataset = loader(terms.deployment.loader)(experiment, None)
        self._witness = PurityCheck(build(experiment, dataset=dataset, fleet=elsewhere(experiment)))
        self._system: System = self._witness.system
        self._trainer: Trainer = make_trainer(self._system)  # for the first model and the scores
        num_parameters = parameter_count(self._system, self._trainer)
        self._talk = Conversation(mailbox, terms, self._system.codec, num_parameters, dataset.num_labels, clock)
        self._devices = Real(self._talk, terms, self._system, self._wait, self._prepare)
        self._due: float | None = None  # when the period at hand ends
        self._handed: Container[int] = ()  # devices that were ready in the last period
        self._acknowledged: dict[int, int] = {}  # by device, the tick of its last upload that was aggregated
        self._trained: dict[int, int] = {}  # by device, the version of its last training that was a candidate

    def run(self) -> Vector:
        """Run all periods that are left and return the final model."""
        folder = RunFolder.open(self._folder, self._terms.experiment)
        folder.keeps_state = self._witness.keeps_state
        watching = Trackers(self._terms.experiment.tracker, _log.warning)
        try:
            state, ledger, rounds, writer = self._load(folder)
            spend = costs(self._system, len(state.models[state.version]), folder.counts_all)
            total = len(self._system.ticks)
            watching.begin(self._terms.experiment, self._folder, total)

            def save(record: RoundRecord, state: ServerState, info: Info) -> None:
                period = self._close_period(state, info)
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
        settings = self._terms.deployment.model_dump(mode="json")
        before = is_begun(self._folder, settings)
        if before is not None and not is_complete(self._folder):
            check_answers(self._folder, self._witness, answered(self._system, before), "in period")
        saved, count = folder.load(), self._terms.experiment.fleet.num_devices
        if saved is None or before is None:
            digest = config.digest(self._terms.experiment)
            header = TraceHeader(trace.TRACE_FORMAT, count, self._system.num_symbols, native.isa(), settings, digest)
            writer = trace.begin_trace(self._folder, header)
            text = self._terms.deployment.model_dump_json(indent=2)
            write_atomically(self._folder / "deployment.json", text.encode())
            return initial_state(self._trainer.initial_model(self._terms.experiment.seed), count), Ledger(), [], writer
        state, ledger, rounds = saved
        periods = before.trace.periods[: state.version - 1]
        writer = trace.write_trace(self._folder, before.trace._replace(periods=periods))
        if periods:
            last = periods[-1]
            nodes = {int(device): node for device, node in last.nodes.items()}
            for each in periods:
                self._note(each)
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
        """Send the newest model to those that were ready and to those that work on nothing; wait until the period is over."""
        rate = float(learning_rates(self._system, np.array([state.version]))[0])
        model, needs = state.models[state.version], self._system.policy.needs
        sent = self._talk.order_training(
            self._handed, state.version, model, rate, needs, self._acknowledged, self._trained
        )
        begun = self._clock() if self._due is None else self._due
        self._due = max(begun + self._terms.experiment.timeline.period, self._clock())
        self._wait_until(self._due, lambda: False)
        return state._replace(held=state.held.put(np.array(sent, np.int64), state.version))

    def _close_period(self, state: ServerState, info: Info) -> Period:
        """Return the period's line of the trace, and forget what it gathered."""
        talk, planned = self._talk, self._devices.last
        assert planned is not None  # it was planned
        model = fingerprint(state.models[state.version])
        got, refused = self._devices.got or {}, talk.refusals
        period = trace_period(info, planned.seats, got, refused, planned.wall, model, talk.seats.nodes, talk.rate)
        self._note(period)
        self._handed = period.ready
        talk.close_period()
        return period

    def _note(self, period: Period) -> None:
        """Note what the server has seen of its devices: their memory goes on from there."""
        self._acknowledged |= dict.fromkeys(period.arrived, period.tick)
        self._trained |= dict(zip(period.ready, period.start, strict=True))
