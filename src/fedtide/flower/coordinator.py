"""The period loop of a real federation: the simulator's plan and absorb, with real devices in between.

Every period: see who is ready, plan, ask the picked ones for their update, wait until the deadline, absorb what arrived,
save, and send the new model to every ready node. Nodes that still train are never interrupted.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from flwr.app import Message

from fedtide.codec.base import Packet
from fedtide.errors import FedtideError, RunFolderError
from fedtide.flower import link, trace
from fedtide.flower.checks import Refused, read_ready, read_upload
from fedtide.flower.journal import Aggregation, Got, round_record, trace_period
from fedtide.flower.loaders import bare_system, loader
from fedtide.flower.mailbox import Letter, Mailbox
from fedtide.flower.node import isa
from fedtide.flower.protocol import TRAIN, UPLOAD, GrantOrder, Order, grant_content, model_record, order_content
from fedtide.flower.seats import Seat, Seats
from fedtide.flower.settings import Terms
from fedtide.flower.trace import Header, Period, Refusal, fingerprint
from fedtide.learning.trainer import Trainer
from fedtide.records import Ledger, RoundRecord, RunFolder, write_atomically
from fedtide.rng import stream
from fedtide.server import Arrived, ServerState, absorb, begin, plan
from fedtide.simulate import learning_rates
from fedtide.system import System, make_trainer, parameter_count
from fedtide.types import Candidates, Floats, Grant, Ints, Vector

log = logging.getLogger("fedtide.flower")

RETRYABLE: Final = frozenset({2, 3, 8})  # the app raised, the message expired, the app crashed
GONE: Final = 5  # Flower has not heard from the node for two heartbeats
UPLOAD_TRIES: Final = 3


@dataclass
class Asked:
    """A grant that waits for its packet."""

    seat: Seat
    grant: GrantOrder
    sent_at: float
    tries: int = 1


@dataclass
class Status:
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
        self._trainer: Trainer = make_trainer(bare)
        self._system: System = bare._replace(dataset=dataset)
        self._num_parameters = parameter_count(bare, self._trainer)
        self._orders: dict[str, Seat] = {}  # message id -> who trains
        self._asked: dict[str, Asked] = {}  # message id -> who uploads
        self._got: dict[int, Got] = {}
        self._refusals: list[Refusal] = []
        self._rate: dict[int, float] = {}
        self._begun = clock()
        self._seats = Seats(experiment.fleet.num_devices, {})
        self._present: dict[int, str] | None = None  # connected nodes, as last seen
        self._version = 1  # of the newest model

    # -- the loop ---------------------------------------------------------------------------------------------------

    def run(self) -> Vector:
        """Run all periods that are left and return the final model."""
        folder = RunFolder.open(self._folder, self._terms.experiment)
        try:
            state, ledger = self._load(folder)
            left = self._system.ticks[state.version - 1 :]
            if left:
                self._wait_for_nodes()
                state = self._hand_out(state, range(self._terms.experiment.fleet.num_devices))
            due = self._clock()
            for tick in left:
                due = max(due + self._terms.experiment.timeline.period, self._clock())
                self._wait_until(due)
                state, record, period = self._aggregate(state, ledger, tick.index, tick.time)
                ledger = record.ledger
                trace.append(self._folder, period)
                folder.append(record, state)
                folder.checkpoint()
                if self._on_round:
                    self._on_round(Status(record, period, len(self._system.ticks)))
                if tick.index < len(self._system.ticks):
                    state = self._hand_out(state, period.ready)
            model = state.models[state.version]
            folder.finish(model)
            return model
        finally:
            folder.close()

    def _load(self, folder: RunFolder) -> tuple[ServerState, Ledger]:
        """Return the state to go on from; nothing of an unfinished period is kept."""
        saved, count = folder.load(), self._terms.experiment.fleet.num_devices
        if saved is None:
            deployment = self._terms.deployment.model_dump(mode="json")
            trace.begin(self._folder, Header(trace.FORMAT, count, self._system.num_symbols, isa(), deployment))
            write_atomically(
                self._folder / "deployment.json", self._terms.deployment.model_dump_json(indent=2).encode()
            )
            return begin(self._trainer.initial_model(self._terms.experiment.seed), count), Ledger()
        state, ledger, _ = saved
        before = trace.cut(self._folder, state.version - 1)
        if before.header.deployment != self._terms.deployment.model_dump(mode="json"):
            raise RunFolderError(f"{self._folder} was begun with other deployment settings; restore them or start anew")
        if before.periods:
            last = before.periods[-1]
            self._seats = Seats(count, {int(device): node for device, node in last.nodes.items()})
            self._rate = {int(device): rate for device, rate in last.rate.items()}
            self._begun = self._clock() - last.wall
        log.info("continuing at period %d", state.version)
        return state, ledger

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

    def _wait_until(self, due: float) -> None:
        """Sleep until the clock says so, looking at the mailbox now and then."""
        while True:
            self._poll()
            left = due - self._clock()
            if left <= 0:
                return
            self._sleep(min(left, self._terms.deployment.poll))

    # -- one period -------------------------------------------------------------------------------------------------

    def _aggregate(
        self, state: ServerState, ledger: Ledger, tick: int, time: float
    ) -> tuple[ServerState, RoundRecord, Period]:
        """Plan, ask, wait, absorb."""
        wall = self._clock() - self._begun
        seats = self._ready_seats()
        rows = self._rows(seats, tick, state.uploads)
        grant = plan(
            self._system.policy,
            rows,
            self._system.num_symbols,
            stream(self._terms.experiment.seed, "schedule", tick),
        )
        planned = [replace(seat) for seat in seats]  # as it was when the plan was made
        picked = [seats[position] for position in grant.picked]
        self._ask(picked, grant, tick)
        self._wait_for_uploads()
        arrived = [position for position in grant.picked.tolist() if seats[position].device in self._got]
        device = rows.device[arrived]
        updates = np.array([self._got[k].update for k in device.tolist()], np.float32).reshape(-1, self._num_parameters)
        start = tick - rows.age[arrived]
        state, weights = absorb(
            state, self._system.policy, rows.device, Arrived(device, start, rows.num_samples[arrived]), updates
        )
        result = Aggregation(tick, rows, grant, self._got, dict(zip(device.tolist(), weights.tolist(), strict=True)))
        record = round_record(self._system, self._trainer, state, ledger, result, time)
        period = trace_period(result, planned, self._refusals, wall, fingerprint(state.models[state.version]))
        period = period._replace(
            nodes={str(k): node for k, node in self._seats.nodes.items()},
            rate={str(k): rate for k, rate in self._rate.items()},
        )
        self._asked.clear()  # whoever has not answered is too late
        self._got, self._refusals = {}, []
        return state, record, period

    def _ready_seats(self) -> list[Seat]:
        """Return the seats whose nodes are ready and connected, by device."""
        self._look_around()
        return [seat for seat in self._seats.all if seat.state == "ready" and self._is_here(seat)]

    def _is_here(self, seat: Seat) -> bool:
        return self._present is None or seat.node in self._present

    def _look_around(self) -> None:
        """Find out who is connected, and give new nodes a seat."""
        self._present = self._mailbox.nodes()
        for seat in self._seats.place(self._present or {}):
            log.info("node %s plays device %d", seat.node, seat.device)
            self._orders = {key: each for key, each in self._orders.items() if each is not seat}

    def _rows(self, seats: list[Seat], tick: int, uploads: Ints) -> Candidates:
        """Return what the scheduler sees."""
        orders = [seat.order for seat in seats if seat.order]
        rows = [seat.ready for seat in seats if seat.ready]
        device = np.array([seat.device for seat in seats], np.int64)
        norms = [row.update_sq_norm for row in rows if row.update_sq_norm is not None]
        return Candidates(
            num_devices=self._terms.experiment.fleet.num_devices,
            device=device,
            num_samples=np.array([row.num_samples for row in rows], np.int64),
            label_counts=np.array([row.label_counts for row in rows], np.int64).reshape(
                len(rows), self._system.dataset.num_labels
            ),
            age=tick - np.array([order.version for order in orders], np.int64),
            missed=tick - uploads[device],
            capacity=self._capacity(seats, tick),
            update_sq_norm=np.array(norms) if self._system.policy.needs_update_norm else None,
        )

    def _capacity(self, seats: list[Seat], tick: int) -> Floats:
        settings = self._terms.deployment
        device = [seat.device for seat in seats]
        if settings.capacity == "reported":
            return np.array([(seat.ready.capacity if seat.ready else None) or 0.0 for seat in seats])
        if settings.capacity == "measured":
            return link.measured(self._system, self._rate, self._window, settings.max_capacity)[device]
        return link.simulated(self._system, tick)[device]

    @property
    def _window(self) -> float:
        """Seconds that uploads may take."""
        return self._terms.deployment.deadline * self._terms.experiment.timeline.period

    def _ask(self, picked: list[Seat], grant: Grant, tick: int) -> None:
        """Send every picked node its grant."""
        asked = []
        for seat, bits in zip(picked, grant.bits.tolist(), strict=True):
            assert seat.order is not None  # it is ready
            order = GrantOrder(seat.device, seat.order.version, tick, bits, secrets.token_hex(16))
            asked.append(Asked(seat, order, self._clock()))
        self._send_grants(asked)

    def _send_grants(self, asked: list[Asked]) -> None:
        # A reply that expires on its way would come back as an error: let it come late, and be ignored.
        patience = 2 * self._terms.experiment.timeline.period + 30
        letters = [
            Letter(each.seat.node or 0, UPLOAD, grant_content(each.grant), patience, each.grant.tick) for each in asked
        ]
        for each, key in zip(asked, self._mailbox.send(letters), strict=True):
            if key is not None:
                self._asked[key] = each

    def _wait_for_uploads(self) -> None:
        """Collect packets until all are there or the deadline has passed."""
        until = self._clock() + self._window
        while self._asked:
            self._poll()
            left = until - self._clock()
            if not self._asked or left <= 0:
                break
            self._sleep(min(left, self._terms.deployment.poll))
        for each in self._asked.values():
            log.warning("node %s (device %d) missed the deadline", each.seat.node, each.seat.device)

    # -- sending models ---------------------------------------------------------------------------------------------

    def _hand_out(self, state: ServerState, ready: range | list[int]) -> ServerState:
        """Send the newest model to the ready devices, and to all others that are connected and work on nothing."""
        self._look_around()
        self._version = state.version
        chosen = []
        for seat in self._seats.all:
            if seat.device in ready and seat.state == "ready":
                seat.rest()
            if (
                seat.state == "idle"
                and seat.node is not None
                and self._is_here(seat)
                and state.version >= seat.retry_at
            ):
                chosen.append(seat)
        rate = float(learning_rates(self._system, np.array([state.version]))[0])
        norm, model = self._system.policy.needs_update_norm, model_record(state.models[state.version])
        orders = [Order(seat.device, state.version, rate, norm, secrets.token_hex(16)) for seat in chosen]
        patience = self._terms.deployment.train_timeout
        letters = [
            Letter(seat.node or 0, TRAIN, order_content(order, model), patience, state.version)
            for seat, order in zip(chosen, orders, strict=True)
        ]
        held = state.held.copy()
        for seat, order, key in zip(chosen, orders, self._mailbox.send(letters), strict=True):
            if key is None:
                continue
            seat.state, seat.order, seat.sent_at = "working", order, self._clock()
            self._orders[key] = seat
            held[seat.device] = state.version
        return state._replace(held=held)

    # -- replies ----------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        """Take in what has come; give up orders that are too old."""
        fetched = self._mailbox.fetch([*self._orders, *self._asked])
        for key in fetched.unreadable:
            self._on_unreadable(key)
        for message in fetched.replies:
            key = message.metadata.reply_to_message_id
            if key in self._orders:
                self._on_ready(self._orders.pop(key), message)
            elif key in self._asked:
                self._on_upload(self._asked.pop(key), message)
            else:
                log.warning("node %s sent a reply that nobody waits for", message.metadata.src_node_id)
        limit = self._clock() - self._terms.deployment.train_timeout
        for key, seat in list(self._orders.items()):
            if seat.sent_at < limit:
                del self._orders[key]
                self._failed(seat, "trained for too long")

    def _on_unreadable(self, key: str) -> None:
        """A reply is there, but Flower cannot unpack it."""
        if key in self._orders:
            seat = self._orders.pop(key)
            self._failed(seat, "")
        else:
            seat = self._asked.pop(key).seat
        self._refuse(seat, "a reply that cannot be unpacked")

    def _on_ready(self, seat: Seat, message: Message) -> None:
        """A node has finished, or failed."""
        assert seat.order is not None  # an order without a reply is an order
        if message.has_error():
            self._failed(seat, f"error {message.error.code}: {message.error.reason}", message.error.code)
            return
        try:
            self._check_sender(seat, message)
            seat.ready = read_ready(
                message.content,
                seat.order,
                self._system.dataset.num_labels,
                self._terms.experiment.fleet.num_devices,
                self._terms.deployment,
            )
        except Refused as error:
            self._failed(seat, "")
            self._refuse(seat, str(error))
            return
        seat.state, seat.ready_at, seat.failures = "ready", self._clock() - self._begun, 0

    def _on_upload(self, asked: Asked, message: Message) -> None:
        """A packet has come, or an error in its place."""
        seat, now = asked.seat, self._clock()
        if message.has_error():
            code = message.error.code
            log.warning("node %s (device %d) could not upload: error %d", seat.node, seat.device, code)
            if code in RETRYABLE and asked.tries < UPLOAD_TRIES:
                self._send_grants([Asked(seat, asked.grant, now, asked.tries + 1)])
            return
        try:
            self._check_sender(seat, message)
            packet, update = read_upload(
                message.content, asked.grant, self._system.codec, self._num_parameters, self._terms.deployment
            )
            self._check_new(seat, packet, update)
        except Refused as error:
            self._refuse(seat, str(error))
            return
        seat.refused = 0
        self._got[seat.device] = Got(packet, update, now - self._begun)
        self._rate = link.updated(self._rate, seat.device, 8 * len(packet.data), now - asked.sent_at)

    def _check_sender(self, seat: Seat, message: Message) -> None:
        if message.metadata.src_node_id != seat.node:
            raise Refused(f"the reply comes from node {message.metadata.src_node_id}")
        if not message.has_content():
            raise Refused("the reply is empty")

    def _check_new(self, seat: Seat, packet: Packet, update: Vector) -> None:
        """Refuse a packet that this device has sent before; an empty one may come again."""
        digest = hashlib.sha256(packet.data).digest()
        if digest in seat.packets:
            raise Refused("a packet that was sent before")
        if update.any():
            seat.packets.add(digest)

    def _failed(self, seat: Seat, why: str, code: int = 2) -> None:
        """A training came to nothing: try again with a newer model, later and later if it goes on."""
        if why:
            log.warning("node %s (device %d) did not train: %s", seat.node, seat.device, why)
        seat.rest()
        if code == GONE:
            return  # it gets a model as soon as it is back
        seat.failures += 1
        pause = min(2 ** min(seat.failures - 1, 30), self._terms.deployment.retry_limit) - 1
        seat.retry_at = self._version + 1 + pause

    def _refuse(self, seat: Seat, why: str) -> None:
        """Log and count a reply that is not believed."""
        log.warning("node %s (device %d) refused: %s", seat.node, seat.device, why)
        self._refusals.append(Refusal(seat.device, seat.node or 0, why))
        seat.refused += 1
        if seat.refused == self._terms.deployment.ban_after:
            log.warning("node %s (device %d) is ignored from now on", seat.node, seat.device)
            self._seats.ban(seat)
