"""What every csi promises."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.engine.checks import checked_link
from fedtide.parts.kinds import builtin_parts
from fedtide.radio.csi import is_perfect
from fedtide.types import Link
from promises import NUM_DEVICES, depends_on_its_arguments_alone, frozen, part


@pytest.mark.parametrize("name", builtin_parts("csi"))
@pytest.mark.parametrize("column", Link._fields)
def test_contract(name: str, column: str) -> None:
    csi = part("csi", name)
    rows = st.lists(st.tuples(st.integers(0, NUM_DEVICES - 1), st.floats(0, 20)), min_size=1, max_size=8)

    @settings(max_examples=30)
    @given(rows, st.integers(0, 2**64), st.integers(1, 10**6), st.floats(0, 1e4), st.randoms())
    def check(asked: list[tuple[int, float]], seed: int, tick: int, time: float, random: Random) -> None:
        device, capacity = np.array([k for k, _ in asked]), np.array([c for _, c in asked])

        def ask(at: np.ndarray) -> np.ndarray:
            answer = csi(seed, tick, time, frozen(device[at]), frozen(capacity[at], float))
            return np.asarray(getattr(checked_link(answer, len(at), "csi"), column))

        found = depends_on_its_arguments_alone(ask, len(asked), random.shuffle)
        if is_perfect(csi):
            assert np.array_equal(found, capacity)

    check()
