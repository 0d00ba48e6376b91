"""When the server acts, and with which devices: one virtual clock, planned before anything is trained.

A timeline is a callable (duration [N], horizon) -> list[Tick]. In all of them a device that is ready at tick t receives
the new model t+1, scheduled or not, and starts over at once; a device that is not ready is never interrupted.
Readiness therefore depends on the durations alone.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedtide.config.effort import MOST_TICKS, too_many_ticks
from fedtide.core.ram import need
from fedtide.errors import FedtideError
from fedtide.types import Floats, Ints, Tick


class Timeline(Protocol):
    """When the server aggregates."""

    def __call__(self, duration: Floats, horizon: float) -> Sequence[Tick]:
        """Return all ticks up to and including the horizon, in order, given T_k [N]."""
        ...


def _whole(ratio: float) -> int:
    """Round down, forgiving the last bit of a division (35 / 0.1 is 350 ticks, not 349)."""
    return math.floor(ratio * (1 + 1e-12))


def _refuse_many(count: float, num_ready: float, name: str, remedy: str) -> None:
    """Raise if a timeline has more ticks than can be listed, each with so many ready devices; asked before the first one."""
    if not count <= MOST_TICKS:
        raise FedtideError(too_many_ticks(count, name, remedy))
    need(count * (400 + 16 * num_ready), f"{count:,.3g} aggregations", remedy)


@dataclass(frozen=True)
class Periodic:
    """The paper's design: aggregate every `period` (T~) with whoever has finished."""

    period: float

    def __call__(self, duration: Floats, horizon: float) -> list[Tick]:
        """Device k needs c_k = ceil(T_k/T~) periods: ready at c_k, 2 c_k, ..., always with age c_k - 1."""
        periods = self._periods(duration, horizon)
        name, remedy = f"timeline.period={self.period:g}", "raise it or lower timeline.horizon"
        _refuse_many(horizon / self.period, float((1 / periods).sum()), name, remedy)
        count = _whole(horizon / self.period)
        ticks = []
        for index in range(1, count + 1):
            ready = np.flatnonzero(index % periods == 0)
            ticks.append(Tick(index, index * self.period, ready, index - periods[ready] + 1))
        return ticks

    def _periods(self, duration: Floats, horizon: float) -> Ints:
        """Return c_k [N]; whoever needs longer than the horizon is never ready, and might need more than an integer holds."""
        with np.errstate(over="ignore"):
            needed = np.ceil(duration / self.period * (1 - 1e-12))
        return np.clip(needed, 1, min(horizon / self.period, 2.0**62) + 1).astype(np.int64)


@dataclass(frozen=True)
class Synchronous:
    """FedAvg: a round lasts `round_duration` (T_max, the slowest device); everyone is ready, nobody is stale."""

    round_duration: float

    def __call__(self, duration: Floats, horizon: float) -> list[Tick]:
        """Return one tick per round."""
        name, remedy = f"a round of {self.round_duration:g}", "raise fleet.max_duration or lower timeline.horizon"
        _refuse_many(horizon / self.round_duration, len(duration), name, remedy)
        everyone = np.arange(len(duration))
        rounds = range(1, _whole(horizon / self.round_duration) + 1)
        return [Tick(index, index * self.round_duration, everyone, np.full(len(duration), index)) for index in rounds]


@dataclass(frozen=True)
class Buffered:
    """FedBuff's clock: aggregate as soon as `size` devices have finished; they wait for it, the others go on.

    size=1 is FedAsync's: every finishing device is an aggregation of its own. Devices that finish at the same instant
    come in the order of their numbers.
    """

    size: int

    def __call__(self, duration: Floats, horizon: float) -> list[Tick]:
        """Play the finishing events in order of (time, device)."""
        if self.size > len(duration):
            raise FedtideError(
                f"timeline.buffer_size={self.size} is more than the {len(duration)} devices: the buffer would never fill; "
                "use at most fleet.num_devices"
            )
        with np.errstate(over="ignore", divide="ignore"):
            arrivals = float((horizon / duration).sum())
        name = f"devices that take {float(duration.min()):g} to {float(duration.max()):g}"
        remedy = "raise fleet.min_duration or lower timeline.horizon"
        _refuse_many(arrivals / self.size, self.size, name, remedy)
        finishing = [(float(time), device) for device, time in enumerate(duration)]
        heapq.heapify(finishing)
        version: Ints = np.ones(len(duration), np.int64)
        buffer: list[int] = []
        ticks: list[Tick] = []
        while finishing[0][0] <= horizon:
            time, device = heapq.heappop(finishing)
            buffer.append(device)
            if len(buffer) == self.size:
                ready = np.sort(np.array(buffer, np.int64))
                ticks.append(Tick(len(ticks) + 1, time, ready, version[ready]))
                version[ready] = len(ticks) + 1
                for freed in buffer:
                    heapq.heappush(finishing, (time + float(duration[freed]), freed))
                buffer = []
        return ticks


def per_arrival() -> Buffered:
    """FedAsync's clock: every finishing device uploads at once."""
    return Buffered(1)


def start_times(ticks: Sequence[Tick]) -> Floats:
    """Return when each model version came to be [len(ticks)+2], by version number (0 is unused, 1 exists at time 0)."""
    return np.array([0.0, 0.0, *(tick.time for tick in ticks)])


# Of a user's own timeline nobody knows how long it goes on: it is looked at while it does.
_LOOK_EVERY = 100_000  # ticks
_HOPELESS = 3 * MOST_TICKS  # ticks it would have at its pace so far


def _endless(index: int, time: float, horizon: float, at_once: int, num_devices: int) -> str | None:
    """Say why a timeline that has come to a tick (at_once of them at this instant) will not end; None if it may."""
    if at_once > max(num_devices, 1000):
        return f"{at_once:,} ticks lie at time {time:g}: its clock stands still"
    if index > MOST_TICKS:
        return f"it has more than {MOST_TICKS:,} ticks, at time {time:g} of {horizon:g}; lower timeline.horizon"
    if index % _LOOK_EVERY == 0 and index * (horizon / time) > _HOPELESS:
        count = index * (horizon / time)
        return f"at its pace it would have about {count:.3g} ticks (at most {MOST_TICKS:,}); lower timeline.horizon"
    return None


def checked(ticks: Iterable[Tick], num_devices: int, horizon: float) -> list[Tick]:
    """Return the ticks in our own types, or raise if a timeline breaks the contract or does not come to its end.

    That is: indices 1, 2, ..., no time travel, nothing beyond the horizon, no device ready before it began.
    """
    version = np.ones(num_devices, np.int64)
    time, at_once = 0.0, 0
    good = []
    for index, tick in enumerate(ticks, 1):
        ready = np.asarray(tick.ready, np.int64)
        problem = None
        if tick.index != index:
            problem = f"tick {index} says its index is {tick.index}"
        elif not (math.isfinite(tick.time) and tick.time >= time):
            problem = f"its time {tick.time} lies before the previous tick's {time}"
        elif tick.time > horizon * (1 + 1e-9):
            problem = f"its time {tick.time} lies beyond timeline.horizon={horizon}"
        elif len(ready) and (np.any(np.diff(ready) <= 0) or ready[0] < 0 or ready[-1] >= num_devices):
            problem = f"its ready devices {ready.tolist()} are not ascending, distinct and below {num_devices}"
        elif not np.array_equal(version[ready], tick.start):
            problem = f"its start versions {np.asarray(tick.start).tolist()} should be {version[ready].tolist()}"
        else:
            at_once = at_once + 1 if tick.time == time else 1
            problem = _endless(index, tick.time, horizon, at_once, num_devices)
        if problem:
            raise FedtideError(f"the timeline is inconsistent at tick {index}: {problem}")
        good.append(Tick(index, float(tick.time), ready, version[ready]))
        version[ready] = index + 1
        time = tick.time
    return good


TIMELINES = {
    "periodic": Periodic,
    "synchronous": Synchronous,
    "per_arrival": per_arrival,
    "buffered": Buffered,
}
