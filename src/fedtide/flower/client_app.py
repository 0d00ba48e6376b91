"""The ClientApp: train and hold the update; upload it when asked. Held state lives in Flower's context.

Node configuration: partition-id (which part of the data, default -1: the loader knows), capacity (bit/symbol, for
`reported` links), pace (seconds that a training takes at least, to play a slow device), data-folder (where this host keeps
the data set), privacy-key (any text; without it every restart draws new noise and spends epsilon again).
"""

from __future__ import annotations

import hashlib
import secrets
import time

import numpy as np
from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from fedtide.errors import FedtideError
from fedtide.flower import node
from fedtide.flower.loaders import node_system
from fedtide.flower.protocol import (
    GrantOrder,
    Ready,
    model_record,
    read_grant,
    read_model,
    read_order,
    ready_content,
    upload_content,
)
from fedtide.flower.settings import Terms, from_run_config
from fedtide.learning import native
from fedtide.types import Vector


def train(message: Message, context: Context) -> Message:
    """Train from the model that came, hold the update, and say that it is ready."""
    begun = time.monotonic()
    order, model = read_order(message.content)
    terms, part = _terms(context), _part(context)
    own = node.own_data(terms, part)
    update = node.train(terms, model, order.device, order.version, order.learning_rate, own)
    context.state["held"] = ConfigRecord({"device": order.device, "version": order.version})
    context.state["task"] = ConfigRecord({"shape": list(own.train.images.shape[1:]), "num_labels": own.num_labels})
    context.state["update"] = model_record(update)
    row = node.row(terms, own, _secret(context))
    capacity = context.node_config.get("capacity")
    ready = Ready(
        num_samples=row.num_samples,
        label_counts=row.label_counts,
        data=part,
        isa=native.isa(),
        capacity=float(capacity) if capacity is not None else None,
        update_sq_norm=float(np.square(update, dtype=np.float64).sum()) if order.want_norm else None,
    )
    left = float(context.node_config.get("pace", 0.0)) - (time.monotonic() - begun)
    if left > 0:
        time.sleep(left)
    return Message(ready_content(order, ready), reply_to=message)


def upload(message: Message, context: Context) -> Message:
    """Encode the update that is held into the granted bits. It stays held: the reply may get lost."""
    grant = read_grant(message.content)
    update, task = _held(context, grant), context.state["task"]
    system = node_system(
        _terms(context).experiment, tuple(task["shape"]), task["num_labels"]
    )  # without loading the data
    packet = node.encode(system, update, grant.device, grant.tick, grant.bits)
    return Message(upload_content(grant, packet.data), reply_to=message)


def _held(context: Context, grant: GrantOrder) -> Vector:
    held = dict(context.state["held"]) if "held" in context.state else None
    if held != {"device": grant.device, "version": grant.version}:
        raise FedtideError(f"asked for device {grant.device} from version {grant.version}, but this node holds {held}")
    return read_model(context.state["update"])


def _terms(context: Context) -> Terms:
    terms = from_run_config(context.run_config)
    folder = context.node_config.get("data-folder")
    if folder is None:
        return terms
    data = terms.experiment.data.model_copy(update={"folder": folder})
    return terms._replace(experiment=terms.experiment.model_copy(update={"data": data}))


def _part(context: Context) -> int:
    return int(context.node_config.get("partition-id", -1))


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
