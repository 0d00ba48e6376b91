"""Flower's two apps: the ClientApp that trains, holds and uploads, and the ServerApp that runs a Coordinator.

Run configuration: experiment and deployment (JSON), run-folder (a path on the server's host).
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedtide.config.values import explain_validation
from fedtide.core.files import file_fault
from fedtide.deploy.conversation import Mailbox
from fedtide.deploy.coordinator import Coordinator
from fedtide.deploy.node import Worker
from fedtide.deploy.protocol import ReadyReply, TrainOrder, UploadOrder, UploadReply, model_record, read_model
from fedtide.deploy.settings import from_run_config
from fedtide.deploy.trace import PartWithMemory
from fedtide.engine.devices import encode_update
from fedtide.engine.loop import score_model
from fedtide.errors import FedtideError
from fedtide.learning import native
from fedtide.parts import checks
from fedtide.types import Memory

_MARK = " ERROR "
_log = logging.getLogger("fedtide.deploy")


# -- the node -------------------------------------------------------------------------------------------------------


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
    """Train from the model that came, hold the update, and say that it is ready."""
    begun = time.monotonic()
    order, model = TrainOrder.read(message.content), read_model(message.content["model"])
    own, device, state = _node_config(context), order.device, context.state
    worker = _worker(context, own)
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
        loss=score_model(worker.trainer, model, worker.data.train).loss if order.want_loss else None,
        forgot=[kind for kind in get_args(PartWithMemory) if lost[kind]],
    )
    time.sleep(max(0.0, own.pace - (time.monotonic() - begun)))
    return Message(ready.content(), reply_to=message)


def _upload(message: Message, context: Context) -> Message:
    """Encode the update that is held into the granted bits. It stays held: the reply may get lost."""
    own, state, grant = _node_config(context), context.state, UploadOrder.read(message.content)
    worker = _worker(context, own)
    held = dict(state["held"]) if "held" in state else {}
    acknowledged = int(held.pop("acknowledged", 0))  # the last upload that the server had seen when it ordered this one
    device = grant.device
    if held != {"device": device, "version": grant.version}:
        raise FedtideError(
            f"asked for device {device} from version {grant.version}, but this node holds {held or None}"
        )
    before = _recall(state, "codec", device, acknowledged)
    seed, update = worker.experiment.seed, read_model(state["update"])
    packet, after = encode_update(worker.codec, update, grant.bits, seed, device, grant.tick, before)
    _store_memory(state, "codec", device, {acknowledged: before, grant.tick: after})
    if worker.updates_on_ack:  # else it is done without loading the data
        before = _recall(state, "trainer", device, acknowledged)
        after = worker.after_upload(packet, before)
        _store_memory(state, "trainer", device, {acknowledged: before, grant.tick: after})
    reply = UploadReply(**grant.model_dump(exclude={"bits"}), packet=packet.data)
    return Message(reply.content(), reply_to=message)


def _worker(context: Context, own: NodeConfig) -> Worker:
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
    handler = _log_to(folder)
    try:
        terms = from_run_config(context.run_config)
        Coordinator(Mailbox(grid), terms, folder, time.monotonic, time.sleep).run()
    except Exception as error:
        kind = "" if isinstance(error, FedtideError) else f"{type(error).__name__}: "
        _log.error("%s", kind + " ".join(str(error).split()))
        raise
    finally:
        _log.removeHandler(handler)
        handler.close()


def _run_folder(run_config: Mapping[str, Any]) -> Path:
    """Return where the run is kept on this host."""
    name = run_config.get("run-folder")
    if not isinstance(name, str) or not Path(name).name or "\0" in name:
        raise FedtideError(
            f"run-folder={name!r} in the run configuration names no folder; make the app with `fedtide deploy app --run`"
        )
    return Path(name)


def server_log(folder: Path) -> Path:
    """Return where the server's log is: beside the run folder, RUN.log, whatever Flower does with its own."""
    return folder.with_name(f"{folder.name}.log")


def _log_to(folder: Path) -> logging.Handler:
    """Keep the log of this run from now on."""
    path = server_log(folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise file_fault(path, "written", error) from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    return handler


def server_error(folder: Path, since: int = 0) -> str | None:
    """Return why the server of this run has given up, or None if it has not. since: bytes of an older log."""
    try:
        lines = server_log(folder).read_bytes()[since:].decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    return lines[-1].partition(_MARK)[2] if lines and _MARK in lines[-1] else None


server_app = ServerApp()
server_app.main()(_run_server)
