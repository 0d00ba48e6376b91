"""One aggregation, as in the paper: who is ready, who uploads, what arrives, the next model; and what the server carries on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide.aggregate.averages import Weighting
from fedtide.aggregate.base import Aggregator, Cohort
from fedtide.codec.base import Packet, Sent
from fedtide.config.workload import LARGE_FLEET_DEVICES
from fedtide.core.versioned import VersionedArray, VersionedDict, versioned_array, versioned_counts, versioned_dict
from fedtide.learning.trainer import RATE_SCHEDULES
from fedtide.parts import checks
from fedtide.radio.allocation import Allocation, EqualBits
from fedtide.radio.modem import shannon_snr
from fedtide.radio.over_the_air import sends_over_the_air
from fedtide.rng import stream
from fedtide.schedule.schedulers import Scheduler
from fedtide.types import (
    Candidates,
    Floats,
    Grant,
    Ints,
    Link,
    Memory,
    Rng,
    Tick,
    Vector,
    Vectors,
    read_only,
    readonly_copy,
)

if TYPE_CHECKING:
    from fedtide.engine.system import System

Bools: TypeAlias = npt.NDArray[np.bool_]
_SLACK = 1 + 1e-9  # what rounding may add to a product

# What a device may report before the schedule is made, each a number of so many bits.
REPORT_BITS: Final = {"update_sq_norm": 32, "loss": 32}
SCALE_BITS: Final = 32  # what each of those that send at once reports of its update, for a common amplitude


class Policy(NamedTuple):
    """Who uploads and how what arrives is weighed and combined."""

    scheduler: Scheduler
    limit: int  # R
    weighting: Weighting
    aggregator: Aggregator

    @property
    def needs(self) -> tuple[str, ...]:
        """What the scheduler wants every ready device to report: names of columns of `Candidates`."""
        return tuple(getattr(self.scheduler, "needs", ()))

    @property
    def needs_update_norm(self) -> bool:
        """Does the scheduler look at the updates themselves?"""
        return "update_sq_norm" in self.needs


class Rules(NamedTuple):
    """All that the server needs to know for one aggregation, besides its state."""

    policy: Policy
    allocation: Allocation
    num_symbols: float  # per tick
    seed: int
    # versions [r] -> learning rate of trainings from each [r], relative to the first one; None: it stays the same
    rates: Callable[[Ints], Floats] | None = None


class ServerState(NamedTuple):
    """All that the server carries from one aggregation to the next, the devices still at work included."""

    version: int  # t: the number of the newest model, and of the aggregation to come
    models: Mapping[int, Vector]  # by version, those that someone still trains from
    held: VersionedArray  # which version each device trains from [N]
    uploads: VersionedArray  # how often each device was aggregated [N]
    memory: Mapping[str, Memory] = {}  # what the server's parts remember, by kind
    # what simulated devices remember, by kind and device, from the first time they are touched; real ones keep it themselves
    devices: Mapping[str, Mapping[int, Memory]] = {}


def initial_state(model: Vector, num_devices: int) -> ServerState:
    """At time 0 every device receives theta(1)."""
    held, uploads = np.ones(num_devices, np.int64), np.zeros(num_devices, np.int64)
    return ServerState(1, VersionedDict({1: model}), VersionedArray(held), VersionedArray(uploads))


def next_state(
    state: ServerState,
    ready: Ints,
    arrived: Ints,
    model: Vector,
    memory: Mapping[str, Memory],
    onward: Ints | None = None,
) -> ServerState:
    """Return the state with the next model, which every ready device [m] receives; the updates of some [r] are in it.

    onward: the version that each ready device goes on with [m], if it is not the next one for all.
    A model that nobody trains from any more is forgotten, unless it is the newest. The cost is that of the ready devices.
    """
    held, uploads, version = versioned_array(state.held), versioned_array(state.uploads), state.version + 1
    holders = held.tally  # counted here once, so that it goes on with every change
    before = versioned_counts(held[ready])
    held = held.put(ready, version if onward is None else onward)
    holders = held.tally
    unheld = [each for each in {*before, state.version} if each not in holders]
    models = versioned_dict(state.models).after({version: model}, unheld)
    if len(models) != len(holders) + (version not in holders):  # someone else has changed who holds what
        models = models.after({}, [each for each in models if each not in holders and each != version])
    uploads = uploads.put(arrived, uploads[arrived] + 1)
    return ServerState(version, models, held, uploads, memory, state.devices)


# One aggregation, as in the paper: who is ready, who uploads, what arrives, the next model.
#
# `step` is the only copy of it. Simulated devices, recorded ones and real ones differ in their `Exchange` alone.


class ReadyDevices(NamedTuple):
    """Who is ready at a tick."""

    rows: Candidates  # [m]
    kept: Any = None  # what an exchange wants to be handed back when uploads are announced


class Announced(NamedTuple):
    """What is known of the uploads of a grant before they are added up."""

    arriving: Ints  # positions within the candidates of those whose updates will arrive, ascending [r]
    lots: Sequence[Any]  # what `Exchange.send` is called with, one after the other; all of them are the r arriving ones
    devices: Mapping[str, Mapping[int, Memory]] = {}  # what simulated devices remember now
    sent: Mapping[int, Packet | Sent] = {}  # by device number, what is on its way already
    # (updates [r d], weights [r]) -> sum_k w_k u_k as it is heard [d], of updates that are sent at once, in one lot
    heard: Callable[[Vectors, Floats], Vector] | None = None
    control_bits: float = 0.0  # what was agreed on before, besides what the ready devices reported


class Delivered(NamedTuple):
    """The updates of one lot. All of them are finite, which the exchange has checked."""

    updates: Vectors  # as the server decodes them [l d]
    sent: Mapping[int, Packet | Sent]  # by device number
    devices: Mapping[str, Mapping[int, Memory]] = {}  # what simulated devices remember now


class Exchange(Protocol):
    """The devices, as the server meets them."""

    def ready(self, state: ServerState, tick: Tick) -> ReadyDevices:
        """Return who is ready, with what each reports."""
        ...

    def announce(self, state: ServerState, tick: Tick, ready: ReadyDevices, grant: Grant) -> Announced:
        """Tell devices what they were granted; return whose updates will arrive."""
        ...

    def send(self, state: ServerState, tick: Tick, lot: Any) -> Delivered:
        """Have the devices of a lot train and send their updates. state.devices: what devices remember by now."""
        ...


class Info(NamedTuple):
    """What happened in one aggregation: what records and trackers are made of."""

    tick: Tick
    rows: Candidates  # the ready devices [m]
    grant: Grant  # of r of them
    sent: Mapping[int, Packet | Sent]  # by device number
    arrived: Ints  # positions within the candidates of those whose updates arrived, ascending
    weights: Floats  # of these
    control_bits: float  # what devices spent on reports


def step(rules: Rules, state: ServerState, tick: Tick, exchange: Exchange) -> tuple[ServerState, Info]:
    """Aggregate once: K(t), Pi(t), the updates that arrive, theta(t+1).

    Updates are added up a lot at a time, so that memory does not grow with their number. If nothing arrives the model stays, and
    the aggregation still counts.
    """
    ready = exchange.ready(state, tick)
    rows, policy, memory = ready.rows, rules.policy, dict(state.memory)
    draws = stream(rules.seed, "schedule", tick.index)
    grant = plan_step(policy, rows, rules.num_symbols, draws, rules.allocation, memory.get("scheduler"))
    if grant.memory is not None:
        memory["scheduler"] = grant.memory
    uploads = exchange.announce(state, tick, ready, grant)
    state, sent, model = state._replace(devices=uploads.devices), dict(uploads.sent), state.models[state.version]
    weights: Floats = np.zeros(0)
    if len(uploads.arriving):
        cohort = weigh(rules, state, rows, uploads.arriving, memory)
        weights, aggregator, lent = cohort.weights, policy.aggregator, read_only(model)
        label = checks.part_label("aggregator", aggregator)
        starts = [state.models[version] for version in (tick.index - cohort.age).tolist()]
        before = memory.get("aggregator")
        if before is None:
            before = checks.memory_arrays(aggregator.init(lent, cohort.num_devices), f"{label}: init")
        acc, count = aggregator.start(before, lent, cohort), 0
        for lot in uploads.lots:
            updates, lot_sent, devices = exchange.send(state, tick, lot)
            if uploads.heard:  # of all of them nothing but the sum is there, which every update then stands for
                updates = [uploads.heard(updates, weights)] * len(updates)
            rows_of_lot = slice(count, count + len(updates))
            acc = aggregator.add(acc, rows_of_lot, starts[rows_of_lot], updates)
            state, count = state._replace(devices=devices), rows_of_lot.stop
            sent.update(lot_sent)
        answer, after = checks.checked_pair(aggregator.finish(before, acc, lent), label)
        model = checks.checked_vector(answer, len(model), label)
        if before:
            memory["aggregator"] = checks.checked_memory(after, before, label)
    onward = tick.received[0] if tick.received else None
    state = next_state(state, rows.device, rows.device[uploads.arriving], model, memory, onward)
    reported = uploads.control_bits + float(len(rows.device) * sum(REPORT_BITS[name] for name in policy.needs))
    return state, Info(tick, rows, grant, sent, uploads.arriving, weights, reported)


def weigh(rules: Rules, state: ServerState, rows: Candidates, arriving: Ints, memory: dict[str, Memory]) -> Cohort:
    """Return those of the candidates whose updates arrive, with their weights; a weighting's memory goes on in `memory`."""
    weighting, num_devices = rules.policy.weighting, len(state.held)
    device, age, num_samples = (readonly_copy(each[arriving]) for each in (rows.device, rows.age, rows.num_samples))
    before, given = memory.get("weighting"), (num_samples, age)
    answer, after = checks.call_part(weighting, "weighting", before, num_devices, given, (device,))
    if after is not None:
        memory["weighting"] = after
    weights = read_only(checks.checked_weights(answer, len(age), checks.part_label("weighting", weighting)))
    rates, rate = np.ones(len(age)), 1.0
    if rules.rates is not None:
        rates, rate = rules.rates(rows.tick - age), float(rules.rates(np.array([rows.tick]))[0])
    return Cohort(device, age, num_samples, weights, num_devices, rates, rate)


def plan_step(
    policy: Policy,
    candidates: Candidates,
    num_symbols: float,
    rng: Rng,
    allocation: Allocation = EqualBits(),  # noqa: B008 - a frozen value
    memory: Memory | None = None,
) -> Grant:
    """Choose who uploads and share the symbols; raise if a part breaks its contract. memory: the scheduler's."""
    ready, scheduler = len(candidates.device), policy.scheduler
    most = min(policy.limit, ready)  # |Pi| <= min(R, |K|)
    if most == 0:
        if memory is None and checks.part_remembers(scheduler):
            memory = checks.first_part_memory(scheduler, "scheduler", candidates.num_devices)
        return Grant(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), memory=memory)
    # Ours do not write to what they are given; of a large fleet a copy of it would take longer than most schedules.
    lend = read_only if ready > LARGE_FLEET_DEVICES and checks.is_ours(scheduler) else readonly_copy
    columns: dict[str, Any] = {
        key: lend(each) for key, each in candidates._asdict().items() if isinstance(each, np.ndarray)
    }
    seen = candidates._replace(**columns)
    answer, memory = checks.call_part(scheduler, "scheduler", memory, candidates.num_devices, (seen, most, rng))
    chosen = checks.checked_selection(answer, most, ready, checks.part_label("scheduler", scheduler))
    symbols, bits = allocation(candidates.capacity[chosen.picked], num_symbols)
    return Grant(chosen.picked, symbols, bits, chosen.proved_minimal, memory, chosen.metrics)


# What is known of a tick before anything is trained: who is ready, over which links.


def step_links(system: System, tick: Tick) -> Link:
    """Return the links of a tick's ready devices [m]."""
    found = system.channel(system.experiment.seed, tick.index, tick.time, tick.ready)
    return found if isinstance(found, Link) else Link(found, found)


def step_carried_bits(link: Link, grant: Grant) -> Floats:
    """Return what the links of the picked devices carry in their symbols [r]; infinity where no grant can exceed it."""
    estimated, capacity = link.estimated_capacity[grant.picked], link.capacity[grant.picked]
    return np.where(estimated > capacity, grant.symbols * capacity * _SLACK, np.inf)


def lost_in_step(link: Link, grant: Grant, sent_bits: npt.ArrayLike) -> Bools:
    """Say which packets of so many bits [r] do not arrive: their links carry less, though the estimate was better [r].

    A packet of a codec that ignores its budget (`ideal`) counts for no more than its grant.
    """
    return np.asarray(np.minimum(sent_bits, grant.bits) > step_carried_bits(link, grant))


def sending_in_step(system: System, link: Link, grant: Grant) -> Bools:
    """Say which of the picked devices send at all [r]: of those that send at once, the weak stay silent."""
    if not system.over_the_air:
        return np.ones(len(grant.picked), np.bool_)
    return sends_over_the_air(system.access, step_snr(link, grant))


def step_snr(link: Link, grant: Grant) -> Floats:
    """Return the SNR at which the picked devices are received at full power, a number [r]."""
    return shannon_snr(link.capacity[grant.picked])


def step_candidates(
    system: System,
    tick: Tick,
    uploads: Ints | VersionedArray,
    estimated_capacity: Floats | None = None,
    reports: Mapping[str, Floats] | None = None,
) -> Candidates:
    """Return the ready devices of a tick over this tick's channel."""
    fleet, ready = system.fleet, tick.ready
    return Candidates(
        num_devices=len(uploads),
        device=ready,
        num_samples=fleet.num_samples[ready],
        label_counts=fleet.label_counts[ready],
        age=tick.index - tick.start,  # a_k(t) = t - s_k(t) (eq:definition-alu)
        missed=tick.index - uploads[ready],
        capacity=step_links(system, tick).estimated_capacity if estimated_capacity is None else estimated_capacity,
        tick=tick.index,
        **(reports or {}),
    )


def step_learning_rates(system: System, start: Ints) -> Floats:
    """Return the learning rate of jobs that start from these versions [r]: set when the device receives the model."""
    return system.experiment.learning.learning_rate * step_relative_rates(system, start)


def step_relative_rates(system: System, start: Ints) -> Floats:
    """Return the learning rate of trainings from these versions, relative to learning.learning_rate [r]."""
    elapsed = system.model_timestamps[start] / system.experiment.timeline.horizon
    return RATE_SCHEDULES[system.experiment.learning.schedule](elapsed)
