"""Where a node's data comes from. A loader is a callable (experiment, device) -> Dataset.

`device` is the node's partition number; there `train` is the node's own data and `test` is not used. On the server it is
None; there `test` is what models are scored on, and `train` is not used unless learning.training_loss is on.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

import numpy as np

from fedtide.config import Experiment
from fedtide.core import parts as plugins
from fedtide.errors import FedtideError
from fedtide.flower.settings import check_timeline
from fedtide.system import System, build, load_dataset
from fedtide.types import Dataset, Samples


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
    parts = build(Experiment.model_validate_json(text), dataset=dataset).fleet.partition
    if not 0 <= device < len(parts):
        raise FedtideError(f"partition-id={device} is not one of the {len(parts)} parts; use 0 to {len(parts) - 1}")
    mine = parts[device]
    own = Samples(np.ascontiguousarray(dataset.train.images[mine]), dataset.train.labels[mine])
    return dataset._replace(train=own)


LOADERS = {"partition": partition}


def bare_system(experiment: Experiment, shape: tuple[int, ...], num_labels: int) -> System:
    """Return the system of an experiment whose devices' data are elsewhere, its policies made anew.

    shape: [channels height width] of an image.
    """
    check_timeline(experiment)
    count = experiment.fleet.num_devices
    blank = Samples(np.zeros((count, *shape), np.float32), np.zeros(count, np.uint8))
    stand_in = Dataset("elsewhere", blank, blank, num_labels, "the devices hold the data")
    evenly = experiment.data.model_copy(update={"partition": "iid", "size_spread": 0.0})
    return build(experiment.model_copy(update={"data": evenly}), dataset=stand_in)._replace(experiment=experiment)


def node_system(experiment: Experiment, shape: tuple[int, ...], num_labels: int) -> System:
    """Return the same for a node, which needs no policies but the codec and is asked again and again."""
    return _kept(experiment.model_dump_json(), shape, num_labels)._replace(experiment=experiment)


@lru_cache(maxsize=4)
def _kept(text: str, shape: tuple[int, ...], num_labels: int) -> System:
    return bare_system(Experiment.model_validate_json(text), shape, num_labels)


def loader(name: str) -> Loader:
    """Return the loader of this name."""
    if name in LOADERS:
        return LOADERS[name]
    found: Loader = plugins.resolve("loader", name, LOADERS, {})
    return found
