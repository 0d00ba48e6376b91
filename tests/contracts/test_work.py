"""What every work promises."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.learning.trainer import work_is_equal, work_varies
from fedtide.parts.checks import Guarded
from fedtide.parts.kinds import builtin_parts
from fedtide.types import Work
from promises import NUM_DEVICES, depends_on_its_arguments_alone, frozen, part


@pytest.mark.parametrize("name", builtin_parts("work"))
def test_contract(name: str) -> None:
    work = part("work", name)
    rows = st.lists(st.tuples(st.integers(0, NUM_DEVICES - 1), st.integers(1, 10**6)), min_size=1, max_size=8)

    @settings(max_examples=40)
    @given(rows, st.integers(0, 2**64), st.randoms())
    def check(asked: list[tuple[int, int]], seed: int, random: Random) -> None:
        device, job = np.array(asked).T
        whole = work(seed, frozen(device), frozen(job))
        assert isinstance(whole, Work)
        assert all(column is None for column in whole) == work_is_equal(work)
        for field, column in whole._asdict().items():
            if column is not None:

                def ask(at: Any, field: str = field) -> Any:
                    return getattr(work(seed, frozen(device[at]), frozen(job[at])), field)

                found = depends_on_its_arguments_alone(ask, len(asked), random.shuffle)
                assert np.array_equal(found, column)
                if not work_varies(work):  # then every job is like the first
                    assert np.array_equal(getattr(work(seed, device, np.ones_like(job)), field), found)
        guarded = Guarded("work", name, work)(seed, device, job)  # it passes the checks of a user's own
        assert [each is None for each in guarded] == [each is None for each in whole]

    check()
