"""What a device does, without Flower: load its data, train, report its labels, encode its update into the granted bits."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np

from fedtide.codec.base import Codec, Packet
from fedtide.config import Experiment
from fedtide.data.holdings import holding_label_counts
from fedtide.deploy.privacy import reported_counts
from fedtide.deploy.settings import OWN_TRAINING, Terms
from fedtide.devices.fleet import Fleet
from fedtide.engine import devices
from fedtide.engine.devices import decode_update
from fedtide.engine.loop import score_model
from fedtide.engine.making import load_dataset, make_codec, make_fleet, make_local_work, make_model, make_task_trainer
from fedtide.engine.system import System, build
from fedtide.errors import FedtideError
from fedtide.learning.trainer import Task, Trainer
from fedtide.parts import registry
from fedtide.parts.kinds import builtin_parts
from fedtide.timeline.clock import RecordedTimes
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


def node_loader(name: str) -> Loader:
    """Return the loader of this name."""
    if name == OWN_TRAINING:
        raise FedtideError(
            "this federation trained in a Flower app with a model and data of its own (loader=app), which only its nodes can do: "
            "it cannot be replayed here"
        )
    found: Loader = registry.find_part("loader", name, {"partition": partition})
    return found


def remote_fleet(experiment: Experiment) -> Fleet:
    """Return a fleet of which only the size is known here: the devices hold their data, and take the time they take."""
    nobody = np.zeros(0, np.int64)
    return Fleet(np.full(experiment.fleet.num_devices, np.nan), [], nobody, nobody.reshape(0, 0))


def deployed_system(experiment: Experiment, dataset: Dataset) -> System:
    """Put the server's side of a federation together.

    Where the server acts as it sees fit, nobody knows which aggregation will be the last, so all of them are scored.
    """
    system = build(experiment, dataset=dataset, fleet=remote_fleet(experiment))
    if system.world is None:
        return system
    learning = experiment.learning.model_copy(update={"evaluate_every": 0.0})
    scored = experiment.model_copy(update={"learning": learning})
    return system._replace(experiment=scored, model_timestamps=RecordedTimes())


class Worker:
    """A host's data, trainer and codec under these terms, made once and kept for all of its messages.

    part: the number of the data's part that it holds.
    """

    def __init__(self, terms: Terms, part: int) -> None:
        self.terms, self.part, self.experiment = terms, part, terms.experiment
        self.codec: Codec = make_codec(self.experiment)
        trainer: Any = registry.find_part("trainer", self.experiment.learning.trainer.name, builtin_parts("trainer"))
        # does the trainer's memory follow the uploads that arrived, not the trainings?
        self.updates_on_ack = devices.updates_state_on_ack(trainer)

    @cached_property
    def data(self) -> Dataset:
        """Its own data, through the loader that the deployment names."""
        return node_loader(self.terms.deployment.loader)(self.experiment, self.part)

    @cached_property
    def trainer(self) -> Trainer:
        """The trainer that the experiment names, for this data."""
        shape, num_labels = self.data.train.images.shape[1:], self.data.num_labels
        model = make_model(self.experiment, shape, num_labels)
        return make_task_trainer(
            self.experiment, Task(model, make_local_work(self.experiment), self.experiment.seed, shape, num_labels)
        )

    def train(
        self, model: Vector, device: int, version: int, learning_rate: float, memory: Memory | None = None
    ) -> tuple[Vector, Memory | None]:
        """Return the update u_k [d] from model [d], which is this version, and what the trainer remembers then.

        The job is addressed by (seed, device, version) as in the simulator. A device's samples keep their order, so that
        the shuffles, and with them the bits, are the same whether the samples are its own or a part of a whole data set.
        """
        samples = self.data.train
        job = Job(device, version, model, learning_rate, samples, np.arange(len(samples.labels)))
        before = {} if memory is None else {"trainer": {device: memory}}
        updates, after = devices.train_jobs(self.trainer, [job], before)
        return updates[0], after.get("trainer", {}).get(device)

    def after_upload(self, packet: Packet, memory: Memory | None) -> Memory:
        """Return what the trainer remembers once the server has this packet."""
        return devices.device_memory_after_arrival(
            self.trainer, memory, decode_update(self.codec, packet, packet.num_parameters)
        )

    def loss(self, model: Vector) -> float:
        """Return the loss of a model on the node's own samples."""
        return score_model(self.trainer, model, self.data.train).loss

    def label_counts(self, secret: bytes) -> Ints:
        """Return how many samples of each label the node has [c]; private counts if the deployment asks for that."""
        labels = self.data.train.labels
        counts: Ints = holding_label_counts(labels, [np.arange(len(labels))], self.data.num_labels)[0]
        return reported_counts(counts, self.terms.deployment, secret)
