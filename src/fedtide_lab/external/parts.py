"""Data, splits, models and training that other people's experiments use and fedtide does not have.

Each follows what a published experiment does, so that what differs on docs/external.md is short.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from fedtide import Dataset, Job, Samples, arg, stream
from fedtide.data import load
from fedtide.learning import Dropout, Linear, Model, ReLU, Score, Task
from fedtide.types import Ints, Rng, Vector

_FEWEST = 10  # samples of a client, below which a Dirichlet split is drawn again
_Draw = Annotated[int | None, arg("seed of the split in place of the run's own, for NumPy's default_rng")]


def mnist_in_01() -> Dataset:
    """MNIST with pixels from 0 to 1, not normalised."""
    found = load("mnist")
    train, test = (
        Samples(part.images * np.float32(0.3081) + np.float32(0.1307), part.labels)
        for part in (found.train, found.test)
    )
    return found._replace(train=train, test=test)


def cifar10_in_01() -> Dataset:
    """CIFAR-10 with pixels from 0 to 1, not normalised."""
    found, values = load("cifar10"), np.tile(np.arange(256) / 255, (3, 1)).astype(np.float32)
    return found._replace(train=found.train._replace(values=values), test=found.test._replace(values=values))


# ---- Splits


def leading_part(
    dataset: Dataset,
    num_devices: int,
    seed: int,
    by_label: Annotated[bool, arg("two shards of samples sorted by label each, or random samples")] = True,
    share: Annotated[float, arg("what a device trains on of its samples, those that come first", gt=0, le=1)] = 0.8,
) -> list[Ints]:
    """Deal out two shards to each device, of which it keeps the first share: all of its first shard, less of the second."""
    rng, labels = stream(seed, "partition"), dataset.train.labels
    order = np.argsort(labels, kind="stable") if by_label else rng.permutation(len(labels))
    size = len(labels) // (2 * num_devices)
    shards = order[: 2 * num_devices * size].reshape(2 * num_devices, size)
    held = shards[rng.permutation(2 * num_devices)].reshape(num_devices, 2 * size)
    return [np.sort(mine[: int(share * 2 * size)]) for mine in held]


def dirichlet_by_label(
    dataset: Dataset,
    num_devices: int,
    seed: int,
    concentration: Annotated[float, arg("of the Dirichlet distribution", gt=0)] = 0.5,
    draw: _Draw = None,
) -> list[Ints]:
    """Share out each label by proportions over devices ~ Dir(concentration), as NIID-Bench does: sizes differ.

    A device that has its n/N samples gets no more of the labels that follow. Drawn again while a device has fewer than 10.
    """
    rng, labels = _split_rng(seed, draw), dataset.train.labels
    while True:
        held: list[list[int]] = [[] for _ in range(num_devices)]
        for label in np.unique(labels):
            samples = np.flatnonzero(labels == label)
            rng.shuffle(samples)
            wanted = rng.dirichlet(np.full(num_devices, concentration))
            wanted = wanted * [len(mine) < len(labels) / num_devices for mine in held]
            ends = (np.cumsum(wanted / wanted.sum()) * len(samples)).astype(int)[:-1]
            for mine, more in zip(held, np.split(samples, ends), strict=True):
                mine.extend(more.tolist())
        if min(map(len, held)) >= _FEWEST:
            return [np.sort(np.array(mine)) for mine in held]


def few_labels(
    dataset: Dataset,
    num_devices: int,
    seed: int,
    labels_each: Annotated[int, arg("labels of a device", ge=1)] = 2,
    draw: _Draw = None,
) -> list[Ints]:
    """Give device k label k (modulo their number) and other random ones; those with a label share its samples equally."""
    rng, labels = _split_rng(seed, draw), dataset.train.labels
    count = len(np.unique(labels))
    mine = [[device % count] for device in range(num_devices)]
    for each in mine:
        while len(each) < min(labels_each, count):
            label = int(rng.choice(count, 1)[0])
            if label not in each:
                each.append(label)
    held: list[list[Ints]] = [[] for _ in range(num_devices)]
    for label in range(count):
        samples = np.flatnonzero(labels == label)
        rng.shuffle(samples)
        owners = [device for device, each in enumerate(mine) if label in each]
        for device, part in zip(owners, np.array_split(samples, max(len(owners), 1)), strict=False):
            held[device].append(part)
    return [np.sort(np.concatenate(parts)) for parts in held]


def _split_rng(seed: int, draw: int | None) -> Rng:
    return stream(seed, "partition") if draw is None else np.random.default_rng(draw)


# ---- Models


def mlp_with_dropout(
    input_shape: tuple[int, int, int], num_labels: int, hidden: Annotated[int, arg("hidden units", ge=1)] = 200
) -> Model:
    """One hidden layer with dropout before ReLU: 159,010 parameters on 28 x 28 grey images."""
    return Model(input_shape, (Linear(hidden), Dropout(0.5), ReLU(), Linear(num_labels)))


def mlp_of_probabilities(hidden: Annotated[int, arg("hidden units", ge=1)] = 64) -> Any:
    """The MLP of AshwinRJ's repository on MNIST, whose loss is minus the probability of the label, not its logarithm.

    Cross-entropy has that gradient if the probabilities are the logits and one logit more keeps the sum of exponentials
    constant. Scoring leaves it out. For learning.trainer=torch.
    """
    import torch
    from torch import nn

    class Probabilities(nn.Sequential):  # type: ignore[misc]  # PyTorch's classes have no types here
        def forward(self, images: Any) -> Any:
            p = torch.softmax(super().forward(images.flatten(1)), 1)
            if not self.training:
                return p
            rest = torch.log(
                30 - torch.exp(p).sum(1, keepdim=True)
            )  # the sum is at most 9 + e, so the rest is positive
            return torch.cat([p, rest], 1)

    return Probabilities(nn.Linear(784, hidden), nn.Dropout(), nn.ReLU(), nn.Linear(hidden, 10))


# ---- Training


class Augmented:
    """Trains on random crops (4 pixels of reflected border) and flips, drawn anew for every pass over the samples.

    E passes are one pass over E such copies of the samples, all of them in one shuffle.
    """

    takes_work = True

    def __init__(
        self, task: Task, inner: Annotated[Any, arg("the trainer of the copies", part="trainer")] = "native"
    ) -> None:
        self._task, self._inner = task, inner

    def initial_model(self, seed: int) -> Vector:
        """Return the inner trainer's."""
        return np.asarray(self._inner.initial_model(seed))

    def train(self, jobs: Sequence[Job]) -> Vector:
        """Return the updates [r d], one job after the other: copies take memory."""
        return np.concatenate([self._inner.train([self._copied(job)]) for job in jobs])

    def evaluate(self, model: Vector, samples: Samples) -> Score:
        """Score the model on the images as they are."""
        score: Score = self._inner.evaluate(model, samples)
        return score

    def _copied(self, job: Job) -> Job:
        rng = stream(self._task.seed, "batches", job.device, job.version, 1)
        work, held = job.work or self._task.work, job.samples.taken(job.indices)
        copies = np.concatenate([_cropped(held.images, rng) for _ in range(work.epochs)])
        samples = Samples(copies, np.tile(held.labels, work.epochs), held.values)
        return job._replace(samples=samples, indices=np.arange(len(copies)), work=work._replace(epochs=1))


def _cropped(images: npt.NDArray[Any], rng: Rng) -> npt.NDArray[Any]:
    """Return a random crop of each image [n c h w] with a border of 4 reflected pixels, every other one flipped."""
    padded = np.pad(images, ((0, 0), (0, 0), (4, 4), (4, 4)), "reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, images.shape[2:], axis=(2, 3))
    down, right = rng.integers(9, size=(2, len(images)))
    cut = windows[np.arange(len(images)), :, down, right]
    flipped = rng.random(len(images)) < 0.5
    cut[flipped] = cut[flipped, :, :, ::-1]
    return np.ascontiguousarray(cut)
