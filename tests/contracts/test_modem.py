"""What every modem promises."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.parts.kinds import builtin_parts
from fedtide.radio.modem import achieved_capacity
from promises import depends_on_its_arguments_alone, frozen, part


@pytest.mark.parametrize("name", builtin_parts("modem"))
def test_contract(name: str) -> None:
    """More power never carries less, but for what link adaptation risks at a higher rate, and none carries nothing."""
    modem = part("modem", name)
    risk = 1.02 * getattr(modem, "bler_target", 0.0)  # rates of neighbouring MCS may be equal but for rounding

    @settings(max_examples=30)
    @given(st.lists(st.floats(0, 1e30), min_size=1, max_size=8), st.randoms())
    def check(asked: list[float], random: Random) -> None:
        snr = np.array([0.0, *sorted(asked)])
        found = depends_on_its_arguments_alone(lambda at: modem(frozen(snr[at], float)), len(snr), random.shuffle)
        assert found.dtype == np.float64
        assert np.all(np.isfinite(found))
        assert found[0] == 0
        assert np.all(found >= (1 - risk) * np.maximum.accumulate(found))

    check()


@pytest.mark.parametrize("name", builtin_parts("modem"))
def test_what_is_achieved(name: str) -> None:
    """Known links carry what is planned; over others no estimate carries more than the best one, but for that risk."""
    modem = part("modem", name)
    risk = 1.02 * getattr(modem, "bler_target", 0.0)

    @settings(max_examples=30)
    @given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=8), st.randoms())
    def check(asked: list[tuple[float, float]], random: Random) -> None:
        snr, estimate = (frozen(column, float) for column in zip(*asked, strict=True))
        assert achieved_capacity(modem, snr, snr) == pytest.approx(modem(snr), abs=0)
        found = depends_on_its_arguments_alone(
            lambda at: achieved_capacity(modem, snr[at], estimate[at]), len(snr), random.shuffle
        )
        assert np.all(np.isfinite(found))
        assert np.all(found >= 0)
        assert np.all(found * (1 - risk) <= modem(snr) * (1 + 1e-12))

    check()
