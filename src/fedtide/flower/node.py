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
from fedtide.rng import stream
from fedtide.system import System, make_trainer
from fedtide.types import Dataset, Ints, Job, Samples, Vector, read_only


class Row(NamedTuple):
    """What a node tells the scheduler about itself."""

    num_samples: int
    label_counts: Ints  # [c]


def own_data(terms: Terms, part: int) -> Dataset:
    """Return the data of partition `part`, through the loader that the deployment names."""
    return loader(terms.deployment.loader)(terms.experiment, part)


def own_job(model: Vector, device: int, version: int, learning_rate: float, own: Samples) -> Job:
    """Return the job of this device over its own samples, from model [d], which is this version.

    It is addressed by (seed, device, version) as in the simulator. A device's samples keep their order, so that the
    shuffles, and with them the bits, are the same whether the samples are its own or a part of a whole data set.
    """
    return Job(device, version, model, learning_rate, own, np.arange(len(own.labels)))


def train(terms: Terms, model: Vector, device: int, version: int, learning_rate: float, own: Dataset) -> Vector:
    """Return the update u_k [d] of this device from model [d], which is this version."""
    trainer = make_trainer(node_system(terms.experiment, own.train.images.shape[1:], own.num_labels))
    update: Vector = trainer.train([own_job(model, device, version, learning_rate, own.train)])[0]
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
