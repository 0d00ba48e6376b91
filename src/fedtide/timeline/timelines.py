"""When the server acts, and with which devices: one virtual clock, planned before anything is trained.

A timeline is a callable (clock) -> ticks, one after the other, so that one may ask for the first only. A device that is ready
at tick t receives the new model t+1, scheduled or not, and starts over at once, unless the tick says that it did so before with
model t (`Tick.received`); a device that is not ready is never interrupted. So readiness depends on the clock alone. The jobs
of a device are numbered 1, 2, ...; the first begins at time 0. With an upload time U the server acts, the uploads take U, and
then the new model is there: a tick's time is when it is.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np

from fedtide.config.workload import MOST_TICKS, ticks_workload_problem
from fedtide.core.memory_budget import require_memory
from fedtide.errors import FedtideError
from fedtide.parts.arguments import arg
from fedtide.timeline.clock import TICK_BYTES, Span
from fedtide.types import Clock, Floats, Ints, Tick

if TYPE_CHECKING:
    from fedtide.timeline.world import Situation


class Timeline(Protocol):
    """When the server aggregates."""

    def __call__(self, clock: Clock, /) -> Iterable[Tick]:
        """Return the ticks up to and including the horizon, in order."""
        ...


def _whole(ratio: float) -> int:
    """Round down, forgiving the last bit of a division (35 / 0.1 is 350 ticks, not 349)."""
    return math.floor(ratio * (1 + 1e-12))


def _refuse_many(count: float, name: str, remedy: str) -> None:
    """Raise if a timeline has more ticks than a run has aggregations, or memory for; asked before the first one."""
    if not count <= MOST_TICKS:
        raise FedtideError(ticks_workload_problem(count, name, remedy))
    require_memory(count * TICK_BYTES, f"{count:,.3g} aggregations", remedy)  # a record takes no less


def _job_times(clock: Clock, number: int) -> Floats:
    """Return how long every device takes for its job of this number if that begins at time 0 [N]."""
    everyone = np.arange(clock.num_devices)
    return clock.elapsed(everyone, np.full_like(everyone, number), np.zeros(clock.num_devices))


UploadTime: TypeAlias = Annotated[
    float, arg("duration of the uploads of an aggregation", ge=0, key="timeline.upload_time")
]


@dataclass(frozen=True)
class Periodic:
    """The paper's design: aggregate every `period` (T~) among the devices that have finished.

    With an upload time U the model of aggregation t is there at t T~ + U.
    """

    period: Annotated[float, arg("T~, time between aggregations", gt=0, key="timeline.period")]
    upload_time: UploadTime = 0.0
    watches: ClassVar[bool] = False  # whatever happens, it acts at the time that it named

    def when(self, situation: Situation) -> float:
        """Return the next multiple of T~ at which the server is free."""
        return (_whole(max(situation.time, situation.last) / self.period) + 1) * self.period

    def __call__(self, clock: Clock) -> Iterator[Tick]:
        """Device k needs c_k = ceil((U + T_k)/T~) periods: ready c_k after c_k, always with age c_k - 1."""
        return _regular(clock, self._beat)

    def span(self, clock: Clock, even: bool) -> Span:
        """Return how long it is: that depends on nobody."""
        return self._beat.span(clock.horizon)

    @property
    def _beat(self) -> _Beat:
        pace = f"timeline.period={self.period:g}", "raise it or lower timeline.horizon"
        return _Beat(self.period, 0.0, self.upload_time, pace)

    def least_ticks(self, num_devices: int, slowest: float, horizon: float) -> float:
        """Return how many aggregations there are at least if no device takes longer than the slowest."""
        return max(horizon - self.upload_time, 0.0) / self.period

    def problem(self, num_devices: int, horizon: float) -> str | None:
        """Say why there would be no aggregation; None if there may be."""
        if self.upload_time >= self.period:
            return (
                f"timeline.upload_time={self.upload_time:g} is not below timeline.period={self.period:g}: the server would act "
                "again before the uploads are in; shorten it or lengthen the period"
            )
        return _too_late(self.period + self.upload_time, horizon)


@dataclass(frozen=True)
class Synchronous:
    """FedAvg: a round lasts `round_duration` (T_max), or until the slowest participant has finished; no update is stale.

    Those who are there when a round begins take part; the server waits for them, but not for one that will never finish.
    The others wait for a later round. With nobody there the next round begins when the first is back. An upload time comes
    on top of a round: the next one begins when the uploads are in.
    """

    round_duration: Annotated[float, arg("shortest duration of a round", gt=0, key="fleet.max_duration")]
    upload_time: UploadTime = 0.0

    def __call__(self, clock: Clock) -> Iterator[Tick]:
        """Return one tick per round."""
        self._beat.span(clock.horizon)  # raises if they are too many
        everyone, job = np.arange(clock.num_devices), np.zeros(clock.num_devices, np.int64)
        begin, index = 0.0, 0
        base, since = 0.0, 0  # since when rounds lasted no longer, and how many: their times are multiples, not sums
        while base + (since + 1) * self._whole <= clock.horizon * (1 + 1e-12):
            ready = everyone
            if clock.next_available is not None:
                back = clock.next_available(everyone, np.full(len(everyone), begin))
                if back.min() > begin * (1 + 1e-12):  # nobody is there: wait for the first
                    begin = base = float(back.min())
                    since = 0
                    continue
                ready = everyone[back <= begin * (1 + 1e-12)]
            job[ready] += 1
            took = clock.elapsed(ready, job[ready], np.full(len(ready), begin))
            ready, took = ready[np.isfinite(took)], took[np.isfinite(took)]
            since += 1
            if len(ready) and not self._fits(float(took.max())):
                base, since = begin + float(took.max()) + self.upload_time, 0
                if base > clock.horizon:
                    return
            begin, index = base + since * self._whole, index + 1
            yield Tick(index, begin, ready, np.full_like(ready, index))

    def _fits(self, slowest: float) -> bool:
        return slowest + self.upload_time <= self._whole * (1 + 1e-12)

    def span(self, clock: Clock, even: bool) -> Span | None:
        """Return how long it is if no round takes longer, else None. even: no device's jobs differ."""
        known = even and self._fits(float(_job_times(clock, 1).max()))
        return self._beat.span(clock.horizon) if known else None

    @property
    def _beat(self) -> _Beat:
        pace = f"a round of {self.round_duration:g}", "raise fleet.max_duration or lower timeline.horizon"
        return _Beat(self._whole, self.upload_time, 0.0, pace)

    @property
    def _whole(self) -> float:
        return self.round_duration + self.upload_time

    def least_ticks(self, num_devices: int, slowest: float, horizon: float) -> float:
        """Return how many aggregations there are at least if no device takes longer than the slowest."""
        return horizon / max(self._whole, slowest + self.upload_time)

    def problem(self, num_devices: int, horizon: float) -> str | None:
        """Say why there would be no aggregation; None if there may be."""
        return _too_late(self._whole, horizon)


def _too_late(first: float, horizon: float) -> str | None:
    if first <= horizon:
        return None
    return (
        f"timeline.horizon={horizon} ends before the first aggregation at {first}; "
        "lengthen the horizon or shorten the period"
    )


class _Beat(NamedTuple):
    """When a regular server acts: at t period - lead; its new model is there at t period + after."""

    period: float
    lead: float
    after: float
    pace: tuple[str, str]  # what sets it, and what to do if there are too many ticks

    def span(self, horizon: float) -> Span:
        """Return how many ticks there are up to a horizon, and when the last one is; raise if they are too many."""
        _refuse_many(horizon / self.period, *self.pace)
        count = max(_whole((horizon - self.after) / self.period), 0)
        return Span(count, self.time(count) if count else 0.0)

    def acts(self, index: int) -> float:
        """Return when the server acts."""
        return index * self.period - self.lead

    def time(self, index: int) -> float:
        """Return when the new model is there."""
        return index * self.period + self.after


def _regular(clock: Clock, beat: _Beat) -> Iterator[Tick]:
    """Aggregate at every multiple of a period with whoever has finished by then, and is there.

    Devices lie in the bucket of the tick at which they will be ready, so that a tick costs what its ready devices cost.
    """
    period, upload = beat.period, beat.lead + beat.after
    count = beat.span(clock.horizon).count
    needed = _periods(_job_times(clock, 1) + beat.lead, period, clock.horizon)
    version, job = np.ones(clock.num_devices, np.int64), np.ones(clock.num_devices, np.int64)
    buckets: dict[int, list[Ints]] = {}
    _put(buckets, np.arange(clock.num_devices), needed)
    for index in range(1, count + 1):
        found = buckets.pop(index, [])
        ready = found[0] if len(found) == 1 else np.sort(np.concatenate([np.zeros(0, np.int64), *found]))
        if clock.next_available is not None and len(ready):
            ready = _there(clock.next_available, ready, index, beat, buckets)
        time = beat.time(index)
        yield Tick(index, time, ready, version[ready])
        if len(ready) and index < count:  # of jobs that nobody waits for a trace need not know
            version[ready] = index + 1
            job[ready] += 1
            elapsed = clock.elapsed(ready, job[ready], np.full(len(ready), time))
            _put(buckets, ready, index + _periods(upload + elapsed, period, clock.horizon))


def _there(
    there: Callable[[Ints, Floats], Floats], ready: Ints, index: int, beat: _Beat, buckets: dict[int, list[Ints]]
) -> Ints:
    """Return those who are there when the server acts; the others are put where they may be, whoever never is nowhere."""
    now = beat.acts(index)
    back = there(ready, np.full(len(ready), now))
    away = back > now * (1 + 1e-12)
    if not away.any():
        return ready
    absent, back = ready[away], back[away]
    again = np.isfinite(back)
    due = _periods(back[again] + beat.lead, beat.period, math.inf)
    _put(buckets, absent[again], np.maximum(due, index + 1))
    return ready[~away]


def _periods(elapsed: Floats, period: float, horizon: float) -> Ints:
    """Return c_k [m]; whoever needs longer than the horizon is never ready, and might need more than an integer holds."""
    with np.errstate(over="ignore"):
        needed = np.ceil(elapsed / period * (1 - 1e-12))
    # forgiving as _whole is: 0.3 / 0.1 is 3 ticks, and never is the fourth
    return np.clip(needed, 1, min(horizon / period * (1 + 1e-12), 2.0**62) + 1).astype(np.int64)


def _put(buckets: dict[int, list[Ints]], device: Ints, due: Ints) -> None:
    """Put devices, ascending, into the buckets of the ticks at which they are due [m]."""
    order = np.argsort(due, kind="stable")
    device, due = device[order], due[order]
    begins = np.flatnonzero(np.diff(due, prepend=due[:1] - 1))
    groups = np.split(device, begins[1:]) if len(begins) else []
    for tick, group in zip(due[begins].tolist(), groups, strict=True):
        buckets.setdefault(tick, []).append(group)


@dataclass(frozen=True)
class Buffered:
    """FedBuff's clock: aggregate as soon as the buffer holds updates of `size` devices.

    waits: whoever has finished waits for the new model. Without, as in the simulator of FedBuff's authors, it goes on at once
    with the newest model while its update lies in the buffer. Two things differ from theirs: an update that is finished while
    the device's last one lies in the buffer is for the next one, and whoever has just trained from the newest model waits for
    another, since it would compute the same update again.

    size=1 is FedAsync's: every finishing device is an aggregation of its own. Devices that finish at the same instant
    come in the order of their numbers. An update arrives U, the upload time, after its device has finished.
    """

    size: Annotated[int, arg("number of finished devices it waits for", ge=1, le=10**8, key="timeline.buffer_size")]
    upload_time: UploadTime = 0.0
    waits: Annotated[bool, arg("finished devices wait for the new model; false: they continue with the newest one")] = (
        True
    )

    def when(self, situation: Situation) -> float:
        """Return now, if so many updates are there."""
        return situation.time if situation.num_here >= self.size else math.inf

    def __call__(self, clock: Clock) -> Iterator[Tick]:
        """Play the arrivals in order of (time, device)."""
        duration = _job_times(clock, 1)
        self._refuse(clock, duration)
        arriving = list(zip((duration + self.upload_time).tolist(), range(clock.num_devices), strict=True))
        heapq.heapify(arriving)
        version, job = np.ones(clock.num_devices, np.int64), np.ones(clock.num_devices, np.int64)
        buffer: dict[int, float] = {}  # whose updates lie there, and when each went on; infinity: it waits
        again: list[int] = []  # who has finished once more since
        index = 0

        def begin(device: Ints, time: float) -> None:
            job[device] += 1
            elapsed = clock.elapsed(device, job[device], np.full(len(device), time))
            for each, took in zip(device.tolist(), elapsed.tolist(), strict=True):
                heapq.heappush(arriving, (time + took + self.upload_time, each))

        def put(device: int, time: float) -> None:
            goes_on = not self.waits and len(buffer) + 1 < self.size and version[device] <= index
            buffer[device] = time if goes_on else math.inf
            if goes_on:
                begin(np.array([device]), time)

        while arriving[0][0] <= clock.horizon:
            time, device = heapq.heappop(arriving)
            if device in buffer:
                again.append(device)
            else:
                put(device, time)
            if len(buffer) < self.size:
                continue
            index += 1
            ready = np.array(sorted(buffer), np.int64)
            since = np.array([buffer[each] for each in ready.tolist()])
            waiting = np.isinf(since)
            newer = np.where(waiting, index + 1, index)
            yield Tick(index, time, ready, version[ready], None if waiting.all() else (newer, np.minimum(since, time)))
            version[ready] = newer
            begin(ready[waiting], time)
            buffer.clear()
            while again:
                put(again.pop(0), time)

    def span(self, clock: Clock, even: bool) -> Span | None:
        """Return how long it is if nobody waits for anybody, else None. even: no device's jobs differ."""
        if not even or self.size > 1:
            return None
        duration = _job_times(clock, 1)
        self._refuse(clock, duration)
        return _arrivals(duration, self.upload_time, clock.horizon)

    def _refuse(self, clock: Clock, duration: Floats) -> None:
        if self.size > clock.num_devices:
            raise FedtideError(
                f"timeline.buffer_size={self.size} is more than the {clock.num_devices} devices: the buffer would never fill; "
                "use at most fleet.num_devices"
            )
        if not np.array_equal(duration, _job_times(clock, 2)):  # one short job says nothing of those to come
            return
        with np.errstate(over="ignore", divide="ignore"):
            number = float((clock.horizon / (duration + self.upload_time)).sum())
        name = f"devices that take {float(duration.min()):g} to {float(duration.max()):g}"
        _refuse_many(number / self.size, name, "raise fleet.min_duration or lower timeline.horizon")

    def least_ticks(self, num_devices: int, slowest: float, horizon: float) -> float:
        """Return how many aggregations there are at least if no device takes longer than the slowest."""
        return num_devices * (horizon / (slowest + self.upload_time)) / self.size

    def problem(self, num_devices: int, horizon: float) -> str | None:
        """Say why there would be no aggregation; None if there may be."""
        if self.size <= num_devices:
            return _too_late(self.upload_time, horizon)
        return (
            f"timeline.buffer_size={self.size} exceeds fleet.num_devices={num_devices}: "
            "the buffer would never fill; lower it"
        )


@dataclass(frozen=True)
class PerArrival:
    """FedAsync's clock: every finishing device uploads at once."""

    upload_time: UploadTime = 0.0

    @property
    def _buffered(self) -> Buffered:
        return Buffered(1, self.upload_time)

    def when(self, situation: Situation) -> float:
        """Return now, if an update is there."""
        return self._buffered.when(situation)

    def __call__(self, clock: Clock) -> Iterator[Tick]:
        """Play the finishing events in order of (time, device)."""
        return self._buffered(clock)

    def span(self, clock: Clock, even: bool) -> Span | None:
        """Return how long it is; None if one has to go through it. even: no device's jobs differ."""
        return self._buffered.span(clock, even)

    def least_ticks(self, num_devices: int, slowest: float, horizon: float) -> float:
        """Return how many aggregations there are at least if no device takes longer than the slowest."""
        return self._buffered.least_ticks(num_devices, slowest, horizon)

    def problem(self, num_devices: int, horizon: float) -> str | None:
        """Say why there would be no aggregation; None if there may be."""
        return self._buffered.problem(num_devices, horizon)


def _arrivals(duration: Floats, upload_time: float, horizon: float) -> Span:
    """Return how often devices that take so long for every job [N] arrive up to the horizon, and when the last one does.

    Device k arrives at the sums T_k + U, (T_k + U) + T_k + U, ..., each rounded as it is added. How many are in time is known
    from a division, but for the few that come within its rounding of the horizon: these are added up, and so are those
    that may be the last.
    """
    whole = duration + upload_time
    with np.errstate(over="ignore", divide="ignore"):
        fits = horizon / whole
    number = np.floor(fits)
    slack = (fits + 2) ** 2 * 2.0**-51  # in jobs: n sums of n jobs, each to half a unit in the last place
    doubtful = (fits - number < slack) | (number + 1 - fits < slack)
    for k in np.flatnonzero(doubtful):
        number[k] = len(_sums(float(duration[k]), upload_time, int(fits[k]) + 2, horizon))
    there = number > 0
    if not there.any():
        return Span(0, 0.0)
    about, error = (number * whole)[there], (slack * whole)[there]
    late = np.flatnonzero(about + error >= (about - error).max())
    last = (_sums(float(duration[there][k]), upload_time, int(number[there][k]), horizon)[-1] for k in late)
    return Span(int(number.sum()), float(max(last)))


def _sums(duration: float, upload_time: float, count: int, horizon: float) -> Floats:
    """Return the arrivals of one device, at most so many, up to the horizon."""
    times: Floats = np.add.accumulate(np.tile([duration, upload_time], count))[1::2]  # one after the other
    return times[times <= horizon]


TIMELINES: dict[str, Any] = {
    "periodic": Periodic,
    "synchronous": Synchronous,
    "per_arrival": PerArrival,
    "buffered": Buffered,
    "all": "fedtide.timeline.reacting:WaitForAll",
    "deadline": "fedtide.timeline.reacting:Deadline",
    "sampled_staleness": "fedtide.timeline.reacting:SampledStaleness",
}
