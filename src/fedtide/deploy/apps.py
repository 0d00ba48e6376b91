"""Flower's two apps: the ClientApp that trains, holds and uploads, and the ServerApp that runs a Coordinator.

Run configuration: experiment and deployment (JSON), run-folder (a path on the server's host).
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, get_args

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedtide.codec.base import Codec, Packet
from fedtide.codec.baselines import is_secret
from fedtide.codec.private import secret_seed
from fedtide.config import Experiment
from fedtide.config.values import explain_validation
from fedtide.deploy.coordinator import Coordinator
from fedtide.deploy.log import logged_run
from fedtide.deploy.mailbox import Mailbox
from fedtide.deploy.node import Worker
from fedtide.deploy.protocol import ReadyReply, TrainOrder, UploadOrder, UploadReply, model_record, read_model
from fedtide.deploy.settings import from_run_config
from fedtide.deploy.trace import PartWithMemory
from fedtide.engine.devices import encode_update
from fedtide.errors import FedtideError
from fedtide.learning import native
from fedtide.parts import checks
from fedtide.types import Ints, Memory, Vector

# -- the node -------------------------------------------------------------------------------------------------------


class AppWorker(Protocol):
    """What a node's messages need of whoever trains there: fedtide's Worker, or a Flower user's own app."""

    codec: Codec
    experiment: Experiment
    part: int  # of the data; -1: the node's own
    updates_on_ack: bool  # the trainer's memory follows the uploads that arrived

    def train(
        self, model: Vector, device: int, version: int, learning_rate: float, memory: Memory | None = None
    ) -> tuple[Vector, Memory | None]:
        """Return the update [d] from a model [d], and what the trainer remembers then."""
        ...

    def after_upload(self, packet: Packet, memory: Memory | None) -> Memory:
        """Return what the trainer remembers once the server has this packet."""
        ...

    def label_counts(self, secret: bytes) -> Ints:
        """Return how many samples of each label the node reports [c]."""
        ...

    def loss(self, model: Vector) -> float:
        """Return the loss of a model on the node's own samples."""
        ...


class NodeConfig(BaseModel):
    """A node's own settings, `--node-config`."""

    model_config = ConfigDict(
        strict=True, frozen=True, allow_inf_nan=False, alias_generator=lambda name: name.replace("_", "-")
    )

    partition_id: int = Field(-1, ge=-1)  # which part of the data; -1: the loader knows
    capacity: float | None = Field(None, ge=0, le=1e6)  # bit/symbol, for `reported` links
    pace: float = Field(0.0, ge=0, le=1e6)  # seconds that a training takes at least, to play a slow device
    data_folder: str | None = None  # where this host keeps the data set
    privacy_key: str | int | float | None = None  # without it every restart draws new noise and spends epsilon again


def _node_config(context: Context) -> NodeConfig:
    """Read the node's settings; one clear line if that cannot be."""
    try:
        return NodeConfig.model_validate(dict(context.node_config))
    except ValidationError as error:
        raise FedtideError(f"--node-config: {explain_validation(error, {}, 'setting')}") from error


def _train(message: Message, context: Context) -> Message:
    return train_and_hold(message, context, _worker(context), read_model(message.content["model"]))


def train_and_hold(message: Message, context: Context, worker: AppWorker, model: Vector) -> Message:
    """Train from the model that came, hold the update, and say that it is ready."""
    begun, own, order = time.monotonic(), _node_config(context), TrainOrder.read(message.content)
    device, state = order.device, context.state
    seen = order.acknowledged if worker.updates_on_ack else order.previous
    before = _recall(state, "trainer", device, seen)
    update, after = worker.train(model, device, order.version, order.learning_rate, before)
    _store_memory(state, "trainer", device, {seen: before, seen if worker.updates_on_ack else order.version: after})
    coded = _recall(state, "codec", device, order.acknowledged)
    _store_memory(state, "codec", device, {order.acknowledged: coded})
    state["held"] = ConfigRecord({"device": device, "version": order.version, "acknowledged": order.acknowledged})
    state["update"] = model_record(update)
    # The parts of which the server has seen a use on this device that is not remembered here
    lost = {
        "trainer": seen and before is None and (worker.updates_on_ack or after is not None),
        "codec": order.acknowledged and coded is None and checks.part_remembers(worker.codec),
    }
    counts = worker.label_counts(_secret(own, state))
    ready = ReadyReply(
        device=device,
        version=order.version,
        nonce=order.nonce,
        num_samples=int(counts.sum()),
        label_counts=counts.tolist(),
        data=worker.part,
        isa=native.native_isa(),
        capacity=own.capacity,
        update_sq_norm=float(np.square(update, dtype=np.float64).sum()) if order.want_norm else None,
        loss=worker.loss(model) if order.want_loss else None,
        forgot=[kind for kind in get_args(PartWithMemory) if lost[kind]],
    )
    time.sleep(max(0.0, own.pace - (time.monotonic() - begun)))
    return Message(ready.content(), reply_to=message)


def _upload(message: Message, context: Context) -> Message:
    return encode_held(message, context, _worker(context))


def encode_held(message: Message, context: Context, worker: AppWorker) -> Message:
    """Encode the update that is held into the granted bits. It stays held: the reply may get lost."""
    state, grant = context.state, UploadOrder.read(message.content)
    held = dict(state["held"]) if "held" in state else {}
    acknowledged = int(held.pop("acknowledged", 0))  # the last upload that the server had seen when it ordered this one
    device = grant.device
    if held != {"device": device, "version": grant.version}:
        raise FedtideError(
            f"asked for device {device} from version {grant.version}, but this node holds {held or None}"
        )
    before = _recall(state, "codec", device, acknowledged)
    update = read_model(state["update"])
    seed, tick = worker.experiment.seed, grant.tick
    if is_secret(worker.codec):
        seed, tick = secret_seed(_secret(_node_config(context), state), update), 0
    packet, after = encode_update(worker.codec, update, grant.bits, seed, device, tick, before)
    _store_memory(state, "codec", device, {acknowledged: before, grant.tick: after})
    if worker.updates_on_ack:  # else it is done without loading the data
        before = _recall(state, "trainer", device, acknowledged)
        after = worker.after_upload(packet, before)
        _store_memory(state, "trainer", device, {acknowledged: before, grant.tick: after})
    reply = UploadReply(**grant.model_dump(exclude={"bits"}), packet=packet.data)
    return Message(reply.content(), reply_to=message)


def _worker(context: Context) -> Worker:
    own = _node_config(context)
    texts = (str(context.run_config.get(key)) for key in ("experiment", "deployment"))
    return _made_worker(*texts, own.data_folder, own.partition_id)


@lru_cache(maxsize=64)
def _made_worker(experiment: str, deployment: str, data_folder: str | None, part: int) -> Worker:
    return Worker(from_run_config({"experiment": experiment, "deployment": deployment}, data_folder), part)


def _secret(own: NodeConfig, state: RecordDict) -> bytes:
    """Return this node's secret, which names its privacy noise."""
    if own.privacy_key is not None:
        return hashlib.sha256(str(own.privacy_key).encode()).digest()
    if "secret" not in state:
        state["secret"] = ConfigRecord({"bytes": secrets.token_bytes(32)})
    return bytes(state["secret"]["bytes"])


# What the parts of a node remember, in Flower's context: as it was before the last use, and after it. A use is known by the
# tick of its upload or the version of its training; 0: there was none yet.
#
# Only the server knows whether a use counted: an upload may be lost, a training may come too late. Its next order says
# which was the last one that it has seen, and the node goes on from there. A node that does not remember that one (it was
# restarted, or another one played its device since) begins anew, and says so: the trace notes it for the replay.


def _recall(state: RecordDict, kind: str, device: int, seen: int) -> Memory | None:
    """Return what a part remembers of this device after the last use (tick or version) that the server has seen.

    None if that is nothing yet, or was forgotten.
    """
    record = state.get(f"{kind}-{device}-{seen}")
    return {name: np.array(array.numpy()) for name, array in record.items()} if record is not None else None


def _store_memory(state: RecordDict, kind: str, device: int, memories: Mapping[int, Memory | None]) -> None:
    """Keep what a part remembers after these uses, and nothing older; None: nothing."""
    for name in [name for name in state if name.startswith(f"{kind}-")]:
        del state[name]
    for use, memory in memories.items():
        if memory is not None:
            arrays = {name: Array(np.array(array, order="C")) for name, array in memory.items()}
            state[f"{kind}-{device}-{use}"] = ArrayRecord(arrays)


client_app = ClientApp()
client_app.train()(_train)
client_app.query("upload")(_upload)


# -- the server -----------------------------------------------------------------------------------------------------


def _run_server(grid: Grid, context: Context) -> None:
    """Run the federation on the wall clock, from wherever its run folder stopped."""
    folder = _run_folder(context.run_config)
    with logged_run(folder):
        terms = from_run_config(context.run_config)
        mailbox = Mailbox(grid)
        Coordinator(mailbox, terms, folder, time.monotonic, mailbox.wait).run()


def _run_folder(run_config: Mapping[str, Any]) -> Path:
    """Return where the run is kept on this host."""
    name = run_config.get("run-folder")
    if not isinstance(name, str) or not Path(name).name or "\0" in name:
        raise FedtideError(
            f"run-folder={name!r} in the run configuration names no folder; make the app with `fedtide deploy app --run`"
        )
    return Path(name)


server_app = ServerApp()
server_app.main()(_run_server)
