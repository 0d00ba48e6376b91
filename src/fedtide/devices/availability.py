"""When a device can be reached.

An availability is a callable (seed, device [m], time [m]) -> when each of these devices is next there [m], at that time or
later; infinity if it never is again. A device must be there to receive a model and to say that it is ready; in between it
computes, there or not. If its attribute `always` is True, nobody ever has to be waited for, and it is not asked.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide import columns
from fedtide.devices.fedscale import FedScaleAvailability
from fedtide.devices.traces import Intervals, check_trace_device_count, read_trace_columns, repeating_trace
from fedtide.errors import DataError, FedtideError
from fedtide.parts.arguments import arg
from fedtide.types import Floats, Ints, read_only

Availability: TypeAlias = Callable[[int, Ints, Floats], Floats]


@dataclass(frozen=True)
class Always:
    """Every device is always available."""

    always: ClassVar[bool] = True

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return the time itself [m]."""
        return time.copy()


def always_available(availability: Availability) -> bool:
    """Say whether every device is always there."""
    return bool(getattr(availability, "always", False))


# Devices that come and go by chance, without memory.
#
# A device's state is a Markov process with two states. Nothing is stepped through from time 0: time is cut into windows,
# and what happens in one is drawn by its own address. That the process has no memory makes it exact. Two devices, one on
# and one off, wait together for the first call to come (at rate 1/mean_off) or to leave (1/mean_on), after which both are
# in the same state. So from the first call of a window on, nobody has to know how it began, and what comes before that call
# is known from the window before, which is almost never without a call. What was drawn is kept for a while: devices ask
# about the same windows again.


TURNS: Final = 2  # of being on and off in a window, on average
_BLOCK: Final = 4096  # devices at most whose windows are drawn together
_KEPT: Final = 256  # blocks of windows, some 500 kB each
_AT_ONCE: Final = 8  # changes that are drawn together
_MOST_WINDOWS: Final = 2.0**50  # beyond that the borders of windows run into each other


@dataclass(frozen=True)
class Markov:
    """On for Exp(mean_on), then off for Exp(mean_off), and so on; stationary from time 0.

    That share is mean_on / (mean_on + mean_off), at any time.
    """

    mean_on: Annotated[float, arg("mean time a device stays available", unit="units of time", gt=0)] = 4.0
    mean_off: Annotated[float, arg("mean time a device is away", unit="units of time", gt=0)] = 2.0
    num_devices: Annotated[
        int, arg("number of devices drawn at once; does not change the times", ge=1, le=10**8, key="fleet.num_devices")
    ] = 40

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return when each is next there [m]."""
        found, asked, window = time.copy(), np.arange(len(device)), self._window(time)
        while len(asked):
            for rows, number, block in _groups(window, device[asked] // self._block):
                at = asked[rows]
                found[at] = self._next(_begun(self, seed, number, block), device[at] % self._block, time[at])
            later = found[asked] == np.inf
            asked, window = asked[later], window[later] + 1
        return found

    @staticmethod
    def _next(drawn: _Window, row: Ints, time: Floats) -> Floats:
        """Return when each is next there in a window [m]; infinity: no more in this one."""
        changes = drawn.changes[row]
        passed = (changes <= time[:, None]).sum(axis=1)
        on = drawn.on[row] ^ (passed % 2 == 1)
        return np.where(on, time, changes[np.arange(len(row)), passed])

    @property
    def _block(self) -> int:
        return min(self.num_devices, _BLOCK)

    @property
    def _length(self) -> float:
        return TURNS * (self.mean_on + self.mean_off)

    def _window(self, time: Floats) -> Ints:
        """Return the window in which each time lies, as the borders are rounded [m]."""
        number = np.floor(time / self._length)
        for at in np.flatnonzero(~(number < _MOST_WINDOWS))[:1]:
            raise FedtideError(
                f"availability=markov: mean_on={self.mean_on:g} and mean_off={self.mean_off:g} are too small for the time "
                f"{time[at]:g}; raise them"
            )
        number -= number * self._length > time
        return (number + ((number + 1) * self._length <= time)).astype(np.int64)


class _Window(NamedTuple):
    """What happens in a window to the devices of a block."""

    on: npt.NDArray[np.bool_]  # how each begins [block]
    changes: Floats  # when it comes or leaves, in turn and ascending; then infinity, at least once [block most]


def _groups(window: Ints, block: Ints) -> Iterator[tuple[Ints, int, int]]:
    """Give the rows of every window and block."""
    order = np.lexsort((block, window))
    window, block = window[order], block[order]
    cuts = np.flatnonzero((window[1:] != window[:-1]) | (block[1:] != block[:-1])) + 1
    for rows, first in zip(np.split(order, cuts), [0, *cuts.tolist()], strict=True):
        yield rows, int(window[first]), int(block[first])


@functools.lru_cache(maxsize=_KEPT)
def _begun(part: Markov, seed: int, window: int, block: int) -> _Window:
    """Return a window with how it begins, which the last one with a call says."""
    size, (state, calls) = part._block, _drawn(part, seed, window, block)
    on, unknown, before = np.zeros(size, np.bool_), np.arange(size), window
    while before > 0 and len(unknown):
        before -= 1
        earlier, passed = _drawn(part, seed, before, block)
        count = np.isfinite(passed[unknown]).sum(axis=1)
        on[unknown] = earlier[unknown] ^ (count % 2 == 0)
        unknown = unknown[count == 0]
    if len(unknown):
        share = part.mean_on / (part.mean_on + part.mean_off)
        on[unknown] = columns.uniform(seed, "markov", block * size + unknown) < share
    idle = on == state  # who is called to be what it is does not change
    changes = np.where(idle[:, None], np.column_stack([calls[:, 1:], np.full(size, np.inf)]), calls)
    return _Window(read_only(on), read_only(changes))


@functools.lru_cache(maxsize=_KEPT)
def _drawn(part: Markov, seed: int, window: int, block: int) -> tuple[Any, Floats]:
    """Return the state after the first call [block], and when that and the changes after it come [block most].

    In a row infinity comes after the last, at least once.
    """
    size, rate = part._block, 1 / part.mean_on + 1 / part.mean_off
    device = block * size + np.arange(size)
    state = columns.uniform(seed, "markov call", device, window) < 1 / part.mean_off / rate
    calls, since, asked = np.full((size, 0), np.inf), np.zeros(size), np.arange(size)
    while len(asked):
        number = np.arange(_AT_ONCE) + calls.shape[1]
        is_on = state[asked, None] ^ (number % 2 == 0)  # while it waits for this change
        stay = np.where(number == 0, 1 / rate, np.where(is_on, part.mean_on, part.mean_off))
        stay *= columns.exponential(seed, "markov stay", device[asked, None], window, number)
        passed = since[asked, None] + np.cumsum(stay, axis=1)
        more = np.full((size, _AT_ONCE), np.inf)
        more[asked] = window * part._length + passed
        more[more >= (window + 1) * part._length] = np.inf
        calls, since[asked] = np.hstack([calls, more]), passed[:, -1]
        asked = np.flatnonzero(np.isfinite(more[:, -1]))
    most = int(np.isfinite(calls).sum(axis=1).max())
    return read_only(state), read_only(np.ascontiguousarray(calls[:, : most + 1]))


@dataclass(frozen=True)
class Daily:
    """Available from `begin` to `end` every day, such as while phones charge at night; time 0 is midnight.

    Each device's hours are its own, drawn once: both ends are moved by U(-jitter, jitter), and its midnight comes U(0, zones)
    later. On average a device is there for ((end - begin) mod day) / day of the time.
    """

    day: Annotated[float, arg("length of a day", unit="units of time", gt=0)] = 24.0
    begin: Annotated[float, arg("when devices become available, after midnight", unit="units of time", ge=0)] = 22.0
    end: Annotated[
        float, arg("when they leave, after midnight; if before begin, on the next day", unit="units of time", ge=0)
    ] = 6.0
    jitter: Annotated[float, arg("largest deviation of both between devices", unit="units of time", ge=0)] = 1.0
    zones: Annotated[float, arg("time over which the devices' midnights are spread", unit="units of time", ge=0)] = 0.0

    def __post_init__(self) -> None:
        stay, problem = self._stay, ""
        least = min(stay, self.day - stay)
        if max(self.begin, self.end) > self.day:
            problem = f"begin={self.begin:g} or end={self.end:g} lies beyond day={self.day:g}; give times of the day"
        elif not least > 0:
            problem = (
                f"from begin={self.begin:g} to end={self.end:g} is all day or none of it; move one, or choose always"
            )
        elif self.jitter and 2 * self.jitter >= least:
            problem = (
                f"jitter={self.jitter:g} could swallow the stay of {stay:g} or the rest; keep it below {least / 2:g}"
            )
        if problem:
            raise FedtideError(f"availability=daily: {problem}")

    @property
    def _stay(self) -> float:
        return (self.end - self.begin) % self.day

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return when each is next there [m]."""
        start, stay = np.full(len(device), self.begin), np.full(len(device), self._stay)
        if self.jitter:
            early, late = (self.jitter * (2 * columns.uniform(seed, "daily", device, draw=i) - 1) for i in (0, 1))
            start, stay = start + early, stay + (late - early)
        if self.zones:
            start = start + self.zones * columns.uniform(seed, "daily", device, draw=2)
        return repeating_trace(time, start, stay, np.full(len(device), self.day))


@dataclass(frozen=True)
class TraceAvailability:
    """Available in the intervals [start, end) of a CSV or Parquet file with columns device (0, 1, ...), start and end.

    The trace is as long as `period` says, or ends when the last device leaves for the last time.
    """

    path: Annotated[Path, arg("the file, .csv or .parquet")]
    wrap: Annotated[
        bool, arg("repeat the trace if it has too few devices or is too short; otherwise that is an error")
    ] = False
    period: Annotated[float | None, arg("length of the trace", unit="units of time", gt=0)] = None
    scale: Annotated[float, arg("factor applied to its times", gt=0)] = 1.0
    horizon: Annotated[
        float, arg("time that the trace must cover", unit="units of time", gt=0, key="timeline.horizon")
    ] = 35.0
    intervals: Intervals = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        trace = read_trace_columns(self.path, ("device", "start", "end"))
        trace.refuse(trace["start"] < 0, "start={start:g} lies before time 0; cut it off there")
        trace.refuse(
            trace["end"] <= trace["start"], "end={end:g} does not come after start={start:g}; swap or remove them"
        )
        trace = trace.ordered(np.lexsort((trace["start"], trace.devices())))
        device, start, end = trace["device"], trace["start"], trace["end"]
        left = np.where(np.diff(device, prepend=-1) > 0, 0.0, np.roll(end, 1))  # when it left before
        early = "device {device:g} comes at {start:g} before it leaves at {left:g} (another row); join the two"
        trace.refuse(start < left, early, left=left)
        start, end = start * self.scale, end * self.scale
        length = float(end.max()) if self.period is None else self.period
        late = f"its end {{scaled:g}} lies beyond period={length:g}; raise period"
        trace.refuse(end > length, late, scaled=end)
        if not self.wrap and length < self.horizon:
            raise DataError(
                f"the trace {self.path} ends at {length:g}, before timeline.horizon={self.horizon:g}; add wrap: true to start "
                "it over, give its period if it is longer, or lower timeline.horizon"
            )
        offset = np.searchsorted(device, np.arange(device[-1] + 2))
        period = np.full(len(offset) - 1, length if self.wrap else np.inf)
        object.__setattr__(self, "intervals", Intervals(*map(read_only, (start, end, offset, period))))

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return when each is next there [m]."""
        count = len(self.intervals.period)
        if not self.wrap:
            check_trace_device_count(self.path, device, count)
        return self.intervals.next_there(device % count, time)


@dataclass(frozen=True)
class Battery:
    """On until empty, for restart C / (drain - harvest), then off until recharged, for restart C / harvest, and so on.

    It is there for harvest/drain of the time, whatever it is asked to do meanwhile. Where in this cycle a device begins is
    drawn. Without harvest it begins with U(0, C) and empties for good after C/(2 drain) on average;
    with harvest >= drain it is always there.
    """

    capacity_joules: Annotated[float, arg("C, battery capacity", unit="J", gt=0)] = 40.0
    compute_watts: Annotated[float, arg("power drawn while the device is on", unit="W", gt=0)] = 10.0
    harvest_watts: Annotated[float, arg("charging power, on or off", unit="W", ge=0)] = 5.0
    restart: Annotated[float, arg("share of the capacity at which it turns on again", gt=0, le=1)] = 1.0
    unit_seconds: Annotated[float, arg("length of a unit of time", unit="s", gt=0)] = 1.0

    def __post_init__(self) -> None:
        if not self.always and not (math.isfinite(self._on) and self._on > 0):
            raise FedtideError(
                f"availability=battery: capacity_joules={self.capacity_joules:g} at compute_watts={self.compute_watts:g} lasts "
                f"{self._on:g}; give numbers of one size"
            )

    @property
    def always(self) -> bool:
        """Is it charged faster than it is drained?"""
        return self.harvest_watts >= self.compute_watts

    @property
    def _on(self) -> float:
        """How long it lasts from when it is on again."""
        share = self.restart if math.isfinite(self._off) else 1.0
        return share * self.capacity_joules / (self.compute_watts - self.harvest_watts) / self.unit_seconds

    @property
    def _off(self) -> float:
        """How long it takes to be on again."""
        filled = self.restart * self.capacity_joules / self.unit_seconds
        return filled / self.harvest_watts if self.harvest_watts > 1e-300 * filled else math.inf

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return when each is next there [m]."""
        if self.always:
            return time.copy()
        begun = columns.uniform(seed, "battery", device)
        if not math.isfinite(self._off):
            return np.where(time < (1 - begun) * self._on, time, np.inf)
        period = np.full(len(device), self._on + self._off)
        return repeating_trace(time, -begun * period, np.full(len(device), self._on), period)


@dataclass(frozen=True)
class InSight:
    """Available while in sight of radio.coverage: satellites over ground stations.

    Asks for coverage.next_sight(seed, device [m], time [m]) -> when each is next in sight [m].
    """

    coverage: Annotated[
        Callable[..., Floats], arg("the coverage that says when devices are in sight", key="run.coverage")
    ]
    seed: Annotated[int, arg("seed of the run", key="seed")] = 0
    num_devices: Annotated[int, arg("N, number of devices", ge=1, le=10**8, key="fleet.num_devices")] = 40
    horizon: Annotated[
        float,
        arg(
            "time within which at least one device must be in sight", unit="units of time", gt=0, key="timeline.horizon"
        ),
    ] = 35.0

    def __post_init__(self) -> None:
        if not callable(getattr(self.coverage, "next_sight", None)):
            raise FedtideError(
                "availability=in_sight: radio.coverage does not say when devices are in sight; choose radio.coverage=leo, or "
                "give your own a method next_sight(seed, device, time)"
            )
        first = float(self(self.seed, np.arange(self.num_devices), np.zeros(self.num_devices)).min())
        if first > self.horizon:
            first_is, longer = f"the first is at {first:g}", "lengthen the horizon, "
            if math.isinf(first):
                first_is, longer = "none ever will be", ""
            raise FedtideError(
                f"availability=in_sight: no device is in sight up to timeline.horizon={self.horizon:g}, and {first_is}; "
                f"{longer}add stations or lower min_elevation (radio.coverage)"
            )

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return when each is next in sight [m]."""
        next_sight: Availability = getattr(self.coverage, "next_sight")  # noqa: B009 - most coverages have none
        return np.asarray(next_sight(seed, device, time), np.float64)


AVAILABILITIES: dict[str, Callable[..., Availability]] = {
    "always": Always,
    "markov": Markov,
    "trace": TraceAvailability,
    "fedscale": FedScaleAvailability,
    "battery": Battery,
    "daily": Daily,
    "in_sight": InSight,
}
