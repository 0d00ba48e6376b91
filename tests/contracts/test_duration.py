"""What every duration promises."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.devices.duration import durations_vary
from fedtide.parts.kinds import builtin_parts
from promises import NUM_DEVICES, depends_on_its_arguments_alone, frozen, part


@pytest.mark.parametrize("name", builtin_parts("duration"))
def test_contract(name: str) -> None:
    duration = part("duration", name)
    rows = st.lists(st.tuples(st.integers(0, NUM_DEVICES - 1), st.integers(1, 10**6)), min_size=1, max_size=8)

    @settings(max_examples=40)
    @given(rows, st.integers(0, 2**64), st.randoms())
    def check(asked: list[tuple[int, int]], seed: int, random: Random) -> None:
        device, job = np.array(asked).T
        found = depends_on_its_arguments_alone(
            lambda at: duration(seed, frozen(device[at]), frozen(job[at])), len(asked), random.shuffle
        )
        assert found.dtype == np.float64
        assert np.all(found > 0)
        if not durations_vary(duration):  # then every job takes as long as the first
            assert np.array_equal(duration(seed, device, np.ones_like(job)), found)

    check()


@pytest.mark.parametrize(
    "name", [name for name in builtin_parts("duration") if name != "trace"]
)  # which says what it says
def test_the_seed_counts(name: str) -> None:
    device, job = np.arange(NUM_DEVICES), np.ones(NUM_DEVICES, np.int64)
    found = [part("duration", name)(seed, device, job) for seed in (1, 2)]
    assert not np.array_equal(*found)
