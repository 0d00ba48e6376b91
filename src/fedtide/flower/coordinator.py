"""The period loop of a real federation: the simulator's plan and absorb, with real devices in between.

Every period: see who is ready, plan, ask the picked ones for their update, wait until the deadline, absorb what arrived,
save, and send the new model to every ready node. Nodes that still train are never interrupted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedtide import config
from fedtide.drivers.again import check_answers
from fedtide.drivers.simulate import learning_rates
from fedtide.drivers.witness import Witness
from fedtide.errors import FedtideError
from fedtide.flower import link, trace
from fedtide.flower.exchange import Exchange
from fedtide.flower.history import answered, begun
from fedtide.flower.journal import Aggregation, round_record, trace_period
from fedtide.flower.loaders import bare_system, loader
from fedtide.flower.mailbox import Mailbox
from fedtide.flower.seats import Seat
from fedtide.flower.settings import Terms
from fedtide.flower.trace import Header, Period, fingerprint
from fedtide.learning import native
from fedtide.learning.trainer import Trainer
from fedtide.records import Ledger, RoundRecord, RunFolder, is_complete, write_atomically
from fedtide.rng import stream
from fedtide.server.step import Arrived, ServerState, absorb, begin, plan
from fedtide.system import System, make_trainer, parameter_count
from fedtide.types import Candidates, Floats, Ints, Tick, Vector

log = logging.getLogger("fedtide.flower")


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
        dataset = loader(terms.deployment.loader)(experiment, None)
        bare = bare_system(experiment, dataset.test.images.shape[1:], dataset.num_labels)
        self._trainer: Trainer = make_trainer(bare)  # for the first model and the scores
        self._witness = Witness(bare._replace(dataset=dataset))
        self._system: System = self._witness.system
        self._num_parameters = parameter_count(bare, self._trainer)
        self._exchange = Exchange(mailbox, terms, self._system, self._num_parameters, clock)

    def run(self) -> Vector:
        """Run all periods that are left and return the final model."""
        folder = RunFolder.open(self._folder, self._terms.experiment)
        folder.keeps_state = self._witness.keeps_state
        try:
            state, ledger, writer = self._load(folder)
            left = self._system.ticks[state.version - 1 :]
            if left:
                self._wait_for_nodes()
                state = self._hand_out(state, ())
            due = self._clock()
            for tick in left:
                due = max(due + self._terms.experiment.timeline.period, self._clock())
                self._wait_until(due, lambda: False)
                state, record, period = self._aggregate(state, ledger, tick)
                ledger = record.ledger
                writer.append(period)
                folder.append(record, state)
                folder.checkpoint()
                if self._on_round:
                    self._on_round(Status(record, period, len(self._system.ticks)))
                if tick is not left[-1]:
                    state = self._hand_out(state, period.ready)
            model = state.models[state.version]
            folder.finish(model)
            return model
        finally:
            folder.close()

    def _load(self, folder: RunFolder) -> tuple[ServerState, Ledger, trace.Writer]:
        """Return the state to go on from; nothing of an unfinished period is kept.

        Everything is checked before anything is cut back.
        """
        settings = self._terms.deployment.model_dump(mode="json")
        before = begun(self._folder, settings)
        if before is not None and not is_complete(self._folder):
            check_answers(self._folder, self._witness, answered(self._system, before), "in period")
        saved, count = folder.load(), self._terms.experiment.fleet.num_devices
        if saved is None or before is None:
            digest = config.digest(self._terms.experiment)
            header = Header(trace.FORMAT, count, self._system.num_symbols, native.isa(), settings, digest)
            writer = trace.begin(self._folder, header)
            text = self._terms.deployment.model_dump_json(indent=2)
            write_atomically(self._folder / "deployment.json", text.encode())
            return begin(self._trainer.initial_model(self._terms.experiment.seed), count), Ledger(), writer
        state, ledger, _ = saved
        periods = before.trace.periods[: state.version - 1]
        writer = trace.write(self._folder, before.trace._replace(periods=periods))
        if periods:
            last = periods[-1]
            nodes = {int(device): node for device, node in last.nodes.items()}
            self._exchange.restore(nodes, {int(device): rate for device, rate in last.rate.items()}, last.wall)
        log.info("continuing at period %d", state.version)
        return state, ledger, writer

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

    def _wait_until(self, due: float, is_done: Callable[[], bool]) -> None:
        """Look at the mailbox now and then until it is time, or nothing is left to wait for."""
        while not is_done():
            self._exchange.poll()
            left = due - self._clock()
            if left <= 0 or is_done():
                return
            self._sleep(min(left, self._terms.deployment.poll))

    def _hand_out(self, state: ServerState, ready: Container[int]) -> ServerState:
        """Send the newest model to the ready devices and to those that work on nothing."""
        rate = float(learning_rates(self._system, np.array([state.version]))[0])
        sent = self._exchange.order_training(
            ready, state.version, state.models[state.version], rate, self._system.policy.needs_update_norm
        )
        held = state.held.copy()
        held[sent] = state.version
        return state._replace(held=held)

    def _aggregate(self, state: ServerState, ledger: Ledger, tick: Tick) -> tuple[ServerState, RoundRecord, Period]:
        """One period: plan, ask, wait, absorb."""
        exchange, wall = self._exchange, self._exchange.elapsed
        seats = exchange.ready()
        rows = self._rows(seats, tick.index, state.uploads)
        rng = stream(self._terms.experiment.seed, "schedule", tick.index)
        grant = plan(self._system.policy, rows, self._system.num_symbols, rng)
        planned = [replace(seat) for seat in seats]  # as it was when the plan was made
        exchange.ask([seats[position] for position in grant.picked], grant.bits.tolist(), tick.index)
        self._wait_until(self._clock() + self._window, lambda: not exchange.is_waiting)
        came = [position for position in grant.picked.tolist() if seats[position].device in exchange.got]
        device = rows.device[came]
        updates = [exchange.got[k].update for k in device.tolist()]
        arrived = Arrived(device, tick.index - rows.age[came], rows.num_samples[came])
        state, weights = absorb(
            state,
            self._system.policy,
            rows.device,
            arrived,
            np.array(updates, np.float32).reshape(-1, self._num_parameters),
        )
        weight = dict(zip(device.tolist(), weights.tolist(), strict=True))
        result = Aggregation(tick.index, rows, grant, exchange.got, weight)
        record = round_record(self._system, self._trainer, state, ledger, result, tick.time)
        period = trace_period(result, planned, exchange.refusals, wall, fingerprint(state.models[state.version]))
        period = period._replace(
            nodes={str(k): node for k, node in exchange.seats.nodes.items()},
            rate={str(k): rate for k, rate in exchange.rate.items()},
        )
        exchange.close_period()
        return state, record, period

    def _rows(self, seats: list[Seat], tick: int, uploads: Ints) -> Candidates:
        """Return what the scheduler sees."""
        orders = [seat.order for seat in seats if seat.order]
        rows = [seat.ready for seat in seats if seat.ready]
        device = np.array([seat.device for seat in seats], np.int64)
        counts = np.array([row.label_counts for row in rows], np.int64)
        norms = [row.update_sq_norm for row in rows if row.update_sq_norm is not None]
        return Candidates(
            num_devices=self._terms.experiment.fleet.num_devices,
            device=device,
            num_samples=np.array([row.num_samples for row in rows], np.int64),
            label_counts=counts.reshape(len(rows), self._system.dataset.num_labels),
            age=tick - np.array([order.version for order in orders], np.int64),
            missed=tick - uploads[device],
            capacity=self._capacity(seats, tick),
            update_sq_norm=np.array(norms) if self._system.policy.needs_update_norm else None,
            tick=tick,
        )

    def _capacity(self, seats: list[Seat], tick: int) -> Floats:
        """Return the links of these seats in bit/symbol [m]."""
        settings = self._terms.deployment
        device = [seat.device for seat in seats]
        if settings.capacity == "reported":
            return np.array([(seat.ready.capacity if seat.ready else None) or 0.0 for seat in seats])
        if settings.capacity == "measured":
            return link.measured(self._system, self._exchange.rate, self._window, settings.max_capacity)[device]
        return link.simulated(self._system, tick)[device]

    @property
    def _window(self) -> float:
        """Seconds that uploads may take."""
        return self._terms.deployment.deadline * self._terms.experiment.timeline.period
