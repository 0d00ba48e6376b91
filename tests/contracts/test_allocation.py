"""What every allocation promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.parts.checks import Guarded
from fedtide.parts.kinds import builtin_parts
from promises import frozen, part

links = st.lists(st.floats(0, 40), max_size=12)


@pytest.mark.parametrize("name", builtin_parts("allocation"))
def test_contract(name: str) -> None:
    allocation = Guarded("allocation", name, part("allocation", name))

    @settings(max_examples=60)
    @given(links, st.floats(0, 1e9), st.randoms())
    def check(values: list[float], num_symbols: float, random: Any) -> None:
        capacity = frozen(values, float)

        def ask(order: list[int]) -> Any:  # finite, not negative, of the right shape, no more than there are
            given = frozen(capacity[order], float)
            return allocation(given, num_symbols)

        order = list(range(len(values)))
        shares = ask(order)
        for one, other in zip(shares, ask(order), strict=True):  # the same, asked again
            assert np.array_equal(one, other)
        random.shuffle(order)  # a device's share does not depend on its place, but that one of equal links comes first
        for one, other in zip(shares, ask(order), strict=True):
            np.testing.assert_allclose(
                other[np.lexsort((other, capacity[order]))], one[np.lexsort((one, capacity))], rtol=1e-12, atol=1e-300
            )

    check()
