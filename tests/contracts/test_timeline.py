"""What every timeline promises."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide import columns
from fedtide.parts import registry
from fedtide.parts.kinds import builtin_parts
from fedtide.types import Clock, Floats, Ints
from helpers import EXAMPLES, constant_clock
from promises import checked_ticks, made

OURS = {name: made(maker) for name, maker in builtin_parts("timeline").items()}
OTHERS = {
    "another period": registry.resolve("timeline", "periodic", {"period": 0.3}),
    "periodic, with uploads": registry.resolve("timeline", "periodic", {"period": 0.3, "upload_time": 0.1}),
    "rounds, with uploads": registry.resolve("timeline", "synchronous", {"round_duration": 0.5, "upload_time": 0.3}),
    "a buffer, with uploads": registry.resolve("timeline", "buffered", {"size": 2, "upload_time": 0.3}),
    "arrivals, with uploads": registry.resolve("timeline", "per_arrival", {"upload_time": 0.3}),
    "my_timeline": registry.resolve("timeline", f"{EXAMPLES}/my_timeline.py:quick_start", {}),
}


def changing_clock(num_devices: int, horizon: float, seed: int) -> Clock:
    """Return a clock on which every job of a device takes another time, and so does one that begins at another."""

    def elapsed(device: Ints, job: Ints, time: Floats) -> Floats:
        assert device.shape == job.shape == time.shape
        assert np.all(job >= 1)
        return 0.02 + columns.exponential(seed, "elapsed", device, job) + 0.1 * (time % 1)

    return Clock(num_devices, horizon, elapsed)


def hold(timeline: Any, clock: Clock, more: float) -> None:
    """Check the promises."""
    ticks = checked_ticks(
        timeline(clock), clock.num_devices, clock.horizon
    )  # indices, times, readiness and versions fit,
    began, job = [0.0, 0.0, *(tick.time for tick in ticks)], np.zeros(clock.num_devices, np.int64)
    for tick in ticks:  # nobody is ready sooner than it can be,
        assert tick.time <= clock.horizon * (1 + 1e-9)
        job[tick.ready] += 1
        begin = np.array([began[version] for version in tick.start.tolist()])
        assert np.all(tick.time - begin >= clock.elapsed(tick.ready, job[tick.ready], begin) - 1e-9)
    again = checked_ticks(timeline(clock), clock.num_devices, clock.horizon)  # it is the same when asked again,
    longer = checked_ticks(
        timeline(clock._replace(horizon=clock.horizon + more)), clock.num_devices, clock.horizon + more
    )
    start = list(islice(timeline(clock), 2))  # or for the first only,
    assert len(again) == len(ticks) <= len(longer)  # and a longer horizon only adds to it.
    for other in (again, longer, start):
        for one, two in zip(ticks, other, strict=False):
            assert (one.index, one.time) == (two.index, two.time)
            assert np.array_equal(one.ready, two.ready)
            assert np.array_equal(one.start, two.start)


@pytest.mark.parametrize("name", [*OURS, *OTHERS])
@settings(max_examples=40)
@given(st.lists(st.floats(0.02, 1.0), min_size=3, max_size=8), st.floats(0.1, 4), st.floats(0, 2))
def test_contract(name: str, values: list[float], horizon: float, more: float) -> None:
    hold({**OURS, **OTHERS}[name], constant_clock(values, horizon), more)


@pytest.mark.parametrize("name", OURS)
@settings(max_examples=30)
@given(st.integers(3, 9), st.floats(0.1, 6), st.floats(0, 2), st.integers(0, 1000))
def test_contract_with_jobs_of_different_length(
    name: str, num_devices: int, horizon: float, more: float, seed: int
) -> None:
    hold(OURS[name], changing_clock(num_devices, horizon, seed), more)
