"""The ClientApp: train and hold the update; upload it when asked. Held state lives in Flower's context.

Node configuration: partition-id (which part of the data, default -1: the loader knows), capacity (bit/symbol, for
`reported` links), pace (seconds that a training takes at least, to play a slow device), data-folder (where this host keeps
the data set), privacy-key (any text; without it every restart draws new noise and spends epsilon again).
"""

from __future__ import annotations

import hashlib
import secrets
import time
from pathlib import Path

import numpy as np
from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from fedtide.deploy import node
from fedtide.deploy.node import Use, recall, store_memory
from fedtide.deploy.protocol import (
    GrantOrder,
    Order,
    ReadyMessage,
    model_record,
    read_grant,
    read_model,
    read_order,
    ready_content,
    upload_content,
)
from fedtide.deploy.settings import Terms, from_run_config
from fedtide.errors import FedtideError
from fedtide.learning import native
from fedtide.types import Vector

_LARGEST_REPORT = 1e6  # of a capacity in bit/symbol, of a pace in seconds


def train(message: Message, context: Context) -> Message:
    """Train from the model that came, hold the update, and say that it is ready."""
    begun = time.monotonic()
    order, model = read_order(message.content)
    terms, part, pace = _terms(context), _part(context), _number(context, "pace") or 0.0
    own = node.own_data(terms, part)
    waits = node.waits_for_ack(terms.experiment)
    seen = order.acknowledged if waits else order.previous
    before = recall(context.state, "trainer", order.device, seen)
    update, after = node.train_and_hold(terms, model, order.device, order.version, order.learning_rate, own, before)
    store_memory(
        context.state, "trainer", order.device, Use(seen, before), Use(seen if waits else order.version, after)
    )
    acknowledged = Use(order.acknowledged, recall(context.state, "codec", order.device, order.acknowledged))
    store_memory(context.state, "codec", order.device, acknowledged, acknowledged)
    held = {"device": order.device, "version": order.version, "acknowledged": order.acknowledged}
    context.state["held"] = ConfigRecord(held)
    context.state["update"] = model_record(update)
    row = node.row(terms, own, _secret(context))
    ready = ReadyMessage(
        num_samples=row.num_samples,
        label_counts=row.label_counts,
        data=part,
        isa=native.isa(),
        capacity=_number(context, "capacity"),
        update_sq_norm=float(np.square(update, dtype=np.float64).sum()) if order.want_norm else None,
        loss=node.loss(terms, model, own) if order.want_loss else None,
        forgot=_forgot(
            terms, order, waits, before is None and (waits or after is not None), acknowledged.memory is None
        ),
    )
    left = pace - (time.monotonic() - begun)
    if left > 0:
        time.sleep(left)
    return Message(ready_content(order, ready), reply_to=message)


def upload(message: Message, context: Context) -> Message:
    """Encode the update that is held into the granted bits. It stays held: the reply may get lost."""
    grant = read_grant(message.content)
    update, acknowledged = _held(context, grant)
    before = recall(context.state, "codec", grant.device, acknowledged)
    terms = _terms(context)
    packet, after = node.encode_held(terms.experiment, update, grant.device, grant.tick, grant.bits, before)
    store_memory(context.state, "codec", grant.device, Use(acknowledged, before), Use(grant.tick, after))
    if node.waits_for_ack(terms.experiment):  # else it is done without loading the data
        held = recall(context.state, "trainer", grant.device, acknowledged)
        heard = node.arrived(terms, node.own_data(terms, _part(context)), packet, held)
        store_memory(context.state, "trainer", grant.device, Use(acknowledged, held), Use(grant.tick, heard))
    return Message(upload_content(grant, packet.data), reply_to=message)


def _held(context: Context, grant: GrantOrder) -> tuple[Vector, int]:
    """Return the update that is held, and the last upload (tick) that the server had seen when it was ordered."""
    held = dict(context.state["held"]) if "held" in context.state else {}
    acknowledged = held.pop("acknowledged", 0)
    if held != {"device": grant.device, "version": grant.version}:
        raise FedtideError(
            f"asked for device {grant.device} from version {grant.version}, but this node holds {held or None}"
        )
    return read_model(context.state["update"]), int(acknowledged)


def _forgot(terms: Terms, order: Order, waits: bool, trainer_began: bool, codec_begins: bool) -> tuple[str, ...]:
    """Name the parts of which the server has seen a use on this device that is not remembered here."""
    found = ["trainer"] if (order.acknowledged if waits else order.previous) and trainer_began else []
    if order.acknowledged and codec_begins and node.codec_remembers(terms.experiment):
        found.append("codec")
    return tuple(found)


def _terms(context: Context) -> Terms:
    terms = from_run_config(context.run_config)
    folder = context.node_config.get("data-folder")
    if folder is None:
        return terms
    if not isinstance(folder, str):
        raise FedtideError(f"data-folder={folder!r} in --node-config: it must be a path in quotes")
    data = terms.experiment.data.model_copy(update={"folder": Path(folder)})
    return terms._replace(experiment=terms.experiment.model_copy(update={"data": data}))


def _part(context: Context) -> int:
    part = context.node_config.get("partition-id", -1)
    if not isinstance(part, int) or isinstance(part, bool) or part < -1:
        raise FedtideError(
            f"partition-id={part!r} in --node-config: it must be a whole number from 0, such as 'partition-id=0'"
        )
    return part


def _number(context: Context, key: str) -> float | None:
    """Return a number of the node's configuration; None if it is not there."""
    value = context.node_config.get(key)
    if value is None:
        return None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= _LARGEST_REPORT:
        raise FedtideError(
            f"{key}={value!r} in --node-config: it must be a number from 0 to {_LARGEST_REPORT:g}, without quotes"
        )
    return float(value)


def _secret(context: Context) -> bytes:
    """Return this node's secret, which names its privacy noise."""
    key = context.node_config.get("privacy-key")
    if key is not None:
        return hashlib.sha256(str(key).encode()).digest()
    if "secret" not in context.state:
        context.state["secret"] = ConfigRecord({"bytes": secrets.token_bytes(32)})
    return bytes(context.state["secret"]["bytes"])


app = ClientApp()
app.train()(train)
app.query("upload")(upload)
