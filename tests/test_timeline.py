from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import count, islice
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.engine.system import build
from fedtide.errors import FedtideError
from fedtide.timeline.clock import make_clock, start_times
from fedtide.timeline.timelines import Buffered, PerArrival, Periodic, Synchronous, Timeline
from fedtide.types import Clock, Floats, Ints, Tick
from helpers import run, small, small_dataset, ticks_of
from promises import checked_ticks

# Sixteenths: exact in binary, so that ties are ties; thirds of a period and more periods than one all occur.
sixteenths = st.integers(1, 64).map(lambda n: n / 16)
durations = st.lists(sixteenths, min_size=1, max_size=7)


class World(NamedTuple):
    """Devices that take another time for every job and come and go."""

    durations: list[list[float]]  # of every device, job after job, over and over
    cycles: list[tuple[float, float]]  # of every device: there for so long, then gone for so long, from time 0 on

    def clock(self, horizon: float) -> Clock:
        def duration(seed: int, device: Ints, job: Ints) -> Floats:
            return np.array(
                [self.durations[k][(j - 1) % len(self.durations[k])] for k, j in zip(device, job, strict=True)]
            )

        def availability(seed: int, device: Ints, time: Floats) -> Floats:
            there, gone = np.array(self.cycles)[device].T
            inside = time % (there + gone)
            return np.where(inside < there, time, time - inside + there + gone)

        return make_clock(0, len(self.durations), horizon, duration, availability)

    def back(self, device: int, time: Fraction) -> Fraction:
        """Return when a device is next there, by walking through its cycles in exact arithmetic."""
        there, gone = map(Fraction, self.cycles[device])
        begin = Fraction(0)
        while begin + there + gone <= time:
            begin += there + gone
        return time if time < begin + there else begin + there + gone

    def finished(self, device: int, job: int, now: Fraction) -> Fraction:
        """Return when a device that receives a model has finished, there or not."""
        jobs = self.durations[device]
        return self.back(device, now) + Fraction(jobs[(job - 1) % len(jobs)])


def still(duration: list[float]) -> World:
    return World([[each] for each in duration], [(1.0, 0.0)] * len(duration))


worlds = st.lists(
    st.tuples(st.lists(sixteenths, min_size=1, max_size=3), st.tuples(sixteenths, st.sampled_from([0.0, 0.5, 3.0]))),
    min_size=1,
    max_size=6,
).map(lambda devices: World([jobs for jobs, _ in devices], [cycle for _, cycle in devices]))


def play(world: World, horizon: float, due: Any, upload: float = 0.0) -> list[tuple[float, list[int], list[int]]]:
    """Play the devices event by event in exact arithmetic.

    due(now, finish, tell) says when the server looks next, who comes to it by then, and whether it then acts with those who
    wait; whoever is not there goes on waiting.
    """
    everyone = range(len(world.durations))
    finish: list[Any] = [world.finished(k, 1, Fraction(0)) for k in everyone]
    begun, job, waiting, ticks = [1 for _ in everyone], [1 for _ in everyone], [], []
    now = Fraction(0)
    while True:
        now, acts, arrive = due(now, finish, world.back)
        if now + Fraction(upload) > Fraction(horizon):
            return ticks
        for k in arrive:
            waiting.append(k)
            finish[k] = None
        if acts(waiting):
            begin, ready = (
                now + Fraction(upload),
                sorted(k for k in waiting if acts.whoever or world.back(k, now) == now),
            )
            ticks.append((float(begin), ready, [begun[k] for k in ready]))
            for k in ready:
                waiting.remove(k)
                job[k] += 1
                begun[k], finish[k] = len(ticks) + 1, world.finished(k, job[k], begin)


def plain(ticks: list[Tick]) -> list[tuple[float, list[int], list[int]]]:
    return [(tick.time, tick.ready.tolist(), tick.start.tolist()) for tick in ticks]


class Acts(NamedTuple):
    """Whether the server acts with those who wait."""

    size: int  # how many they must be
    whoever: bool  # they came to it while they were there, and need not be there now

    def __call__(self, waiting: list[int]) -> bool:
        return len(waiting) >= self.size


def every(period: float) -> Any:
    """Let the server act at every multiple of a period."""

    def due(now: Fraction, finish: list, back: Any) -> tuple:
        following = now + Fraction(period)
        return following, Acts(0, False), [k for k, end in enumerate(finish) if end is not None and end <= following]

    return due


def as_soon_as(size: int) -> Any:
    """Let the server act as soon as so many devices have told it that they are ready, which they do when they are there."""

    def due(now: Fraction, finish: list, back: Any) -> tuple:
        end, k = min((back(k, end), k) for k, end in enumerate(finish) if end is not None)
        return end, Acts(size, True), [k]

    return due


@settings(max_examples=150)
@given(durations, sixteenths, st.integers(0, 400).map(lambda n: n / 32))
def test_periodic_is_the_event_simulation(duration: list[float], period: float, horizon: float) -> None:
    ticks = ticks_of(Periodic(period), duration, horizon)
    assert plain(ticks) == play(still(duration), horizon, every(period))
    checked_ticks(ticks, len(duration), horizon)


@settings(max_examples=150)
@given(durations, st.integers(1, 7), st.integers(0, 200).map(lambda n: n / 32))
def test_buffered_is_the_event_simulation(duration: list[float], size: int, horizon: float) -> None:
    size = min(size, len(duration))
    ticks = ticks_of(Buffered(size), duration, horizon)
    assert plain(ticks) == play(still(duration), horizon, as_soon_as(size))
    checked_ticks(ticks, len(duration), horizon)


@settings(max_examples=100)
@given(worlds, sixteenths, st.sampled_from([0.0, 0.25, 0.6875]), st.integers(1, 6), st.integers(0, 400))
def test_devices_that_come_and_go_and_never_take_the_same_time(
    world: World, period: float, share: float, size: int, horizon: float
) -> None:
    """share: of a period that the uploads take."""
    horizon, upload, size = horizon / 32, share * period, min(size, len(world.durations))
    for timeline, due in (
        (Periodic(period, upload), every(period)),
        (Buffered(size, upload), as_soon_as(size)),
        (PerArrival(upload), as_soon_as(1)),
    ):
        ticks = checked_ticks(timeline(world.clock(horizon)), len(world.durations), horizon)
        assert plain(ticks) == play(world, horizon, due, upload)
    ticks = list(Synchronous(period, upload)(world.clock(horizon)))
    assert plain(ticks) == rounds(world, horizon, period, upload)


def rounds(world: World, horizon: float, period: float, upload: float) -> list[tuple[float, list[int], list[int]]]:
    """Play synchronous rounds in exact arithmetic.

    Those who are there at the beginning take part, and it ends when all of them have told that they are done.
    """
    job, ticks, begin = [0 for _ in world.durations], [], Fraction(0)
    while True:
        begin = min(world.back(k, begin) for k in range(len(job)))
        ready = [k for k in range(len(job)) if world.back(k, begin) == begin]
        for k in ready:
            job[k] += 1
        told = [world.back(k, world.finished(k, job[k], begin)) for k in ready]
        begin = max(begin + Fraction(period), *told) + Fraction(upload)
        if begin > Fraction(horizon):
            return ticks
        ticks.append((float(begin), ready, [len(ticks) + 1] * len(ready)))


@pytest.mark.parametrize("timeline", [Periodic(1.0)])
def test_whoever_is_gone_when_the_server_acts_is_asked_again_when_it_is_back(timeline: Timeline) -> None:
    """Device 0 is there in [0, 0.5) and from 2.25 on, device 1 in [0, 0.5) alone; both need a quarter."""

    def there(device: Ints, time: Floats) -> Floats:
        return np.where((time < 0.5) | ((device == 0) & (time >= 2.25)), time, np.where(device == 0, 2.25, math.inf))

    ticks = list(timeline(Clock(2, 5.0, lambda device, job, time: np.full(len(device), 0.25), there)))
    assert plain(ticks) == [(1, [], []), (2, [], []), (3, [0], [1]), (4, [0], [4]), (5, [0], [5])]


@pytest.mark.parametrize(
    ("timeline", "expected"),
    [  # device 0 takes 0.5, device 1 takes 0.75
        (Periodic(1.0, 0.25), [(1.25, [0, 1], [1, 1]), (2.25, [0, 1], [2, 2]), (3.25, [0, 1], [3, 3])]),
        (Periodic(1.0, 0.375), [(1.375, [0, 1], [1, 1]), (2.375, [0], [2]), (3.375, [0, 1], [3, 2])]),
        (Synchronous(1.0, 0.5), [(1.5, [0, 1], [1, 1]), (3.0, [0, 1], [2, 2])]),
        (Buffered(2, 0.5), [(1.25, [0, 1], [1, 1]), (2.5, [0, 1], [2, 2])]),
        (
            PerArrival(0.5),  # device 1 finishes while 0 uploads, and is an aggregation of its own
            [(1.0, [0], [1]), (1.25, [1], [1]), (2.0, [0], [2]), (2.5, [1], [3]), (3.0, [0], [4])],
        ),
    ],
)
def test_uploads_take_their_time(timeline: Timeline, expected: list) -> None:
    assert plain(ticks_of(timeline, [0.5, 0.75], 3.4)) == expected


@pytest.mark.parametrize("timeline", [Periodic(0.25), Synchronous(1.0), Buffered(2), PerArrival()])
def test_the_first_ticks_cost_no_more_than_they_need(timeline: Timeline) -> None:
    asked: list[tuple[int, int, float]] = []

    def elapsed(device: Ints, job: Ints, time: Floats) -> Floats:
        asked.extend(zip(device.tolist(), job.tolist(), time.tolist(), strict=True))
        return 0.1 * (device + 1) + 0.001 * job

    first = list(islice(timeline(Clock(4, 1e5, elapsed)), 3))
    assert [tick.index for tick in first] == [1, 2, 3]
    assert {(k, 1, 0.0) for k in range(4)} <= set(asked)
    assert max(time for _, _, time in asked) <= first[-1].time


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
    checked_ticks(ticks, 3, 7.0)


def test_simultaneous_arrivals_come_in_the_order_of_device_numbers() -> None:
    ticks = ticks_of(PerArrival(), np.array([0.5, 0.25, 0.5]), 0.5)
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
        checked_ticks(ticks, 2, 9.0)


# ---- timelines that nobody would see the end of


@pytest.mark.parametrize(
    ("timeline", "duration", "horizon"),
    [
        (Periodic(1e-9), [0.5], 35.0),
        (Synchronous(1e-300), [0.5], 1e300),
        (PerArrival(), [1e-9, 0.5], 35.0),
        (PerArrival(), [5e-324], 35.0),
        (Buffered(2), [1e-9, 1e-9], 35.0),
    ],
)
def test_too_many_ticks_are_refused_before_the_first(timeline: Timeline, duration: list[float], horizon: float) -> None:
    with pytest.raises(FedtideError, match="aggregations, of which a run has at most 10,000,000; raise"):
        ticks_of(timeline, np.array(duration), horizon)


def test_whoever_needs_longer_than_the_horizon_is_never_ready() -> None:
    """Their periods do not fit an integer: unchecked, such a device was ready in every period."""
    assert [tick.ready.tolist() for tick in ticks_of(Periodic(0.25), np.array([1e300, 1.7e308, 0.2]), 1.0)] == [[2]] * 4
    assert [tick.ready.tolist() for tick in ticks_of(Periodic(0.1), np.array([math.inf, 0.1]), 0.3)] == [[1]] * 3


def test_devices_that_are_gone_for_good_leave_ticks_without_anyone() -> None:
    """All who are due at a tick have gone for good before it."""
    clock = Clock(
        2,
        3.0,
        lambda device, job, time: np.full(len(device), 0.25),
        lambda device, time: np.where(time < 0.5, time, math.inf),
    )
    assert plain(list(Periodic(1.0)(clock))) == [(1, [], []), (2, [], []), (3, [], [])]


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
        checked_ticks((Tick(index, time(index), NOBODY, NOBODY) for index in count(1)), 4, 35.0)


def test_jobs_of_another_length_each_are_not_judged_by_the_first() -> None:
    """One short job says nothing of those to come; if they are all short, that is seen on the way."""
    one_short = Clock(3, 35.0, lambda device, job, time: np.where(job == 1, 1e-9, 0.5))
    assert 200 < len(checked_ticks(PerArrival()(one_short), 3, 35.0)) < 220
    ever_shorter = Clock(3, 35.0, lambda device, job, time: 1e-9 / job)
    with pytest.raises(FedtideError, match="at its pace it would have about"):
        checked_ticks(PerArrival()(ever_shorter), 3, 35.0)


# ---- what a timeline says of itself


@pytest.mark.parametrize(
    ("timeline", "least"),
    [
        (Periodic(0.25), 140),
        (Synchronous(2.0), 17.5),
        (Buffered(8), 40 * 35 / 2 / 8),
        (PerArrival(), 40 * 35 / 2),
        (Periodic(0.25, 0.125), 139.5),
        (Synchronous(2.0, 0.5), 14),
        (Buffered(8, 0.5), 40 * 35 / 2.5 / 8),
        (PerArrival(0.5), 40 * 35 / 2.5),
    ],
)
def test_least_ticks(timeline: Any, least: float) -> None:
    assert timeline.least_ticks(40, 2.0, 35.0) == least
    slow = np.full(40, 2.0)
    slow[:7] = 1.3  # nobody slower: never fewer, but for those in the buffer at the end
    assert len(ticks_of(timeline, slow, 35.0)) >= least - 40


LATE = "timeline.horizon=5.0 ends before the first aggregation at 6.0; lengthen the horizon or shorten the period"


@pytest.mark.parametrize(
    ("timeline", "says"),
    [
        (Periodic(5.0), None),
        (Periodic(6.0), LATE),
        (Synchronous(6.0), LATE),
        (Buffered(3), None),
        (Buffered(4), "timeline.buffer_size=4 exceeds fleet.num_devices=3: the buffer would never fill; lower it"),
        (PerArrival(), None),
        (Periodic(4.0, 2.0), LATE),
        (Synchronous(5.5, 0.5), LATE),
        (Buffered(3, 6.0), LATE),
        (PerArrival(6.0), LATE),
        (Periodic(2.0, 1.9), None),
        (
            Periodic(2.0, 2.0),
            "timeline.upload_time=2 is not below timeline.period=2: the server would act again before the uploads are in; "
            "shorten it or lengthen the period",
        ),
    ],
)
def test_problem(timeline: Any, says: str | None) -> None:
    assert timeline.problem(3, 5.0) == says


def test_the_experiments_key_reaches_every_timeline() -> None:
    for framework in ("periodic", "fedavg", "fedasync", "fedbuff"):
        quick, slow = (
            build(
                small({"framework": framework, "timeline": {"upload_time": upload, "buffer_size": 3}}),
                dataset=small_dataset(),
            ).ticks
            for upload in (0.0, 0.125)
        )
        assert slow[0].time == quick[0].time + 0.125
    with pytest.raises(FedtideError, match=r"timeline\.upload_time=0\.25 is not below timeline\.period=0\.25"):
        small({"timeline": {"period": 0.25, "upload_time": 0.25}})


def test_synchronous_waits_for_the_slowest() -> None:
    """Jobs above the round's length, and devices that are away: nobody is stale."""
    slow = ticks_of(Synchronous(1.0, 0.25), [0.5, 2.5], 6.0)
    assert [tick.time for tick in slow] == [2.75, 5.5]
    away = small(
        {
            "fleet": {"availability": {"name": "markov", "mean_on": 1.0, "mean_off": 3.0}},
            "timeline": {"name": "synchronous", "horizon": 60.0},
        }
    )
    ticks = list(build(away, dataset=small_dataset()).ticks)
    assert len(ticks) > 3
    assert max(np.diff([0.0, *(tick.time for tick in ticks)])) > 1
    assert len({len(tick.ready) for tick in ticks}) > 1
    assert all((tick.start == tick.index).all() for tick in ticks)
    ages = {age for record in run(away).rounds for age in record.age}
    assert ages == {0}


def test_synchronous_rounds_go_on_as_multiples_after_a_longer_one() -> None:
    def elapsed(device: Any, job: Any, time: Any) -> Any:
        return np.where((job == 2) & (device == 1), 1.7, 0.1) + np.where((device == 2) & (job >= 3), np.inf, 0.0)

    ticks = list(Synchronous(0.1)(Clock(3, 2.5, elapsed)))
    assert [tick.time for tick in ticks] == [0.1, 1.8, *(1.8 + n * 0.1 for n in range(1, 8))]
    assert [len(tick.ready) for tick in ticks] == [3, 3, *[2] * 7]  # one never finishes its third job
    plain = [tick.time for tick in ticks_of(Synchronous(0.1), [0.05, 0.1], 2.5)]
    assert plain == [n * 0.1 for n in range(1, 26)]
