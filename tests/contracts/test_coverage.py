"""What every coverage promises."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.parts.kinds import builtin_parts
from promises import NUM_DEVICES, depends_on_its_arguments_alone, frozen, part


@pytest.mark.parametrize("name", builtin_parts("coverage"))
def test_contract(name: str) -> None:
    coverage = part("coverage", name)
    rows = st.lists(st.tuples(st.integers(0, NUM_DEVICES - 1), st.floats(0, 1e4)), min_size=1, max_size=8)

    @settings(max_examples=30)
    @given(rows, st.integers(0, 2**64), st.randoms())
    def check(asked: list[tuple[int, float]], seed: int, random: Random) -> None:
        device, time = np.array([k for k, _ in asked]), np.array([t for _, t in asked])
        found = depends_on_its_arguments_alone(
            lambda at: coverage(seed, frozen(device[at]), frozen(time[at], float)), len(asked), random.shuffle
        )
        assert found.dtype == np.float64
        assert np.all(np.isfinite(found) & (found >= 0))

    check()


@pytest.mark.parametrize(
    "name", [name for name in builtin_parts("coverage") if hasattr(part("coverage", name), "num_cells")]
)
def test_contract_of_several_cells(name: str) -> None:
    coverage = part("coverage", name)
    rows = st.lists(
        st.tuples(st.integers(0, NUM_DEVICES - 1), st.floats(0, 1e4), st.floats(0, 1)), min_size=1, max_size=8
    )

    @settings(max_examples=20)
    @given(rows, st.integers(0, 2**64), st.randoms())
    def check(asked: list[tuple[int, float, float]], seed: int, random: Random) -> None:
        device, time, share = (np.array(each) for each in zip(*asked, strict=True))
        for method in (coverage.cell, coverage.power, coverage.expected_interference):
            found = depends_on_its_arguments_alone(
                lambda at, ask=method: ask(seed, frozen(device[at]), frozen(time[at], float)),
                len(asked),
                random.shuffle,
            )
            assert np.all(np.isfinite(found) & (found >= 0))
        cell = coverage.cell(seed, device, time)
        assert cell.dtype == np.int64
        assert np.all(cell < coverage.num_cells)
        assert np.all(coverage.power(seed, device, time) <= 1)
        heard = coverage.interference(seed, device, 5.0, share)
        alone = [coverage.interference(seed, device[[at]], 5.0, share[[at]]) for at in range(len(device))]
        np.testing.assert_allclose(heard, np.sum(alone, axis=0))
        own = coverage.cell(seed, device, np.full(len(device), 5.0))
        assert all(each[mine] == 0 for each, mine in zip(alone, own.tolist(), strict=True))

    check()
