"""What a device does, without Flower: load its data, train and hold the update, encode it when the server grants bits."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedtide.codec.base import Codec, Packet
from fedtide.config import Experiment
from fedtide.data.holdings import label_counts
from fedtide.deploy.privacy import private_counts, secret_rng
from fedtide.deploy.settings import Terms
from fedtide.devices.fleet import Fleet
from fedtide.engine import training
from fedtide.engine.sending import decode_update, encode_update
from fedtide.engine.system import load_dataset, local_work, make_codec, make_fleet, make_model, trainer_of
from fedtide.engine.training import scored
from fedtide.errors import FedtideError
from fedtide.learning.trainer import Task, Trainer
from fedtide.parts import registry
from fedtide.parts.kinds import builtin_parts
from fedtide.types import Dataset, Ints, Job, Memory, Vector

# Where a node's data comes from. A loader is a callable (experiment, device) -> Dataset.
#
# `device` is the node's partition number; there `train` is the node's own data and `test` is not used. On the server it is
# None; there `test` is what models are scored on, and `train` is not used unless learning.training_loss is on.


class Loader(Protocol):
    """Loads what one host may see."""

    def __call__(self, experiment: Experiment, device: int | None) -> Dataset:
        """Return the device's own data, or the server's for None."""
        ...


def partition(experiment: Experiment, device: int | None) -> Dataset:
    """The experiment's own data set, dealt out as in the simulator: the demo, and hosts that share one data set."""
    text = experiment.model_dump_json()
    return _whole(text) if device is None else _part(text, device)


@lru_cache(maxsize=2)
def _whole(text: str) -> Dataset:
    return load_dataset(Experiment.model_validate_json(text))


@lru_cache(maxsize=64)
def _part(text: str, device: int) -> Dataset:
    dataset = _whole(text)
    dealt = make_fleet(Experiment.model_validate_json(text), dataset).partition
    if not 0 <= device < len(dealt):
        raise FedtideError(f"partition-id={device} is not one of the {len(dealt)} parts; use 0 to {len(dealt) - 1}")
    return dataset._replace(train=dataset.train.taken(dealt[device]))


_LOADERS = {"partition": partition}


def elsewhere(experiment: Experiment) -> Fleet:
    """Return a fleet of which only the number is known here: the devices hold their data, and take the time they take."""
    nobody = np.zeros(0, np.int64)
    return Fleet(np.full(experiment.fleet.num_devices, np.nan), [], nobody, nobody.reshape(0, 0))


def loader(name: str) -> Loader:
    """Return the loader of this name."""
    if name in _LOADERS:
        return _LOADERS[name]
    found: Loader = registry.find_part("loader", name, _LOADERS)
    return found


# What the parts of a node remember, in Flower's context: as it was before the last use, and after it.
#
# Only the server knows whether a use counted: an upload may be lost, a training may come too late. Its next order says
# which was the last one that it has seen, and the node goes on from there. A node that does not remember that one (it was
# restarted, or another one played its device since) begins anew, and says so: the trace notes it for the replay.


class Use(NamedTuple):
    """What a part remembers after a use."""

    number: int  # tick of an upload, version of a training; 0: it was not used yet
    memory: Memory | None  # None: nothing yet


def recall(state: RecordDict, kind: str, device: int, seen: int) -> Memory | None:
    """Return what a part remembers of this device after the last use (tick or version) that the server has seen.

    None if that is nothing yet, or was forgotten.
    """
    note = state.get(f"{kind}-memory")
    if not isinstance(note, ConfigRecord) or note["device"] != device:
        return None
    sides = [side for side in ("after", "before") if note[side] == seen]
    record = state.get(f"{kind}-{sides[0]}") if sides else None
    if not isinstance(record, ArrayRecord):
        return None
    return {name: np.array(each.numpy()) for name, each in record.items()}


def store_memory(state: RecordDict, kind: str, device: int, before: Use, after: Use) -> None:
    """Keep what a part remembered before a use and remembers after it; nothing of a part without memory."""
    for side, use in (("before", before), ("after", after)):
        name = f"{kind}-{side}"
        if use.memory is not None:
            state[name] = ArrayRecord({key: Array(np.array(each, order="C")) for key, each in use.memory.items()})
        elif name in state:
            del state[name]
    if before.memory is not None or after.memory is not None:
        state[f"{kind}-memory"] = ConfigRecord({"device": device, "before": before.number, "after": after.number})
    elif f"{kind}-memory" in state:
        del state[f"{kind}-memory"]


# What a device does, without Flower: train and hold the update, then encode it when the server grants bits.


class _HeldRow(NamedTuple):
    """What a node tells the scheduler about itself."""

    num_samples: int
    label_counts: Ints  # [c]


def own_data(terms: Terms, part: int) -> Dataset:
    """Return the data of partition `part`, through the loader that the deployment names."""
    return loader(terms.deployment.loader)(terms.experiment, part)


def train_and_hold(
    terms: Terms,
    model: Vector,
    device: int,
    version: int,
    learning_rate: float,
    own: Dataset,
    memory: Memory | None = None,
) -> tuple[Vector, Memory | None]:
    """Return the update u_k [d] of this device from model [d], which is this version, and what its trainer remembers now.

    The job is addressed by (seed, device, version) as in the simulator. A device's samples keep their order, so that the
    shuffles, and with them the bits, are the same whether the samples are its own or a part of a whole data set.
    """
    mine = np.arange(len(own.train.labels))
    job = Job(device, version, model, learning_rate, own.train, mine)
    before = {} if memory is None else {"trainer": {device: memory}}
    updates, after = training.train_jobs(own_trainer(terms, own), [job], before)
    return updates[0], after.get("trainer", {}).get(device)


def waits_for_ack(experiment: Experiment) -> bool:
    """Say whether what the trainer remembers goes on with uploads that arrived, not with trainings."""
    found: Any = registry.find_part("trainer", experiment.learning.trainer, builtin_parts("trainer"))
    return training.updates_state_on_ack(found)


def arrived(terms: Terms, own: Dataset, packet: Packet, memory: Memory | None) -> Memory:
    """Return what the trainer remembers once the server has this packet."""
    update = decode_update(_codec(terms.experiment.model_dump_json()), packet, packet.num_parameters)
    return training.after_arrival(own_trainer(terms, own), memory, update)


def loss(terms: Terms, model: Vector, own: Dataset) -> float:
    """Return the loss of a model [d] on the node's own samples."""
    return scored(own_trainer(terms, own), model, own.train).loss


def own_trainer(terms: Terms, own: Dataset) -> Trainer:
    """Return the trainer that the experiment names."""
    return _trainer(terms.experiment.model_dump_json(), own.train.images.shape[1:], own.num_labels)


@lru_cache(maxsize=4)
def _trainer(text: str, shape: tuple[int, ...], num_labels: int) -> Trainer:
    experiment = Experiment.model_validate_json(text)
    model = make_model(experiment, shape, num_labels)
    return trainer_of(experiment, Task(model, local_work(experiment), experiment.seed, shape, num_labels))


@lru_cache(maxsize=4)
def _codec(text: str) -> Codec:
    return make_codec(Experiment.model_validate_json(text))


def codec_remembers(experiment: Experiment) -> bool:
    """Say whether the codec has memory."""
    return registry.remembers(_codec(experiment.model_dump_json()))


def row(terms: Terms, own: Dataset, secret: bytes) -> _HeldRow:
    """Return the node's samples and label counts; private ones if the deployment asks for that."""
    counts = label_counts(own.train.labels, [np.arange(len(own.train.labels))], own.num_labels)[0]
    if terms.deployment.epsilon is not None:
        counts = private_counts(counts, terms.deployment.epsilon, terms.deployment.label_clip, secret_rng(secret))
    return _HeldRow(int(counts.sum()), counts)


def encode_held(
    experiment: Experiment, update: Vector, device: int, tick: int, bits: float, memory: Memory | None = None
) -> tuple[Packet, Memory | None]:
    """Encode update [d] into the granted bits as the simulator would; return also what the codec remembers then."""
    codec = _codec(experiment.model_dump_json())
    return encode_update(codec, update, bits, experiment.seed, device, tick, memory)
