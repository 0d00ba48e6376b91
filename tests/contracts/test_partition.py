"""What every partition promises."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.core.kinds import table
from fedtide.data.partition import checked
from fedtide.types import Dataset, Samples
from promises import frozen, part


def every_other(dataset: Dataset, num_devices: int, seed: int) -> Any:
    """A partition of a user's own, which answers with lists, in no order."""
    return ([*range(k, len(dataset.train.labels), num_devices)][::-1] for k in range(num_devices))


OTHERS = {"my own": every_other}


def dealt(name: str, dataset: Dataset, num_devices: int, seed: int) -> list[Any]:
    duration = np.linspace(1, 0.1, num_devices)
    more = {"data_size_spread": 0.7} if name == "speed_sizes" else {}  # it wants sizes that differ
    made = OTHERS.get(name) or part("partition", name, fleet_durations=duration, data_num_shards=40, **more)
    answer = made(dataset, num_devices, seed)
    return checked(answer, len(dataset.train.labels), num_devices, name)  # one vector each, within range, never empty


@pytest.mark.parametrize("name", [*table("partition"), *OTHERS])
def test_contract(name: str) -> None:
    @settings(max_examples=30)
    @given(st.integers(2, 12), st.integers(0, 30), st.integers(0, 2**64), st.integers(0, 2**32))
    def check(num_devices: int, more: int, seed: int, drawn: int) -> None:
        rng, n = np.random.default_rng(drawn), 60 + more
        labels = frozen(rng.permutation(np.arange(n) % 5), np.uint8)
        train = Samples(np.zeros((n, 1, 1, 1), np.float32), labels)
        dataset = Dataset("made", train, train, 5, "test", frozen(np.arange(n) % 13))
        before = random.getstate(), labels.copy()
        found = dealt(name, dataset, num_devices, seed)
        everyone = np.concatenate(found)
        assert len(np.unique(everyone)) == len(everyone)  # nothing belongs to two
        assert all(np.all(np.diff(mine) > 0) for mine in found)
        for one, two in zip(found, dealt(name, dataset, num_devices, seed), strict=True):
            assert np.array_equal(one, two)  # it depends on its arguments alone
        assert random.getstate() == before[0]
        assert np.array_equal(labels, before[1])

    check()
