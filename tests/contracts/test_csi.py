"""What every csi promises."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.parts.checks import Guarded
from fedtide.parts.kinds import builtin_parts
from fedtide.types import Signal
from promises import NUM_DEVICES, depends_on_its_arguments_alone, frozen, part


@pytest.mark.parametrize("name", builtin_parts("csi"))
@pytest.mark.parametrize("column", Signal._fields)
def test_contract(name: str, column: str) -> None:
    csi = Guarded("csi", name, part("csi", name))
    rows = st.lists(st.tuples(st.integers(0, NUM_DEVICES - 1), st.floats(0, 1e6)), min_size=1, max_size=8)

    @settings(max_examples=30)
    @given(rows, st.integers(0, 2**64), st.integers(1, 10**6), st.floats(0, 1e4), st.randoms())
    def check(asked: list[tuple[int, float]], seed: int, tick: int, time: float, random: Random) -> None:
        device, snr = np.array([k for k, _ in asked]), np.array([each for _, each in asked])

        def ask(at: np.ndarray) -> np.ndarray:
            return np.asarray(getattr(csi(seed, tick, time, frozen(device[at]), frozen(snr[at], float)), column))

        found = depends_on_its_arguments_alone(ask, len(asked), random.shuffle)
        if getattr(csi, "exact", False):
            assert np.array_equal(found, snr)

    check()
