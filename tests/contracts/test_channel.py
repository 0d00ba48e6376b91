"""What every channel promises."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.parts.checks import Guarded
from fedtide.parts.kinds import builtin_parts
from fedtide.types import Link
from promises import NUM_DEVICES, depends_on_its_arguments_alone, frozen, part


def snr(answer: Any) -> np.ndarray:
    return answer.capacity if isinstance(answer, Link) else answer


@pytest.mark.parametrize("name", builtin_parts("channel"))
def test_contract(name: str) -> None:
    channel = Guarded(
        "channel", name, part("channel", name, radio_symbol_rate=1e6)
    )  # finite, not negative, of the right shape
    devices = st.lists(st.integers(0, NUM_DEVICES - 1), min_size=1, max_size=8)

    @settings(max_examples=30)
    @given(devices, st.integers(0, 2**64), st.integers(1, 10**6), st.floats(0, 1e4), st.randoms())
    def check(asked: list[int], seed: int, tick: int, time: float, random: Random) -> None:
        device = np.array(asked)
        depends_on_its_arguments_alone(
            lambda at: snr(channel(seed, tick, time, frozen(device[at]))),
            len(asked),
            random.shuffle,
        )

    check()
