"""Orders out, replies in: which node plays which device, who works on what, what arrived, what was refused.

Knows nodes and messages, no learning. A device's seat outlives its node: whoever takes it next plays the same device.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from flwr.app import ArrayRecord, Message, RecordDict

from fedtide.codec.base import Codec, Packet
from fedtide.codec.private import Private
from fedtide.deploy.mailbox import Answer, Mailbox
from fedtide.deploy.protocol import (
    ReadyReply,
    Refused,
    TrainOrder,
    UploadOrder,
    model_record,
    read_ready,
    read_upload,
)
from fedtide.deploy.settings import Terms, acts_as_it_sees_fit
from fedtide.deploy.trace import Period, Refusal
from fedtide.parts.checks import unguarded_part
from fedtide.types import Vector

_log = logging.getLogger("fedtide.deploy")

_RETRYABLE: Final = frozenset({2, 3, 8})  # the app raised, the message expired, the app crashed
_GONE: Final = 5  # Flower has not heard from the node for two heartbeats
_UPLOAD_TRIES: Final = 3
_NEWEST_WEIGHT: Final = 0.5  # of the newest measurement of a device's rate


@dataclass(eq=False)
class Seat:
    """One device number and what is known of the node that plays it."""

    device: int
    node: int | None = None
    life: str = ""  # when the node's present life began; another one means that it restarted and forgot
    order: TrainOrder | None = None  # what it works on, or has finished
    ready: ReadyReply | None = None  # once it has finished
    ready_at: float = 0.0
    failures: int = 0  # in a row
    retry_at: float = 0  # not before this version, or time
    refused: int = 0  # in a row
    packets: set[bytes] = field(default_factory=set)  # digests of what was accepted, to notice a replay
    acknowledged: int = 0  # the tick of its last upload that was aggregated
    trained: int = 0  # the version of its last training that was a candidate
    counts: list[int] | None = None  # samples of each label by the node's first report, which is binding

    def rest(self) -> None:
        """Forget the order: the node works on nothing that could be used."""
        self.order = self.ready = None


class _Sent(NamedTuple):
    """An order that waits for its reply."""

    seat: Seat
    order: TrainOrder | UploadOrder
    at: float  # seconds since the beginning
    tries: int = 1


class ReceivedUpdate(NamedTuple):
    """An update that arrived."""

    packet: Packet
    update: Vector  # [d]
    at: float  # seconds since the beginning


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
        # Of private updates, the noise alone may be longer than the limit.
        self._largest_norm = terms.deployment.max_update_norm
        if isinstance(own := unguarded_part(codec), Private):
            self._largest_norm += own.largest_norm(num_parameters)
        # A packet that expires on its way would come back as an error: let it come late, and be ignored.
        upload_ttl = 2 * terms.experiment.timeline.period + 30
        self._ttl = {TrainOrder.kind: terms.deployment.train_timeout, UploadOrder.kind: upload_ttl}  # seconds
        self._waiting: dict[str, _Sent] = {}  # by nonce, orders that are sent or on their way
        self._present: Mapping[int, str] | None = None  # connected nodes, as last seen; None: unknown
        self._banned: set[int] = set()  # nodes
        self._version = 1  # of the newest model
        self._keeps = terms.experiment.fleet.unpicked == "keep"  # who is not picked keeps its update
        # pauses are counted in periods, or in seconds if the server may act only once someone is ready
        self._pause_unit = terms.experiment.timeline.period if acts_as_it_sees_fit(terms.experiment) else None
        self._begun = clock()
        self.seats = [Seat(device) for device in range(terms.experiment.fleet.num_devices)]
        self.rate: dict[int, float] = {}  # bit/s seen on uploads, by device
        self.got: dict[int, ReceivedUpdate] = {}  # updates of this period, by device
        self.refusals: list[Refusal] = []  # of this period
        self.enrolled: dict[str, list[int]] = {}  # in this period: samples of each label, by device
        self.banned: list[int] = []  # nodes, in this period

    def restore(self, periods: Sequence[Period]) -> None:
        """Go on where another process stopped: what it had seen of the devices, who sat where, the rates, the time."""
        for period in periods:
            self.close_period(period)
            self._banned |= {*(period.banned or [])}
            for device, counts in (period.enrolled or {}).items():
                if period.nodes.get(device) == periods[-1].nodes.get(device):
                    self.seats[int(device)].counts = counts
        for period in periods[-1:]:
            for device, node in period.nodes.items():
                self.seats[int(device)].node = node
            self.rate = {int(device): seen for device, seen in period.rate.items()}
            self._begun = self._clock() - (period.wall if period.done is None else period.done)

    def pass_over(self, seconds: float) -> None:
        """Do not count time that has passed."""
        self._begun += seconds

    @property
    def elapsed(self) -> float:
        """Seconds since the federation began."""
        return self._clock() - self._begun

    @property
    def awaits_uploads(self) -> bool:
        """Is a packet still on its way?"""
        return any(isinstance(sent.order, UploadOrder) for sent in self._waiting.values())

    # -- out --------------------------------------------------------------------------------------------------------

    @property
    def silent(self) -> float:
        """Seconds for which the SuperLink has not answered."""
        return self._mailbox.silent

    def num_connected(self) -> int:
        """Return how many nodes are connected now."""
        return len(self._mailbox.nodes() or {})

    def look_around(self) -> None:
        """Find out who is connected, and give new nodes a seat.

        A seat is free that was never taken, else one whose node is gone; nodes without a seat wait for one. A node that
        restarted with its key keeps its seat, but has forgotten what it held.
        """
        self._present = self._mailbox.nodes()
        present, changed = self._present or {}, []
        for seat in self.seats:
            life = seat.life if seat.node is None else present.get(seat.node, seat.life)
            if seat.life and life != seat.life:
                changed.append(seat)
            seat.life = life
        waiting = sorted(present.keys() - {seat.node for seat in self.seats} - self._banned)
        free = [seat for seat in self.seats if seat.node is None]
        free += [seat for seat in self.seats if seat.node is not None and seat.node not in present]
        for node, seat in zip(waiting, free, strict=False):
            seat.node, seat.life = node, present[node]
            seat.failures = seat.retry_at = seat.refused = 0
            seat.counts = None
            changed.append(seat)
        for seat in changed:
            seat.rest()
            _log.info("node %s plays device %d", seat.node, seat.device)
        self._waiting = {key: sent for key, sent in self._waiting.items() if sent.seat not in changed}

    def ready(self) -> list[Seat]:
        """Return the seats whose nodes are ready and connected, by device."""
        self.look_around()
        return [seat for seat in self.seats if seat.ready and self.is_here(seat)]

    def is_here(self, seat: Seat) -> bool:
        """Say whether the seat's node is connected."""
        return seat.node is not None and (self._present is None or seat.node in self._present)

    def is_idle(self, seat: Seat) -> bool:
        """Say whether the seat's node can be sent a model."""
        return seat.order is None and self.is_here(seat) and self._now >= seat.retry_at

    @property
    def _now(self) -> float:
        """What pauses are counted in."""
        return self._version if self._pause_unit is None else self.elapsed

    def order_training(
        self,
        version: int,
        model: Vector,
        learning_rate: float,
        needs: Container[str],
        devices: Container[int] | None = None,
    ) -> list[int]:
        """Send this model to all nodes that are connected and work on nothing; return their devices.

        needs: what they report when they are done. devices: only to these, which were found to be idle.
        """
        if devices is None:
            self.look_around()
        self._version = version
        chosen = []
        for seat in self.seats:
            if (devices is None or seat.device in devices) and self.is_idle(seat):
                order = TrainOrder(
                    device=seat.device,
                    version=version,
                    nonce=secrets.token_hex(16),
                    learning_rate=learning_rate,
                    want_norm="update_sq_norm" in needs,
                    want_loss="loss" in needs,
                    acknowledged=seat.acknowledged,
                    previous=seat.trained,
                )
                chosen.append(_Sent(seat, order, self.elapsed))
        return [sent.seat.device for sent in self._send(chosen, model=model_record(model))]

    def ask(self, devices: Sequence[int], bits: Sequence[float], tick: int) -> None:
        """Send the node of every picked device its grant."""
        asked = []
        for device, budget in zip(devices, bits, strict=True):
            seat = self.seats[device]
            assert seat.order is not None  # it is ready
            nonce = secrets.token_hex(16)
            grant = UploadOrder(device=device, version=seat.order.version, nonce=nonce, tick=tick, bits=budget)
            asked.append(_Sent(seat, grant, self.elapsed))
        self._send(asked)

    def _send(self, orders: Sequence[_Sent], **more: ArrayRecord) -> list[_Sent]:
        """Send orders, which then wait for their replies; return those that are sent or on their way."""
        messages = {}
        for sent in orders:
            seat, order, *_ = sent
            seat.order = order if isinstance(order, TrainOrder) else seat.order
            self._waiting[order.nonce] = sent
            messages[order.nonce] = Message(
                order.content(**more),
                seat.node or 0,
                order.kind,
                ttl=self._ttl[order.kind],
                group_id=str(self._version),
            )
        self._take_in_all(self._mailbox.post(messages))
        return [sent for sent in orders if sent.order.nonce in self._waiting]

    def close_period(self, period: Period) -> None:
        """Note what was seen of the devices, whose memory goes on from there; whoever has not answered is too late.

        Those that were ready work on nothing from now on, except those that keep their update until it is picked.
        """
        for device, start in zip(period.ready, period.start, strict=True):
            self.seats[device].trained = start
        for device in period.picked if self._keeps else period.ready:
            self.seats[device].rest()
        for device in period.arrived:
            self.seats[device].acknowledged = period.tick
        for key, (seat, order, *_) in list(self._waiting.items()):
            if isinstance(order, UploadOrder):
                _log.warning("node %s (device %d) missed the deadline", seat.node, seat.device)
                del self._waiting[key]
        self.got, self.refusals, self.enrolled, self.banned = {}, [], {}, []

    # -- in ---------------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Take in what has come; give up trainings that are too old."""
        self._take_in_all(self._mailbox.collect(self._waiting.keys()))
        oldest = self.elapsed - self._terms.deployment.train_timeout
        for key, (seat, order, at, _) in list(self._waiting.items()):
            if isinstance(order, TrainOrder) and at < oldest:
                del self._waiting[key]
                _log.warning("node %s (device %d) trained for too long", seat.node, seat.device)
                self._pause(seat)

    def _take_in_all(self, answers: Sequence[Answer]) -> None:
        """Take in what became of orders; a node whose training could not be sent works on nothing."""
        for key, message, was_sent in answers:
            sent = self._waiting.pop(key, None)
            if sent is None:
                continue
            if was_sent:
                self._take_in(sent, message)
            elif isinstance(sent.order, TrainOrder):
                sent.seat.rest()

    def _take_in(self, sent: _Sent, message: Message | None) -> None:
        """A node has finished, a packet has come, or an error in their place. None: Flower cannot unpack it."""
        seat, order, settings = sent.seat, sent.order, self._terms.deployment
        try:
            if message is None:
                raise Refused("a reply that cannot be unpacked")
            if message.has_error():
                self._on_error(sent, message.error.code, str(message.error.reason))
                return
            if message.metadata.src_node_id != seat.node:
                raise Refused(f"the reply comes from node {message.metadata.src_node_id}")
            if not message.has_content():
                raise Refused("the reply is empty")
            if isinstance(order, UploadOrder):
                self._on_upload(sent, order, message.content)
            else:
                ready = read_ready(message.content, order, self._num_labels, len(self.seats), settings)
                if seat.counts is None:  # later reports say the same, or are not believed
                    seat.counts = self.enrolled[str(seat.device)] = ready.label_counts
                same = {"label_counts": seat.counts, "num_samples": sum(seat.counts)}
                seat.ready = ready.model_copy(update=same)
                seat.ready_at, seat.failures = self.elapsed, 0
        except Refused as error:
            if isinstance(order, TrainOrder):
                self._pause(seat)
            self._refuse(seat, str(error))

    def _on_upload(self, sent: _Sent, grant: UploadOrder, content: RecordDict) -> None:
        """Keep an update, unless this device has sent the packet before; an empty one may come again."""
        seat, now = sent.seat, self.elapsed
        packet, update = read_upload(content, grant, self._codec, self._num_parameters, self._largest_norm)
        digest = hashlib.sha256(packet.data).digest()
        if digest in seat.packets:
            raise Refused("a packet that was sent before")
        if update.any():
            seat.packets.add(digest)
        seat.refused = 0
        self.got[seat.device] = ReceivedUpdate(packet, update, now)
        seen = 8 * len(packet.data) / max(now - sent.at, 1e-3)
        before = self.rate.get(seat.device, seen)
        self.rate[seat.device] = before + _NEWEST_WEIGHT * (seen - before)

    def _on_error(self, sent: _Sent, code: int, reason: str) -> None:
        """Ask for an upload again; let a node that could not train rest, unless it is gone: it trains when it is back."""
        seat, order = sent.seat, sent.order
        why = " ".join(reason.split())[:300]  # a node's own words
        _log.warning("node %s (device %d) failed to %s: error %d: %s", seat.node, seat.device, order.kind, code, why)
        if isinstance(order, TrainOrder):
            self._pause(seat, 0 if code == _GONE else 1)
        elif code in _RETRYABLE and sent.tries < _UPLOAD_TRIES:
            self._send([sent._replace(at=self.elapsed, tries=sent.tries + 1)])

    def _pause(self, seat: Seat, failures: int = 1) -> None:
        """A training came to nothing: try again with a newer model, later and later if it goes on."""
        seat.rest()
        seat.failures += failures
        if failures:
            pause = min(2 ** min(seat.failures - 1, 30), self._terms.deployment.retry_limit)
            seat.retry_at = self._now + pause * (self._pause_unit or 1)

    def _refuse(self, seat: Seat, why: str) -> None:
        """Log and count a reply that is not believed; ignore its node from now on if there were too many."""
        _log.warning("node %s (device %d) refused: %s", seat.node, seat.device, why)
        self.refusals.append(Refusal(device=seat.device, node=seat.node or 0, why=why))
        seat.refused += 1
        if seat.refused == self._terms.deployment.ban_after:
            _log.warning("node %s (device %d) is ignored from now on", seat.node, seat.device)
            self._banned.add(seat.node or 0)
            self.banned.append(seat.node or 0)
            seat.node, seat.life = None, ""
            seat.rest()
