"""Reading what nodes send. Everything here is untrusted: types, ranges, sums and sizes are checked before use."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from fedtide.codec.base import Codec, Packet, most_bits, received
from fedtide.codec.wire import HEADER_BYTES
from fedtide.errors import FedtideError
from fedtide.flower.link import LEAST
from fedtide.flower.protocol import GrantOrder, Order, Ready
from fedtide.flower.settings import Deployment
from fedtide.flower.trace import REMEMBERING
from fedtide.types import Vector

LARGEST_COUNT = 2**53  # whole numbers stay exact in the scheduler's float64
LARGEST_LOSS = 1e12  # nats
SLACK_BYTES = 64  # what a codec may need beyond its budget: padding and rounding


class Refused(FedtideError):
    """A reply that breaks the protocol; the message says how."""


def read_ready(content: RecordDict, order: Order, num_labels: int, num_devices: int, settings: Deployment) -> Ready:
    """Return the row that a node reports, or raise Refused."""
    record = _record(content, "ready")
    _answers(record, {"device": order.device, "version": order.version, "nonce": order.nonce})
    counts = record.get("label_counts")
    if not isinstance(counts, list) or not all(_is_whole(each) for each in counts):
        raise Refused("label_counts is not a list of whole numbers")
    if len(counts) != num_labels:
        raise Refused(f"label_counts has {len(counts)} entries for {num_labels} labels")
    if not all(0 <= each <= LARGEST_COUNT for each in counts):
        raise Refused("label_counts has an entry out of range")
    num_samples = _whole(record, "num_samples", 1, settings.max_samples)
    if sum(counts) != num_samples:
        raise Refused(f"label_counts adds up to {sum(counts)}, num_samples is {num_samples}")
    isa = record.get("isa")
    if not isinstance(isa, str) or len(isa) > 32 or not isa.isprintable():
        raise Refused("isa is not a short word")
    # One dead link takes all symbols of a period: a node without a link cannot say so, and is no candidate.
    capacity = _number(record, "capacity", LEAST, settings.max_capacity) if settings.capacity == "reported" else None
    norm = _number(record, "update_sq_norm", 0.0, settings.max_update_norm**2) if order.want_norm else None
    loss = _number(record, "loss", 0.0, LARGEST_LOSS) if order.want_loss else None
    forgot = record.get("forgot", [])
    if not isinstance(forgot, list) or not all(each in REMEMBERING for each in forgot):
        raise Refused(f"forgot is {str(forgot)[:40]!r}; it must be a list of {' and '.join(REMEMBERING)}")
    # Only a loader of one's own knows data without a number; a replay could not find it.
    data = _whole(record, "data", 0 if settings.loader == "partition" else -1, num_devices - 1)
    return Ready(num_samples, np.array(counts, np.int64), data, isa, capacity, norm, loss, tuple(forgot))


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
    if len(data) > HEADER_BYTES + SLACK_BYTES + budget / 8:
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
