"""From an experiment to the objects that run it: every part by its name, with its arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedtide import config, testing
from fedtide.aggregate.base import as_aggregator
from fedtide.codec.base import Codec
from fedtide.config import Experiment
from fedtide.config.workload import timeline_reacts
from fedtide.core.memory_budget import require_memory
from fedtide.core.yaml12 import shown
from fedtide.data.dataset import checked_dataset
from fedtide.data.holdings import (
    Counted,
    Holdings,
    checked_partition,
    has_virtual_holdings,
    holding_label_counts,
    holding_sizes,
    refuse_random_partition,
)
from fedtide.devices.availability import Availability, always_available
from fedtide.devices.duration import Duration, durations_vary, first_duration
from fedtide.devices.energy import Energy, energy_is_counted
from fedtide.devices.fleet import Fleet
from fedtide.engine import over_the_air
from fedtide.engine.step import REPORT_BITS, Policy, Rules, admit_grant, step_relative_rates
from fedtide.errors import FedtideError, did_you_mean
from fedtide.learning.model import Model, check_model, needs_torch, num_parameters, without_dropout
from fedtide.learning.trainer import (
    WRAPPERS,
    DeviceWork,
    Schedule,
    Task,
    Trainer,
    numbered_jobs,
    trainer_backend,
    work_varies,
)
from fedtide.parts import checks, registry
from fedtide.parts.checks import unguarded_part
from fedtide.parts.kinds import KINDS, builtin_parts
from fedtide.radio.allocation import Allocation, symbols_per_tick
from fedtide.radio.cell import Coverage
from fedtide.radio.downlink import Downlink, downlink_is_instant
from fedtide.radio.modem import Modem, Uplink, shannon_capacity
from fedtide.radio.over_the_air import Access, OverTheAirAccess, is_not_over_the_air
from fedtide.radio.retransmission import Drop, Retransmission
from fedtide.timeline.clock import RecordedTimes, Span, Ticks, VersionTimes, checked_ticks, clock_span, make_clock
from fedtide.timeline.reacting import check_reacting_keys, reacting_timeline
from fedtide.timeline.world import Batteries, Behaviour, World
from fedtide.types import Clock, Dataset, Floats, Ints, LocalWork, Tick

_NUM_SAMPLES = ("fleet.num_samples", "fleet.samples_per_job")  # what durations may ask of the data that was dealt out
MODEL_BITS = 32.0  # of one parameter on its way to a device
_FLEET_BYTES = 200.0  # of one device: columns of the fleet, the clock and the server, and what a tick makes of them


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

    @property
    def admits(self) -> bool:
        """Is there anything to be looked at between a schedule and the uploads?"""
        return self.decides or self.experiment.fleet.battery_joules is not None

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
        # Batteries ask how large packets will be; to count a user's own model takes a trainer.
        num_parameters = parameter_count(self) if self.experiment.fleet.battery_joules else 0
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
        )


def _silent(_: str) -> None:
    pass


def _experiment_part(experiment: Experiment, kind: str, **more: Any) -> Any:
    """Make the part of this kind that an experiment names. more: what can be filled in besides the experiment's keys."""
    extra = {name.replace("_", ".", 1): value for name, value in more.items()}
    part = experiment.part(kind)
    return registry.part(
        kind, part.name, part.args, lambda key: extra[key] if key in extra else _key(experiment, kind, part.name, key)
    )


def _key(experiment: Experiment, kind: str, name: str, key: str) -> Any:
    """Return the key that a part asks for; raise if there is none."""
    if key in config.all_keys():
        value = config.key_value(experiment, key)
        return value.name if isinstance(value, config.Part) else value
    asking = f"{kind}={name!r} asks for {key} (arg(key=...)), which"
    if others := [other for other, known in KINDS.items() if key in known.fills]:
        raise FedtideError(f"{asking} is filled in for a {' and a '.join(others)} only; ask for another key")
    otherwise = f"see `fedtide run --keys` and `fedtide parts {kind}`"
    hint = did_you_mean(key, [*config.all_keys(), *KINDS[kind].fills], otherwise)
    raise FedtideError(f"{asking} is no key of an experiment: {hint}")


def build(
    experiment: Experiment,
    say: Callable[[str], None] = _silent,
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
    time = _Time(experiment, held, _receiving(experiment, downlink, model, dataset), coverage, known)
    ticks: Sequence[Tick] = () if time.reacts else _ticks(time, known)
    energy: Energy = make_system_part(experiment, "energy")
    policy = make_policy(experiment, run_duration=time.duration, run_energy=energy)
    access, uplink = _make_access(experiment), make_channel(experiment, coverage)
    allocation: Allocation = make_system_part(experiment, "allocation")
    num_symbols, span = experiment.radio.num_symbols, time.span if time.reacts else clock_span(ticks)
    if span is not None:
        num_symbols = symbols_per_tick(*span, num_symbols, experiment.fleet.max_duration)
    at_once = not is_not_over_the_air(access)
    if at_once:
        over_the_air.check_over_the_air(experiment, access, policy.aggregator)
        num_parameters = _count(experiment, model, dataset.train.images.shape[1:], dataset.num_labels)
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
        retransmission=_make_retransmission(experiment),
        world=_make_world(time, fleet, energy, coverage, at_once) if time.reacts else None,
        decides=not checks.is_ours(policy.scheduler) or bool(getattr(policy.scheduler, "decides", False)),
        history=int(getattr(time.timeline, "history", 0)),
        device_work=make_device_work(experiment),
        schedule=make_system_part(experiment, "schedule"),
    )


def make_coverage(experiment: Experiment) -> Coverage:
    """Make how strong devices are received on average."""
    made: Coverage = make_system_part(experiment, "coverage")
    return made


def make_channel(experiment: Experiment, coverage: Coverage) -> Uplink:
    """Make what the uplinks carry and what the server knows of them."""
    channel: Uplink = make_system_part(experiment, "channel", run_coverage=coverage)
    csi, modem = make_system_part(experiment, "csi"), make_system_part(experiment, "modem")
    made = Uplink(channel, csi, modem, experiment.radio.num_blocks)
    blocks = made(experiment.seed, 1, 0.0, np.arange(1)).signal if made.num_blocks > 1 else None
    if blocks is not None and np.ptp(blocks.snr) == 0:
        raise FedtideError(
            f"radio.num_blocks={made.num_blocks}: radio.channel={experiment.radio.channel} goes by time and not by aggregation, so "
            "that all blocks would fade alike; choose another channel, or one block"
        )
    return made


def _receiving(
    experiment: Experiment, downlink: Downlink, model: Model | Callable[[], Any], dataset: Dataset
) -> Callable[[Ints, Floats], Floats] | None:
    """Return how long devices take to receive a model, as a clock asks for it; None: no time."""
    if downlink_is_instant(downlink):
        return None
    bits = MODEL_BITS * _count(experiment, model, dataset.train.images.shape[1:], dataset.num_labels)
    return lambda device, time: downlink(experiment.seed, device, time, bits)


def _make_retransmission(experiment: Experiment) -> Retransmission:
    """Make what becomes of a packet that did not arrive."""
    made: Retransmission = make_system_part(experiment, "retransmission")
    attempts = getattr(made, "attempts", 1)
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
        raise FedtideError(
            f"{checks.part_label('retransmission', made)} has attempts={shown(attempts)}: it must be a whole number of at least 1"
        )
    return made


def load_dataset(experiment: Experiment, say: Callable[[str], None] = _silent, images: bool = True) -> Dataset:
    """Load the data set that an experiment names; a plan can do without the images."""
    made: Any = _experiment_part(experiment, "data", run_say=say, run_images=images)
    loaded: Dataset = made.policy if isinstance(made, checks.Guarded) else made
    if (name := experiment.part("data").name) in (ours := builtin_parts("data")):
        return loaded
    return checked_dataset(loaded, made.label + checks.source_place(registry.find_part("data", name, ours)))


def system_durations(experiment: Experiment, num_samples: Ints | None = None) -> Floats:
    """Return how long the first local training of every device takes [N]. num_samples: |S_k|, for durations that ask [N]."""
    return first_duration(_duration(experiment, num_samples), experiment.seed, experiment.fleet.num_devices)


def _duration(experiment: Experiment, num_samples: Ints | None = None) -> Duration:
    if num_samples is None and _asks(experiment, "duration", _NUM_SAMPLES):
        raise FedtideError(
            f"fleet.duration={experiment.fleet.duration} asks how much each device holds, which is not known before the data "
            "is dealt out; choose another here"
        )
    work = make_device_work(experiment).samples_per_job(num_samples) if num_samples is not None else None
    made: Duration = make_system_part(experiment, "duration", fleet_num_samples=num_samples, fleet_samples_per_job=work)
    return made


def _asks(experiment: Experiment, kind: str, keys: tuple[str, ...]) -> bool:
    """Say whether the part of this kind wants one of these keys filled in."""
    part = experiment.part(kind)
    declared = registry.own_parameters(kind, registry.find_part(kind, part.name, builtin_parts(kind)))
    return any(each.about.key in keys and each.name not in part.args for each in declared)


def make_system_part(experiment: Experiment, kind: str, **more: Any) -> Any:
    """Make a part of the world; a user's own is asked twice."""
    made = _experiment_part(experiment, kind, **more)
    testing.refuse_impure({kind: made}, experiment.fleet.num_devices, 1, 1)
    return made


def make_fleet(experiment: Experiment, dataset: Dataset) -> Fleet:
    """Deal the data out to the devices."""
    by_size, by_time = _asks(experiment, "duration", _NUM_SAMPLES), _asks(experiment, "partition", ("fleet.durations",))
    if by_size and by_time:
        raise FedtideError(
            f"fleet.duration={experiment.fleet.duration} asks how much each device holds, and data.partition="
            f"{experiment.data.partition} how long each takes: neither can come first; replace one of them"
        )
    count = experiment.fleet.num_devices
    require_memory(_FLEET_BYTES * count, f"a fleet of {count:,} devices", "lower fleet.num_devices")
    duration = None if by_size else system_durations(experiment)
    dealer = _experiment_part(experiment, "partition", fleet_durations=duration)
    lent = dataset.lent()
    dealt = dealer(lent, count, experiment.seed)
    if isinstance(dealer, checks.Guarded):
        labels, num_labels = dataset.train.labels, dataset.num_labels
        dealt = checked_partition(dealt, labels, num_labels, count, dealer, checks.part_label("partition", dealer))
        if not checks.is_ours(dealer):
            refuse_random_partition(dealt, dealer(lent, count, experiment.seed), checks.part_label("partition", dealer))
    duration = system_durations(experiment, holding_sizes(dealt)) if duration is None else duration
    return _holding(duration, dealt, dataset)


def _holding(duration: Floats, partition: Holdings, dataset: Dataset) -> Fleet:
    """Return the fleet of devices that take so long [N] and hold these samples of a data set."""
    counts = (
        Counted(partition, dataset.num_labels)
        if has_virtual_holdings(partition)
        else holding_label_counts(dataset.train.labels, partition, dataset.num_labels)
    )
    return Fleet(duration, partition, holding_sizes(partition), counts)


class _Time:
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
        duration = self.duration = _duration(experiment, num_samples)
        availability: Availability = make_system_part(experiment, "availability", run_coverage=coverage)
        self.experiment = experiment
        self.clock = make_clock(experiment.seed, count, wanted.horizon, duration, availability, receive)
        self.timeline: Any = _experiment_part(experiment, "timeline")
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


def _make_world(time: _Time, fleet: Fleet, energy: Energy, coverage: Coverage, at_once: bool) -> Callable[[], World]:
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
        raise FedtideError(f"timeline.uploads=later does not go with {what}: the server must wait; say uploads=wait")
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

    batteries = Batteries(keys.battery_joules, keys.harvest_joules, training) if keys.battery_joules else None
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
                f"fleet.battery_joules={batteries.capacity:g} is less than the {needed:g} J of one training: nobody would ever "
                "train; raise fleet.battery_joules, or lower fleet.joules_per_sample"
            )
    return make


def _ticks(time: _Time, known: bool) -> Sequence[Tick]:
    """Return the ticks of the timeline: readiness never depends on the model. known: someone must be ready at some tick."""
    experiment, clock, made, label, uneven = time.experiment, time.clock, time.timeline, time.label, time.uneven
    wanted, count = experiment.timeline, experiment.fleet.num_devices
    varies = work_varies(make_device_work(experiment).part)

    def play() -> Iterable[Tick]:
        return numbered_jobs(played(), count) if varies else played()

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


def make_policy(experiment: Experiment, **more: Any) -> Policy:
    """Make who uploads, and how what arrives is weighed and combined. more: what a scheduler may ask for, if it is there."""
    scheduler = _experiment_part(experiment, "scheduler", **{"run_duration": None, "run_energy": None, **more})
    weighting, aggregator = (_experiment_part(experiment, kind) for kind in ("weighting", "aggregator"))
    needs = getattr(scheduler, "needs", ())
    if not isinstance(needs, tuple | list) or not all(isinstance(each, str) and each in REPORT_BITS for each in needs):
        raise FedtideError(
            f"{checks.part_label('scheduler', scheduler)} has needs={needs!r}: it must be a tuple of what "
            "devices can report, "
            f"{', '.join(map(repr, REPORT_BITS))}"
        )
    return Policy(scheduler, experiment.policy.limit, weighting, as_aggregator(aggregator))


def make_codec(experiment: Experiment) -> Codec:
    """Make the codec, which server and devices share."""
    codec: Codec = _experiment_part(experiment, "codec")
    return codec


def _make_access(experiment: Experiment) -> Access:
    """Make how the picked devices share the symbols."""
    access: Access = _experiment_part(experiment, "access")
    return access


def make_model(experiment: Experiment, shape: tuple[int, ...], num_labels: int) -> Model | Callable[[], Any]:
    """Return what is trained on images of this shape [channels height width]: a description, or what makes a module."""
    wanted, part = experiment.learning, experiment.learning.model
    native = trainer_backend(experiment.learning.trainer) == "native"
    torch = "learning.trainer.inner=torch" if wanted.trainer.name in WRAPPERS else "learning.trainer=torch"
    found = registry.find_part("model", part.name, builtin_parts("model"))
    if part.name in builtin_parts("model") or _describes(found):
        model = _described(experiment, found, (shape[0], shape[1], shape[2]), num_labels)
        if part.name not in builtin_parts("model"):
            check_model(model, shape, num_labels, f"model={part.name!r}{checks.source_place(found)}")
        model = model if wanted.dropout else without_dropout(model)
        num_parameters(model)  # raises if the layers do not fit the images
        if native and needs_torch(model):
            raise FedtideError(f"learning.model={part.name!r} is trained by PyTorch only: add {torch}")
        return model
    if native:
        raise FedtideError(f"learning.model={part.name!r} is a PyTorch module: add {torch}")
    made: Callable[[], Any] = found
    return functools.update_wrapper(functools.partial(found, **part.args), found) if part.args else made


def _described(experiment: Experiment, found: Any, shape: tuple[int, int, int], num_labels: int) -> Model:
    """Make a description of one of ours, or of a user's own."""
    part, given = experiment.learning.model, KINDS["model"].made_with
    name, args = part.name, part.args
    registry.check_part_arguments("model", name, found, args, True, given)
    all_args = registry.registry_arguments(
        found, args, lambda key: _key(experiment, "model", name, key), f"model={name!r}", len(given)
    )
    with checks.part_errors_reported("model", name, found):
        model = found(shape, num_labels, **all_args)
    if not isinstance(model, Model):
        raise FedtideError(f"model={name!r} made a {type(model).__name__}: return a fedtide.learning.model.Model")
    return model


def _describes(found: Any) -> bool:
    """Say whether a user's function makes a description, as ours do: of an input shape and a number of labels."""
    try:
        required = [each for each in inspect.signature(found).parameters.values() if each.default is each.empty]
    except (TypeError, ValueError):
        return False
    return [each.name for each in required] == ["input_shape", "num_labels"]


def make_local_work(experiment: Experiment) -> LocalWork:
    """Return what a device does with a model, unless learning.work says otherwise."""
    learning = experiment.learning
    return LocalWork(learning.batch_size, learning.local_epochs, learning.local_steps, learning.proximal)


def make_device_work(experiment: Experiment) -> DeviceWork:
    """Return what each device does with a model."""
    return DeviceWork(make_system_part(experiment, "work"), make_local_work(experiment), experiment.seed)


def make_task(system: System, threads: int = 1) -> Task:
    """Return what a trainer of this system is made of."""
    shape, experiment = system.dataset.train.images.shape[1:], system.experiment
    return Task(system.model, make_local_work(experiment), experiment.seed, shape, system.dataset.num_labels, threads)


def make_trainer(system: System, threads: int = 1) -> Trainer:
    """Make the trainer that the experiment names."""
    return make_task_trainer(system.experiment, make_task(system, threads))


def make_task_trainer(experiment: Experiment, task: Task) -> Trainer:
    """Make the trainer for a task; the import happens here, so that planning needs neither kernel nor PyTorch."""
    made: Trainer = _experiment_part(experiment, "trainer", run_task=task)
    return made


def parameter_count(system: System, trainer: Trainer | None = None) -> int:
    """Return d, the numbers that travel. A user's own trainer may have a model of its own."""
    dataset = system.dataset
    return _count(system.experiment, system.model, dataset.train.images.shape[1:], dataset.num_labels, trainer)


def _count(
    experiment: Experiment,
    model: Model | Callable[[], Any],
    shape: tuple[int, ...],
    num_labels: int,
    trainer: Trainer | None = None,
) -> int:
    ours = {experiment.learning.trainer.name, trainer_backend(experiment.learning.trainer)} <= {
        *builtin_parts("trainer")
    }
    if isinstance(model, Model) and ours:
        return num_parameters(model) * WRAPPERS.get(experiment.learning.trainer.name, 1)
    trainer = trainer or make_task_trainer(
        experiment, Task(model, make_local_work(experiment), experiment.seed, shape, num_labels)
    )
    return len(trainer.initial_model(experiment.seed))
