"""What every downlink promises."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.parts.kinds import builtin_parts
from fedtide.radio.downlink import downlink_is_instant
from promises import NUM_DEVICES, depends_on_its_arguments_alone, frozen, part


@pytest.mark.parametrize("name", builtin_parts("downlink"))
def test_contract(name: str) -> None:
    downlink = part("downlink", name)
    rows = st.lists(st.tuples(st.integers(0, NUM_DEVICES - 1), st.floats(0, 1e4)), min_size=1, max_size=8)

    @settings(max_examples=30)
    @given(rows, st.integers(0, 2**64), st.floats(1, 1e9), st.randoms())
    def check(asked: list[tuple[int, float]], seed: int, bits: float, random: Random) -> None:
        device, time = np.array([k for k, _ in asked]), np.array([t for _, t in asked])
        found = depends_on_its_arguments_alone(
            lambda at: downlink(seed, frozen(device[at]), frozen(time[at], float), bits), len(asked), random.shuffle
        )
        assert found.dtype == np.float64
        assert np.all(found >= 0)
        assert np.all(downlink(seed, device, time, 2 * bits) >= found)  # more bits never take less time
        if downlink_is_instant(downlink):
            assert not found.any()

    check()
