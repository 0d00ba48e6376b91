"""The first so many samples of a data set."""

from __future__ import annotations

from fedtide.errors import FedtideError
from fedtide.types import Dataset, Samples


def cut(whole: Dataset, num_train: int | None, num_test: int | None) -> Dataset:
    """Return a data set with only its first samples; None: all of them."""
    train, test = _first(whole.train, num_train, "num_train"), _first(whole.test, num_test, "num_test")
    owners = None if whole.owners is None else whole.owners[: len(train.labels)]
    return whole._replace(train=train, test=test, owners=owners)


def _first(samples: Samples, num: int | None, name: str) -> Samples:
    if num is None:
        return samples
    if not 1 <= num <= len(samples.labels):
        raise FedtideError(f"{name} = {num}: must be from 1 to {len(samples.labels)}")
    return Samples(samples.images[:num], samples.labels[:num], samples.values)
