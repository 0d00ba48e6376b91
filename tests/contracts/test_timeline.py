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
from fedtide.timeline.world import World
from fedtide.types import Clock, Floats, Ints
from helpers import EXAMPLES, constant_clock
from promises import checked_ticks, part

EVERY = {name: part("timeline", name, timeline_buffer_size=3) for name in builtin_parts("timeline")}
# Those that plan; sampled staleness has a clock of its own.
OURS = {name: each for name, each in EVERY.items() if callable(each) and name != "sampled_staleness"}
REACTING = {name: each for name, each in EVERY.items() if hasattr(each, "when")}
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


def settled(name: str, world: World, count: int) -> list[tuple[float, list[int], list[int]]]:
    """Play a world in which everyone who is ready is picked."""
    found: list[tuple[float, list[int], list[int]]] = []
    while len(found) < count and (tick := world.next_tick()) is not None:
        found.append((tick.time, tick.ready.tolist(), tick.start.tolist()))
        world.settle(tick.ready, tick.time)
    return found


@pytest.mark.parametrize("name", REACTING)
@settings(max_examples=30)
@given(st.integers(3, 9), st.floats(0.1, 6), st.integers(0, 1000))
def test_contract_of_one_that_reacts(name: str, num_devices: int, horizon: float, seed: int) -> None:
    clock = changing_clock(num_devices, horizon, seed)
    found = settled(name, World(clock, REACTING[name]), 50)
    assert found == settled(name, World(clock, REACTING[name]), 50)
    times = [time for time, _, _ in found]
    assert times == sorted(times)
    assert all(time <= horizon for time in times)
    if name in OURS and name != "buffered":  # planned and played, it acts at the same times with the same devices
        ticks = list(islice(OURS[name](clock), len(found)))
        assert [tick.ready.tolist() for tick in ticks] == [ready for _, ready, _ in found]
        assert [tick.start.tolist() for tick in ticks] == [start for _, _, start in found]
        assert np.allclose([tick.time for tick in ticks], times, rtol=1e-12)


def test_sampled_staleness_is_uniform_and_trains_from_versions_that_were_there() -> None:
    timeline = part("timeline", "sampled_staleness", timeline_period=1.0)
    ticks = list(timeline(constant_clock([1.0] * 20, 4000.0)))
    age = np.array([tick.index - tick.start[0] for tick in ticks])
    assert len(ticks) == 4000
    assert all(tick.start[0] >= 1 for tick in ticks)
    assert np.allclose(np.bincount(age[10:]) / len(age[10:]), 1 / 5, atol=0.03)
    assert timeline.history == 4
