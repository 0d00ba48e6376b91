"""What server and nodes write to each other; everything a node sends is untrusted and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedtide.codec.base import HEADER_BYTES, Codec, Packet, most_bits, received
from fedtide.deploy.settings import Deployment
from fedtide.deploy.trace import REMEMBERING
from fedtide.engine.system import System
from fedtide.errors import FedtideError
from fedtide.radio.modem import shannon_capacity
from fedtide.types import Floats, Ints, Vector

# What server and nodes write to each other, as plain records: both phases, both directions.
#
# train          server -> node   order: device, version, learning_rate, what to report, nonce, what is remembered; model [d]
#   reply                         ready: device, version, nonce, num_samples, label_counts, data, isa, and what was asked for
# query.upload   server -> node   grant: device, version, tick, bits, nonce
#   reply                         upload: device, version, tick, nonce, packet
# The nonce is new with every order: a reply that was recorded earlier does not fit a later order.


TRAIN, UPLOAD = "train", "query.upload"


class Order(NamedTuple):
    """Train from this model and hold the update."""

    device: int
    version: int
    learning_rate: float
    want_norm: bool
    nonce: str
    want_loss: bool = False
    # What the server has seen of this device: the node's memory goes on from there, whatever else was lost on the way.
    acknowledged: int = 0  # the tick of the last upload that was aggregated; 0: none
    previous: int = 0  # the version of the last training that was a candidate; 0: none


class ReadyMessage(NamedTuple):
    """The node's row of Candidates."""

    num_samples: int
    label_counts: Ints  # [c]
    data: int  # which partition it holds; -1: its own
    isa: str
    capacity: float | None  # bit/symbol, if the node knows
    update_sq_norm: float | None
    loss: float | None = None  # of the model as it was received, on the node's own samples
    forgot: tuple[str, ...] = ()  # the parts whose last use that the server has seen is not remembered on this node


class GrantOrder(NamedTuple):
    """Send the update you hold in at most so many bits."""

    device: int
    version: int
    tick: int
    bits: float
    nonce: str


def model_record(model: Vector) -> ArrayRecord:
    """Return model or update [d] as a record."""
    return ArrayRecord({"vector": Array(np.ascontiguousarray(model, np.float32))})


def read_model(record: ArrayRecord) -> Vector:
    """Return model or update [d] from a record."""
    vector: Vector = record["vector"].numpy().astype(np.float32, copy=False)
    return vector


def order_content(order: Order, model: ArrayRecord) -> RecordDict:
    """Write a training order."""
    return RecordDict({"order": ConfigRecord(order._asdict()), "model": model})


def read_order(content: RecordDict) -> tuple[Order, Vector]:
    """Read a training order; the node trusts its server."""
    return Order(**dict(content["order"])), read_model(content["model"])


def ready_content(order: Order, ready: ReadyMessage) -> RecordDict:
    """Write the reply to a training order."""
    record: dict[str, Any] = {
        "device": order.device,
        "version": order.version,
        "nonce": order.nonce,
        "num_samples": ready.num_samples,
        "label_counts": ready.label_counts.tolist(),
        "data": ready.data,
        "isa": ready.isa,
    }
    optional = {"capacity": ready.capacity, "update_sq_norm": ready.update_sq_norm, "loss": ready.loss}
    record |= {name: value for name, value in optional.items() if value is not None}
    if ready.forgot:
        record["forgot"] = list(ready.forgot)
    return RecordDict({"ready": ConfigRecord(record)})


def grant_content(grant: GrantOrder) -> RecordDict:
    """Write a grant."""
    return RecordDict({"grant": ConfigRecord(grant._asdict())})


def read_grant(content: RecordDict) -> GrantOrder:
    """Read a grant."""
    return GrantOrder(**dict(content["grant"]))


def upload_content(grant: GrantOrder, packet: bytes) -> RecordDict:
    """Write the reply to a grant."""
    record = {"device": grant.device, "version": grant.version, "tick": grant.tick, "nonce": grant.nonce}
    return RecordDict({"upload": ConfigRecord({**record, "packet": packet})})


# Link capacities of the fleet [N] in bit/symbol: seeded fading, measured on uploads, or as reported.


_MEMORY = 0.5  # weight of the newest measurement
LEAST_CAPACITY = 1e-6  # bit/symbol; a link that was seen to work is never taken for dead


def measured(system: System, rate: Mapping[int, float], window: float, most: float) -> Floats:
    """Return the capacities that fit the rates (bit/s) seen on recent uploads [N].

    The symbols of a tick are sent within `window` seconds, so one bit/symbol is num_symbols / window bit/s. A link that has
    not been used yet counts as one at the average SNR.
    """
    experiment = system.experiment
    scale = np.asarray(experiment.radio.large_scale, np.float64)
    found = np.broadcast_to(
        shannon_capacity(10 ** (experiment.radio.snr_db / 10) * scale), experiment.fleet.num_devices
    ).copy()
    for device, bits_per_second in rate.items():
        found[device] = np.clip(bits_per_second * window / system.num_symbols, LEAST_CAPACITY, most)
    return found


def updated(rate: Mapping[int, float], device: int, bits: int, seconds: float) -> dict[int, float]:
    """Return the rates with one more upload of so many bits on the wire, in so many seconds, taken in."""
    seen = bits / max(seconds, 1e-3)
    before = rate.get(device, seen)
    return {**rate, device: before + _MEMORY * (seen - before)}


# Reading what nodes send. Everything here is untrusted: types, ranges, sums and sizes are checked before use.


_LARGEST_COUNT = 2**53  # whole numbers stay exact in the scheduler's float64
_LARGEST_LOSS = 1e12  # nats
_SLACK_BYTES = 64  # what a codec may need beyond its budget: padding and rounding


class Refused(FedtideError):
    """A reply that breaks the protocol; the message says how."""


def read_ready(
    content: RecordDict, order: Order, num_labels: int, num_devices: int, settings: Deployment
) -> ReadyMessage:
    """Return the row that a node reports, or raise Refused."""
    record = _record(content, "ready")
    _answers(record, {"device": order.device, "version": order.version, "nonce": order.nonce})
    counts = record.get("label_counts")
    if not isinstance(counts, list) or not all(_is_whole(each) for each in counts):
        raise Refused("label_counts is not a list of whole numbers")
    if len(counts) != num_labels:
        raise Refused(f"label_counts has {len(counts)} entries for {num_labels} labels")
    if not all(0 <= each <= _LARGEST_COUNT for each in counts):
        raise Refused("label_counts has an entry out of range")
    num_samples = _whole(record, "num_samples", 1, settings.max_samples)
    if sum(counts) != num_samples:
        raise Refused(f"label_counts adds up to {sum(counts)}, num_samples is {num_samples}")
    isa = record.get("isa")
    if not isinstance(isa, str) or len(isa) > 32 or not isa.isprintable():
        raise Refused("isa is not a short word")
    # One dead link takes all symbols of a period: a node without a link cannot say so, and is no candidate.
    capacity = (
        _number(record, "capacity", LEAST_CAPACITY, settings.max_capacity) if settings.capacity == "reported" else None
    )
    norm = _number(record, "update_sq_norm", 0.0, settings.max_update_norm**2) if order.want_norm else None
    loss = _number(record, "loss", 0.0, _LARGEST_LOSS) if order.want_loss else None
    forgot = record.get("forgot", [])
    if not isinstance(forgot, list) or not all(each in REMEMBERING for each in forgot):
        raise Refused(f"forgot is {str(forgot)[:40]!r}; it must be a list of {' and '.join(REMEMBERING)}")
    # Only a loader of one's own knows data without a number; a replay could not find it.
    data = _whole(record, "data", 0 if settings.loader == "partition" else -1, num_devices - 1)
    return ReadyMessage(num_samples, np.array(counts, np.int64), data, isa, capacity, norm, loss, tuple(forgot))


def read_upload(
    content: RecordDict, grant: GrantOrder, codec: Codec, num_parameters: int, settings: Deployment
) -> tuple[Packet, Vector]:
    """Return the packet and the update [d] that the server reads from it, or raise Refused."""
    record = _record(content, "upload")
    _answers(record, {"device": grant.device, "version": grant.version, "tick": grant.tick, "nonce": grant.nonce})
    data = record.get("packet")
    if not isinstance(data, bytes):
        raise Refused("packet is not bytes")
    budget = most_bits(codec, num_parameters, grant.bits)
    if len(data) > HEADER_BYTES + _SLACK_BYTES + budget / 8:
        raise Refused(f"a packet of {len(data)} bytes for a grant of {grant.bits:.0f} bits")
    try:
        packet = received(data, num_parameters)
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


def _record(content: RecordDict, name: str) -> ConfigRecord:
    record = content.get(name)
    if not isinstance(record, ConfigRecord):
        raise Refused(f"the reply has no record {name!r}")
    return record


def _answers(record: ConfigRecord, wanted: dict[str, Any]) -> None:
    for key, value in wanted.items():
        found = record.get(key)
        if type(found) is not type(value) or found != value:
            shown = "something else" if key == "nonce" else f"{str(found)[:40]!r}"
            raise Refused(
                f"the reply is for another order: {key} is {shown}, not {'the nonce' if key == 'nonce' else value}"
            )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(record: ConfigRecord, key: str, low: int, high: int) -> int:
    value = record.get(key)
    if not _is_whole(value) or not low <= value <= high:
        raise Refused(f"{key} is {str(value)[:40]!r}; it must be a whole number from {low} to {high}")
    return int(value)


def _number(record: ConfigRecord, key: str, low: float, high: float) -> float:
    value = record.get(key)
    if not isinstance(value, float) or not low <= value <= high:  # NaN fails too
        raise Refused(f"{key} is {str(value)[:40]!r}; it must be a number from {low:g} to {high:g}")
    return value
