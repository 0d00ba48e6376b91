"""Data sets and how the devices share them: sets that papers use, a synthetic stand-in, the user's own, and partitions.

A data set is a callable (**arguments) -> Dataset. What it declares to be filled in comes from the experiment, and two
things from whoever runs it: `run.say` (told what is fetched) and `run.images` (false: labels are enough, as for a plan).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

from fedtide.data.adapters import from_huggingface, from_torchvision
from fedtide.data.dataset import first_samples
from fedtide.data.fetch import Say, Whereabouts, to_stderr
from fedtide.data.holdings import label_counts
from fedtide.data.mnist import load_mnist, locate_mnist
from fedtide.data.partition import PARTITIONS, dirichlet, iid, natural, shards, slow_labels, speed_sizes
from fedtide.data.synthetic import synthetic
from fedtide.errors import FedtideError
from fedtide.parts import registry
from fedtide.parts.arguments import arg
from fedtide.types import Dataset

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "_FETCHED",
    "dirichlet",
    "drawn",
    "fetched",
    "from_huggingface",
    "from_torchvision",
    "iid",
    "label_counts",
    "load",
    "load_mnist",
    "locate_mnist",
    "natural",
    "of_mnist",
    "shards",
    "slow_labels",
    "speed_sizes",
    "synthetic",
]


def of_mnist(
    folder: Annotated[Path | None, arg("where the IDX files lie", key="data.folder")] = None,
    num_train: Annotated[int | None, arg("use only the first so many", key="data.num_train", le=60_000)] = None,
    num_test: Annotated[int | None, arg("use only the first so many", key="data.num_test", le=10_000)] = None,
    say: Annotated[Say, arg("told what is fetched", key="run.say")] = to_stderr,
    images: Annotated[bool, arg("false: labels are enough, where they are at hand", key="run.images")] = True,
) -> Dataset:
    """Handwritten digits: 60,000 training and 10,000 test images, from a folder or wherever they can be had."""
    return first_samples(load_mnist(folder, say, images=images), num_train, num_test)


def drawn(
    seed: Annotated[int, arg("names the drawing", key="seed")] = 0,
    num_train: Annotated[int | None, arg("training images (2000)", key="data.num_train")] = 2000,
    num_test: Annotated[int | None, arg("test images (500)", key="data.num_test")] = 500,
) -> Dataset:
    """Images of ten made-up shapes, drawn from the seed: learnable, not trivial, and quick to make."""
    return synthetic(seed, 2000 if num_train is None else num_train, 500 if num_test is None else num_test)


def load(name: str, **args: Any) -> Dataset:
    """Return one of our data sets by name."""
    if name not in DATASETS:
        raise FedtideError(f"no data set is called {name!r}: use one of {', '.join(DATASETS)}")
    made: Dataset = registry.find_part("data", name, DATASETS)(**args)
    return made


# One of ours may be named by its place, and is then imported when it is used.
DATASETS: Final[dict[str, Callable[..., Dataset] | str]] = {
    "mnist": of_mnist,
    "fashion_mnist": "fedtide.data.mnist:fashion_mnist",
    "cifar10": "fedtide.data.cifar:cifar10",
    "shakespeare": "fedtide.data.shakespeare:of_shakespeare",
    "cifar100": "fedtide.data.cifar:cifar100",
    "svhn": "fedtide.data.svhn:svhn",
    "emnist": "fedtide.data.emnist:emnist",
    "femnist": "fedtide.data.emnist:femnist",
    "speech_commands": "fedtide.data.speech:speech_commands",
    "synthetic": drawn,
    "npz": "fedtide.data.user_files:npz",
    "image_folder": "fedtide.data.user_files:image_folder",
}

# Those that can be downloaded, each with what says where they are.
_FETCHED: Final[dict[str, str]] = {
    "mnist": "fedtide.data.mnist:locate_mnist",
    "fashion_mnist": "fedtide.data.mnist:locate_fashion",
    "cifar10": "fedtide.data.cifar:locate_cifar10",
    "shakespeare": "fedtide.data.shakespeare:locate_plays",
}


def fetched(name: str, folder: Path | None, say: Say | None) -> Whereabouts:
    """Download a set into the cache, or look at it in a folder, and report where it is. say: None to fetch nothing."""
    if name not in _FETCHED:
        known = ", ".join(_FETCHED)
        if name in DATASETS:
            raise FedtideError(
                f"{name} is not downloaded by fedtide: only {known} are; docs/data.md says how to have {name}"
            )
        raise FedtideError(f"no data set is called {name!r}: use one of {known}")
    if say is not None:
        load(name, folder=folder, say=say)
    found: Whereabouts = registry.find_part("data", name, _FETCHED)(folder)
    return found
