"""What a device does, without Flower: train and hold the update, then encode it when the server grants bits."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fedtide.codec.base import Codec, Packet
from fedtide.config import Experiment
from fedtide.core import parts
from fedtide.core.kinds import table
from fedtide.data.holdings import label_counts
from fedtide.drivers import training
from fedtide.drivers.evaluation import scored
from fedtide.flower.loaders import loader
from fedtide.flower.privacy import private_counts, secret_rng
from fedtide.flower.settings import Terms
from fedtide.learning.trainer import Task, Trainer
from fedtide.server.sending import decoded, encoded
from fedtide.system import local_work, make_codec, make_model, trainer_of
from fedtide.types import Dataset, Ints, Job, Memory, Vector


class Row(NamedTuple):
    """What a node tells the scheduler about itself."""

    num_samples: int
    label_counts: Ints  # [c]


def own_data(terms: Terms, part: int) -> Dataset:
    """Return the data of partition `part`, through the loader that the deployment names."""
    return loader(terms.deployment.loader)(terms.experiment, part)


def train(
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
    updates, after = training.train(own_trainer(terms, own), [job], before)
    return updates[device], after.get("trainer", {}).get(device)


def waits(experiment: Experiment) -> bool:
    """Say whether what the trainer remembers goes on with uploads that arrived, not with trainings."""
    found: Any = parts.find("trainer", experiment.learning.trainer, table("trainer"))
    return training.waits(found)


def arrived(terms: Terms, own: Dataset, packet: Packet, memory: Memory | None) -> Memory:
    """Return what the trainer remembers once the server has this packet."""
    update = decoded(_codec(terms.experiment.model_dump_json()), packet, packet.num_parameters)
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
    return parts.remembers(_codec(experiment.model_dump_json()))


def row(terms: Terms, own: Dataset, secret: bytes) -> Row:
    """Return the node's samples and label counts; private ones if the deployment asks for that."""
    counts = label_counts(own.train.labels, [np.arange(len(own.train.labels))], own.num_labels)[0]
    if terms.deployment.epsilon is not None:
        counts = private_counts(counts, terms.deployment.epsilon, terms.deployment.label_clip, secret_rng(secret))
    return Row(int(counts.sum()), counts)


def encode(
    experiment: Experiment, update: Vector, device: int, tick: int, bits: float, memory: Memory | None = None
) -> tuple[Packet, Memory | None]:
    """Encode update [d] into the granted bits as the simulator would; return also what the codec remembers then."""
    codec = _codec(experiment.model_dump_json())
    return encoded(codec, update, bits, experiment.seed, device, tick, memory)
