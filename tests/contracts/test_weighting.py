"""What every weighting promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.parts import registry
from fedtide.parts.kinds import builtin_parts
from helpers import EXAMPLES
from promises import without_memory
from with_memory import REMEMBERING

CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in builtin_parts("weighting")),
    ("with memory", {}),
    ("age_aware", {"age_base": 0.5}),
    ("age_aware", {"age_base": 3.0}),
    (f"{EXAMPLES}/my_weighting.py:polynomial", {}),
    (f"{EXAMPLES}/my_weighting.py:polynomial", {"power": 0.5}),
]


@pytest.mark.parametrize(("name", "args"), CASES)
def test_contract(name: str, args: dict[str, Any]) -> None:
    weighting = REMEMBERING["weighting"]() if name == "with memory" else registry.resolve("weighting", name, args)

    @settings(max_examples=50)
    @given(st.lists(st.tuples(st.integers(1, 10**5), st.integers(0, 10**4)), min_size=1, max_size=20), st.randoms())
    def check(devices: list[tuple[int, int]], random: Any) -> None:
        num_samples, age = np.array(devices).T.copy()
        num_samples.flags.writeable = age.flags.writeable = False
        device = np.arange(len(devices))
        weights = np.asarray(without_memory(weighting, 20, last=(device,))(num_samples, age))
        assert weights.shape == (len(devices),)
        assert np.all(weights >= 0)
        assert weights.sum() == pytest.approx(1, abs=1e-9)
        order = list(range(len(devices)))
        random.shuffle(order)  # a device's weight does not depend on its place
        again = without_memory(weighting, 20, last=(device[order],))(num_samples[order], age[order])
        np.testing.assert_allclose(again, weights[order], rtol=1e-12)

    check()
