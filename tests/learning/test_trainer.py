from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.learning.trainer import LocalWork, batches

SAMPLES = np.arange(100, 123)


@given(st.integers(1, 30), st.integers(1, 40), st.integers(1, 4))
def test_every_epoch_visits_every_sample_once(num: int, batch_size: int, epochs: int) -> None:
    samples = np.arange(50, 50 + num)
    visited, bounds = batches(0, 3, 1, samples, LocalWork(batch_size, epochs))
    assert len(visited) == epochs * num
    for epoch in visited.reshape(epochs, num):
        assert sorted(epoch.tolist()) == samples.tolist()
    sizes = np.diff(bounds)
    assert bounds[0] == 0
    assert bounds[-1] == len(visited)
    per_epoch = -(-num // batch_size)
    assert len(sizes) == epochs * per_epoch
    last = num - batch_size * (per_epoch - 1)
    assert sizes.tolist() == ([batch_size] * (per_epoch - 1) + [last]) * epochs


@given(st.integers(1, 60), st.integers(1, 40))
def test_steps_are_the_front_of_the_epochs(steps: int, batch_size: int) -> None:
    long, long_bounds = batches(0, 3, 1, SAMPLES, LocalWork(batch_size, 100))
    visited, bounds = batches(0, 3, 1, SAMPLES, LocalWork(batch_size, None, steps))
    assert bounds.tolist() == long_bounds[: steps + 1].tolist()
    assert visited.tolist() == long[: bounds[-1]].tolist()


def test_order_depends_on_seed_device_and_version_only() -> None:
    work = LocalWork(5, 2)
    base = batches(0, 3, 1, SAMPLES, work)[0].tolist()
    assert base == batches(0, 3, 1, SAMPLES, work)[0].tolist()
    for address in ((1, 3, 1), (0, 4, 1), (0, 3, 2)):
        assert base != batches(*address, SAMPLES, work)[0].tolist()
    assert base[:23] != base[23:]


@pytest.mark.parametrize("steps", [1, 7])
def test_one_sample(steps: int) -> None:
    visited, bounds = batches(0, 0, 1, np.array([9]), LocalWork(50, None, steps))
    assert visited.tolist() == [9] * steps
    assert bounds.tolist() == list(range(steps + 1))
