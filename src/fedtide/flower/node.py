"""What a device does, without Flower: train and hold the update, then encode it when the server grants bits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedtide.codec.base import Packet, checked_packet
from fedtide.core import parts as plugins
from fedtide.data.partition import label_counts
from fedtide.errors import TrainingError
from fedtide.flower.loaders import loader, node_system
from fedtide.flower.privacy import private_counts, secret_rng
from fedtide.flower.settings import Terms
from fedtide.learning.trainer import Trainer
from fedtide.rng import stream
from fedtide.system import System, make_trainer
from fedtide.types import Dataset, Ints, Vector, read_only


class Row(NamedTuple):
    """What a node tells the scheduler about itself."""

    num_samples: int
    label_counts: Ints  # [c]


def own_data(terms: Terms, part: int) -> Dataset:
    """Return the data of partition `part`, through the loader that the deployment names."""
    return loader(terms.deployment.loader)(terms.experiment, part)


def own_trainer(system: System, device: int, own: Dataset) -> Trainer:
    """Return a trainer that can train this device over its own samples.

    The jobs are addressed by (seed, device, version) as in the simulator. A device's samples keep their order, so that the
    shuffles, and with them the bits, are the same whether the samples are its own or a part of a whole data set.
    """
    parts = [np.zeros(1, np.int64)] * system.fleet.num_devices
    parts[device] = np.arange(len(own.train.labels))
    return make_trainer(system._replace(dataset=own, fleet=system.fleet._replace(partition=parts)))


def train(terms: Terms, model: Vector, device: int, version: int, learning_rate: float, own: Dataset) -> Vector:
    """Return the update u_k [d] of this device from model [d], which is this version."""
    system = node_system(terms.experiment, own.train.images.shape[1:], own.num_labels)
    trainer = own_trainer(system, device, own)
    job = np.array([device]), np.array([version]), np.array([learning_rate])
    update: Vector = trainer.train(model[None], *job)[0]
    return update


def row(terms: Terms, own: Dataset, secret: bytes) -> Row:
    """Return the node's samples and label counts; private ones if the deployment asks for that."""
    counts = label_counts(own.train.labels, [np.arange(len(own.train.labels))], own.num_labels)[0]
    if terms.deployment.epsilon is not None:
        counts = private_counts(counts, terms.deployment.epsilon, terms.deployment.label_clip, secret_rng(secret))
    return Row(int(counts.sum()), counts)


def encode(system: System, update: Vector, device: int, tick: int, bits: float) -> Packet:
    """Encode update [d] into the granted bits, with the stream that the simulator would use."""
    rng = stream(system.experiment.seed, "compress", device, tick)
    packet: object = system.codec.encode(read_only(update), bits, rng)
    codec = plugins.label("codec", system.codec)
    if not isinstance(packet, Packet):
        raise TrainingError(f"{codec} encoded to a {type(packet).__name__}: return fedtide.codec.base.packet(...)")
    return checked_packet(packet, len(update), codec)
