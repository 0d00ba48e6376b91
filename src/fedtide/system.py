"""From an experiment to the objects that run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedtide import config, data
from fedtide.codec.base import Codec
from fedtide.codec.registry import CODECS
from fedtide.config import Experiment
from fedtide.core import parts as plugins
from fedtide.data.partition import PARTITIONS, label_counts
from fedtide.errors import FedtideError
from fedtide.learning.model import MODELS, Model, num_parameters, without_dropout
from fedtide.learning.trainer import LocalWork, Task, Trainer
from fedtide.policy.combining import COMBINERS
from fedtide.policy.scheduling import SCHEDULERS
from fedtide.policy.weighting import WEIGHTINGS
from fedtide.server.step import Policy
from fedtide.types import Dataset, Floats, Tick, lent
from fedtide.world import timeline
from fedtide.world.allocation import symbols_per_tick
from fedtide.world.fleet import Fleet, draw_durations


class System(NamedTuple):
    """Everything but the trainer."""

    experiment: Experiment
    dataset: Dataset
    fleet: Fleet
    ticks: Sequence[Tick]
    born: Floats  # when each model version came to be, by version number
    num_symbols: float  # per tick
    policy: Policy
    codec: Codec
    model: Model | Callable[[], Any]

    @property
    def work(self) -> LocalWork:
        """What a device does with a model."""
        learning = self.experiment.learning
        return LocalWork(learning.batch_size, learning.local_epochs, learning.local_steps, learning.proximal)


def _silent(_: str) -> None:
    pass


def build(experiment: Experiment, say: Callable[[str], None] = _silent, dataset: Dataset | None = None) -> System:
    """Load the data and put the system together; nothing is trained."""
    dataset = dataset or load_dataset(experiment, say)
    fleet = _fleet(experiment, dataset)
    ticks = _ticks(experiment, fleet)
    return System(
        experiment=experiment,
        dataset=dataset,
        fleet=fleet,
        ticks=ticks,
        born=timeline.start_times(ticks),
        num_symbols=symbols_per_tick(ticks, experiment.radio.num_symbols, experiment.fleet.max_duration),
        policy=_policy(experiment.policy),
        codec=_codec(experiment.codec),
        model=_model(experiment.learning, dataset),
    )


def load_dataset(experiment: Experiment, say: Callable[[str], None] = _silent, images: bool = True) -> Dataset:
    """Load the data set that an experiment names; a plan can do without the images."""
    wanted = experiment.data
    return data.load(
        wanted.name,
        folder=wanted.folder,
        seed=experiment.seed,
        num_train=wanted.num_train,
        num_test=wanted.num_test,
        say=say,
        images=images,
    )


def _fleet(experiment: Experiment, dataset: Dataset) -> Fleet:
    wanted, fleet, labels = experiment.data, experiment.fleet, dataset.train.labels
    duration = draw_durations(experiment.seed, fleet.num_devices, fleet.min_duration, fleet.max_duration)
    args: dict[str, Any] = {"size_spread": wanted.size_spread}
    if wanted.partition == "shards":
        args["num_shards"] = wanted.num_shards
    elif wanted.partition == "dirichlet":
        args["concentration"] = wanted.concentration
    elif wanted.partition == "slow_labels":
        args["duration"] = duration
    partition = PARTITIONS[wanted.partition](labels, fleet.num_devices, experiment.seed, **args)
    return Fleet(
        duration=duration,
        partition=partition,
        num_samples=np.array([len(samples) for samples in partition], np.int64),
        label_counts=label_counts(labels, partition, dataset.num_labels),
    )


def _ticks(experiment: Experiment, fleet: Fleet) -> Sequence[Tick]:
    wanted = experiment.timeline
    built_in: dict[str, dict[str, Any]] = {
        "periodic": {"period": wanted.period},
        "synchronous": {"round_duration": experiment.fleet.max_duration},
        "per_arrival": {},
        "buffered": {"size": wanted.buffer_size},
    }
    made = plugins.policy("timeline", wanted.name, timeline.TIMELINES, wanted.args, built_in.get(wanted.name, {}))
    with plugins.reported("timeline", wanted.name, made):  # a generator raises only as it is read
        ticks = timeline.checked(made(lent(fleet.duration), wanted.horizon), fleet.num_devices, wanted.horizon)
    if not ticks:
        raise FedtideError(
            f"the timeline {wanted.name!r} has no aggregation before timeline.horizon={wanted.horizon}; lengthen the horizon"
        )
    return ticks


def _policy(wanted: config.Policy) -> Policy:
    gamma = {"age_base": wanted.age_base} if wanted.weighting == "age_aware" else {}
    return Policy(
        scheduler=plugins.policy("scheduler", wanted.scheduler, SCHEDULERS, wanted.scheduler_args, {}),
        limit=wanted.limit,
        weighting=plugins.policy("weighting", wanted.weighting, WEIGHTINGS, wanted.weighting_args, gamma),
        combiner=plugins.policy("combiner", wanted.combiner, COMBINERS, wanted.combiner_args, {}),
    )


def _codec(wanted: config.CodecConfig) -> Codec:
    levels = {"num_levels": wanted.num_levels, "element_bits": wanted.element_bits}
    ours = levels if wanted.name == "sparse_quantized" else {}
    codec: Codec = plugins.policy("codec", wanted.name, CODECS, wanted.args, ours)
    return codec


def _model(wanted: config.Learning, dataset: Dataset) -> Model | Callable[[], Any]:
    if wanted.model not in MODELS:
        made: Callable[[], Any] = plugins.attribute("model", wanted.model) if ":" in wanted.model else _unknown(wanted)
        if wanted.trainer != "torch":
            raise FedtideError(f"learning.model={wanted.model!r} is a PyTorch module: add learning.trainer=torch")
        return made
    shape = dataset.train.images.shape[1:]
    model = MODELS[wanted.model]((shape[0], shape[1], shape[2]), dataset.num_labels)
    model = model if wanted.dropout else without_dropout(model)
    num_parameters(model)  # raises if the layers do not fit the images
    return model


def _unknown(wanted: config.Learning) -> Any:
    return plugins.resolve("model", wanted.model, MODELS, {})


def make_task(system: System, threads: int = 1) -> Task:
    """Return what a trainer of this system is made of."""
    data = system.dataset
    return Task(
        system.model, system.work, system.experiment.seed, data.train.images.shape[1:], data.num_labels, threads
    )


def make_trainer(system: System, threads: int = 1) -> Trainer:
    """Make the trainer that the experiment names; the import happens here, so that planning needs neither."""
    task = make_task(system, threads)
    if system.experiment.learning.trainer == "torch":
        try:
            from fedtide.learning.torch import TorchTrainer
        except ImportError as error:
            raise FedtideError(
                f"learning.trainer=torch needs PyTorch ({error}): pip install 'fedtide[torch]'"
            ) from error
        return TorchTrainer(task)
    from fedtide.learning.native import NativeTrainer

    return NativeTrainer(task)


def parameter_count(system: System, trainer: Trainer | None = None) -> int:
    """Return d."""
    if isinstance(system.model, Model):
        return num_parameters(system.model)
    trainer = trainer or make_trainer(system)
    return len(trainer.initial_model(system.experiment.seed))
