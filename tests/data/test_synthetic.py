from __future__ import annotations

import numpy as np
import pytest

from fedtide.data.synthetic import synthetic
from fedtide.errors import FedtideError


def test_shapes_and_types():
    dataset = synthetic(1, 57, 23, num_labels=7, side=20, channels=3)
    assert dataset.num_labels == 7
    for samples, num in (dataset.train, 57), (dataset.test, 23):
        assert samples.images.shape == (num, 3, 20, 20)
        assert samples.images.dtype == np.float32
        assert samples.images.flags.c_contiguous
        assert samples.labels.dtype == np.uint8
        counts = np.bincount(samples.labels, minlength=7)
        assert counts.max() - counts.min() <= 1


def test_the_seed_decides():
    one, again, two = synthetic(1, 50, 10), synthetic(1, 50, 10), synthetic(2, 50, 10)
    np.testing.assert_array_equal(one.train.images, again.train.images)
    np.testing.assert_array_equal(one.test.labels, again.test.labels)
    assert not np.array_equal(one.train.images, two.train.images)


def test_one_part_does_not_depend_on_the_size_of_the_other():
    few, many = synthetic(1, 50, 10), synthetic(1, 50, 30)
    np.testing.assert_array_equal(few.train.images, many.train.images)
    few, many = synthetic(1, 50, 10), synthetic(1, 80, 10)
    np.testing.assert_array_equal(few.test.images, many.test.images)


def test_the_background_is_constant():
    images = synthetic(3, 200, 1).train.images
    background = images.min()
    assert background == pytest.approx(-0.1307 / 0.3081)
    assert 0.6 < (images == background).mean() < 0.95


@pytest.mark.parametrize("seed", range(3))
def test_it_is_learnable_but_not_trivial(seed):
    """The nearest class mean is far better than guessing and leaves something to learn; one neighbour does well."""
    train, test = synthetic(seed, 2000, 500)[1:3]
    x, x_test = train.images.reshape(2000, -1), test.images.reshape(500, -1)
    means = np.stack([x[train.labels == label].mean(axis=0) for label in range(10)])

    def nearest(points):
        return np.argmin((points**2).sum(axis=1) - 2 * x_test @ points.T, axis=1)

    assert 0.5 < (nearest(means) == test.labels).mean() < 0.9
    assert (train.labels[nearest(x)] == test.labels).mean() > 0.9


@pytest.mark.parametrize(
    "wrong", [{"num_train": 0}, {"num_test": -1}, {"num_labels": 0}, {"num_labels": 257}, {"side": 3}, {"channels": 0}]
)
def test_bad_input(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(FedtideError, match=f"{name} = {value}"):
        synthetic(**({"seed": 0, "num_train": 5, "num_test": 5} | wrong))
