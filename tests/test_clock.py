"""How long a device takes from receiving a model until it is ready: waiting, work, waiting."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest

from fedtide.devices.availability import Always
from fedtide.devices.duration import UniformDuration, first_duration
from fedtide.timeline.clock import make_clock
from fedtide.types import Floats, Ints


@dataclass(frozen=True)
class PerJob:
    """Job j of device k takes k + j tenths."""

    def __call__(self, seed: int, device: Ints, job: Ints) -> Floats:
        return (device + job) / 10


@dataclass(frozen=True)
class Constant:
    """Device k takes k + 1, and everyone is asked once."""

    redraws: ClassVar[bool] = False
    asked: list[int] = field(default_factory=list)

    def __call__(self, seed: int, device: Ints, job: Ints) -> Floats:
        self.asked.append(len(device))
        assert np.all(job == 1)
        return device + 1.0


@dataclass(frozen=True)
class OnOff:
    """Everyone is there in [0, 1), [2, 3), ... until time 10, and never again."""

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        there = np.where(time % 2 < 1, time, 2 * np.ceil(time / 2))
        return np.where(there < 10, there, math.inf)


@pytest.mark.parametrize(
    ("device", "job", "time", "elapsed"),
    [
        (0, 3, 0.0, 0.3),  # there all the time
        (0, 2, 2.7, 0.2),
        (4, 1, 0.5, 1.5),  # finished at 1, when it has just left
        (4, 1, 0.75, 1.25),  # there, finished at 1.25, back at 2
        (4, 1, 1.5, 1.0),  # back at 2, finished at 2.5
        (6, 6, 1.5, 2.5),  # back at 2, finished at 3.2, back at 4
        (4, 1, 9.25, math.inf),  # never ready: gone at 10
        (4, 1, 9.0, math.inf),
        (4, 1, 20.0, math.inf),
    ],
)
def test_waiting_and_work(device: int, job: int, time: float, elapsed: float) -> None:
    clock = make_clock(0, 10, 99.0, PerJob(), OnOff())
    assert clock.elapsed(np.array([device]), np.array([job]), np.array([time])).tolist() == [elapsed]


def test_columns_and_what_broadcasts() -> None:
    clock = make_clock(0, 10, 99.0, PerJob(), OnOff())
    assert clock[:2] == (10, 99.0)
    together = clock.elapsed(np.array([4, 6, 4]), np.array([1, 6, 1]), np.array([0.75, 1.5, 20.0]))
    assert together.tolist() == [1.25, 2.5, math.inf]
    assert clock.elapsed([4, 6], 1, 0.25).tolist() == [0.5, 0.7]  # type: ignore[arg-type]
    assert clock.elapsed(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)).shape == (0,)


@pytest.mark.parametrize("availability", [Always(), lambda seed, device, time: time + 0.0])
def test_without_a_wait_it_is_exactly_the_work(availability: object) -> None:
    """Differences of times would round, and every stored result would change."""
    duration = UniformDuration(0.0, 1.0)
    clock = make_clock(3, 1000, 99.0, duration, availability)  # type: ignore[arg-type]
    everyone = np.arange(1000)
    found = clock.elapsed(everyone, everyone + 1, 1e6 / (everyone + 1))
    assert found.tolist() == first_duration(duration, 3, 1000).tolist()


def test_what_is_drawn_once_is_asked_once() -> None:
    duration = Constant()
    clock = make_clock(0, 4, 99.0, duration, Always())
    for job in range(1, 5):
        found = clock.elapsed(np.array([2, 0]), np.full(2, job), np.zeros(2))
        assert found.tolist() == [3.0, 1.0]
        found[:] = -1  # whoever is given it may write to it
    assert duration.asked == [4]


def test_an_availability_that_is_always_there_is_not_asked() -> None:
    @dataclass(frozen=True)
    class Mine:
        always: ClassVar[bool] = True

        def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
            raise AssertionError

    clock = make_clock(0, 9, 10.0, PerJob(), Mine(), lambda device, time: time + device)
    assert clock.elapsed(np.array([2, 4]), np.array([1, 2]), np.array([3.0, 5.0])).tolist() == [5.3, 9.6]
    assert clock.next_available is None
