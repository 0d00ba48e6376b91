"""The devices on one clock, and a server that decides as it goes: a queue of events, played one aggregation at a time.

Every device has at most one event ahead of it, so the queue is two columns over devices, `phase` and `due`. At one instant the
devices' events come first, in the order of their numbers, then the server acts if it wishes, and then it hands out models.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError, TrainingError
from fedtide.parts import checks
from fedtide.rng import stream
from fedtide.types import Clock, Floats, Idle, Ints, Memory, Rng, Tick

# What a device is doing; `due` says until when.
IDLE: Final = 0  # it waits for a model
WORKING: Final = 1  # it receives a model and trains
FINISHED: Final = 2  # its update waits until the server picks it
SENDING: Final = 3  # its update is on its way
AWAY: Final = 4  # it waits for a model from the moment when it is back
ABSENT: Final = 5  # its update waits until the server picks it, from the moment when it is back
GONE: Final = 6  # it never finishes
_NUM_PHASES: Final = 7
_MOST_ACTS_AT_ONCE: Final = 1000  # aggregations at one instant; a timeline that acts more often does not let time pass

Energy: TypeAlias = Callable[[Ints, Ints, Floats], Floats]  # (device, job, speed [m]) -> J of one training [m]


class Reacting(Protocol):
    """A timeline that decides as it goes."""

    def when(self, situation: Situation, /) -> float:
        """Return when to act next if nothing happens before: situation.time is now, infinity not yet."""
        ...


@dataclass(frozen=True)
class Behaviour:
    """What devices do with models; the keys fleet.* of the same names say more."""

    unpicked: Literal["restart", "keep"] = "restart"
    interrupt: bool = False
    absent: Literal["compute", "fetch", "abandon"] = "compute"
    concurrency: int | None = None  # M
    release: Literal["finish", "aggregation"] = "finish"


class Sunlight(NamedTuple):
    """When the Sun shines on devices that harvest its energy."""

    time: Callable[[Ints, Floats, Floats], Floats]  # (device, begin, end [m]) -> for how long it shines in between [m]
    until: Callable[[Ints, Floats, Floats], Floats]  # (device, begin, needed [m]) -> when it has shone for so long [m]


class Batteries(NamedTuple):
    """What devices can spend."""

    capacity: float  # J, which everyone begins with
    harvest: float  # J per unit of time, while the Sun shines
    training: Energy  # what one training takes
    sunlight: Sunlight | None = None  # None: always


@dataclass(frozen=True)
class Situation:
    """What a reacting timeline sees."""

    time: float  # now
    tick: int  # t, aggregations so far
    last: float  # when the newest model came to be
    num_finished: int  # devices whose updates wait to be picked
    num_working: int  # devices that train and will finish
    num_sending: int  # devices whose updates are on their way
    num_landed: int  # updates that have arrived since the last aggregation
    num_picked: int  # devices that the last aggregation picked
    num_lost: int  # packets of its that did not arrive
    _world: World = field(repr=False)

    @property
    def num_here(self) -> int:
        """How many updates wait for the server: to be picked, or, if it does not wait for uploads, also those that have arrived.

        Of the latter two the larger number: whoever waits to be picked does not arrive before the server acts.
        """
        return self.num_finished if self._world.waits else max(self.num_finished, self.num_landed)

    @property
    def finished(self) -> Ints:
        """Devices whose updates wait to be picked, ascending [m]."""
        return self._world.finished

    @property
    def since(self) -> Floats:
        """When each of them finished [m]."""
        return self._world.since[self._world.finished]

    @property
    def start(self) -> Ints:
        """The version each of them trained from [m]."""
        return self._world.version[self._world.finished]

    @property
    def progress(self) -> Mapping[str, float]:
        """What the last aggregation was found to be worth: numbers by name, such as test_loss; empty if it was not scored."""
        return self._world.progress


class Sends(NamedTuple):
    """How the picked devices send. Columns run over them [r]."""

    until: Floats | None = None  # when each is through; None: the server has waited for them
    again: Ints | None = None  # devices that keep their update to send it again, where the server has waited
    joules: Floats | None = None  # what sending takes from each battery
    speed: Floats | None = None  # of each one's next training; None: 1
    num_lost: int = 0  # packets that do not arrive


@dataclass
class World:
    """The devices, as far as time has come."""

    clock: Clock
    timeline: Reacting
    behaviour: Behaviour = Behaviour()
    seed: int = 0
    selector: Any = None  # (idle, count, rng) -> positions [count] of those who take a free place; None: drawn
    num_samples: Ints | None = None  # |S_k| [N]
    batteries: Batteries | None = None
    waits: bool = True  # the server waits for uploads
    label: str = "the timeline"
    progress: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with everybody idle at time 0."""
        count = self.clock.num_devices
        self.phase: npt.NDArray[np.int8] = np.full(count, IDLE, np.int8)
        self.due: Floats = np.full(count, math.inf)
        self.since, self.began = np.zeros(count), np.zeros(count)
        self.version, self.job = np.ones(count, np.int64), np.zeros(count, np.int64)
        self.counted = np.zeros(count, np.int64)  # the last training of each that a tick had
        self.speed: Floats = np.ones(count)  # of the training that it has, or will have next
        self.level: Floats = np.full(count, self.batteries.capacity if self.batteries else 0.0)
        self.charged: Floats = np.zeros(count)  # when that was
        self.landed = np.zeros(0, np.int64)
        self.dropped: Floats = np.zeros(
            (0, 3)
        )  # device, job and speed of trainings that were given up since the last tick
        self.time, self.last, self.acted, self.tick = 0.0, 0.0, -math.inf, 0
        self.num_selections, self.acts_here, self.num_picked, self.num_lost, self.num_receivers = 0, 0, 0, 0, 0
        self.num_ready = 0  # in all ticks so far
        self._number = np.bincount(self.phase, minlength=_NUM_PHASES)
        self._queue: list[tuple[float, int]] = []
        self._planned: float | None = None  # when the server acts, where no event changes that
        limit = self.behaviour.concurrency
        if limit is not None and limit > count:
            raise FedtideError(f"fleet.concurrency={limit} is more than the {count} devices; lower it")

    # -- the server's view ------------------------------------------------------------------------------------------

    @property
    def finished(self) -> Ints:
        """Devices whose updates wait to be picked, ascending [m]."""
        return np.flatnonzero(self.phase == FINISHED)

    def next_tick(self) -> Tick | None:
        """Let time pass until the server acts; None if it does not do so before the horizon."""
        while True:
            act = self._asked() if self.time >= self.last else self.last  # before that it is busy with uploads
            if act > self.time >= self.last and self._hand_out():
                continue
            coming = self._coming()
            if min(coming, act) > self.clock.horizon:
                if coming == act == math.inf and not (self.tick and self._number[GONE]):
                    self._refuse_standstill()
                if not self.num_ready:
                    self._refuse_nobody()
                return None
            if coming <= act:
                self._play(coming)
            elif act == self.last > self.time:
                self.time = act
            elif self._acts(act):
                ready = self.finished
                speed, level = self.speed[ready], self._level(ready) if self.batteries else None
                fresh, self.num_ready = self.job[ready] > self.counted[ready], self.num_ready + len(ready)
                self.counted[ready] = self.job[ready]
                return Tick(
                    self.tick + 1,
                    act,
                    ready,
                    self.version[ready],
                    job=self.job[ready],
                    dropped=self.dropped if len(self.dropped) else None,
                    landed=None if self.waits else np.sort(self.landed),
                    fresh=fresh,
                    num_receivers=self.num_receivers,
                    speed=None if (speed == 1).all() else speed,
                    began=self.began[ready],
                    ended=self.since[ready],
                    battery=level,
                )

    @property
    def held(self) -> Ints:
        """The version that each device trains from or has an update of; the newest where it has neither [N]."""
        has_one = np.isin(self.phase, (WORKING, FINISHED, SENDING, ABSENT))
        return np.where(has_one, self.version, self.tick + 1)

    def settle(self, picked: Ints, done: float, sends: Sends = Sends()) -> None:  # noqa: B008 - a frozen value
        """Go on after the server has acted.

        picked: devices whose updates it takes, ascending [r]. done: when the new model is there.
        """
        others = np.setdiff1d(self.finished, picked, assume_unique=True)
        self.tick, self.last, self._planned = self.tick + 1, done, None
        self.num_receivers = 0
        self.num_picked, self.num_lost, self.landed = len(picked), sends.num_lost, self.landed[:0]
        self.dropped = self.dropped[:0]
        if self.batteries:
            self.level[picked] = self._level(picked) - (0.0 if sends.joules is None else sends.joules)
            self.charged[picked] = self.time
        through = np.ones(len(picked), np.bool_) if sends.again is None else ~np.isin(picked, sends.again)
        self.speed[picked[through]] = 1.0 if sends.speed is None else sends.speed[through]
        if sends.until is None:
            self._put(picked[through], IDLE, math.inf)
        else:
            self._put(picked, SENDING, sends.until)
        if self.behaviour.unpicked == "restart":
            self._put(others, IDLE, math.inf)
            self.speed[others] = 1.0
        if self.behaviour.interrupt:
            device = np.flatnonzero(self.phase == WORKING)
            self._drop(device)
            self._put(device, IDLE, math.inf)

    def _acts(self, act: float) -> bool:
        """Let the server act; say whether anybody who has finished is there, or nobody has finished."""
        self.acts_here = self.acts_here + 1 if act == self.acted else 0
        most = max(_MOST_ACTS_AT_ONCE, self.clock.num_devices)
        if self.acts_here > most:
            raise TrainingError(
                f"{self.label} has acted {most} times at time {act:g} (aggregation {self.tick}): it never lets "
                "time pass; wait for an event or name a later time"
            )
        self.time = self.acted = act
        device = self.finished
        here, back = self._presence(device)
        if here.all():
            return True
        self._planned = None
        self._put(device[~here], ABSENT, back[~here])
        # One that acts whatever happens does so with nobody, too.
        return bool(here.any() or len(self.landed)) or not getattr(self.timeline, "watches", True)

    def _refuse_standstill(self) -> None:
        raise FedtideError(
            f"{self.label} does not act after aggregation {self.tick} at time {self.time:g}: nothing more will happen, and "
            f"{self._number[FINISHED]} updates wait; let it act then, or lower what it waits for"
        )

    def _refuse_nobody(self) -> None:
        if self.tick:
            charge = "" if self.batteries is None else ", or raise fleet.battery_joules or fleet.harvest_joules"
            raise FedtideError(
                f"{self.label} has acted {self.tick} times up to timeline.horizon={self.clock.horizon:g}, and nobody had finished "
                f"at any of them; let it act later (timeline.period) or shorten the jobs (fleet.duration){charge}"
            )

    def situation(self) -> Situation:
        """Return what the timeline sees now."""
        number = self._number.tolist()
        return Situation(
            self.time,
            self.tick,
            self.last,
            number[FINISHED],
            number[WORKING],
            number[SENDING],
            len(self.landed),
            self.num_picked,
            self.num_lost,
            self,
        )

    # -- the queue --------------------------------------------------------------------------------------------------

    def _asked(self) -> float:
        """Return when the server acts, if nothing happens before."""
        if self._planned is not None:
            return self._planned
        answer: Any = self.timeline.when(self.situation())
        try:
            act = float(answer)
        except (TypeError, ValueError):
            act = math.nan
        if not act >= self.time:
            raise TrainingError(
                f"{self.label} named time {shown(answer)} after aggregation {self.tick}, and it is {self.time:g}: give a time from "
                "now on, or infinity to wait for the next event"
            )
        if not getattr(self.timeline, "watches", True):
            self._planned = act
        return act

    def _coming(self) -> float:
        """Return when the next event is."""
        queue = self._queue
        while queue and self.due[queue[0][1]] != queue[0][0]:  # it was interrupted
            heapq.heappop(queue)
        return queue[0][0] if queue else math.inf

    def _play(self, time: float) -> None:
        """Let everything happen that is due at one instant."""
        self.time = time
        here: set[int] = set()
        while self._queue and self._queue[0][0] == time:
            here.add(heapq.heappop(self._queue)[1])
        device = np.array(sorted(here), np.int64)
        device = device[self.due[device] == time]
        phase = self.phase[device]
        self._finish(device[phase == WORKING], time)
        self._put(device[phase == ABSENT], FINISHED, math.inf)
        self._put(device[(phase == SENDING) | (phase == AWAY)], IDLE, math.inf)
        self.landed = np.concatenate([self.landed, device[phase == SENDING]])

    def _finish(self, device: Ints, time: float) -> None:
        """Let devices have an update [m]; by their behaviour, those who are away have it when they are back, or drop it."""
        if self.behaviour.absent != "compute":
            here, back = self._presence(device)
            if self.behaviour.absent == "abandon":
                self._drop(device[~here])
            self._put(device[~here], AWAY if self.behaviour.absent == "abandon" else WORKING, back[~here])
            device = device[here]
        self.since[device] = time
        self._put(device, FINISHED, math.inf)

    def _drop(self, device: Ints) -> None:
        """Note that the trainings of these devices are given up [m]."""
        rows = np.stack([device, self.job[device], self.speed[device]], axis=1)
        self.dropped = np.concatenate([self.dropped, rows])

    def _num_free(self) -> int:
        """Return how many of those who wait for a model may have one."""
        limit, number = self.behaviour.concurrency, self._number
        free = int(number[IDLE])
        if limit is None:
            return free
        taken = number[WORKING]
        if self.behaviour.release == "aggregation":
            taken = number[[WORKING, FINISHED, SENDING, ABSENT]].sum()
        return min(free, limit - int(taken))

    def _hand_out(self) -> bool:
        """Hand the newest model to those who wait for one, or to as many as may train; say whether anybody took it."""
        free = self._num_free()
        if free <= 0:
            return False
        device = np.flatnonzero(self.phase == IDLE)
        if self.behaviour.absent != "compute":
            here, back = self._presence(device)
            self._put(device[~here], AWAY, back[~here])
            device = device[here]
        needed = np.zeros(0)
        if self.batteries:
            device, needed = self._charged(device, self.batteries)
        if free < len(device):
            chosen = self._selected(device, free)
            device, needed = device[chosen], needed[chosen] if self.batteries else needed
        if not len(device):
            return False
        if self.batteries:
            self.level[device], self.charged[device] = self._level(device) - needed, self.time
        self.version[device], self.began[device] = self.tick + 1, self.time
        self.num_receivers += len(device)
        self.job[device] += 1
        takes = self.clock.elapsed if self.behaviour.absent == "compute" or not self.clock.work else self.clock.work
        given: tuple[Any, ...] = (device, self.job[device], np.full(len(device), self.time))
        if (self.speed[device] != 1).any():
            given = (*given, self.speed[device])
        self._put(device, WORKING, self.time + takes(*given))
        return True

    def _selected(self, device: Ints, count: int) -> Ints:
        """Return the positions of those who take the free places, ascending."""
        self.num_selections += 1
        rng = stream(self.seed, "select", self.num_selections)
        if self.selector is None:
            return np.sort(rng.choice(len(device), count, replace=False))
        samples = np.zeros_like(device) if self.num_samples is None else self.num_samples[device]
        answer = self.selector(Idle(self.time, device, self.job[device], samples), count, rng)
        label = f"{checks.part_label('selector', self.selector)}, asked after aggregation {self.tick},"
        return checks.checked_selection(answer, count, len(device), label).picked

    def _level(self, device: Ints) -> Floats:
        """Return what devices have left now, in J [m]."""
        assert self.batteries is not None
        since, sun = self.charged[device], self.batteries.sunlight
        lit = self.time - since if sun is None else sun.time(device, since, np.full(len(device), self.time))
        return np.minimum(self.level[device] + self.batteries.harvest * lit, self.batteries.capacity)

    def _charged(self, device: Ints, batteries: Batteries) -> tuple[Ints, Floats]:
        """Return those who have enough for a training, and what it takes; the others wait until they have."""
        needed, level = batteries.training(device, self.job[device] + 1, self.speed[device]), self._level(device)
        short = level < needed * (1 - 1e-9)
        missing = needed[short] - level[short]
        with np.errstate(divide="ignore"):
            wait = np.where(needed[short] <= batteries.capacity, missing / batteries.harvest, math.inf)
        if batteries.sunlight is not None:
            wait = batteries.sunlight.until(device[short], np.full(len(wait), self.time), wait) - self.time
        self._put(device[short], AWAY, self.time + np.maximum(wait, 1e-9))
        return device[~short], needed[~short]

    def _presence(self, device: Ints) -> tuple[npt.NDArray[np.bool_], Floats]:
        """Say who is there now [m], and when each is next there [m]."""
        now, there = np.full(len(device), self.time), self.clock.next_available
        back = now if there is None or not len(device) else there(device, now)
        return back <= now * (1 + 1e-12), back

    def _put(self, device: Ints, phase: int, due: Floats | float) -> None:
        """Let devices do something until some time [m]; whoever would do so for ever is gone, unless it waits."""
        due = np.broadcast_to(np.asarray(due, np.float64), device.shape)
        phases = np.full(len(device), phase, np.int8)
        if phase in (WORKING, AWAY, ABSENT):
            phases[np.isinf(due)] = GONE
        np.subtract.at(self._number, self.phase[device], 1)
        np.add.at(self._number, phases, 1)
        self.phase[device], self.due[device] = phases, due
        for when, each in zip(due.tolist(), device.tolist(), strict=True):
            if when != math.inf:
                heapq.heappush(self._queue, (when, each))

    # -- real devices, whose events are not in the queue ------------------------------------------------------------

    def observe(self, time: float, phase: npt.NDArray[np.int8], since: Floats, version: Ints) -> float:
        """Take over what the devices are seen to do now [N]; return when the server acts if nothing happens before."""
        self.time, self.phase, self.since, self.version = time, phase, since, version
        self._number = np.bincount(phase, minlength=_NUM_PHASES)
        return self._asked()

    def choose(self) -> Ints:
        """Return those who wait for a model and may have one now, ascending."""
        device, free = np.flatnonzero(self.phase == IDLE), max(self._num_free(), 0)
        return device[self._selected(device, free)] if 0 < free < len(device) else device[:free]

    def handed(self, device: Ints) -> None:
        """Note that devices have begun to train from the newest model [m]."""
        self.job[device] += 1
        self.num_receivers += len(device)

    # -- checkpoints ------------------------------------------------------------------------------------------------

    def state(self) -> Memory:
        """Return all that the world remembers, by name."""
        columns = {name: getattr(self, name).copy() for name in _COLUMNS}
        return {**columns, "times": np.array([getattr(self, name) for name in _TIMES])} | {
            "counts": np.array([getattr(self, name) for name in _COUNTS])
        }

    def restore(self, state: Memory) -> None:
        """Go on from what a world remembered."""
        for name in _COLUMNS:
            setattr(self, name, state[name].copy())
        for names, values in ((_TIMES, state["times"]), (_COUNTS, state["counts"])):
            for name, value in zip(names, values.tolist(), strict=True):
                setattr(self, name, value)
        self._number = np.bincount(self.phase, minlength=_NUM_PHASES)
        self._queue = [(when, each) for each, when in enumerate(self.due.tolist()) if when != math.inf]
        heapq.heapify(self._queue)
        self._planned = None


_COLUMNS: Final = (
    "phase",
    "due",
    "since",
    "began",
    "version",
    "job",
    "counted",
    "speed",
    "level",
    "charged",
    "landed",
    "dropped",
)
_TIMES: Final = ("time", "last", "acted")
_COUNTS: Final = ("tick", "num_selections", "acts_here", "num_picked", "num_lost", "num_receivers", "num_ready")


# Who takes a free place where only some devices train at a time.


@dataclass(frozen=True)
class Uniform:
    """Every waiting device is equally likely, as in FedAvg and FedBuff."""

    def __call__(self, idle: Idle, count: int, rng: Rng) -> Ints:
        """Draw without replacement."""
        return rng.choice(len(idle.device), count, replace=False)


@dataclass(frozen=True)
class FewestJobs:
    """The devices that trained least often so far; ties are drawn."""

    def __call__(self, idle: Idle, count: int, rng: Rng) -> Ints:
        """Sort by trainings so far, then by lot."""
        lots = rng.permutation(len(idle.device))
        return np.asarray(lots[np.argsort(idle.jobs[lots], kind="stable")][:count])


SELECTORS: Final[dict[str, Any]] = {"uniform": Uniform, "fewest_jobs": FewestJobs}
