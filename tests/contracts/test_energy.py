"""What every energy promises."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.devices.energy import energy_of_bits
from fedtide.parts.kinds import builtin_parts
from promises import NUM_DEVICES, depends_on_its_arguments_alone, frozen, part


@pytest.mark.parametrize("name", builtin_parts("energy"))
def test_contract(name: str) -> None:
    energy = part("energy", name, radio_symbol_rate=1e6)
    row = st.tuples(st.integers(0, NUM_DEVICES - 1), st.integers(0, 10**9), st.floats(0, 1e9))

    @settings(max_examples=30)
    @given(st.lists(row, min_size=1, max_size=8), st.integers(0, 2**64), st.randoms())
    def check(asked: list[tuple[int, int, float]], seed: int, random: Random) -> None:
        device, samples, symbols = (np.array(column) for column in zip(*asked, strict=True))
        found = depends_on_its_arguments_alone(
            lambda at: energy(seed, frozen(device[at]), frozen(samples[at]), frozen(symbols[at], float)),
            len(asked),
            random.shuffle,
        )
        assert np.all(np.isfinite(found) & (found >= 0))
        assert np.all(energy(seed, device, samples + 1, symbols) >= found)  # more work never costs less
        assert not energy(seed, device, 0 * samples, 0 * symbols).any()  # and none costs nothing
        of_bits = energy_of_bits(energy, seed, device, symbols)
        assert np.all(np.isfinite(of_bits) & (of_bits >= 0))
        assert np.all(energy_of_bits(energy, seed, device, symbols + 1) >= of_bits)
        assert not energy_of_bits(energy, seed, device, 0 * symbols).any()

    check()
