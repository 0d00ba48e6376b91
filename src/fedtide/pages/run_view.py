"""A run as a page shows it: its records, and what its plan or a deployment's trace adds to them.

In every timeline a device that is ready receives the new model, picked or not. So the records alone tell when each training
may have begun. A plan or a trace adds when it really began and ended, the channels of devices that were not picked, and the
labels of every device.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtide.config import Experiment
from fedtide.core.memory_budget import require_memory
from fedtide.deploy import trace
from fedtide.deploy.status import Follower, lasting_texts
from fedtide.devices.availability import Availability
from fedtide.devices.duration import Duration
from fedtide.engine.cells import cells_at
from fedtide.engine.making import load_dataset, make_coverage, make_system_part
from fedtide.engine.step import step_links
from fedtide.engine.system import MODEL_BITS, System, build, parameter_count
from fedtide.engine.ticks import planned
from fedtide.errors import FedtideError
from fedtide.parts import user_code
from fedtide.radio.downlink import downlink_is_instant
from fedtide.runs import RoundRecord, Run, is_deployment_folder, read_run, run_folder_in_use
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


class DeviceGroups(NamedTuple):
    """Which cell or edge server each device belongs to."""

    name: str  # "cell" or "edge"
    number: Ints  # of each device [N]; -1: it never uploaded


class RunView(NamedTuple):
    """Everything about a run that a page needs."""

    experiment: Experiment
    rounds: Sequence[RoundRecord]  # T of them
    complete: bool
    kind: str  # simulated, deployed, or recorded if the records are all there is
    why: str  # what is not shown, and why; "": nothing
    jobs: Jobs
    passed_over: Sequence[Ints]  # ages of the updates that were ready and not picked, of each aggregation [T]
    capacity: Floats  # of the uplinks in bit/symbol, NaN where not known [T N]
    label_counts: Ints | None  # [N c]
    unit: str  # of times
    name: str = ""  # of its folder
    running: bool = False  # a process works on it
    num_parameters: int | None = None  # d
    versions: Mapping[str, Any] = {}  # what it was begun with
    groups: DeviceGroups | None = None  # None: there is one server and one cell
    total: int = 0  # aggregations when it is complete; 0: not known before
    federation: Mapping[str, str] = {}  # how it did besides, if it took place on real devices, by name

    @property
    def num_devices(self) -> int:
        """N."""
        return self.experiment.fleet.num_devices

    @property
    def time(self) -> Floats:
        """When each aggregation was [T]."""
        return np.array([each.time for each in self.rounds], np.float64)


def _recorded(experiment: Experiment, rounds: Sequence[RoundRecord], complete: bool, why: str) -> RunView:
    """Return what the records alone tell."""
    count = experiment.fleet.num_devices
    capacity = np.full((len(rounds), count), np.nan)
    for row, each in enumerate(rounds):
        capacity[row, each.picked] = each.capacity
    jobs = _jobs_of([np.array(each.ready, np.int64) for each in rounds], [each.time for each in rounds], count)
    version, ticks = np.ones(count, np.int64), []
    for number, each in enumerate(rounds, 1):
        ready = np.array(each.ready, np.int64)
        ticks.append(Tick(number, each.time, ready, version[ready]))
        version[ready] = number + 1
    unit = "T_max" if experiment.fleet.max_duration == 1 else ""
    return RunView(
        *(experiment, rounds, complete, "recorded", why, jobs, _passed_over(ticks, rounds), capacity, None, unit),
        groups=_groups(rounds, count),
    )


def _passed_over(ticks: Sequence[Tick], rounds: Sequence[RoundRecord]) -> list[Ints]:
    """Return the ages of the updates that were ready and not picked, of each aggregation [T]."""
    return [
        (tick.index - tick.start)[~np.isin(tick.ready, each.picked)] for tick, each in zip(ticks, rounds, strict=True)
    ]


def _groups(rounds: Sequence[RoundRecord], num_devices: int) -> DeviceGroups | None:
    """Return the cell, or else the edge server, that each device last sent to; None if the records name none."""
    for name in ("cell", "edge"):
        number = np.full(num_devices, -1, np.int64)
        for each in rounds:
            if sent_to := getattr(each, name):
                number[each.picked] = sent_to
        if (number >= 0).any():
            return DeviceGroups(name, number)
    return None


def _jobs_of(
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


def _job_numbers(device: Ints) -> Ints:
    """Return the number of each job among those of its device, from 1 [j]."""
    order = np.argsort(device, kind="stable")
    _, first, count = np.unique(device[order], return_index=True, return_counts=True)
    number = np.empty(len(device), np.int64)
    number[order] = np.arange(len(device)) - np.repeat(first, count) + 1
    return number


def _traced(folder: Path, run: Run) -> RunView:
    """Return a run of real devices. Wall times in seconds are moved to the clock of the records, period by period."""
    plain = _recorded(run.experiment, run.rounds, run.complete, "")._replace(kind="deployed", unit="s")
    if (folder / trace.NAME).exists():
        plain = plain._replace(federation=lasting_texts(Follower(folder).look()))
    else:
        return plain._replace(why=f"Trainings and labels are not shown: there is no {trace.NAME} beside the records")
    periods = trace.read_trace(folder).periods[: len(run.rounds)]
    both = list(zip(periods, run.rounds, strict=True))
    count = run.experiment.fleet.num_devices
    capacity = plain.capacity.copy()
    labels = np.zeros((count, max((len(row) for each in periods for row in each.label_counts), default=1)), np.int64)
    for at, period in enumerate(periods):
        capacity[at, period.ready] = period.capacity
        if period.ready:
            labels[period.ready] = period.label_counts
    ticks, every, told, before = [], [], [], np.zeros(count, np.int64)  # the version that each was ready with
    for period, each in both:
        ready, start = np.array(period.ready, int), np.array(period.start, int)
        every.append(Tick(each.index, each.time, ready, start))
        new = start > before[ready]  # an update that waits until it is picked is that of one training
        before[ready] = start
        ticks.append(Tick(each.index, each.time, ready[new], start[new]))
        told.append(each.time - (period.wall - np.array(period.ready_at, float)[new]))
    jobs = _jobs_of([tick.ready for tick in ticks], [tick.time for tick in ticks], count, ticks)
    done = np.concatenate([*told, np.full(count, np.nan)]).clip(jobs.received, jobs.ready)
    refused = sum(len(each.refused) for each in periods)
    why = f"{refused} replies of devices were not believed; the trace says why" if refused else ""
    jobs, passed = jobs._replace(done=done, back=done), _passed_over(every, run.rounds)
    return plain._replace(jobs=jobs, passed_over=passed, capacity=capacity, label_counts=labels, why=why)


def view_run(folder: Path) -> RunView:
    """Read a run, simulated or deployed, finished or not, and plan again what its records do not hold.

    If the plan does not match the records, only the records are shown and `why` says so.
    """
    running = run_folder_in_use(
        folder
    )  # asked before the folder is read: the next question finds a run that ends in between
    run = read_run(folder)
    if not run.rounds:
        raise FedtideError(f"{folder} has no finished aggregation yet: there is nothing to show; wait for the first")
    return _view(folder, run)._replace(
        name=folder.resolve().name,
        running=running,
        num_parameters=run.num_parameters,
        versions=run.versions.model_dump(),
    )


def _view(folder: Path, run: Run) -> RunView:
    if is_deployment_folder(folder):
        return _traced(folder, run)
    devices, ready = run.experiment.fleet.num_devices, sum(each.num_ready for each in run.rounds)
    require_memory(  # channels and their sums, then devices and their trainings
        24.0 * devices * len(run.rounds) + 150.0 * ready,
        f"a page of {devices:,} devices in {len(run.rounds):,} aggregations",
        "look at its curve (fedtide show) or its uploads (fedtide.load)",
    )
    plain = _recorded(run.experiment, run.rounds, run.complete, "")
    handed = [name for name in run.versions.handed if name != "trainer"]
    if handed:
        return plain._replace(why=_without(f"its {' and '.join(handed)} came from Python"))
    try:
        with user_code.search_user_folder(run.versions.files_folder):
            return _planned(run, plain)
    except FedtideError as error:
        return plain._replace(why=_without(str(error)))


def _without(reason: str) -> str:
    return f"Trainings, labels and the channels of devices that were not picked are not shown: {reason}"


def _planned(run: Run, plain: RunView) -> RunView:
    experiment = run.experiment
    system = build(experiment, dataset=load_dataset(experiment, images=False))
    ticks, born = _ticks(system, len(run.rounds))
    if len(ticks) < len(run.rounds) or not all(map(_matches, ticks, born, run.rounds)):
        raise FedtideError("the plan of this experiment is not what was recorded; this fedtide plans differently")
    if any(each.unnamed for each in run.rounds):  # a large fleet's records count the ready devices and do not name them
        rounds = [
            each._replace(ready=tick.ready.tolist(), unnamed=0) for tick, each in zip(ticks, run.rounds, strict=True)
        ]
        plain = _recorded(experiment, rounds, run.complete, "")
    if system.world is None:
        jobs = _jobs_of([tick.ready for tick in ticks], born, system.fleet.num_devices, ticks)
        jobs = _worked(system, jobs, ticks)
    else:
        jobs = _told_jobs(ticks)
    return plain._replace(
        kind="simulated",
        jobs=jobs,
        passed_over=_passed_over(ticks, run.rounds),
        capacity=_capacities(system, ticks, run.rounds),
        label_counts=system.fleet.label_counts[:],
        groups=_all_groups(system, plain.groups, ticks[-1].time),
        total=len(system.ticks),
    )


def _all_groups(system: System, told: DeviceGroups | None, time: float) -> DeviceGroups | None:
    """Return the groups with those who never uploaded where they are at this time."""
    everyone, known = np.arange(system.fleet.num_devices), None
    if told is not None and told.name == "cell":
        known = cells_at(system, everyone, time)
    elif system.edges is not None:
        known = system.edges.edge(everyone, time)
    if told is None or known is None:
        return told
    return told._replace(number=np.where(told.number < 0, known, told.number))


def _ticks(system: System, count: int) -> tuple[Sequence[Tick], Sequence[float]]:
    """Return the first ticks of a plan, and when the model of each was there; raise if only a training tells."""
    if system.world is None:
        ticks = system.ticks[:count]
        return ticks, [tick.time for tick in ticks]
    steps = list(itertools.islice(planned(system), count))
    if any(step.grant is None for step in steps):
        raise FedtideError("when the server acts, or who uploads, follows what only the training tells")
    return [step.tick for step in steps], [step.time for step in steps]


def _told_jobs(ticks: Sequence[Tick]) -> Jobs:
    """Return the trainings of a world that reacts, each at the first tick that had its update; others did not end."""
    device, age, began, ended, acted = [], [], [], [], []
    for tick in ticks:
        assert tick.began is not None
        assert tick.ended is not None
        first = np.ones(len(tick.ready), np.bool_) if tick.fresh is None else tick.fresh
        device.append(tick.ready[first])
        age.append(tick.index - tick.start[first])
        began.append(tick.began[first])
        ended.append(tick.ended[first])
        acted.append(np.full(first.sum(), tick.time))
    received, done = np.concatenate(began), np.concatenate(ended)
    return Jobs(np.concatenate(device), np.concatenate(age), received, received, done, done, np.concatenate(acted))


def _matches(tick: Tick, born: float, record: RoundRecord) -> bool:
    """Say whether a planned tick is the recorded one."""
    same = len(tick.ready) == record.num_ready if record.unnamed else tick.ready.tolist() == list(record.ready)
    return tick.index == record.index and born == record.time and same


def _capacities(system: System, ticks: Sequence[Tick], rounds: Sequence[RoundRecord]) -> Floats:
    """Return the capacity of every device's uplink at every tick [T N]; raise if the records differ."""
    everyone = np.arange(system.fleet.num_devices)
    found = np.empty((len(ticks), len(everyone)))
    for row, (tick, each) in enumerate(zip(ticks, rounds, strict=True)):
        link = step_links(system, tick._replace(ready=everyone))
        # what a scheduler decides of powers and blocks changes what its links carry, and some uploads are of earlier ticks
        if (
            system.waits
            and not system.decides
            and not np.allclose(link.estimated_capacity[each.picked], each.capacity, rtol=1e-9)
        ):
            raise FedtideError(f"the channel at aggregation {each.index} is not the recorded one; its file has changed")
        found[row] = link.capacity
    return found


def _worked(system: System, jobs: Jobs, ticks: Sequence[Tick]) -> Jobs:
    """Return the trainings with the times at which each began, ended and was reported."""
    experiment, fleet = system.experiment, system.fleet
    seed = experiment.seed
    work = system.device_work.samples_per_job(fleet.num_samples)
    duration: Duration = make_system_part(
        experiment, "duration", fleet_num_samples=fleet.num_samples, fleet_samples_per_job=work
    )
    available: Availability = make_system_part(experiment, "availability", run_coverage=make_coverage(experiment))
    begin = available(seed, jobs.device, jobs.received)
    done = begin + duration(seed, jobs.device, _job_numbers(jobs.device))
    if not downlink_is_instant(system.downlink):
        here = np.isfinite(begin)
        bits = MODEL_BITS * parameter_count(system)
        done[here] += system.downlink(seed, jobs.device[here], begin[here], bits)
    back = done.copy()
    ends = np.isfinite(done)
    back[ends] = available(seed, jobs.device[ends], done[ends])
    # A device that had finished and was away at the aggregation before came back after it.
    time = np.array([0.0, *(tick.time for tick in ticks)])
    before = time[np.minimum(np.searchsorted(time, jobs.ready), len(time)) - 1]
    gone = ends & (before >= done)
    back[gone] = np.maximum(back[gone], available(seed, jobs.device[gone], before[gone]))
    # Rounding could move a time past the aggregation.
    return jobs._replace(begin=begin, done=np.minimum(done, jobs.ready), back=np.minimum(back, jobs.ready))
