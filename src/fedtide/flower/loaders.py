"""Where a node's data comes from. A loader is a callable (experiment, device) -> Dataset.

`device` is the node's partition number; there `train` is the node's own data and `test` is not used. On the server it is
None; there `test` is what models are scored on, and `train` is not used unless learning.training_loss is on.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

import numpy as np

from fedtide.config import Experiment
from fedtide.core import parts
from fedtide.errors import FedtideError
from fedtide.system import load_dataset, make_fleet
from fedtide.types import Dataset
from fedtide.world.fleet import Fleet


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


LOADERS = {"partition": partition}


def elsewhere(experiment: Experiment) -> Fleet:
    """Return a fleet of which only the number is known here: the devices hold their data, and take the time they take."""
    nobody = np.zeros(0, np.int64)
    return Fleet(np.full(experiment.fleet.num_devices, np.nan), [], nobody, nobody.reshape(0, 0))


def loader(name: str) -> Loader:
    """Return the loader of this name."""
    if name in LOADERS:
        return LOADERS[name]
    found: Loader = parts.find("loader", name, LOADERS)
    return found
