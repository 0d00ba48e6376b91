"""What server and nodes write to each other. Everything a node sends is untrusted, and checked before use.

train          server -> node   order: device, version, learning_rate, what to report, nonce, what was seen; model [d]
  reply                         ready: device, version, nonce, num_samples, label_counts, data, isa, and what was asked for
query.upload   server -> node   grant: device, version, tick, bits, nonce
  reply                         upload: device, version, tick, nonce, packet

The nonce is new with every order: a reply that was recorded earlier does not fit a later order.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from pydantic import FailFast, Field, ValidationError

from fedtide.codec.base import HEADER_BYTES, Codec, Packet, most_bits, received
from fedtide.deploy.settings import Deployment
from fedtide.deploy.trace import MAX_COUNT, PartWithMemory, ShortWord, StrictModel, explain_record
from fedtide.engine.system import System
from fedtide.errors import FedtideError
from fedtide.radio.modem import shannon_capacity
from fedtide.types import Floats, Vector

TRAIN, UPLOAD = "train", "query.upload"
_NEWEST_WEIGHT = 0.5  # of the newest rate measurement
MIN_CAPACITY = 1e-6  # bit/symbol; a link that was seen to work is never taken for dead
_MAX_LOSS = 1e12  # nats
_SLACK_BYTES = 64  # what a codec may need beyond its budget: padding and rounding


class Refused(FedtideError):
    """A reply that breaks the protocol; the message says how."""


class _Message(StrictModel):
    """The fields of one record in a Flower message."""

    record: ClassVar[str]  # its name in the message

    def content(self, **more: ArrayRecord) -> RecordDict:
        """Return Flower's content: this record, without what is at its default, and others."""
        return RecordDict({self.record: ConfigRecord(self.model_dump(exclude_defaults=True)), **more})

    @classmethod
    def read(cls, content: RecordDict) -> Self:
        """Read the record; raise Refused if there is none, or if a field is missing, unknown or of another type."""
        record = content.get(cls.record)
        if not isinstance(record, ConfigRecord):
            raise Refused(f"the reply has no record {cls.record!r}")
        try:
            return cls.model_validate(dict(record))
        except ValidationError as error:
            raise Refused(explain_record(error)) from error


class TrainOrder(_Message):
    """Train from this model and hold the update."""

    record = "order"

    device: int
    version: int
    nonce: str
    learning_rate: float
    want_norm: bool = False
    want_loss: bool = False
    # What the server has seen of this device: the node's memory goes on from there, whatever else was lost on the way.
    acknowledged: int = 0  # the tick of the last upload that was aggregated; 0: none
    previous: int = 0  # the version of the last training that was a candidate; 0: none


class ReadyReply(_Message):
    """The reply to an order: the node's row of Candidates."""

    record = "ready"

    device: int
    version: int
    nonce: str
    num_samples: Annotated[int, Field(ge=1)]
    label_counts: Annotated[list[Annotated[int, Field(ge=0, le=MAX_COUNT)]], FailFast()]  # [c]
    data: Annotated[int, Field(ge=-1)]  # which partition it holds; -1: its own
    isa: ShortWord
    capacity: float | None = None  # bit/symbol, if the node knows
    update_sq_norm: float | None = None
    loss: Annotated[float, Field(ge=0, le=_MAX_LOSS)] | None = None  # of the model it received, on its own samples
    # the parts whose last use that the server has seen is not remembered
    forgot: Annotated[list[PartWithMemory], FailFast()] = Field(default=[])


class UploadOrder(_Message):
    """Send the update you hold in at most so many bits."""

    record = "grant"

    device: int
    version: int
    nonce: str
    tick: int
    bits: float


class UploadReply(_Message):
    """The reply to a grant."""

    record = "upload"

    device: int
    version: int
    nonce: str
    tick: int
    packet: bytes


def model_record(model: Vector) -> ArrayRecord:
    """Return model or update [d] as a record."""
    return ArrayRecord({"vector": Array(np.ascontiguousarray(model, np.float32))})


def read_model(record: ArrayRecord) -> Vector:
    """Return model or update [d] from a record."""
    vector: Vector = record["vector"].numpy().astype(np.float32, copy=False)
    return vector


def read_ready(
    content: RecordDict, order: TrainOrder, num_labels: int, num_devices: int, settings: Deployment
) -> ReadyReply:
    """Return the row that a node reports, or raise Refused. What was not asked for is dropped."""
    ready = ReadyReply.read(content)
    _check_answer(ready, order, "device", "version", "nonce")
    if len(ready.label_counts) != num_labels:
        raise Refused(f"label_counts has {len(ready.label_counts)} entries for {num_labels} labels")
    if ready.num_samples > settings.max_samples:
        raise Refused(f"num_samples is {ready.num_samples}; max_samples is {settings.max_samples}")
    if sum(ready.label_counts) != ready.num_samples:
        raise Refused(f"label_counts adds up to {sum(ready.label_counts)}, num_samples is {ready.num_samples}")
    # Only a loader of one's own knows data without a number; a replay could not find it.
    if not (0 if settings.loader == "partition" else -1) <= ready.data < num_devices:
        raise Refused(f"data is {ready.data}; it must be a part of the data from 0 to {num_devices - 1}")
    # One dead link takes all symbols of a period: a node without a link cannot say so, and is no candidate.
    reported = settings.capacity == "reported"
    if reported and not (ready.capacity is not None and MIN_CAPACITY <= ready.capacity <= settings.max_capacity):
        raise Refused(f"capacity is {ready.capacity}; it must be from {MIN_CAPACITY:g} to {settings.max_capacity:g}")
    norm, most = ready.update_sq_norm, settings.max_update_norm**2
    if order.want_norm and not (norm is not None and 0 <= norm <= most):
        raise Refused(f"update_sq_norm is {norm}; it must be from 0 to {most:g}")
    if order.want_loss and ready.loss is None:
        raise Refused("loss was asked for and is missing")
    asked = {
        "capacity": ready.capacity if reported else None,
        "update_sq_norm": norm if order.want_norm else None,
        "loss": ready.loss if order.want_loss else None,
    }
    return ready.model_copy(update=asked)


def read_upload(
    content: RecordDict, grant: UploadOrder, codec: Codec, num_parameters: int, settings: Deployment
) -> tuple[Packet, Vector]:
    """Return the packet and the update [d] that the server reads from it, or raise Refused."""
    upload = UploadReply.read(content)
    _check_answer(upload, grant, "device", "version", "tick", "nonce")
    budget = most_bits(codec, num_parameters, grant.bits)
    if len(upload.packet) > HEADER_BYTES + _SLACK_BYTES + budget / 8:
        raise Refused(f"a packet of {len(upload.packet)} bytes for a grant of {grant.bits:.0f} bits")
    try:
        packet = received(upload.packet, num_parameters)
        if packet.bits > budget:
            raise Refused(f"a packet of {packet.bits} bits for a grant of {grant.bits:.0f}")
        with np.errstate(over="ignore"):
            update = np.asarray(codec.decode(packet)).astype(np.float32, copy=False)
    except FedtideError as error:
        raise Refused(" ".join(str(error).split())[:400]) from error
    except Exception as error:  # whatever decoding rubbish raises; one node must not end the federation
        why = " ".join(str(error).split())[:200]
        raise Refused(f"a packet that cannot be decoded ({type(error).__name__}: {why})") from error
    if update.shape != (num_parameters,) or not np.isfinite(update).all():
        raise Refused(f"a packet that is not {num_parameters} finite numbers")
    norm = math.sqrt(float(np.square(update, dtype=np.float64).sum()))
    if norm > settings.max_update_norm:
        raise Refused(f"an update of norm {norm:.3g}; max_update_norm is {settings.max_update_norm:g}")
    return packet, update


def _check_answer(reply: ReadyReply | UploadReply, asked: TrainOrder | UploadOrder, *fields: str) -> None:
    for name in fields:
        found, wanted = getattr(reply, name), getattr(asked, name)
        if found != wanted:
            shown = "something else, not the nonce" if name == "nonce" else f"{reprlib.repr(found)}, not {wanted}"
            raise Refused(f"the reply is for another order: {name} is {shown}")


# -- link capacities that are measured on uploads -------------------------------------------------------------------


def measured_capacity(system: System, rate: Mapping[int, float], window: float, most: float) -> Floats:
    """Return the capacities [N] in bit/symbol that fit the rates (bit/s) seen on recent uploads.

    The symbols of a tick are sent within `window` seconds, so one bit/symbol is num_symbols / window bit/s. A link that has
    not been used yet counts as one at the average SNR.
    """
    experiment = system.experiment
    scale = np.asarray(experiment.radio.large_scale, np.float64)
    average = shannon_capacity(10 ** (experiment.radio.snr_db / 10) * scale)
    found = np.broadcast_to(average, experiment.fleet.num_devices).copy()
    for device, bits_per_second in rate.items():
        found[device] = np.clip(bits_per_second * window / system.num_symbols, MIN_CAPACITY, most)
    return found


def averaged_rate(rate: Mapping[int, float], device: int, bits: int, seconds: float) -> float:
    """Return a device's rate (bit/s) with one more upload of so many bits, in so many seconds, taken in."""
    seen = bits / max(seconds, 1e-3)
    before = rate.get(device, seen)
    return before + _NEWEST_WEIGHT * (seen - before)
