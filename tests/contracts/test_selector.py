"""What every selector promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.parts.kinds import builtin_parts
from fedtide.types import Idle
from promises import frozen, part


@pytest.mark.parametrize("name", builtin_parts("selector"))
def test_contract(name: str) -> None:
    """As many different ones as there are places, the same for the same draws."""
    select = part("selector", name)

    @settings(max_examples=30)
    @given(st.lists(st.integers(0, 9), min_size=2, max_size=8), st.data(), st.integers(0, 1000))
    def check(jobs: list[int], data: st.DataObject, seed: int) -> None:
        idle = Idle(1.5, frozen(range(len(jobs))), frozen(jobs), frozen([20] * len(jobs)))
        count = data.draw(st.integers(1, len(jobs) - 1))
        found = np.asarray(select(idle, count, np.random.default_rng(seed)))
        assert len({*found.tolist()}) == count == len(found)
        assert {*found.tolist()} <= {*range(len(jobs))}
        assert np.array_equal(found, select(idle, count, np.random.default_rng(seed)))

    check()


def test_fewest_jobs_takes_those_who_have_trained_least() -> None:
    idle = Idle(0.0, frozen([3, 5, 8, 9]), frozen([4, 1, 2, 1]), frozen([1, 1, 1, 1]))
    assert sorted(part("selector", "fewest_jobs")(idle, 2, np.random.default_rng(0))) == [1, 3]
