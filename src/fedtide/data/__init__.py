"""Data sets and how the devices share them: MNIST, a synthetic stand-in, and partitions.

A data set is a callable (**arguments) -> Dataset. What it declares to be filled in comes from the experiment, and two
things from whoever runs it: `run.say` (told what is fetched) and `run.images` (false: labels are enough, as for a plan).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

from fedtide.core.arguments import arg
from fedtide.data.mnist import Say, load_mnist, locate, to_stderr
from fedtide.data.partition import PARTITIONS, dirichlet, iid, label_counts, natural, shards, slow_labels, speed_sizes
from fedtide.data.shakespeare import of_shakespeare
from fedtide.data.synthetic import synthetic
from fedtide.errors import FedtideError
from fedtide.types import Dataset, Samples

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "dirichlet",
    "drawn",
    "iid",
    "label_counts",
    "load",
    "load_mnist",
    "locate",
    "natural",
    "of_mnist",
    "of_shakespeare",
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
    whole = load_mnist(folder, say, images=images)
    train, test = _first(whole.train, num_train, "num_train"), _first(whole.test, num_test, "num_test")
    return whole._replace(train=train, test=test)


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
    return DATASETS[name](**args)


DATASETS: Final[dict[str, Callable[..., Dataset]]] = {
    "mnist": of_mnist,
    "synthetic": drawn,
    "shakespeare": of_shakespeare,
}


def _first(samples: Samples, num: int | None, name: str) -> Samples:
    if num is None:
        return samples
    if not 1 <= num <= len(samples.labels):
        raise FedtideError(f"{name} = {num}: must be from 1 to {len(samples.labels)}")
    return Samples(samples.images[:num], samples.labels[:num])
