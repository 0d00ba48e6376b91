from __future__ import annotations

import numpy as np
import pytest

import fedtide.data
from fedtide.data import load
from fedtide.errors import FedtideError
from fedtide.types import Dataset, Samples


@pytest.fixture
def whole(monkeypatch):
    samples = [Samples(np.zeros((n, 1, 28, 28), np.float32), np.arange(n, dtype=np.uint8)) for n in (6, 4)]
    dataset = Dataset("mnist", *samples, 10, "somewhere")
    monkeypatch.setattr(
        fedtide.data, "load_mnist", lambda folder, say, images=True: dataset._replace(source=str(folder))
    )
    return dataset


def test_mnist_whole_and_cut(whole, tmp_path):
    assert len(load("mnist").train.labels) == 6
    cut = load("mnist", folder=tmp_path, num_train=3, num_test=2)
    assert cut.train.labels.tolist() == [0, 1, 2]
    assert cut.test.images.shape == (2, 1, 28, 28)
    assert cut.source == str(tmp_path)


@pytest.mark.parametrize("num", [0, -1, 7])
def test_a_cut_that_cannot_be(whole, num):
    with pytest.raises(FedtideError, match=f"num_train = {num}: must be from 1 to 6"):
        load("mnist", num_train=num)


def test_synthetic():
    assert [len(part.labels) for part in load("synthetic")[1:3]] == [2000, 500]
    assert [len(part.labels) for part in load("synthetic", seed=3, num_train=20, num_test=10)[1:3]] == [20, 10]


def test_an_unknown_name():
    with pytest.raises(FedtideError, match=r"'cifar'.*mnist, fashion_mnist, .*synthetic"):
        load("cifar")
