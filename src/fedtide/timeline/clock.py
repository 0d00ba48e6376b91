"""The clock: what a timeline is told of the devices, the ticks of a run one after the other, and whether they can be."""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from fedtide.config.workload import LARGE_FLEET_DEVICES, MOST_TICKS
from fedtide.core.yaml12 import shown
from fedtide.devices.availability import Availability, always_available
from fedtide.devices.duration import Duration, durations_vary, first_duration
from fedtide.errors import FedtideError
from fedtide.types import Clock, Floats, Ints, Tick

# What a timeline is told of the devices: how long each takes from receiving a model until it is ready.


def make_clock(
    seed: int,
    num_devices: int,
    horizon: float,
    duration: Duration,
    availability: Availability,
    receive: Callable[[Ints, Floats], Floats] | None = None,
) -> Clock:
    """Return the clock of a fleet: a device waits until it is there, receives, works, and waits until it is there again.

    receive: (device [m], time [m]) -> how long each takes to receive a model [m]; None: no time.
    """
    known = None if durations_vary(duration) else first_duration(duration, seed, num_devices)  # [N]

    def work(device: Ints, job: Ints, time: Floats, speed: Floats | None = None) -> Floats:
        device = np.asarray(device, np.int64)
        took = known[device] if known is not None else duration(seed, device, np.broadcast_to(job, device.shape))
        return took if speed is None else np.asarray(took / speed)

    def elapsed(device: Ints, job: Ints, time: Floats, speed: Floats | None = None) -> Floats:
        device = np.asarray(device, np.int64)
        time = np.broadcast_to(time, device.shape)
        begin = availability(seed, device, time)
        worked = work(device, job, time, speed)
        if receive is not None:
            here = np.isfinite(begin)
            worked = worked.copy()
            worked[here] += receive(device[here], begin[here])
        end = begin + worked
        ready = end.copy()
        soon = np.isfinite(end)  # whoever never comes or never finishes is not asked for again
        ready[soon] = availability(seed, device[soon], end[soon])
        # Without a wait it is exactly the work, which a difference of times would round.
        return np.where((begin == time) & (ready == end), worked, ready - time)

    def received(device: Ints, job: Ints, time: Floats, speed: Floats | None = None) -> Floats:
        assert receive is not None
        device = np.asarray(device, np.int64)
        return work(device, job, time, speed) + receive(device, np.broadcast_to(time, device.shape))

    if always_available(availability):  # nobody is waited for, and it is not asked
        if receive is None:
            return Clock(num_devices, horizon, work)
        return Clock(num_devices, horizon, received)
    there = received if receive is not None else work
    return Clock(num_devices, horizon, elapsed, lambda device, time: availability(seed, device, time), there)


# The ticks of a run, one after the other: gone through as often as somebody asks, and listed only if they are few.


LISTED: Final = 32_000_000  # bytes; what takes more is gone through anew each time
TICK_BYTES: Final = 400  # of one with nobody ready; 16 for every ready device come on top


class Span(NamedTuple):
    """How long a timeline is."""

    count: int  # type: ignore[assignment]  # ticks; hides tuple.count
    end: float  # time of the last one; 0 if there is none


class Ticks(Sequence[Tick]):
    """The ticks of a timeline of ours, and when each model version came to be.

    play: goes through all ticks, the same each time. span: how long that is, if it is known without it.
    """

    def __init__(self, play: Callable[[], Iterable[Tick]], num_devices: int, span: Span | None = None) -> None:
        self._play = play
        self._times = array("d", [0.0, 0.0])  # by version, as far as anybody has come
        self._list: list[Tick] | None = None
        self._here: tuple[int, Iterator[Tick]] = (0, iter(()))  # the last tick that was asked for, and those after it
        if span is None or (num_devices <= LARGE_FLEET_DEVICES and span.count * TICK_BYTES <= LISTED):
            self._list = self._listed(num_devices, span)
        self.span = span or Span(len(self._times) - 2, self._times[-1])

    def _listed(self, num_devices: int, span: Span | None) -> list[Tick] | None:
        """Go through all, and return them if they are few; None if not."""
        found: list[Tick] | None = [] if num_devices <= LARGE_FLEET_DEVICES else None
        size = 0
        for tick in self.since(1):
            size += TICK_BYTES + 16 * len(tick.ready)
            if size > LISTED:
                found = None
                if span is not None:  # nothing else is wanted of the others
                    break
            if found is not None:
                found.append(tick)
        return found

    def since(self, index: int) -> Iterator[Tick]:
        """Return the ticks from one on."""
        if self._list is not None:
            yield from itertools.islice(self._list, index - 1, None)
            return
        for tick in self._play():
            if tick.index > len(self._times) - 2:
                self._times.append(tick.time)
            if tick.index >= index:
                yield tick

    def born(self, version: Ints) -> Floats:
        """Return when each of these model versions came to be; the first was there at time 0."""
        try:
            return np.frombuffer(self._times)[version]
        except IndexError:  # nobody has come as far
            next(self.since(int(version.max()) - 1))
        return np.frombuffer(self._times)[version]

    def __len__(self) -> int:
        """How many there are."""
        return self.span.count

    def __iter__(self) -> Iterator[Tick]:
        """Go through all."""
        return self.since(1)

    def __getitem__(self, index: Any) -> Any:
        """Return one tick, quickly if it comes after the one that was asked for before, or a list of some."""
        if self._list is not None:
            return self._list[index]
        if isinstance(index, slice):
            first, stop, step = index.indices(len(self))
            if step < 0:
                return list(self)[index]
            return list(itertools.islice(self.since(first + 1), 0, max(stop - first, 0), step))
        wanted = int(index) + 1 + (len(self) if index < 0 else 0)
        if not 1 <= wanted <= len(self):
            raise IndexError(f"there are {len(self)} ticks, and none at {index}")
        at, left = self._here
        if wanted <= at or at == 0:
            at, left = 0, self.since(1)
        tick = next(itertools.islice(left, wanted - at - 1, None))
        self._here = wanted, left
        return tick


class RecordedTimes:
    """When each model version came to be, of a run that is on: `append` as it comes."""

    def __init__(self, times: Iterable[float] = ()) -> None:
        self._times = array("d", [0.0, 0.0, *times])
        self.append = self._times.append

    def __getitem__(self, version: Any) -> Any:
        """Return the times of some versions."""
        return np.frombuffer(self._times)[version]


class VersionTimes:
    """When each model version came to be, by version number: 1 is there at time 0."""

    def __init__(self, ticks: Sequence[Tick]) -> None:
        self._ticks = ticks
        self._known = None if isinstance(ticks, Ticks) else start_times(ticks)

    def __getitem__(self, version: Any) -> Any:
        """Return the times of some versions."""
        if isinstance(self._ticks, Ticks):
            return self._ticks.born(np.asarray(version))
        assert self._known is not None
        return self._known[version]


def ticks_since(ticks: Sequence[Tick], index: int) -> Iterator[Tick]:
    """Return the ticks from one on."""
    return ticks.since(index) if isinstance(ticks, Ticks) else itertools.islice(ticks, index - 1, None)


def clock_span(ticks: Sequence[Tick]) -> Span:
    """Return how long ticks go on."""
    if isinstance(ticks, Ticks):
        return ticks.span
    return Span(len(ticks), ticks[-1].time if len(ticks) else 0.0)


def start_times(ticks: Iterable[Tick]) -> Floats:
    """Return when each model version came to be [len(ticks)+2], by version number (0 is unused, 1 exists at time 0)."""
    return np.array([0.0, 0.0, *(tick.time for tick in ticks)])


# Whether ticks can be. Looked at while they go on: of a user's timeline, or where jobs differ in length, nobody knows how many.


_LOOK_EVERY: Final = 100_000  # ticks
_HOPELESS: Final = 3 * MOST_TICKS  # ticks that a timeline would have at its pace so far


def checked_ticks(
    ticks: Iterable[Tick], num_devices: int, horizon: float, label: str = "the timeline", ours: bool = False
) -> Iterator[Tick]:
    """Return the ticks in our own types one by one, or raise if a timeline breaks the contract or does not come to its end.

    The contract: indices 1, 2, ..., no time travel, nothing beyond the horizon, no device ready before it began.
    ours: devices that were away may begin with a newer model than the one that was there when they were last ready.
    """
    version = np.ones(num_devices, np.int64)
    before, at_once = 0.0, 0
    for index, given in enumerate(ticks, 1):
        try:
            time, ready, start = float(given.time), _whole_numbers(given.ready), _whole_numbers(given.start)
        except Exception as error:  # it has no such columns, or they do not become arrays of whole numbers
            raise FedtideError(
                f"{label} is inconsistent at tick {index}: it is {shown(given)}; give Tick(index, time, ready, start) with a "
                "number for the time and whole numbers for who is ready and where from"
            ) from error
        received = getattr(given, "received", None)
        at_once = at_once + 1 if time == before else 1
        problem = None
        if given.index != index:
            problem = f"tick {index} says its index is {given.index}"
        elif not (math.isfinite(time) and time >= before):
            problem = f"its time {time} lies before the previous tick's {before}"
        elif time > horizon * (1 + 1e-9):
            problem = f"its time {time} lies beyond timeline.horizon={horizon}"
        elif len(ready) and (np.any(np.diff(ready) <= 0) or ready[0] < 0 or ready[-1] >= num_devices):
            problem = f"its ready devices {shown(ready.tolist())} are not ascending, distinct and below {num_devices}"
        elif not ours and not np.array_equal(version[ready], start):
            problem = f"its start versions {shown(start.tolist())} should be {shown(version[ready].tolist())}"
        elif received is not None and not np.isin(received[0], (index, index + 1)).all():
            problem = f"its devices go on with versions {shown(received[0])}, not with {index} or {index + 1}"
        elif at_once > max(num_devices, 1000):
            problem = f"{at_once:,} ticks lie at time {time:g}: its clock stands still"
        elif index > MOST_TICKS:
            problem = f"it has more than {MOST_TICKS:,} ticks, at time {time:g} of {horizon:g}; lower timeline.horizon"
        elif index % _LOOK_EVERY == 0 and index * horizon > _HOPELESS * time:
            count = index * (horizon / time) if time > 0 else math.inf
            problem = (
                f"at its pace it would have about {count:.3g} ticks (at most {MOST_TICKS:,}); lower timeline.horizon"
            )
        if problem:
            raise FedtideError(f"{label} is inconsistent at tick {index}: {problem}")
        yield Tick(index, time, ready, start, received)
        version[ready] = index + 1 if received is None else received[0]
        before = time


def _whole_numbers(given: Any) -> Ints:
    """Return a column of whole numbers [m]; raise if it is none."""
    found = np.asarray(given)
    made = found.astype(np.int64, copy=False)
    if found.ndim != 1 or found.dtype.kind not in "iuf" or not np.array_equal(made, found):
        raise ValueError
    return made
