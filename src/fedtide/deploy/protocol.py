"""What server and nodes write to each other. Everything a node sends is untrusted, and checked before use.

train          server -> node   order: device, version, learning_rate, what to report, nonce, what was seen; model [d]
  reply                         ready: device, version, nonce, num_samples, label_counts, data, isa, and what was asked for
query.upload   server -> node   grant: device, version, tick, bits, nonce
  reply                         upload: device, version, tick, nonce, packet

The nonce is new with every order: a reply that was recorded earlier does not fit a later order.
"""

from __future__ import annotations

import itertools
import math
import reprlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Self

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from pydantic import FailFast, Field, ValidationError

from fedtide.codec.base import HEADER_BYTES, Codec, Packet, max_packet_bits, received_packet
from fedtide.config.values import explain_validation
from fedtide.core.faults import fault_text
from fedtide.deploy.settings import Deployment
from fedtide.deploy.trace import MAX_COUNT, PartWithMemory, ShortWord, StrictModel
from fedtide.engine.system import System
from fedtide.errors import FedtideError
from fedtide.types import Floats, Vector

MIN_CAPACITY = 1e-6  # bit/symbol; a link that was seen to work is never taken for dead
_MAX_LOSS = 1e12  # nats
_SLACK_BYTES = 64  # what a codec may need beyond its budget: padding and rounding


class Refused(FedtideError):
    """A reply that breaks the protocol; the message says how."""


class _Message(StrictModel):
    """The fields of one record in a Flower message."""

    record: ClassVar[str]  # its name in the message
    kind: ClassVar[str]  # of Flower's message, if it is an order

    device: int
    version: int  # of the model that it is about
    nonce: str

    def content(self, **more: ArrayRecord) -> RecordDict:
        """Return Flower's content: this record, without what is at its default, and others."""
        return RecordDict({self.record: ConfigRecord(self.model_dump(exclude_defaults=True)), **more})

    @classmethod
    def read(cls, content: RecordDict, order: _Message | None = None) -> Self:
        """Read the record; raise Refused if there is none, if a field is wrong, or if it answers another order."""
        record = content.get(cls.record)
        if not isinstance(record, ConfigRecord):
            raise Refused(f"the reply has no record {cls.record!r}")
        try:
            found = cls.model_validate(dict(record))
        except ValidationError as error:
            raise Refused(explain_validation(error, cls.model_fields, "field")) from error
        for name in ("device", "version", "tick", "nonce") if order else ():
            answer, wanted = getattr(found, name, None), getattr(order, name, None)
            if answer != wanted:
                what = "something else" if name == "nonce" else f"{reprlib.repr(answer)}, not {wanted}"
                raise Refused(f"the reply is for another order: {name} is {what}")
        return found


class TrainOrder(_Message):
    """Train from this model and hold the update."""

    record, kind = "order", "train"

    learning_rate: float
    want_norm: bool = False
    want_loss: bool = False
    # What the server has seen of this device: the node's memory goes on from there, whatever else was lost on the way.
    acknowledged: int = 0  # the tick of the last upload that was aggregated; 0: none
    previous: int = 0  # the version of the last training that was a candidate; 0: none


class ReadyReply(_Message):
    """The reply to an order: the node's row of Candidates."""

    record = "ready"

    num_samples: int
    label_counts: Annotated[list[Annotated[int, Field(ge=0, le=MAX_COUNT)]], FailFast()]  # [c]
    data: int  # which partition it holds; -1: its own
    isa: ShortWord
    capacity: float | None = None  # bit/symbol, if the node knows
    update_sq_norm: float | None = None
    loss: float | None = None  # of the model it received, on its own samples
    # the parts whose last use that the server has seen is not remembered
    forgot: Annotated[list[PartWithMemory], FailFast()] = Field(default=[])


class UploadOrder(_Message):
    """Send the update you hold in at most so many bits."""

    record, kind = "grant", "query.upload"

    tick: int
    bits: float


class UploadReply(_Message):
    """The reply to a grant."""

    record = "upload"

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
    ready = ReadyReply.read(content, order)
    counts, total = ready.label_counts, ready.num_samples
    if len(counts) != num_labels or sum(counts) != total:
        raise Refused(
            f"label_counts has {len(counts)} entries for {num_labels} labels and adds up to {sum(counts)}; "
            f"num_samples is {total}"
        )
    ranges: dict[str, tuple[bool, float, float]] = {  # whether it was asked for, least, most
        "num_samples": (True, 1, settings.max_samples),
        # Only a loader of one's own knows data without a number; a replay could not find it.
        "data": (True, 0 if settings.loader == "partition" else -1, num_devices - 1),
        # One dead link takes all symbols of a period: a node without a link cannot say so, and is no candidate.
        "capacity": (settings.capacity == "reported", MIN_CAPACITY, settings.max_capacity),
        "update_sq_norm": (order.want_norm, 0, settings.max_update_norm**2),
        "loss": (order.want_loss, 0, _MAX_LOSS),
    }
    for name, (asked, least, most) in ranges.items():
        value = getattr(ready, name)
        if asked and (value is None or not least <= value <= most):
            raise Refused(f"{name} is {value}; it must be from {least:g} to {most:g}")
    return ready.model_copy(update={name: None for name, (asked, *_) in ranges.items() if not asked})


def capped_counts(label_counts: Sequence[Sequence[int]], of_all: Sequence[int], ratio: float | None) -> list[list[int]]:
    """Return samples of each label [m c] of which no row adds up to more than `ratio` times the median of all devices'.

    of_all: how many samples each device has that has reported [n]. What a longer row loses, it loses in proportion. So those
    who claim too much, if they are fewer than half, gain nothing beyond `ratio` times an honest device. None: no limit.
    """
    if ratio is None or not of_all:
        return [[*row] for row in label_counts]
    most = max(math.floor(ratio * statistics.median(of_all)), 1)
    capped = []
    for row in label_counts:
        total = max(sum(row), 1)
        up_to = [0, *itertools.accumulate(row)]  # rounded as sums, so that the row adds up to `most`
        kept = [end * most // total - start * most // total for start, end in itertools.pairwise(up_to)]
        capped.append(kept if total > most else [*row])
    return capped


def read_upload(
    content: RecordDict, grant: UploadOrder, codec: Codec, num_parameters: int, largest_norm: float
) -> tuple[Packet, Vector]:
    """Return the packet and the update [d] that the server reads from it, or raise Refused."""
    upload = UploadReply.read(content, grant)
    budget = max_packet_bits(codec, num_parameters, grant.bits)
    if len(upload.packet) > HEADER_BYTES + _SLACK_BYTES + budget / 8:
        raise Refused(f"a packet of {len(upload.packet)} bytes for a grant of {grant.bits:.0f} bits")
    try:
        packet = received_packet(upload.packet, num_parameters)
        with np.errstate(over="ignore"):
            update = np.asarray(codec.decode(packet)).astype(np.float32, copy=False)
    except Exception as error:  # whatever decoding rubbish raises; one node must not end the federation
        raise Refused(f"a packet that cannot be decoded ({fault_text(error)})") from error
    if packet.bits > budget:
        raise Refused(f"a packet of {packet.bits} bits for a grant of {grant.bits:.0f}")
    if update.shape != (num_parameters,) or not np.isfinite(update).all():
        raise Refused(f"a packet that is not {num_parameters} finite numbers")
    norm = math.sqrt(float(np.square(update, dtype=np.float64).sum()))
    if norm > largest_norm:
        raise Refused(f"an update of norm {norm:.3g}, and at most {largest_norm:.4g} is believed (max_update_norm)")
    return packet, update


# -- link capacities that are measured on uploads -------------------------------------------------------------------


def measured_capacity(system: System, rate: Mapping[int, float], window: float, most: float) -> Floats:
    """Return the capacities [N] in bit/symbol that fit the rates (bit/s) seen on recent uploads.

    The symbols of a tick are sent within `window` seconds, so one bit/symbol is num_symbols / window bit/s. A link that has
    not been used yet counts as one at the average SNR.
    """
    experiment = system.experiment
    scale = np.asarray(experiment.radio.large_scale, np.float64)
    average = system.modem(np.ravel(10 ** (experiment.radio.snr_db / 10) * scale))
    tried = np.where(average > 0, average, MIN_CAPACITY)  # in outage on average is not always in outage
    found = np.broadcast_to(tried, experiment.fleet.num_devices).copy()
    for device, bits_per_second in rate.items():
        found[device] = np.clip(bits_per_second * window / system.num_symbols, MIN_CAPACITY, most)
    return found
