"""What every learning-rate schedule promises."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.parts.kinds import builtin_parts
from promises import depends_on_its_arguments_alone, frozen, part


@pytest.mark.parametrize("name", builtin_parts("schedule"))
def test_contract(name: str) -> None:
    schedule = part("schedule", name)

    @settings(max_examples=40)
    @given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.randoms())
    def check(asked: list[float], random: Random) -> None:
        elapsed = np.array(asked)
        found = depends_on_its_arguments_alone(
            lambda at: schedule(frozen(elapsed[at], float)), len(asked), random.shuffle
        )
        assert found.dtype == np.float64
        assert np.all(np.isfinite(found) & (found >= 0))

    check()
