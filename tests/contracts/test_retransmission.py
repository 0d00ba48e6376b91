"""What every retransmission promises."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.parts.kinds import builtin_parts
from fedtide.radio.retransmission import max_attempts
from promises import depends_on_its_arguments_alone, frozen, part


@pytest.mark.parametrize("name", builtin_parts("retransmission"))
def test_contract(name: str) -> None:
    """An attempt that carries more never leaves the server with less, and no attempt leaves it with more than all carried."""
    resend = part("retransmission", name)
    assert max_attempts(resend) >= 1
    row = st.tuples(st.floats(0, 1e9), st.floats(0, 1e9))

    @settings(max_examples=30)
    @given(st.lists(row, min_size=1, max_size=8), st.randoms())
    def check(asked: list[tuple[float, float]], random: Random) -> None:
        carried, before = (np.array(column) for column in zip(*asked, strict=True))
        found = depends_on_its_arguments_alone(
            lambda at: resend(frozen(carried[at], float), frozen(before[at], float)), len(asked), random.shuffle
        )
        assert np.all(found >= carried)
        assert np.all(found <= carried + before)
        assert np.all(resend(carried + 1, before) >= found)

    check()
