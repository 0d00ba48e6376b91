"""The model, the data and the training: put your own here. Nothing in this file knows of federated learning."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

_LABELS = 10


class Net(nn.Module):
    """A small convolutional network for images [b 1 8 8]."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 8 * 8, _LABELS)
        )

    def forward(self, x):
        """Return one logit per label [b 10]."""
        return self.layers(x)


def _samples(count, seed):
    """Return images [n 1 8 8] of ten patterns with noise, and their labels [n]."""
    patterns = torch.randn(_LABELS, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(1000 + seed)
    labels = torch.randint(_LABELS, (count,), generator=draw)
    return patterns[labels] + 1.5 * torch.randn(count, 1, 8, 8, generator=draw), labels


def load_data(partition_id, batch_size=20):
    """Return the batches of one device, which sees five of the ten labels."""
    images, labels = _samples(600, partition_id)
    held = (labels - partition_id) % _LABELS < _LABELS // 2
    return DataLoader(TensorDataset(images[held], labels[held]), batch_size, shuffle=True)


def load_test_data():
    """Return what the server tests on."""
    return DataLoader(TensorDataset(*_samples(1000, -1)), 500)


def train(net, loader, epochs, lr):
    """Train a model in place and return its mean loss."""
    optimizer, losses = torch.optim.SGD(net.parameters(), lr), []
    net.train()
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return sum(losses) / len(losses)


def test(net, loader):
    """Return mean loss and accuracy of a model."""
    net.eval()
    loss, right, count = 0.0, 0, 0
    with torch.no_grad():
        for images, labels in loader:
            logits = net(images)
            loss += functional.cross_entropy(logits, labels, reduction="sum").item()
            right += int((logits.argmax(1) == labels).sum())
            count += len(labels)
    return loss / count, right / count
