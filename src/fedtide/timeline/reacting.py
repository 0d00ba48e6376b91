"""Timelines that exist only where the server reacts to what happens, and FedAsync's own experiment.

A timeline reacts by `when(situation) -> time`: asked after every event, it says when the server acts if nothing happens before,
`situation.time` for now, infinity for not yet. One that does not care what happens says `watches = False` and is asked once per
aggregation; one that looks at `situation.progress` says `needs_progress = True`, and then no plan can know its times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np

from fedtide import columns
from fedtide.errors import FedtideError
from fedtide.parts.arguments import arg
from fedtide.rng import stream
from fedtide.timeline.clock import Span
from fedtide.timeline.world import Situation
from fedtide.types import Clock, Tick

if TYPE_CHECKING:
    from fedtide.config import Experiment


@dataclass(frozen=True)
class WaitForAll:
    """Rounds: the server acts when every device that has a model has finished."""

    def when(self, situation: Situation) -> float:
        """Return now, if nobody trains or sends."""
        busy = situation.num_working + situation.num_sending
        return situation.time if situation.num_here and not busy else math.inf


@dataclass(frozen=True)
class Deadline:
    """Rounds of limited length: the server acts when every device has finished, or at the deadline."""

    deadline: Annotated[float, arg("longest duration of a round", gt=0, key="timeline.period")]

    def when(self, situation: Situation) -> float:
        """Return now if nobody trains or sends, else the deadline."""
        latest = max(situation.time, situation.last + self.deadline)
        return min(WaitForAll().when(situation), latest)


@dataclass(frozen=True)
class SampledStaleness:
    """FedAsync's own experiment: every aggregation uses one random device with an update of random age.

    Xie, Koyejo and Gupta, "Asynchronous federated optimization", 2019: staleness ~ U{0, ..., max_staleness}, no clock. Here an
    aggregation lasts one period. How long devices take does not matter.
    """

    max_staleness: Annotated[int, arg("the largest age, in aggregations", ge=0, le=10**4)] = 4
    period: Annotated[float, arg("time between aggregations", gt=0, key="timeline.period")] = 0.25
    seed: Annotated[int, arg("seed of the draws", key="seed")] = 0

    @property
    def history(self) -> int:
        """How many versions before the newest may be trained from."""
        return self.max_staleness

    def __call__(self, clock: Clock) -> Iterator[Tick]:
        """Return one tick per period, each with one device."""
        for index in range(1, self.span(clock, True).count + 1):
            device = stream(self.seed, "select", index).integers(clock.num_devices, size=1)
            drawn = columns.uniform(self.seed, "staleness", np.array([index]))
            age = np.minimum((drawn * (self.max_staleness + 1)).astype(np.int64), index - 1)
            yield Tick(index, index * self.period, device, index - age)

    def span(self, clock: Clock, even: bool) -> Span:
        """Return how long it is."""
        count = math.floor(clock.horizon / self.period * (1 + 1e-12))
        return Span(count, count * self.period)

    def least_ticks(self, num_devices: int, slowest: float, horizon: float) -> float:
        """Return how many aggregations there are at least."""
        return horizon / self.period

    def problem(self, num_devices: int, horizon: float) -> str | None:
        """Say why there would be no aggregation; None if there are some."""
        if self.period <= horizon:
            return None
        return f"timeline.horizon={horizon:g} ends before the first aggregation at {self.period:g}; lengthen it"


def reacting_timeline(timeline: object, label: str) -> None:
    """Raise if a timeline cannot react."""
    if not callable(getattr(timeline, "when", None)):
        raise FedtideError(
            f"{label} plans its times before anything is decided, and the fleet or the uplink react to decisions: choose "
            "timeline.name periodic, buffered, per_arrival, all or deadline, or give your own a method when(situation)"
        )
    if not getattr(timeline, "waits", True):
        raise FedtideError(
            f"{label} with waits=false is planned beforehand; where devices react, set fleet.concurrency and "
            "fleet.release=finish instead"
        )


def check_reacting_keys(e: Experiment) -> None:
    """Raise if keys of a world that reacts contradict each other, or would stop the run."""
    fleet, timeline = e.fleet, e.timeline
    places, size, name = fleet.concurrency, timeline.buffer_size, e.part("timeline").name
    if fleet.battery_joules is not None and e.part("availability").name == "battery":
        raise FedtideError(
            "fleet.battery_joules and fleet.availability=battery are two batteries: leave one of them out"
        )
    if timeline.overrun == "refuse" and (timeline.uploads == "fixed" or name in ("buffered", "per_arrival", "all")):
        raise FedtideError(
            "timeline.overrun=refuse compares how long uploads take with the period: use timeline.name=periodic or deadline, and "
            "timeline.uploads=wait or later"
        )
    if places is not None and name == "buffered" and fleet.release == "aggregation" and size > places:
        raise FedtideError(
            f"fleet.concurrency={places} and fleet.release=aggregation with timeline.buffer_size={size}: {places} devices never "
            "fill the buffer; lower it or raise fleet.concurrency"
        )
