"""The contract between the simulator and whatever trains: a batch of jobs in, a batch of updates out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedtide.rng import stream
from fedtide.types import Floats, Ints, Samples, Vector


class LocalWork(NamedTuple):
    """What a device does with a model it received."""

    batch_size: int = 50
    epochs: int | None = 3  # E as passes over the data ...
    steps: int | None = None  # ... or as a number of steps
    proximal: float = 0.02  # lambda


class MadeOf(NamedTuple):
    """What a trainer of ours was made of, besides threads, which change nothing."""

    model: Any  # a description, or what makes a module
    samples: Samples
    partition: Sequence[Ints]
    work: LocalWork
    seed: int


class Score(NamedTuple):
    """How well a model does on a set of samples."""

    accuracy: float  # share of right answers
    loss: float  # mean cross-entropy in nats


class Trainer(Protocol):
    """Trains devices and scores models. The result for a job depends on the job alone, never on its neighbours."""

    def initial_model(self, seed: int) -> Vector:
        """Return theta(1) [d] for this seed."""
        ...

    def train(self, start: Vector, device: Ints, version: Ints, learning_rate: Floats) -> Vector:
        """Return the updates u_k [r d] of r jobs: device [r] starting at start [r d], which is model version [r]."""
        ...

    def evaluate(self, model: Vector, samples: Samples) -> Score:
        """Return accuracy and mean loss of model [d], dropout off."""
        ...


def batches(seed: int, device: int, version: int, samples: Ints, work: LocalWork) -> tuple[Ints, Ints]:
    """Return the samples one job visits [s] and the bounds of its mini-batches [steps+1].

    Every epoch is a fresh shuffle of the device's samples, cut into batches of batch_size, the last one shorter.
    With `steps`, the same sequence of batches goes on for that many steps.
    """
    rng = stream(seed, "batches", device, version)
    per_epoch = -(-len(samples) // work.batch_size)
    steps = work.steps if work.steps is not None else per_epoch * (work.epochs or 0)
    order = [rng.permutation(samples) for _ in range(-(-steps // per_epoch))]
    epoch, within = np.divmod(np.arange(steps + 1), per_epoch)
    bounds = epoch * len(samples) + within * work.batch_size
    visited = np.concatenate(order) if order else np.empty(0, np.int64)
    return visited[: bounds[-1]], bounds
