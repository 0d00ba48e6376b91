"""The paper's CNN in PyTorch and one client's training, for the frameworks that leave these to their user."""

from __future__ import annotations

import numpy as np
import torch
from job import JOB, Data
from torch import nn
from torch.nn.functional import cross_entropy


class CNN(nn.Sequential):
    """The paper's CNN: 21,840 parameters, dropout after its second convolution and its first linear layer."""

    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU()),
            *(nn.Conv2d(10, 20, 5), nn.Dropout2d(0.5), nn.MaxPool2d(2), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Dropout(0.5), nn.Linear(50, 10)),
        )


def client_tensors(data: Data, device: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the images and labels that a device holds."""
    mine = data.held[device]
    return torch.from_numpy(data.images[mine]), torch.from_numpy(data.labels[mine])


def train(module: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> None:
    """Train in place as a client does. Batches are cut from tensors, which costs less than a DataLoader."""
    module.train()
    optimizer = torch.optim.SGD(module.parameters(), lr=JOB.learning_rate)
    for _ in range(JOB.local_epochs):
        for batch in torch.randperm(len(labels)).split(JOB.batch_size):
            optimizer.zero_grad()
            cross_entropy(module(images[batch]), labels[batch]).backward()
            optimizer.step()


@torch.no_grad()
def accuracy(module: nn.Module, data: Data) -> float:
    """Return the share of right answers on the test set; not measured."""
    module.eval()
    images, labels = torch.from_numpy(data.test_images), data.test_labels
    answers = torch.cat([module(part).argmax(1) for part in images.split(1000)]).numpy()
    return float(np.mean(answers == labels))
