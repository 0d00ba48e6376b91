"""What every availability promises."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.devices.availability import always_available
from fedtide.parts.kinds import builtin_parts
from promises import NUM_DEVICES, depends_on_its_arguments_alone, frozen, part


@pytest.mark.parametrize("name", builtin_parts("availability"))
def test_contract(name: str) -> None:
    availability = part("availability", name)
    rows = st.lists(st.tuples(st.integers(0, NUM_DEVICES - 1), st.floats(0, 1e4)), min_size=1, max_size=8)

    @settings(max_examples=40)
    @given(rows, st.integers(0, 2**64), st.randoms())
    def check(asked: list[tuple[int, float]], seed: int, random: Random) -> None:
        device, time = np.array([k for k, _ in asked]), np.array([t for _, t in asked])
        found = depends_on_its_arguments_alone(
            lambda at: availability(seed, frozen(device[at]), frozen(time[at], float)), len(asked), random.shuffle
        )
        assert found.dtype == np.float64
        assert np.all(found >= time)
        back = np.isfinite(found)  # whoever is there, is there
        assert np.array_equal(availability(seed, device[back], found[back]), found[back])
        if always_available(availability):
            assert np.array_equal(found, time)

    check()
