"""What every modem promises."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.parts.kinds import builtin_parts
from promises import depends_on_its_arguments_alone, frozen, part


@pytest.mark.parametrize("name", builtin_parts("modem"))
def test_contract(name: str) -> None:
    """More power never carries less, and none carries nothing."""
    modem = part("modem", name)

    @settings(max_examples=30)
    @given(st.lists(st.floats(0, 1e30), min_size=1, max_size=8), st.randoms())
    def check(asked: list[float], random: Random) -> None:
        snr = np.array([0.0, *sorted(asked)])
        found = depends_on_its_arguments_alone(lambda at: modem(frozen(snr[at], float)), len(snr), random.shuffle)
        assert found.dtype == np.float64
        assert np.all(np.isfinite(found))
        assert found[0] == 0
        assert np.all(np.diff(found) >= 0)

    check()
