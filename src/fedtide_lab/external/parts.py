"""Data, splits and models that other people's experiments use and fedtide does not bring along.

Each follows what a published experiment does, so that what differs on docs/external.md is short.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from fedtide import Dataset, Samples, arg, stream
from fedtide.data.mnist import mnist
from fedtide.learning.model import Dropout, Linear, Model, ReLU
from fedtide.types import Ints, Rng

_FEWEST = 10  # samples of a client, below which a Dirichlet split is drawn again
_Draw = Annotated[int | None, arg("seed of the split in place of the run's own, for NumPy's default_rng")]


def mnist_in_01() -> Dataset:
    """MNIST with pixels from 0 to 1, not normalised."""
    found = mnist()
    train, test = (
        Samples(part.images * np.float32(0.3081) + np.float32(0.1307), part.labels)
        for part in (found.train, found.test)
    )
    return found._replace(train=train, test=test)


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

    class Probabilities(nn.Sequential):
        def forward(self, images: Any) -> Any:
            p = torch.softmax(super().forward(images.flatten(1)), 1)
            if not self.training:
                return p
            rest = torch.log(30 - torch.exp(p).sum(1, keepdim=True))  # the sum is at most 9 + e, so the rest is positive
            return torch.cat([p, rest], 1)

    return Probabilities(nn.Linear(784, hidden), nn.Dropout(), nn.ReLU(), nn.Linear(hidden, 10))


def augmented_lenet() -> Any:
    """LeNet as in NIID-Bench for CIFAR-10, pixels from 0 to 1; trained on random crops (4 pixels of reflected border) and flips.

    For learning.trainer=torch.
    """
    import torch
    from torch import nn

    from fedtide.data.cifar import MEAN, STD

    class Augmented(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            first = (nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2))
            dense = (nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
            self.layers = nn.Sequential(*first, nn.Flatten(), *dense)

        def forward(self, images: Any) -> Any:
            mean, std = (torch.tensor(each, device=images.device).view(3, 1, 1) for each in (MEAN, STD))
            images = images * std + mean
            return self.layers(self.moved(images) if self.training else images)

        def moved(self, images: Any) -> Any:
            padded, count = nn.functional.pad(images, (4, 4, 4, 4), mode="reflect"), len(images)
            place = torch.arange(32)
            down, right = torch.randint(9, (2, count, 1))
            columns = torch.where(torch.rand(count, 1) < 0.5, right + place, right + 31 - place)
            rows = (down + place)[:, None, :, None]
            return padded[torch.arange(count).view(-1, 1, 1, 1), torch.arange(3).view(1, 3, 1, 1), rows, columns[:, None, None]]

    return Augmented()
