"""What server and nodes write to each other, as plain records: both phases, both directions.

train          server -> node   order: device, version, learning_rate, what to report, nonce, what is remembered; model [d]
  reply                         ready: device, version, nonce, num_samples, label_counts, data, isa, and what was asked for
query.upload   server -> node   grant: device, version, tick, bits, nonce
  reply                         upload: device, version, tick, nonce, packet
The nonce is new with every order: a reply that was recorded earlier does not fit a later order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedtide.types import Ints, Vector

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


class Ready(NamedTuple):
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


def ready_content(order: Order, ready: Ready) -> RecordDict:
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
