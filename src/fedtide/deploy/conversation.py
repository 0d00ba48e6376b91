"""Orders out, replies in: who works on what, what arrived, what was refused. Knows nodes and messages, no learning."""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from flwr.app import Message

from fedtide.codec.base import Codec, Packet
from fedtide.deploy.protocol import (
    TRAIN,
    UPLOAD,
    Refused,
    TrainOrder,
    UploadOrder,
    averaged_rate,
    model_record,
    read_ready,
    read_upload,
)
from fedtide.deploy.seats import Seat, Seats
from fedtide.deploy.settings import Terms
from fedtide.deploy.trace import Refusal
from fedtide.types import Vector

_log = logging.getLogger("fedtide.deploy")

_RETRYABLE: Final = frozenset({2, 3, 8})  # the app raised, the message expired, the app crashed
_GONE: Final = 5  # Flower has not heard from the node for two heartbeats
_UPLOAD_TRIES: Final = 3


class Mailbox:
    """Flower's Grid, as far as it is used: calls that survive the errors named in `transient`."""

    def __init__(self, grid: Any, transient: tuple[type[Exception], ...] = (ConnectionError, TimeoutError)) -> None:
        self._grid, self._transient = grid, transient

    def send(self, messages: Sequence[Message]) -> list[str | None]:
        """Push the messages; return an id each, None for what could not be sent."""
        if not messages:
            return []
        ids = [key or None for key in self._try("send", lambda: list(self._grid.push_messages(messages)), [])]
        return [*ids, *[None] * (len(messages) - len(ids))][: len(messages)]

    def fetch(self, ids: Sequence[str]) -> tuple[list[Message], list[str]]:
        """Return the replies to these messages that have come, and the ids of those whose reply cannot be read.

        A node can send what Flower itself cannot unpack; then the others are fetched one by one.
        """
        try:
            return self._try("fetch", lambda: list(self._grid.pull_messages(list(ids))), []) if ids else [], []
        except Exception as error:  # whatever unpacking raises
            if len(ids) == 1:
                _log.warning("a reply cannot be unpacked: %s: %s", type(error).__name__, error)
                return [], list(ids)
        single = [self.fetch([key]) for key in ids]
        return [reply for replies, _ in single for reply in replies], [key for _, keys in single for key in keys]

    def nodes(self) -> dict[int, str] | None:
        """Return the connected nodes, each with the moment its present life began; None if that cannot be found out."""
        nodes = self._try("ask for nodes", lambda: list(self._grid.get_nodes()), None)
        return None if nodes is None else {int(node.node_id): str(node.last_activated_at) for node in nodes}

    def _try(self, what: str, call: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return call()
        except self._transient as error:
            _log.warning("could not %s: %s: %s", what, type(error).__name__, error)
            return otherwise


class ReceivedUpdate(NamedTuple):
    """An update that arrived."""

    packet: Packet
    update: Vector  # [d]
    at: float  # seconds since the beginning


@dataclass
class _Asked:
    """A grant that waits for its packet."""

    seat: Seat
    grant: UploadOrder
    sent_at: float
    tries: int = 1


class Conversation:
    """The conversation with all nodes of a federation. clock returns seconds."""

    def __init__(
        self,
        mailbox: Mailbox,
        terms: Terms,
        codec: Codec,
        num_parameters: int,
        num_labels: int,
        clock: Callable[[], float],
    ) -> None:
        self._mailbox, self._terms, self._codec, self._clock = mailbox, terms, codec, clock
        self._num_parameters, self._num_labels = num_parameters, num_labels
        self._orders: dict[str, Seat] = {}  # message id -> who trains
        self._asked: dict[str, _Asked] = {}  # message id -> who uploads
        self._present: Mapping[int, str] | None = None  # connected nodes, as last seen; None: unknown
        self._version = 1  # of the newest model
        self._begun = clock()
        self.seats = Seats(terms.experiment.fleet.num_devices, {})
        self.rate: dict[int, float] = {}  # bit/s seen on uploads, by device
        self.got: dict[int, ReceivedUpdate] = {}  # updates of this period, by device
        self.refusals: list[Refusal] = []  # of this period

    def restore(self, nodes: Mapping[int, int], rate: Mapping[int, float], elapsed: float) -> None:
        """Go on where another process stopped: who sat where, the rates, and the seconds since the beginning."""
        self.seats = Seats(self._terms.experiment.fleet.num_devices, nodes)
        self.rate, self._begun = dict(rate), self._clock() - elapsed

    @property
    def elapsed(self) -> float:
        """Seconds since the federation began."""
        return self._clock() - self._begun

    @property
    def is_waiting(self) -> bool:
        """Is a packet still on its way?"""
        return bool(self._asked)

    # -- out --------------------------------------------------------------------------------------------------------

    def look_around(self) -> None:
        """Find out who is connected, and give new nodes a seat."""
        self._present = self._mailbox.nodes()
        for seat in self.seats.place(self._present or {}):
            _log.info("node %s plays device %d", seat.node, seat.device)
            self._orders = {key: each for key, each in self._orders.items() if each is not seat}

    def ready(self) -> list[Seat]:
        """Return the seats whose nodes are ready and connected, by device."""
        self.look_around()
        return [seat for seat in self.seats.all if seat.state == "ready" and self._is_here(seat)]

    def _is_here(self, seat: Seat) -> bool:
        return self._present is None or seat.node in self._present

    def order_training(
        self,
        done: Container[int],
        version: int,
        model: Vector,
        learning_rate: float,
        needs: Container[str],
        acknowledged: Mapping[int, int],
        trained: Mapping[int, int],
    ) -> list[int]:
        """Send this model to the devices that are done, and to all others that are connected and work on nothing.

        needs: what they report when they are done. acknowledged and trained: by device, the tick of its last upload that was
        aggregated, and the version of its last training that was a candidate. Returns the devices to which it was sent.
        """
        self.look_around()
        self._version = version
        chosen = []
        for seat in self.seats.all:
            if seat.state == "ready" and seat.device in done:
                seat.rest()
            if seat.state == "idle" and seat.node is not None and self._is_here(seat) and version >= seat.retry_at:
                chosen.append(seat)
        orders = [
            TrainOrder(
                device=seat.device,
                version=version,
                nonce=secrets.token_hex(16),
                learning_rate=learning_rate,
                want_norm="update_sq_norm" in needs,
                want_loss="loss" in needs,
                acknowledged=acknowledged.get(seat.device, 0),
                previous=trained.get(seat.device, 0),
            )
            for seat in chosen
        ]
        record, patience = model_record(model), self._terms.deployment.train_timeout
        messages = [
            Message(order.content(model=record), seat.node or 0, TRAIN, ttl=patience, group_id=str(version))
            for seat, order in zip(chosen, orders, strict=True)
        ]
        sent = []
        for seat, order, key in zip(chosen, orders, self._mailbox.send(messages), strict=True):
            if key is not None:
                seat.state, seat.order, seat.sent_at = "working", order, self._clock()
                self._orders[key] = seat
                sent.append(seat.device)
        return sent

    def ask(self, picked: Sequence[Seat], bits: Sequence[float], tick: int) -> None:
        """Send every picked node its grant."""
        asked = []
        for seat, budget in zip(picked, bits, strict=True):
            assert seat.order is not None  # it is ready
            version, nonce = seat.order.version, secrets.token_hex(16)
            grant = UploadOrder(device=seat.device, version=version, nonce=nonce, tick=tick, bits=budget)
            asked.append(_Asked(seat, grant, self._clock()))
        self._send_grants(asked)

    def _send_grants(self, asked: list[_Asked]) -> None:
        # A reply that expires on its way would come back as an error: let it come late, and be ignored.
        patience = 2 * self._terms.experiment.timeline.period + 30
        messages = [
            Message(each.grant.content(), each.seat.node or 0, UPLOAD, ttl=patience, group_id=str(each.grant.tick))
            for each in asked
        ]
        for each, key in zip(asked, self._mailbox.send(messages), strict=True):
            if key is not None:
                self._asked[key] = each

    def close_period(self) -> None:
        """Forget what the period gathered; whoever has not answered is too late."""
        for each in self._asked.values():
            _log.warning("node %s (device %d) missed the deadline", each.seat.node, each.seat.device)
        self._asked.clear()
        self.got, self.refusals = {}, []

    # -- in ---------------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Take in what has come; give up orders that are too old."""
        replies, unreadable = self._mailbox.fetch([*self._orders, *self._asked])
        for key in unreadable:
            self._on_unreadable(key)
        for message in replies:
            key = message.metadata.reply_to_message_id
            if key in self._orders:
                self._on_ready(self._orders.pop(key), message)
            elif key in self._asked:
                self._on_upload(self._asked.pop(key), message)
            else:
                _log.warning("node %s sent a reply that nobody waits for", message.metadata.src_node_id)
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
            reason = " ".join(str(message.error.reason).split())[:300]  # a node's own words
            self._failed(seat, f"error {message.error.code}: {reason}", message.error.code)
            return
        num_labels, num_devices = self._num_labels, self._terms.experiment.fleet.num_devices
        try:
            self._check_sender(seat, message)
            seat.ready = read_ready(message.content, seat.order, num_labels, num_devices, self._terms.deployment)
        except Refused as error:
            self._failed(seat, "")
            self._refuse(seat, str(error))
            return
        seat.state, seat.ready_at, seat.failures = "ready", self.elapsed, 0

    def _on_upload(self, asked: _Asked, message: Message) -> None:
        """A packet has come, or an error in its place."""
        seat, now = asked.seat, self._clock()
        if message.has_error():
            code = message.error.code
            _log.warning("node %s (device %d) could not upload: error %d", seat.node, seat.device, code)
            if code in _RETRYABLE and asked.tries < _UPLOAD_TRIES:
                self._send_grants([_Asked(seat, asked.grant, now, asked.tries + 1)])
            return
        try:
            self._check_sender(seat, message)
            packet, update = read_upload(
                message.content, asked.grant, self._codec, self._num_parameters, self._terms.deployment
            )
            self._check_new(seat, packet, update)
        except Refused as error:
            self._refuse(seat, str(error))
            return
        seat.refused = 0
        self.got[seat.device] = ReceivedUpdate(packet, update, self.elapsed)
        self.rate[seat.device] = averaged_rate(self.rate, seat.device, 8 * len(packet.data), now - asked.sent_at)

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
            _log.warning("node %s (device %d) did not train: %s", seat.node, seat.device, why)
        seat.rest()
        if code == _GONE:
            return  # it gets a model as soon as it is back
        seat.failures += 1
        pause = min(2 ** min(seat.failures - 1, 30), self._terms.deployment.retry_limit) - 1
        seat.retry_at = self._version + 1 + pause

    def _refuse(self, seat: Seat, why: str) -> None:
        """Log and count a reply that is not believed."""
        _log.warning("node %s (device %d) refused: %s", seat.node, seat.device, why)
        self.refusals.append(Refusal(device=seat.device, node=seat.node or 0, why=why))
        seat.refused += 1
        if seat.refused == self._terms.deployment.ban_after:
            _log.warning("node %s (device %d) is ignored from now on", seat.node, seat.device)
            self.seats.ban(seat)
