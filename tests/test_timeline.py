from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.errors import FedtideError
from fedtide.types import Tick
from fedtide.world.timeline import Buffered, Periodic, Synchronous, Timeline, checked, per_arrival, start_times
from helpers import ticks_of

# Sixteenths: exact in binary, so that ties are ties; thirds of a period and more periods than one all occur.
durations = st.lists(st.integers(1, 64).map(lambda n: n / 16), min_size=1, max_size=7)


def play(duration: list[float], horizon: float, due: object) -> list[tuple[float, list[int], list[int]]]:
    """Play the devices event by event in exact arithmetic; due(now, waiting) says whether the server acts."""
    length = [Fraction(each) for each in duration]
    finish, begun, waiting, ticks = list(length), [1] * len(length), [], []
    now = Fraction(0)
    while True:
        now, acts, arrive = due(now, finish, waiting)
        if now > Fraction(horizon):
            return ticks
        for k in arrive:
            waiting.append(k)
            finish[k] = None
        if acts(waiting):
            ready = sorted(waiting)
            ticks.append((float(now), ready, [begun[k] for k in ready]))
            for k in ready:
                begun[k], finish[k] = len(ticks) + 1, now + length[k]
            waiting.clear()


def plain(ticks: list[Tick]) -> list[tuple[float, list[int], list[int]]]:
    return [(tick.time, tick.ready.tolist(), tick.start.tolist()) for tick in ticks]


@settings(max_examples=150)
@given(durations, st.integers(1, 40).map(lambda n: n / 16), st.integers(0, 400).map(lambda n: n / 32))
def test_periodic_is_the_event_simulation(duration: list[float], period: float, horizon: float) -> None:
    def due(now: Fraction, finish: list, waiting: list) -> tuple:
        following = now + Fraction(period)
        return following, lambda _: True, [k for k, end in enumerate(finish) if end is not None and end <= following]

    ticks = ticks_of(Periodic(period), np.array(duration), horizon)
    assert plain(ticks) == play(duration, horizon, due)
    checked(ticks, len(duration), horizon)


@settings(max_examples=150)
@given(durations, st.integers(1, 7), st.integers(0, 200).map(lambda n: n / 32))
def test_buffered_is_the_event_simulation(duration: list[float], size: int, horizon: float) -> None:
    size = min(size, len(duration))

    def due(now: Fraction, finish: list, waiting: list) -> tuple:
        end, k = min((end, k) for k, end in enumerate(finish) if end is not None)
        return end, lambda buffer: len(buffer) == size, [k]

    ticks = ticks_of(Buffered(size), np.array(duration), horizon)
    assert plain(ticks) == play(duration, horizon, due)
    checked(ticks, len(duration), horizon)


thousandths = st.integers(1, 1000).map(lambda n: n / 1000)


@given(st.lists(thousandths, min_size=1, max_size=9), st.sampled_from([0.1, 0.125, 0.25, 0.3, 0.5, 1.0]))
def test_ages_are_periods_less_one(duration: list[float], period: float) -> None:
    needed = [math.ceil(Fraction(repr(each)) / Fraction(repr(period))) for each in duration]
    ticks = ticks_of(Periodic(period), np.array(duration), 6.0)
    for tick in ticks:
        assert tick.ready.tolist() == [k for k, c in enumerate(needed) if tick.index % c == 0]
        assert (tick.index - tick.start).tolist() == [needed[k] - 1 for k in tick.ready]


@pytest.mark.parametrize("period", [0.1, 0.2, 0.3, 0.7])
def test_a_duration_of_whole_periods_is_in_time(period: float) -> None:
    """0.3 / 0.1 is just under 3 and 0.7 / 0.1 just over 7: neither may shift a device by a tick."""
    for whole in range(1, 30):
        ticks = ticks_of(Periodic(period), np.array([round(whole * period, 10)]), 40.0)
        tick = next(tick for tick in ticks if len(tick.ready))
        assert tick.index == whole


@pytest.mark.parametrize(
    ("period", "horizon", "count"), [(0.1, 35, 350), (0.25, 35, 140), (0.3, 1.0, 3), (0.1, 0.3, 3)]
)
def test_number_of_periods(period: float, horizon: float, count: int) -> None:
    ticks = ticks_of(Periodic(period), np.array([0.5]), horizon)
    assert [tick.index for tick in ticks] == list(range(1, count + 1))
    assert ticks[-1].time == pytest.approx(count * period)


def test_synchronous_has_everyone_fresh() -> None:
    ticks = ticks_of(Synchronous(2.0), np.array([0.5, 2.0, 1.0]), 7.0)
    assert plain(ticks) == [(2.0 * t, [0, 1, 2], [t] * 3) for t in (1, 2, 3)]
    checked(ticks, 3, 7.0)


def test_simultaneous_arrivals_come_in_the_order_of_device_numbers() -> None:
    ticks = ticks_of(per_arrival(), np.array([0.5, 0.25, 0.5]), 0.5)
    assert plain(ticks) == [(0.25, [1], [1]), (0.5, [0], [1]), (0.5, [1], [2]), (0.5, [2], [1])]


def test_buffer_larger_than_the_fleet_is_refused() -> None:
    with pytest.raises(FedtideError, match="buffer_size=4 is more than the 3 devices"):
        ticks_of(Buffered(4), np.ones(3), 5.0)


def test_start_times_by_version() -> None:
    ticks = ticks_of(Periodic(0.5), np.array([0.2]), 1.0)
    assert start_times(ticks)[1:].tolist() == [0.0, 0.5, 1.0]


READY, START = np.array([0, 1]), np.array([1, 1])


@pytest.mark.parametrize(
    ("ticks", "message"),
    [
        ([Tick(2, 1.0, READY, START)], "index is 2"),
        ([Tick(1, -1.0, READY, START)], "time -1.0"),
        ([Tick(1, math.nan, READY, START)], "time nan"),
        ([Tick(1, 1.0, READY[::-1], START)], "not ascending"),
        ([Tick(1, 1.0, np.array([0, 0]), START)], "not ascending"),
        ([Tick(1, 1.0, np.array([1, 2]), START)], "below 2"),
        ([Tick(1, 1.0, np.array([-1, 1]), START)], "below 2"),
        ([Tick(1, 1.0, READY, np.array([1, 2]))], r"should be \[1, 1\]"),
        ([Tick(1, 1.0, READY, START), Tick(2, 2.0, READY, START)], r"tick 2.*should be \[2, 2\]"),
        ([Tick(1, 1.0, READY, START), Tick(2, 0.5, READY, START + 1)], "lies before"),
    ],
)
def test_check_finds_inconsistent_timelines(ticks: list[Tick], message: str) -> None:
    with pytest.raises(FedtideError, match=message):
        checked(ticks, 2, 9.0)


# ---- timelines that nobody would see the end of


@pytest.mark.parametrize(
    ("timeline", "duration", "horizon"),
    [
        (Periodic(1e-9), [0.5], 35.0),
        (Synchronous(1e-300), [0.5], 1e300),
        (per_arrival(), [1e-9, 0.5], 35.0),
        (per_arrival(), [5e-324], 35.0),
        (Buffered(2), [1e-9, 1e-9], 35.0),
    ],
)
def test_too_many_ticks_are_refused_before_the_first(timeline: Timeline, duration: list[float], horizon: float) -> None:
    with pytest.raises(FedtideError, match="aggregations, of which a run has at most 10,000,000; raise"):
        ticks_of(timeline, np.array(duration), horizon)


def test_whoever_needs_longer_than_the_horizon_is_never_ready() -> None:
    """Their periods do not fit an integer: unchecked, such a device was ready in every period."""
    assert [tick.ready.tolist() for tick in ticks_of(Periodic(0.25), np.array([1e300, 1.7e308, 0.2]), 1.0)] == [[2]] * 4


NOBODY = np.zeros(0, np.int64)


@pytest.mark.parametrize(
    ("time", "says"),
    [
        (lambda _: 0.5, "its clock stands still"),
        (lambda index: 1 - 2.0**-index, "its clock stands still"),
        (lambda index: index * 1e-9, r"it would have about 3\.5e\+10 ticks"),
    ],
)
def test_an_endless_timeline_is_stopped(time: Callable[[int], float], says: str) -> None:
    with pytest.raises(FedtideError, match=says):
        checked((Tick(index, time(index), NOBODY, NOBODY) for index in count(1)), 4, 35.0)
