"""What every timeline promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.core import parts
from fedtide.world.timeline import TIMELINES, checked, lifted
from helpers import EXAMPLES, ticks_of

CASES: list[tuple[str, dict[str, Any]]] = [
    ("periodic", {"period": 0.25}),
    ("periodic", {"period": 0.3}),
    ("synchronous", {"round_duration": 1.0}),
    ("per_arrival", {}),
    ("buffered", {"size": 3}),
    (f"{EXAMPLES}/my_timeline.py:quick_start", {}),
]


def test_all_are_here() -> None:
    assert set(TIMELINES) <= {name for name, _ in CASES}


@pytest.mark.parametrize(("name", "args"), CASES)
def test_contract(name: str, args: dict[str, Any]) -> None:
    timeline = lifted(parts.resolve("timeline", name, args), redraws=False, label=name)

    @settings(max_examples=40)
    @given(st.lists(st.floats(0.02, 1.0), min_size=3, max_size=8), st.floats(0.1, 4), st.floats(0, 2))
    def hold(values: list[float], horizon: float, more: float) -> None:
        duration = np.array(values)
        duration.flags.writeable = False
        ticks = ticks_of(timeline, duration, horizon)
        checked(ticks, len(values), horizon)  # indices, times, readiness and versions fit together,
        assert all(tick.time <= horizon * (1 + 1e-9) for tick in ticks)
        began = [0.0, 0.0, *(tick.time for tick in ticks)]
        for tick in ticks:  # nobody is ready sooner than it can be,
            for k, version in zip(tick.ready.tolist(), tick.start.tolist(), strict=True):
                assert tick.time - began[version] >= values[k] - 1e-9
        longer = ticks_of(timeline, duration, horizon + more)  # and a longer horizon only adds to it.
        assert len(longer) >= len(ticks)
        for one, other in zip(ticks, longer, strict=False):
            assert (one.index, one.time) == (other.index, other.time)
            assert np.array_equal(one.ready, other.ready)
            assert np.array_equal(one.start, other.start)

    hold()
