"""When things happen in an experiment: the devices' clock, and when the server acts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fedtide.config import Experiment
from fedtide.config.workload import timeline_reacts
from fedtide.devices.availability import Availability, always_available
from fedtide.devices.duration import durations_vary
from fedtide.devices.energy import Energy, energy_is_counted
from fedtide.devices.fleet import Fleet
from fedtide.engine.making import experiment_part, make_device_work, make_duration, make_system_part
from fedtide.errors import FedtideError
from fedtide.learning.trainer import (
    numbered_jobs,
    work_varies,
)
from fedtide.parts import checks
from fedtide.parts.checks import unguarded_part
from fedtide.radio.cell import Coverage
from fedtide.timeline.clock import Span, Ticks, checked_ticks, make_clock
from fedtide.timeline.reacting import reacting_timeline
from fedtide.timeline.world import Batteries, Behaviour, Sunlight, World
from fedtide.types import Clock, Floats, Ints, Tick


class Pace:
    """What decides when things happen: the devices' clock, and when the server acts."""

    def __init__(
        self,
        experiment: Experiment,
        num_samples: Ints,
        receive: Callable[[Ints, Floats], Floats] | None,
        coverage: Coverage,
        known: bool = True,
    ) -> None:
        wanted, count = experiment.timeline, experiment.fleet.num_devices
        duration = self.duration = make_duration(experiment, num_samples)
        availability: Availability = make_system_part(experiment, "availability", run_coverage=coverage)
        self.experiment = experiment
        self.clock = make_clock(experiment.seed, count, wanted.horizon, duration, availability, receive)
        self.timeline: Any = experiment_part(experiment, "timeline")
        self.uneven = durations_vary(duration) or not always_available(availability) or receive is not None
        own_label, ours = checks.part_label("timeline", self.timeline), checks.is_ours(self.timeline)
        self.label = f"timeline.name={wanted.name}" if ours else own_label
        own = unguarded_part(self.timeline)
        # Of devices elsewhere nobody knows when they finish: only periods can be planned.
        must = not callable(own) or (not known and wanted.name.name != "periodic")
        self.reacts = timeline_reacts(experiment) or (hasattr(own, "when") and must)

    @property
    def span(self) -> Span | None:
        """How long a world is that reacts, if its server acts regularly; None: nobody knows."""
        regular = not getattr(self.timeline, "watches", True) and hasattr(self.timeline, "span")
        return self.timeline.span(self.clock, True) if regular else None


def make_world(time: Pace, fleet: Fleet, energy: Energy, coverage: Coverage, at_once: bool) -> Callable[[], World]:
    """Return what makes the devices of an experiment at time 0; raise if its parts cannot react."""
    experiment, keys = time.experiment, time.experiment.fleet
    reacting_timeline(unguarded_part(time.timeline), time.label)
    uploads, resends = experiment.timeline.uploads, experiment.radio.retransmission.name != "drop"
    if uploads != "fixed" and not experiment.radio.symbol_rate:
        raise FedtideError(
            f"timeline.uploads={uploads}: how long uploads take needs radio.symbol_rate, which is 0; set it to the bandwidth, "
            "in symbols per unit of time"
        )
    if uploads == "later" and (at_once or resends):
        what = "radio.access" if at_once else "radio.retransmission"
        raise FedtideError(f"timeline.uploads=later does not go with {what}: the server must wait; set uploads=wait")
    if at_once and resends:
        raise FedtideError("radio.retransmission needs packets, and radio.access has none; leave one of them out")
    if keys.battery_joules is not None and not energy_is_counted(energy):
        raise FedtideError(
            f"fleet.battery_joules={keys.battery_joules:g} is drained by nothing: give fleet.joules_per_sample, "
            "radio.joules_per_symbol or fleet.energy"
        )
    work, seed = make_device_work(experiment), experiment.seed

    def training(device: Ints, job: Ints, speed: Floats) -> Floats:
        samples = work.samples(device, job, fleet.num_samples[device])
        return energy(seed, device, samples * speed**2, np.zeros(len(device)))  # type: ignore[arg-type]

    lit: Any = [getattr(coverage, name, None) for name in ("sunlit_time", "sunlit_until")]
    sunlight = Sunlight(*(functools.partial(each, seed) for each in lit)) if all(map(callable, lit)) else None
    batteries = None
    if keys.battery_joules:
        batteries = Batteries(keys.battery_joules, keys.harvest_joules, training, sunlight)
    behaviour = Behaviour(keys.unpicked, keys.interrupt, keys.absent, keys.concurrency, keys.release)
    selector = make_system_part(experiment, "selector", run_duration=time.duration, run_coverage=coverage)

    fixed = experiment.timeline.upload_time if uploads == "fixed" else 0.0
    clock = time.clock._replace(horizon=time.clock.horizon - fixed)  # a model must be there by the horizon

    def make() -> World:
        return World(
            clock,
            time.timeline,
            behaviour,
            seed,
            selector,
            fleet.num_samples,
            batteries,
            uploads != "later",
            time.label,
        )

    make()  # raises if there are more places than devices
    if batteries:
        everyone = np.arange(fleet.num_devices)
        needed = float(training(everyone, np.ones_like(everyone), np.ones(len(everyone))).min())
        if needed > batteries.capacity:
            raise FedtideError(
                f"fleet.battery_joules={batteries.capacity:g} is less than the {needed:g} J of one training: no device could "
                "ever train; raise fleet.battery_joules, or lower fleet.joules_per_sample"
            )
    return make


def make_ticks(time: Pace, known: bool) -> Sequence[Tick]:
    """Return the ticks of the timeline: readiness never depends on the model. known: someone must be ready at some tick."""
    experiment, clock, made, label, uneven = time.experiment, time.clock, time.timeline, time.label, time.uneven
    wanted, count = experiment.timeline, experiment.fleet.num_devices
    numbered = work_varies(make_device_work(experiment).part) or experiment.learning.seed_by == "job"

    def play() -> Iterable[Tick]:
        return numbered_jobs(played(), count) if numbered else played()

    def played() -> Iterable[Tick]:
        # Of uneven times nobody knows beforehand how many ticks they make.
        if not own and not uneven:
            ticks: Iterable[Tick] = made(clock)
            return ticks
        return checked_ticks(made(clock), count, wanted.horizon, label, not own)

    own = not checks.is_ours(made)
    ticks: Sequence[Tick]
    with checks.part_errors_reported("timeline", wanted.name.name, made):  # a generator raises only as it is read
        # A user's own is gone through once: nobody knows whether it would go the same way again.
        ticks = list(play()) if own else Ticks(play, count, made.span(clock, not uneven))
    usual = (
        not uneven and experiment.fleet.duration.name == "uniform"
    )  # where an aggregation may have nobody, as it always could
    if known and not usual and not any(len(tick.ready) for tick in ticks):
        raise FedtideError(_nobody(experiment, clock))
    if not ticks:
        raise FedtideError(
            f"the timeline {wanted.name.name!r} has no aggregation before timeline.horizon={wanted.horizon}; lengthen the horizon"
        )
    return ticks


def _nobody(experiment: Experiment, clock: Clock) -> str:
    """Say why nobody is ever ready in time, and what to do."""
    everyone = np.arange(clock.num_devices)
    soonest = float(clock.elapsed(everyone, np.ones_like(everyone), np.zeros(clock.num_devices)).min())
    fleet, horizon = experiment.fleet, f"timeline.horizon={experiment.timeline.horizon:g}"
    problem, sent, faster = f"no aggregation up to {horizon} has a device that is ready: ", "", ""
    if (down := experiment.radio.downlink.name) != "instant":
        sent, faster = f", radio.downlink={down}", ", speed up the downlink (radio.downlink)"
    if not np.isfinite(soonest):
        return problem + (
            f"by fleet.availability={fleet.availability}{sent} and fleet.duration={fleet.duration} none ever is; let devices "
            f"come back (fleet.availability; a battery needs harvest_watts){faster} or finish (fleet.duration)"
        )
    if clock.next_available is not None and soonest <= clock.horizon:
        return problem + (
            f"by fleet.availability={fleet.availability} those who finish, the first after {soonest:g}, are gone when the "
            "server acts, or too few; let devices stay longer or come back (fleet.availability; a battery needs "
            f"harvest_watts), lengthen the horizon{faster}, shorten the jobs (fleet.duration), or let the server wait for "
            "fewer devices"
        )
    return problem + (
        f"by fleet.duration={fleet.duration}{sent} and fleet.availability={fleet.availability} the first is after {soonest:g}; "
        f"lengthen the horizon, shorten the jobs (fleet.duration) or the time away (fleet.availability){faster}, or "
        "let the server wait for fewer devices"
    )
