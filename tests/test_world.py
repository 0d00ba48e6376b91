"""The devices in time: against an independent slow loop on random worlds, and against closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.errors import FedtideError
from fedtide.rng import stream
from fedtide.timeline.world import Behaviour, Sends, Situation, World
from fedtide.types import Clock, Tick
from twins.slow_world import SlowWorld


class When:
    """A timeline of one line."""

    def __init__(self, rule: Callable[[Any], float]) -> None:
        self.when = rule


def draw(*address: int) -> float:
    """A number in [0, 1) by address."""
    return float(np.random.default_rng(address).random())


def coarse(number: float) -> float:
    """On a grid, so that events meet at one instant."""
    return round(number * 4) / 4 + 0.25


RULES: dict[str, Callable[[dict[str, Any]], float]] = {
    "period": lambda seen: (math.floor(seen["last"] / 0.75) + 1) * 0.75,
    "buffer": lambda seen: seen["time"] if seen["finished"] >= 2 else math.inf,
    "arrival": lambda seen: seen["time"] if seen["finished"] >= 1 else math.inf,
    "all": lambda seen: seen["time"] if seen["working"] == 0 and seen["finished"] else math.inf,
    "deadline": lambda seen: (
        seen["time"] if seen["working"] == 0 and seen["finished"] else max(seen["time"], seen["last"] + 1.5)
    ),
}


def as_dict(seen: Situation) -> dict[str, Any]:
    return {
        "time": seen.time,
        "last": seen.last,
        "finished": seen.num_finished,
        "working": seen.num_working,
        "sending": seen.num_sending,
        "landed": seen.num_landed,
        "tick": seen.tick,
    }


def clock(count: int, horizon: float, takes: Callable[..., float], back: Callable[..., float] | None = None) -> Clock:
    """A clock of plain functions of one device."""

    def each(function: Callable[..., float]) -> Any:
        def columns(*given: Any) -> Any:
            return np.array(
                [function(*one) for one in zip(*map(np.ndarray.tolist, map(np.asarray, given)), strict=True)], float
            )

        return columns

    return Clock(count, horizon, each(takes), each(back) if back else None, each(takes))


def played(world: World) -> tuple[Tick | None, bool]:
    """The next tick, and whether there is none because nothing more will happen."""
    try:
        return world.next_tick(), False
    except FedtideError as error:
        return None, "nothing more will happen" in str(error)


@given(
    seed=st.integers(0, 10**6),
    rule=st.sampled_from([*RULES]),
    count=st.integers(1, 7),
    keep=st.booleans(),
    interrupt=st.booleans(),
    concurrency=st.none() | st.integers(1, 7),
    release=st.sampled_from(["finish", "aggregation"]),
    absent=st.sampled_from(["compute", "fetch", "abandon"]),
    comes_and_goes=st.booleans(),
    waits=st.booleans(),
    loses=st.booleans(),
)
def test_the_queue_agrees_with_a_slow_loop(
    seed: int,
    rule: str,
    count: int,
    keep: bool,
    interrupt: bool,
    concurrency: int | None,
    release: Any,
    absent: Any,
    comes_and_goes: bool,
    waits: bool,
    loses: bool,
) -> None:
    concurrency = min(concurrency, count) if concurrency else None

    def takes(device: int, job: int, time: float) -> float:
        number = draw(seed, 1, device, job)
        return math.inf if number > 0.98 else coarse(3 * number)

    def back(device: int, time: float) -> float:
        while draw(seed, 2, device, math.floor(time)) < 0.3:
            time = math.floor(time) + 1.0
        return time

    def choose(idle: list[int], free: int, number: int) -> list[int]:
        at = stream(seed, "select", number).choice(len(idle), free, replace=False)
        return [idle[position] for position in at]

    there = back if comes_and_goes else None
    elapsed = takes
    if comes_and_goes and absent == "compute":

        def elapsed(device: int, job: int, time: float) -> float:
            end = back(device, time) + takes(device, job, time)
            return (back(device, end) if end < math.inf else end) - time

    slow = SlowWorld(count, 12.0, elapsed, RULES[rule], keep, interrupt, concurrency, release, absent, there, choose)
    fast = World(
        clock(count, 12.0, elapsed, there),
        When(lambda seen: RULES[rule](as_dict(seen))),
        Behaviour("keep" if keep else "restart", interrupt, absent, concurrency, release),
        seed,
    )
    for number in range(60):
        tick, stands_still = played(fast)
        if stands_still:
            assert slow.next_tick() is None
            assert min(one.until for one in slow.devices) == math.inf
            return
        expected = slow.next_tick()
        assert (tick is None) == (expected is None)
        if tick is None or expected is None:
            return
        assert (tick.time, tick.ready.tolist(), tick.start.tolist()) == expected
        assert tick.index == slow.acted + 1
        picked = [k for k in expected[1] if draw(seed, 3, k, number) < 0.7]
        lost = [k for k in picked if loses and draw(seed, 4, k, number) < 0.3]
        sent = [tick.time + coarse(draw(seed, 5, k, number)) for k in picked]
        done = max(sent, default=tick.time) if waits else tick.time
        if not picked and not keep:
            done += 0.25  # else a timeline could act for ever at one instant
        sends = Sends(None if waits else np.array(sent), np.array(lost, np.int64))
        fast.settle(np.array(picked, np.int64), done, sends)
        slow.settle(picked, None if waits else sent, done, lost)
        if number % 3 == 0:  # as after a resume
            saved, other = fast.state(), World(fast.clock, fast.timeline, fast.behaviour, seed)
            other.restore(saved)
            fast = other


def mean_age(world: World, ticks: int, burn: int) -> float:
    """Play with all who are ready picked; return the mean age after some ticks."""
    ages: list[int] = []
    for _ in range(ticks):
        tick = world.next_tick()
        assert tick is not None
        if tick.index > burn:
            ages += (tick.index - tick.start).tolist()
        world.settle(tick.ready, tick.time)
    return float(np.mean(ages))


def exponential(device: int, job: int, time: float) -> float:
    return float(np.random.default_rng((7, device, job)).exponential())


ARRIVAL = When(lambda seen: seen.time if seen.num_finished else math.inf)


def test_staleness_of_always_training_devices_per_arrival() -> None:
    """N devices that always train: N - 1 others arrive during a training, on average exactly (discrete Little's law)."""
    world = World(clock(9, math.inf, exponential), ARRIVAL)
    assert mean_age(world, 2000, 300) == pytest.approx(8, rel=0.03)


@pytest.mark.parametrize(("concurrency", "size"), [(12, 1), (12, 3), (12, 4)])
def test_staleness_with_concurrency_and_a_buffer(concurrency: int, size: int) -> None:
    """M models are out, K come back per aggregation: each is out for M/K aggregations, so its age is M/K - 1."""
    buffer = When(lambda seen: seen.time if seen.num_finished >= size else math.inf)
    behaviour = Behaviour(concurrency=concurrency, release="aggregation")
    world = World(clock(40, math.inf, exponential), buffer, behaviour)
    assert mean_age(world, 1500, 300) == pytest.approx(concurrency / size - 1, rel=0.05)


def test_staleness_where_nobody_waits_for_the_buffer() -> None:
    """A place is free as soon as its device has finished: (M - 1)/K aggregations happen during a training."""
    buffer = When(lambda seen: seen.time if seen.num_finished >= 4 else math.inf)
    world = World(clock(60, math.inf, exponential), buffer, Behaviour(concurrency=12))
    assert mean_age(world, 1500, 300) == pytest.approx(11 / 4, rel=0.05)


def test_arrivals_add_up_to_the_sum_of_rates() -> None:
    world = World(clock(5, 1000.0, lambda device, job, time: 1.0 + device), ARRIVAL)
    count = 0
    while (tick := world.next_tick()) is not None:
        count += len(tick.ready)
        world.settle(tick.ready, tick.time)
    assert count == sum(math.floor(1000 / (1 + device)) for device in range(5))


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (lambda seen: seen.time - 1, "named time"),
        (lambda seen: "soon", "named time 'soon'"),
        (lambda seen: math.nan, "named time nan"),
        (lambda seen: seen.time, "never lets time pass"),
        (lambda seen: math.inf, "nothing more will happen"),
    ],
)
def test_a_timeline_that_cannot_be_followed_is_refused(rule: Any, words: str) -> None:
    world = World(clock(3, 100.0, lambda *_: 1.0), When(rule), Behaviour("keep"), label="timeline='x.py:f'")

    def play() -> None:
        for _ in range(2000):
            tick = world.next_tick()
            assert tick is not None
            world.settle(np.zeros(0, np.int64), tick.time)

    with pytest.raises(FedtideError, match=words):
        play()


def test_more_places_than_devices_are_refused() -> None:
    with pytest.raises(FedtideError, match=r"fleet\.concurrency=4 is more than the 3 devices"):
        World(clock(3, 1.0, lambda *_: 1.0), ARRIVAL, Behaviour(concurrency=4))
