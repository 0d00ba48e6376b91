"""A run as a page shows it: what its records say, and what a plan or a trace adds to them.

In every timeline a device that is ready receives the new model, picked or not, so that records alone tell when each training
may have begun. A plan (`rebuilt`) or a deployment's trace (`traced`) adds when it really began and ended, the channels of
those who were not picked, and who holds which labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedtide.config import Experiment
from fedtide.records import RoundRecord
from fedtide.types import Floats, Ints, Tick


class Jobs(NamedTuple):
    """Local trainings, by the aggregation that they were ready for, those still going on last [j]. Times; NaN: not known."""

    device: Ints
    age: Ints  # at that aggregation
    received: Floats  # when the model was there to be had
    begin: Floats  # when the device was there to take it
    done: Floats  # when it had finished
    back: Floats  # when it was there to say so
    ready: Floats  # when the server acted; infinity: it has not


class Seen(NamedTuple):
    """Everything about a run that a page needs."""

    experiment: Experiment
    rounds: Sequence[RoundRecord]  # T of them
    complete: bool
    kind: str  # simulated, deployed, or recorded if the records are all there is
    why: str  # what is not shown, and why; "": nothing
    jobs: Jobs
    capacity: Floats  # of the uplinks in bit/symbol, NaN where nobody knows [T N]
    label_counts: Ints | None  # [N c]
    unit: str  # of times
    num_parameters: int | None = None  # d

    @property
    def num_devices(self) -> int:
        """N."""
        return self.experiment.fleet.num_devices

    @property
    def time(self) -> Floats:
        """When each aggregation was [T]."""
        return np.array([each.time for each in self.rounds], np.float64)


def recorded(experiment: Experiment, rounds: Sequence[RoundRecord], complete: bool, why: str) -> Seen:
    """Return what the records alone tell."""
    count = experiment.fleet.num_devices
    capacity = np.full((len(rounds), count), np.nan)
    for row, each in enumerate(rounds):
        capacity[row, each.picked] = each.capacity
    jobs = jobs_of([np.array(each.ready, np.int64) for each in rounds], [each.time for each in rounds], count)
    unit = "T_max" if experiment.fleet.max_duration == 1 else ""
    return Seen(experiment, rounds, complete, "recorded", why, jobs, capacity, None, unit)


def jobs_of(
    ready: Sequence[Ints], time: Sequence[float], num_devices: int, ticks: Sequence[Tick] | None = None
) -> Jobs:
    """Return the trainings of a run in which those devices were ready at those times.

    ticks: they say which versions were trained from; without, each device received the new one whenever it was ready.
    """
    version, since = np.ones(num_devices, np.int64), np.zeros(num_devices)  # that each device trains from, since when
    born = np.array([0.0, 0.0, *time])
    device, start, got, index = [], [], [], []
    for number, who in enumerate(ready, 1):
        tick = ticks[number - 1] if ticks else None
        began = tick.start if tick else version[who]
        device.append(who)
        start.append(began)
        got.append(np.where(began > version[who], born[began], since[who]))
        index.append(np.full(len(who), number, np.int64))
        version[who], since[who] = (tick and tick.received) or (number + 1, time[number - 1])
    everyone, last = np.arange(num_devices), len(time) + 1
    began, ends = np.concatenate([*start, version]), np.concatenate([*index, np.full(num_devices, last, np.int64)])
    unknown = np.full(len(began), np.nan)
    acted = np.where(ends < last, np.array([0.0, *time, np.inf])[ends], np.inf)
    received = np.concatenate([*got, since])
    return Jobs(np.concatenate([*device, everyone]), ends - began, received, received.copy(), unknown, unknown, acted)


def numbers(device: Ints) -> Ints:
    """Return the number of each job among those of its device, from 1 [j]."""
    order = np.argsort(device, kind="stable")
    row = device[order]
    first = np.concatenate([[True], row[1:] != row[:-1]]) if len(row) else np.zeros(0, bool)
    place = np.arange(len(row))
    found = np.empty(len(row), np.int64)
    found[order] = place - np.maximum.accumulate(np.where(first, place, 0)) + 1
    return found
