"""What every access promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.parts import checks
from fedtide.parts.kinds import builtin_parts
from fedtide.radio import over_the_air
from promises import frozen, part


@pytest.mark.parametrize("name", builtin_parts("access"))
def test_contract(name: str) -> None:
    made = part("access", name)

    @settings(max_examples=30)
    @given(st.integers(1, 6), st.integers(1, 40), st.integers(0, 2**32))
    def check(r: int, d: int, seed: int) -> None:
        draws = np.random.default_rng(seed)
        updates, weights = draws.standard_normal((r, d)), draws.dirichlet(np.ones(r))
        snr = draws.exponential(size=r) + 1e-3

        def heard(snr: np.ndarray, seed: int = seed) -> np.ndarray:
            rng = np.random.default_rng(seed)
            answer = made(frozen(updates, np.float32), frozen(weights, float), frozen(snr, float), rng)
            return checks.checked_vector(answer, d, "access")

        assert np.array_equal(heard(snr), heard(snr))  # it draws from what it is given alone,
        # and of strong devices the sum is heard as it is
        assert np.allclose(heard(snr + 1e30), weights @ updates.astype(np.float32), atol=1e-5)
        sending = over_the_air.sends_over_the_air(made, np.append(snr, 0.0))
        assert sending.shape == (r + 1,)
        assert (
            sending.all() if over_the_air.is_not_over_the_air(made) else not sending[-1]
        )  # a dead link cannot be inverted
        assert 0 < over_the_air.symbols_over_the_air(made, d) <= d

    check()
