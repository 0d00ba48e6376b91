"""From an experiment to the system that runs it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedtide.aggregate.base import needs_server_update
from fedtide.aggregate.hierarchical import Hierarchical, edge_servers
from fedtide.codec.base import Codec
from fedtide.config import Experiment
from fedtide.devices.energy import Energy
from fedtide.devices.fleet import Fleet
from fedtide.engine import over_the_air
from fedtide.engine.admission import admit_grant
from fedtide.engine.cells import has_several_cells
from fedtide.engine.making import (
    count_parameters,
    load_dataset,
    make_access,
    make_channel,
    make_codec,
    make_coverage,
    make_device_work,
    make_fleet,
    make_local_work,
    make_model,
    make_policy,
    make_retransmission,
    make_system_part,
    make_task_trainer,
    say_nothing,
)
from fedtide.engine.pace import Pace, make_ticks, make_world
from fedtide.engine.step import Policy, Rules, step_relative_rates, step_starts
from fedtide.errors import FedtideError
from fedtide.learning.model import Model
from fedtide.learning.trainer import (
    DeviceWork,
    Schedule,
    Task,
    Trainer,
)
from fedtide.parts import checks
from fedtide.radio.allocation import Allocation, symbols_per_tick
from fedtide.radio.downlink import Downlink, downlink_is_instant
from fedtide.radio.modem import Modem, Uplink, shannon_capacity
from fedtide.radio.over_the_air import Access, OverTheAirAccess, is_not_over_the_air
from fedtide.radio.retransmission import Drop, Retransmission
from fedtide.timeline.clock import RecordedTimes, VersionTimes, clock_span
from fedtide.timeline.reacting import check_reacting_keys
from fedtide.timeline.world import World
from fedtide.types import Dataset, Floats, Ints, LocalWork, Tick

MODEL_BITS = 32.0  # of one parameter on its way to a device


class System(NamedTuple):
    """Everything but the trainer."""

    experiment: Experiment
    dataset: Dataset
    fleet: Fleet
    ticks: Sequence[Tick]
    model_timestamps: VersionTimes | RecordedTimes  # when each model version came to be, by version number
    num_symbols: float  # per tick; if devices send at once, what they take
    policy: Policy
    codec: Codec
    model: Model | Callable[[], Any]
    channel: Uplink
    allocation: Allocation
    energy: Energy
    downlink: Downlink
    access: Access
    over_the_air: bool  # devices send at once, and the server hears the sum of their updates
    device_work: DeviceWork  # what each device does with a model
    schedule: Schedule  # of the learning rate
    modem: Modem = shannon_capacity  # what a symbol carries at an SNR, where a scheduler decides powers
    retransmission: Retransmission = Drop()
    world: Callable[[], World] | None = (
        None  # makes the devices in time, if they react to decisions; None: ticks are known
    )
    decides: bool = False  # the scheduler may decide powers and blocks
    history: int = 0  # versions before the newest that may be trained from, whoever holds them
    edges: Hierarchical | None = None  # edge servers, each with a model of its own; None: one server has one for all
    cells: Any = None  # the coverage, if it has several cells; None: there is one
    # (seed, device [m], time [m]) -> power at which each sends, relative to full power [m]; None: all at full power
    power: Callable[[int, Ints, Floats], Floats] | None = None

    @property
    def num_cells(self) -> int:
        """How many cells there are, each with `num_symbols`."""
        return 1 if self.cells is None else int(self.cells.num_cells)

    @property
    def admits(self) -> bool:
        """Is there anything to be looked at between a schedule and the uploads?"""
        shares = self.cells is not None or self.power is not None
        return self.decides or shares or self.experiment.fleet.battery_joules is not None

    @property
    def waits(self) -> bool:
        """Does the server wait for the uploads that it granted?"""
        return self.experiment.timeline.uploads != "later"

    @property
    def work(self) -> LocalWork:
        """What a device does with a model, unless learning.work says otherwise."""
        return self.device_work.usual

    @property
    def rules(self) -> Rules:
        """What the server goes by."""
        # Batteries and cells ask how large packets will be; to count a user's own model takes a trainer.
        asks = self.experiment.fleet.battery_joules or self.cells is not None
        num_parameters = parameter_count(self) if asks else 0
        return Rules(
            self.policy,
            self.allocation,
            self.num_symbols,
            self.experiment.seed,
            functools.partial(step_relative_rates, self),
            self.device_work,
            self.modem,
            self.retransmission,
            reacts=self.world is not None,
            history=self.history,
            admit=functools.partial(admit_grant, self, num_parameters) if self.admits else None,
            edges=self.edges,
            starts=functools.partial(step_starts, self) if self.edges else None,
        )


def build(
    experiment: Experiment,
    say: Callable[[str], None] = say_nothing,
    dataset: Dataset | None = None,
    fleet: Fleet | None = None,
) -> System:
    """Load the data and put the system together; nothing is trained. fleet: who holds what, if that is known already."""
    dataset = dataset or load_dataset(experiment, say)
    fleet = fleet or make_fleet(experiment, dataset)
    model = make_model(experiment, dataset.train.images.shape[1:], dataset.num_labels)
    coverage = make_coverage(experiment)
    downlink: Downlink = make_system_part(experiment, "downlink", run_coverage=coverage)
    # Of devices elsewhere nobody knows what they hold, and who is ready when; a deployment acts whoever that is.
    known = len(fleet.partition) > 0
    held = fleet.num_samples if known else np.ones(fleet.num_devices, np.int64)
    check_reacting_keys(experiment)
    time = Pace(experiment, held, _receiving(experiment, downlink, model, dataset), coverage, known)
    ticks: Sequence[Tick] = () if time.reacts else make_ticks(time, known)
    energy: Energy = make_system_part(experiment, "energy")
    policy = make_policy(experiment, coverage, run_duration=time.duration, run_energy=energy)
    _check_held_out(experiment, policy, dataset)
    access, uplink = make_access(experiment), make_channel(experiment, coverage)
    allocation: Allocation = make_system_part(experiment, "allocation")
    cells: Any = coverage if has_several_cells(coverage) else None
    num_symbols, span = experiment.radio.num_symbols, time.span if time.reacts else clock_span(ticks)
    if span is not None:
        num_symbols = symbols_per_tick(*span, num_symbols, experiment.fleet.max_duration)
    at_once = not is_not_over_the_air(access)
    if at_once:
        over_the_air.check_over_the_air(experiment, access, policy.aggregator)
        if cells is not None:
            raise FedtideError(
                f"radio.access={experiment.radio.access} does not go with the {cells.num_cells} cells of radio.coverage="
                f"{experiment.radio.coverage.name}, each of which hears its own devices; choose a coverage of one cell, or "
                "radio.access=orthogonal"
            )
        num_parameters = count_parameters(experiment, model, dataset.train.images.shape[1:], dataset.num_labels)
        allocation, num_symbols = (
            OverTheAirAccess(),
            over_the_air.analog_symbols(experiment, access, num_parameters, num_symbols),
        )
    return System(
        experiment=experiment,
        dataset=dataset,
        fleet=fleet,
        ticks=ticks,
        model_timestamps=VersionTimes(ticks),
        num_symbols=num_symbols,
        policy=policy,
        codec=make_codec(experiment),
        model=model,
        channel=uplink,
        allocation=allocation,
        energy=energy,
        downlink=downlink,
        access=access,
        over_the_air=at_once,
        modem=uplink.modem,
        retransmission=make_retransmission(experiment),
        world=make_world(time, fleet, energy, coverage, at_once) if time.reacts else None,
        decides=not checks.is_ours(policy.scheduler) or bool(getattr(policy.scheduler, "decides", False)),
        history=int(getattr(time.timeline, "history", 0)),
        edges=edge_servers(policy.aggregator),
        device_work=make_device_work(experiment),
        schedule=make_system_part(experiment, "schedule"),
        cells=cells,
        power=power if callable(power := getattr(coverage, "power", None)) else None,
    )


def _check_held_out(experiment: Experiment, policy: Policy, dataset: Dataset) -> None:
    """Raise if a part needs held-out samples and there are none, or if outcomes are asked for of uploads that are in later."""
    if needs_server_update(policy.aggregator) and dataset.held_out is None:
        raise FedtideError(
            f"policy.aggregator={experiment.policy.aggregator} needs samples of the server's own: set data.num_train and "
            "data.num_held_out=100"
        )
    asks = f"policy.scheduler={experiment.policy.scheduler} asks what its choices would lead to"
    if "outcome" in policy.needs and dataset.held_out is None:
        raise FedtideError(f"{asks}, which is told on held-out samples: set data.num_train and data.num_held_out=500")
    if "outcome" in policy.needs and experiment.timeline.uploads == "later":
        raise FedtideError(
            f"{asks}, and with timeline.uploads=later its uploads are in later: set timeline.uploads=fixed"
        )


def _receiving(
    experiment: Experiment, downlink: Downlink, model: Model | Callable[[], Any], dataset: Dataset
) -> Callable[[Ints, Floats], Floats] | None:
    """Return how long devices take to receive a model, as a clock asks for it; None: no time."""
    if downlink_is_instant(downlink):
        return None
    bits = MODEL_BITS * count_parameters(experiment, model, dataset.train.images.shape[1:], dataset.num_labels)
    return lambda device, time: downlink(experiment.seed, device, time, bits)


def make_task(system: System, threads: int = 1) -> Task:
    """Return what a trainer of this system is made of."""
    shape, experiment = system.dataset.train.images.shape[1:], system.experiment
    return Task(system.model, make_local_work(experiment), experiment.seed, shape, system.dataset.num_labels, threads)


def make_trainer(system: System, threads: int = 1) -> Trainer:
    """Make the trainer that the experiment names."""
    return make_task_trainer(system.experiment, make_task(system, threads))


def parameter_count(system: System, trainer: Trainer | None = None) -> int:
    """Return d, the numbers that travel. A user's own trainer may have a model of its own."""
    dataset = system.dataset
    return count_parameters(
        system.experiment, system.model, dataset.train.images.shape[1:], dataset.num_labels, trainer
    )
