"""Data sets and how the devices share them: MNIST, a synthetic stand-in, and partitions.

dataset = load("mnist")
partition = PARTITIONS["shards"](dataset.train.labels, num_devices=40, seed=1)
counts = label_counts(dataset.train.labels, partition, dataset.num_labels)
"""

from __future__ import annotations

from pathlib import Path

from fedtide.data.mnist import Say, load_mnist, locate, to_stderr
from fedtide.data.partition import PARTITIONS, dirichlet, iid, label_counts, shards, slow_labels
from fedtide.data.synthetic import synthetic
from fedtide.errors import FedtideError
from fedtide.types import Dataset, Samples

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "dirichlet",
    "iid",
    "label_counts",
    "load",
    "load_mnist",
    "locate",
    "shards",
    "slow_labels",
    "synthetic",
]

DATASETS = ("mnist", "synthetic")


def load(
    name: str,
    *,
    folder: Path | None = None,
    seed: int = 0,
    num_train: int | None = None,
    num_test: int | None = None,
    say: Say = to_stderr,
    images: bool = True,
) -> Dataset:
    """Return a data set by name.

    "mnist": from `folder` or wherever it can be had; num_train and num_test cut it to its first samples.
    With images=False, MNIST's labels alone are read where that is enough.
    "synthetic": drawn from `seed`, 2000 training and 500 test images unless told otherwise.
    """
    if name == "mnist":
        whole = load_mnist(folder, say, images=images)
        train, test = _first(whole.train, num_train, "num_train"), _first(whole.test, num_test, "num_test")
        return whole._replace(train=train, test=test)
    if name == "synthetic":
        return synthetic(seed, 2000 if num_train is None else num_train, 500 if num_test is None else num_test)
    raise FedtideError(f"no data set is called {name!r}: use one of {', '.join(DATASETS)}")


def _first(samples: Samples, num: int | None, name: str) -> Samples:
    if num is None:
        return samples
    if not 1 <= num <= len(samples.labels):
        raise FedtideError(f"{name} = {num}: must be from 1 to {len(samples.labels)}")
    return Samples(samples.images[:num], samples.labels[:num])
