"""What every weighting promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.core import parts
from fedtide.policy.weighting import WEIGHTINGS
from helpers import EXAMPLES

CASES: list[tuple[str, dict[str, Any]]] = [
    ("age_aware", {}),
    ("age_aware", {"age_base": 0.5}),
    ("age_aware", {"age_base": 3.0}),
    ("uniform", {}),
    (f"{EXAMPLES}/my_weighting.py:polynomial", {}),
    (f"{EXAMPLES}/my_weighting.py:polynomial", {"power": 0.5}),
]


def test_all_are_here() -> None:
    assert set(WEIGHTINGS) <= {name for name, _ in CASES}


@pytest.mark.parametrize(("name", "args"), CASES)
def test_contract(name: str, args: dict[str, Any]) -> None:
    weighting = parts.resolve("weighting", name, args)

    @settings(max_examples=50)
    @given(st.lists(st.tuples(st.integers(1, 10**5), st.integers(0, 10**4)), min_size=1, max_size=20), st.randoms())
    def check(devices: list[tuple[int, int]], random: Any) -> None:
        num_samples, age = np.array(devices).T.copy()
        num_samples.flags.writeable = age.flags.writeable = False
        weights = np.asarray(weighting(num_samples, age))
        assert weights.shape == (len(devices),)
        assert np.all(weights >= 0)
        assert weights.sum() == pytest.approx(1, abs=1e-9)
        order = list(range(len(devices)))
        random.shuffle(order)  # a device's weight does not depend on its place
        np.testing.assert_allclose(weighting(num_samples[order], age[order]), weights[order], rtol=1e-12)

    check()
