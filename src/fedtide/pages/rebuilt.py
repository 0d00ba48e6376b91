"""What planning tells of a run again: readiness, trainings, channels and labels are never stored, and need no training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedtide.core import parts
from fedtide.core.ram import need
from fedtide.drivers.ticks import link_at
from fedtide.errors import FedtideError
from fedtide.learning.trainer import samples_per_training
from fedtide.pages.seen import Jobs, Seen, jobs_of, numbers, recorded
from fedtide.pages.traced import traced
from fedtide.records import Kept, RoundRecord, is_deployment, policy_folder, read_run, read_versions, refuse_pipes
from fedtide.system import MODEL_BITS, System, build, load_dataset, make_part, parameter_count
from fedtide.types import Floats, Tick
from fedtide.world.availability import Availability
from fedtide.world.downlink import instant
from fedtide.world.duration import Duration


def seen(folder: Path) -> Seen:
    """Read a run, simulated or deployed, finished or not, and find again what its records do not hold.

    What is planned is compared with the records; where that fails, the records are shown alone and `why` says it.
    """
    refuse_pipes(folder)
    kept = read_run(folder)
    if not kept.rounds:
        raise FedtideError(f"{folder} has no finished aggregation yet: there is nothing to show; wait for the first")
    return _found(folder, kept)._replace(num_parameters=kept.num_parameters)


def _found(folder: Path, kept: Kept) -> Seen:
    if is_deployment(folder):
        return traced(folder, kept)
    devices, ready = kept.experiment.fleet.num_devices, sum(each.num_ready for each in kept.rounds)
    need(  # channels and their sums; numbers of devices, and their trainings
        24.0 * devices * len(kept.rounds) + 150.0 * ready,
        f"a page of {devices:,} devices in {len(kept.rounds):,} aggregations",
        "look at its curve (fedtide show) or its uploads (fedtide.load)",
    )
    plain = recorded(kept.experiment, kept.rounds, kept.complete, "")
    handed = [str(each) for each in read_versions(folder).get("handed") or () if each != "trainer"]
    if handed:
        return plain._replace(why=_without(f"its {' and '.join(handed)} came from Python"))
    try:
        with parts.beside(policy_folder(folder)):
            return _planned(kept, plain)
    except FedtideError as error:
        return plain._replace(why=_without(str(error)))


def _without(reason: str) -> str:
    return f"Trainings, labels and the channels of devices that were not picked are not shown: {reason}"


def _planned(kept: Kept, plain: Seen) -> Seen:
    experiment = kept.experiment
    system = build(experiment, dataset=load_dataset(experiment, images=False))
    ticks = system.ticks[: len(kept.rounds)]
    if len(ticks) < len(kept.rounds) or not all(map(_fits, ticks, kept.rounds)):
        raise FedtideError("the plan of this experiment is not what was recorded; this fedtide plans differently")
    if any(each.unnamed for each in kept.rounds):  # a large fleet's, which say how many were ready and not who
        rounds = [
            each._replace(ready=tick.ready.tolist(), unnamed=0) for tick, each in zip(ticks, kept.rounds, strict=True)
        ]
        plain = recorded(experiment, rounds, kept.complete, "")
    ready, time = [tick.ready for tick in ticks], [tick.time for tick in ticks]
    return plain._replace(
        kind="simulated",
        jobs=_worked(system, jobs_of(ready, time, system.fleet.num_devices, ticks), ticks),
        capacity=_capacities(system, ticks, kept.rounds),
        label_counts=system.fleet.label_counts[:],
    )


def _fits(tick: Tick, each: RoundRecord) -> bool:
    """Say whether a planned tick is the recorded one."""
    same = len(tick.ready) == each.num_ready if each.unnamed else tick.ready.tolist() == list(each.ready)
    return tick.index == each.index and tick.time == each.time and same


def _capacities(system: System, ticks: Sequence[Tick], rounds: Sequence[RoundRecord]) -> Floats:
    """Return what every device's uplink carried at every tick [T N]; raise if the records say otherwise."""
    everyone = np.arange(system.fleet.num_devices)
    found = np.empty((len(ticks), len(everyone)))
    for row, (tick, each) in enumerate(zip(ticks, rounds, strict=True)):
        link = link_at(system, tick._replace(ready=everyone))
        if not np.allclose(link.believed[each.picked], each.capacity, rtol=1e-9):
            raise FedtideError(f"the channel at aggregation {each.index} is not the recorded one; its file has changed")
        found[row] = link.capacity
    return found


def _worked(system: System, jobs: Jobs, ticks: Sequence[Tick]) -> Jobs:
    """Return the trainings with when each began, ended, and was told of: what the clock made its sum of."""
    experiment, fleet = system.experiment, system.fleet
    seed = experiment.seed
    work = samples_per_training(system.work, fleet.num_samples)
    duration: Duration = make_part(
        experiment, "duration", fleet_num_samples=fleet.num_samples, fleet_samples_per_job=work
    )
    there: Availability = make_part(experiment, "availability")
    begin = there(seed, jobs.device, jobs.received)
    done = begin + duration(seed, jobs.device, numbers(jobs.device))
    if not instant(system.downlink):
        here = np.isfinite(begin)
        bits = MODEL_BITS * parameter_count(system)
        done[here] += system.downlink(seed, jobs.device[here], begin[here], bits)
    back = done.copy()
    ends = np.isfinite(done)
    back[ends] = there(seed, jobs.device[ends], done[ends])
    # Whoever was done and gone when the server acted before, came back after that.
    time = np.array([0.0, *(tick.time for tick in ticks)])
    before = time[np.minimum(np.searchsorted(time, jobs.ready), len(time)) - 1]
    gone = ends & (before >= done)
    back[gone] = np.maximum(back[gone], there(seed, jobs.device[gone], before[gone]))
    return jobs._replace(begin=begin, done=_until(done, jobs.ready), back=_until(back, jobs.ready))


def _until(time: Floats, ready: Floats) -> Floats:
    """Return times that are not after the server acted, which rounding could make them."""
    return np.minimum(time, ready)
