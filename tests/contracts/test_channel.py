"""What every channel promises."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.engine.checks import checked_link
from fedtide.parts.kinds import builtin_parts
from fedtide.types import Link
from promises import NUM_DEVICES, depends_on_its_arguments_alone, frozen, part


def link(answer: Any, m: int) -> Link:
    return checked_link(answer, m, "channel")  # finite, not negative, of the right shape


@pytest.mark.parametrize("name", builtin_parts("channel"))
@pytest.mark.parametrize("column", Link._fields)
def test_contract(name: str, column: str) -> None:
    channel = part("channel", name)
    devices = st.lists(st.integers(0, NUM_DEVICES - 1), min_size=1, max_size=8)

    @settings(max_examples=30)
    @given(devices, st.integers(0, 2**64), st.integers(1, 10**6), st.floats(0, 1e4), st.randoms())
    def check(asked: list[int], seed: int, tick: int, time: float, random: Random) -> None:
        device = np.array(asked)
        depends_on_its_arguments_alone(
            lambda at: getattr(link(channel(seed, tick, time, frozen(device[at])), len(at)), column),
            len(asked),
            random.shuffle,
        )

    check()
