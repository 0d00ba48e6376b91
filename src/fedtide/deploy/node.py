"""What a device does, without Flower: load its data, train, report its labels, encode its update into the granted bits."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from fedtide.codec.base import Codec, Packet
from fedtide.config import Experiment
from fedtide.data.holdings import label_counts
from fedtide.deploy.privacy import private_counts, secret_rng
from fedtide.deploy.settings import Terms
from fedtide.devices.fleet import Fleet
from fedtide.engine import devices
from fedtide.engine.devices import decode_update, encode_update
from fedtide.engine.loop import score_model
from fedtide.engine.system import load_dataset, local_work, make_codec, make_fleet, make_model, trainer_of
from fedtide.errors import FedtideError
from fedtide.learning.trainer import Task, Trainer
from fedtide.parts import registry
from fedtide.parts.kinds import builtin_parts
from fedtide.types import Dataset, Ints, Job, Memory, Vector


class Loader(Protocol):
    """Where a host's data comes from."""

    def __call__(self, experiment: Experiment, device: int | None) -> Dataset:
        """Return what this host may see.

        On a node, `device` is its partition number, `train` is its own data and `test` is not used. On the server it is
        None; `test` is what models are scored on, and `train` is not used unless learning.training_loss is on.
        """
        ...


def partition(experiment: Experiment, device: int | None) -> Dataset:
    """The experiment's own data set, dealt out as in the simulator: the demo, and hosts that share one data set."""
    text = experiment.model_dump_json()
    dataset = _whole(text)
    if device is None:
        return dataset
    dealt = _dealt(text)
    if not 0 <= device < len(dealt):
        raise FedtideError(f"partition-id={device} is not one of the {len(dealt)} parts; use 0 to {len(dealt) - 1}")
    return dataset._replace(train=dataset.train.taken(dealt[device]))


@lru_cache(maxsize=2)
def _whole(text: str) -> Dataset:
    return load_dataset(Experiment.model_validate_json(text))


@lru_cache(maxsize=2)
def _dealt(text: str) -> Any:
    return make_fleet(Experiment.model_validate_json(text), _whole(text)).partition


def loader(name: str) -> Loader:
    """Return the loader of this name."""
    found: Loader = registry.find_part("loader", name, {"partition": partition})
    return found


def remote_fleet(experiment: Experiment) -> Fleet:
    """Return a fleet of which only the size is known here: the devices hold their data, and take the time they take."""
    nobody = np.zeros(0, np.int64)
    return Fleet(np.full(experiment.fleet.num_devices, np.nan), [], nobody, nobody.reshape(0, 0))


class Worker:
    """A host's data, trainer and codec under these terms, made once and kept for all of its messages."""

    def __init__(self, terms: Terms) -> None:
        self.terms, self.experiment = terms, terms.experiment
        self.codec: Codec = make_codec(self.experiment)
        self._parts: dict[int, tuple[Dataset, Trainer]] = {}
        trainer: Any = registry.find_part("trainer", self.experiment.learning.trainer.name, builtin_parts("trainer"))
        # does the trainer's memory follow the uploads that arrived, not the trainings?
        self.updates_on_ack = devices.updates_state_on_ack(trainer)

    def part(self, number: int) -> tuple[Dataset, Trainer]:
        """Return the data of a partition, through the loader that the deployment names, and the trainer for it."""
        if number not in self._parts:
            own = loader(self.terms.deployment.loader)(self.experiment, number)
            shape = own.train.images.shape[1:]
            model = make_model(self.experiment, shape, own.num_labels)
            task = Task(model, local_work(self.experiment), self.experiment.seed, shape, own.num_labels)
            self._parts[number] = own, trainer_of(self.experiment, task)
        return self._parts[number]

    def train(
        self, part: int, model: Vector, device: int, version: int, learning_rate: float, memory: Memory | None = None
    ) -> tuple[Vector, Memory | None]:
        """Return the update u_k [d] from model [d], which is this version, and what the trainer remembers then.

        The job is addressed by (seed, device, version) as in the simulator. A device's samples keep their order, so that
        the shuffles, and with them the bits, are the same whether the samples are its own or a part of a whole data set.
        """
        own, trainer = self.part(part)
        samples = own.train
        job = Job(device, version, model, learning_rate, samples, np.arange(len(samples.labels)))
        before = {} if memory is None else {"trainer": {device: memory}}
        updates, after = devices.train_jobs(trainer, [job], before)
        return updates[0], after.get("trainer", {}).get(device)

    def encode(
        self, update: Vector, device: int, tick: int, bits: float, memory: Memory | None = None
    ) -> tuple[Packet, Memory | None]:
        """Encode update [d] into the granted bits as the simulator would; return also what the codec remembers then."""
        return encode_update(self.codec, update, bits, self.experiment.seed, device, tick, memory)

    def after_upload(self, part: int, packet: Packet, memory: Memory | None) -> Memory:
        """Return what the trainer remembers once the server has this packet."""
        update = decode_update(self.codec, packet, packet.num_parameters)
        return devices.after_arrival(self.part(part)[1], memory, update)

    def loss(self, part: int, model: Vector) -> float:
        """Return the loss of a model [d] on the node's own samples."""
        own, trainer = self.part(part)
        return score_model(trainer, model, own.train).loss

    def label_counts(self, part: int, secret: bytes) -> Ints:
        """Return how many samples of each label the node has [c]; private counts if the deployment asks for that."""
        own, settings = self.part(part)[0], self.terms.deployment
        counts: Ints = label_counts(own.train.labels, [np.arange(len(own.train.labels))], own.num_labels)[0]
        if settings.epsilon is not None:
            counts = private_counts(counts, settings.epsilon, settings.label_clip, secret_rng(secret))
        return counts
