"""Data sets and how the devices share them: sets that papers use, a synthetic stand-in, the user's own, and partitions.

A data set is a callable (**arguments) -> Dataset. What it declares to be filled in comes from the experiment, and two
things from whoever runs it: `run.say` (told what is fetched) and `run.images` (false: labels are enough, as for a plan).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from fedtide.data.adapters import from_huggingface, from_torchvision
from fedtide.data.fetch import OfficialSet, Say, Whereabouts, fetch_files, fetched_whereabouts
from fedtide.data.holdings import holding_label_counts
from fedtide.data.partition import PARTITIONS, dirichlet, iid, natural, shards, slow_labels, speed_sizes
from fedtide.data.synthetic import synthetic, synthetic_shapes
from fedtide.errors import FedtideError
from fedtide.parts import registry
from fedtide.types import Dataset

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "dirichlet",
    "fetched",
    "from_huggingface",
    "from_torchvision",
    "holding_label_counts",
    "iid",
    "load",
    "natural",
    "shards",
    "slow_labels",
    "speed_sizes",
    "synthetic",
]

# One of ours may be named by its place, and is then imported when it is used.
DATASETS: Final[dict[str, Callable[..., Dataset] | str]] = {
    "mnist": "fedtide.data.mnist:mnist",
    "fashion_mnist": "fedtide.data.mnist:fashion_mnist",
    "cifar10": "fedtide.data.cifar:cifar10",
    "shakespeare": "fedtide.data.shakespeare:shakespeare",
    "cifar100": "fedtide.data.cifar:cifar100",
    "svhn": "fedtide.data.cifar:svhn",
    "emnist": "fedtide.data.mnist:emnist",
    "femnist": "fedtide.data.mnist:femnist",
    "speech_commands": "fedtide.data.speech:speech_commands",
    "synthetic": synthetic_shapes,
    "npz": "fedtide.data.adapters:npz",
    "image_folder": "fedtide.data.adapters:image_folder",
}
_FETCHED: Final = {
    "mnist": "fedtide.data.mnist:MNIST",
    "fashion_mnist": "fedtide.data.mnist:FASHION_MNIST",
    "cifar10": "fedtide.data.cifar:CIFAR10",
    "shakespeare": "fedtide.data.shakespeare:SHAKESPEARE",
}


def load(name: str, **args: Any) -> Dataset:
    """Return one of our data sets by name.

    >>> load("synthetic", num_train=50, num_test=10).train.images.shape
    (50, 1, 28, 28)
    """
    if name not in DATASETS:
        raise FedtideError(f"no data set is called {name!r}: use one of {', '.join(DATASETS)}")
    made: Dataset = registry.find_part("data", name, DATASETS)(**args)
    return made


def fetched(name: str, folder: Path | None, say: Say | None) -> Whereabouts:
    """Download a set into the cache, or look at it in a folder, and report where it is. say: None to fetch nothing."""
    if name not in _FETCHED:
        raise FedtideError(f"{name} is not downloaded by fedtide: only {', '.join(_FETCHED)} are; see docs/data.md")
    wanted: OfficialSet = registry.find_part("data", name, _FETCHED)
    if say is not None:
        fetch_files(wanted, folder, say)
    return fetched_whereabouts(wanted, folder)
