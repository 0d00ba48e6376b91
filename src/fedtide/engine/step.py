"""One aggregation, as in the paper: who is ready, who uploads, what arrives, the next model; and what the server carries on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from fedtide.aggregate.averages import Weighting
from fedtide.aggregate.base import Aggregator, Cohort
from fedtide.aggregate.hierarchical import Hierarchical, cloud_average
from fedtide.codec.base import Packet, Sent
from fedtide.config.workload import LARGE_FLEET_DEVICES
from fedtide.core.versioned import VersionedArray, VersionedDict, versioned_array, versioned_counts, versioned_dict
from fedtide.engine import cells, uplink
from fedtide.engine.exchange import Exchange, Landing
from fedtide.learning.trainer import DeviceWork, steps_per_training
from fedtide.parts import checks
from fedtide.radio.allocation import Allocation, EqualBits
from fedtide.radio.modem import Modem, shannon_capacity, shannon_snr
from fedtide.radio.over_the_air import OverTheAirAccess, sends_over_the_air
from fedtide.radio.retransmission import Retransmission
from fedtide.rng import stream
from fedtide.schedule.schedulers import Scheduler
from fedtide.types import (
    Candidates,
    Decision,
    Floats,
    Grant,
    Ints,
    Link,
    Memory,
    Rng,
    Tick,
    UplinkView,
    Vector,
    read_only,
    readonly_copy,
)

if TYPE_CHECKING:
    from fedtide.engine.system import System

Bools: TypeAlias = npt.NDArray[np.bool_]
_SLACK = 1 + 1e-9  # what rounding may add to a product
_NOTHING = 1e-9  # bits; products of links too faint to matter

# What a device may report before the schedule is made, each a number of so many bits.
REPORT_BITS: Final = {"update_sq_norm": 32, "loss": 32}
NEEDS: Final = (*REPORT_BITS, "outcome")  # what a scheduler may ask for; an outcome is a simulation's to tell
SCALE_BITS: Final = 32  # what each of those that send at once reports of its update, for a common amplitude


class Policy(NamedTuple):
    """Who uploads and how what arrives is weighed and combined."""

    scheduler: Scheduler
    limit: int  # R
    weighting: Weighting
    aggregator: Aggregator

    @property
    def needs(self) -> tuple[str, ...]:
        """What the scheduler wants to know of the ready devices: names of fields of `Candidates`."""
        return tuple(getattr(self.scheduler, "needs", ()))


class Rules(NamedTuple):
    """All that the server needs to know for one aggregation, besides its state."""

    policy: Policy
    allocation: Allocation
    num_symbols: float  # per tick
    seed: int
    # versions [r] -> learning rate of trainings from each [r], relative to the first one; None: it stays the same
    rates: Callable[[Ints], Floats] | None = None
    work: DeviceWork | None = None  # what devices do with a model; None: not known
    modem: Modem = shannon_capacity  # for decisions that set powers or blocks
    retransmission: Retransmission | None = None  # what becomes of packets that did not arrive; None: they are dropped
    reacts: bool = False  # who holds which model is told with every tick, not by who was ready
    history: int = 0  # versions before the newest that are kept, whoever holds them
    admit: Callable[[Tick, Candidates, Grant], Grant] | None = None  # what of a grant batteries can pay for
    edges: Hierarchical | None = None  # edge servers, each with a model of its own; None: there is one model for all
    # (state, device [r], version [r]) -> the models that they began from, each that of its edge [r d]
    starts: Callable[[ServerState, Ints, Ints], list[Vector]] | None = None


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


def detached_state(state: ServerState) -> ServerState:
    """Return the state with a table and columns of its own: whoever keeps the other one keeps no later models alive."""
    held, uploads = VersionedArray(np.array(state.held)), VersionedArray(np.array(state.uploads))
    return state._replace(models=VersionedDict(state.models), held=held, uploads=uploads)


def spread_over_edges(state: ServerState, edges: Hierarchical, num_samples: Ints) -> ServerState:
    """Return the first state of edge servers, which all begin with its model. num_samples: of every device [N]."""
    models = VersionedDict({version: edges.tiled(model) for version, model in state.models.items()})
    return state._replace(models=models, memory={**state.memory, "edges": edges.attach(num_samples)})


def global_model(state: ServerState) -> Vector:
    """Return the newest model [d]; of edge servers, their average as the cloud would make it now."""
    newest, edges = state.models[state.version], state.memory.get("edges")
    return newest if edges is None else cloud_average(newest, edges["samples"])


def next_state(
    state: ServerState,
    ready: Ints,
    arrived: Ints,
    model: Vector,
    memory: Mapping[str, Memory],
    onward: Ints | None = None,
    keep: Collection[int] = (),
) -> ServerState:
    """Return the state with the next model, which every ready device [m] receives; the updates of some [r] are in it.

    onward: the version that each ready device goes on with [m], if it is not the next one for all. keep: versions that are
    needed though nobody holds them. A model that nobody trains from any more is forgotten, unless it is the newest. The cost
    is that of the ready devices.
    """
    held, uploads, version = versioned_array(state.held), versioned_array(state.uploads), state.version + 1
    holders = held.tally  # counted here once, so that it goes on with every change
    before = versioned_counts(held[ready])
    held = held.put(ready, version if onward is None else onward)
    holders = held.tally
    unheld = [each for each in {*before, state.version} if each not in holders and each not in keep]
    models = versioned_dict(state.models).after({version: model}, unheld)
    if len(models) != len(holders) + (version not in holders):  # someone else has changed who holds what
        models = models.after({}, [each for each in models if each not in (*holders, *keep, version)])
    uploads = uploads.put(arrived, uploads[arrived] + 1)
    return ServerState(version, models, held, uploads, memory, state.devices)


def hold_versions(state: ServerState, held: Ints, keep: Collection[int] = ()) -> ServerState:
    """Return the state with devices that hold these versions [N]; models that nobody needs are forgotten, but the newest."""
    before = versioned_array(state.held)
    changed = np.flatnonzero(before[:] != held)
    column = before.put(changed, held[changed]) if len(changed) else before
    needed = {*column.tally, *keep, state.version}
    models = versioned_dict(state.models).after({}, [each for each in state.models if each not in needed])
    return state._replace(held=column, models=models)


# One aggregation, as in the paper: who is ready, who uploads, what arrives, the next model.
#
# `step` is the only copy of it, whatever the devices are.


class Info(NamedTuple):
    """What happened in one aggregation: what records and trackers are made of."""

    tick: Tick
    rows: Candidates  # the ready devices [m]
    grant: Grant  # of r of them
    sent: Mapping[int, Packet | Sent]  # by device number
    arrived: Ints  # positions within the candidates of those whose updates arrived, ascending
    weights: Floats  # of these
    control_bits: float  # what devices spent on reports
    again: Ints = np.zeros(0, np.int64)  # positions within the candidates of those that sent a lost packet once more
    keeps: Ints | None = None  # positions of those that keep their update to send it again; None: nobody
    done: float | None = None  # when the new model is there; None: at the tick's time
    # to whom the uplink was granted, and who was ready, if they are not those whose uploads are in
    granted: uplink.Granted | None = None
    waiting: tuple[Tick, Candidates] | None = None
    edge: Ints | None = None  # edge server in whose cell each of the ready devices is [m]; None: there is one server

    @property
    def ready(self) -> tuple[Tick, Candidates]:
        """Who was ready when the server acted."""
        return self.waiting or (self.tick, self.rows)

    @property
    def time(self) -> float:
        """When the new model is there."""
        return self.tick.time if self.done is None else self.done


def step(rules: Rules, state: ServerState, tick: Tick, exchange: Exchange) -> tuple[ServerState, Info]:
    """Aggregate once: K(t), Pi(t), the updates that arrive, theta(t+1).

    Updates are added up a lot at a time, so that memory does not grow with their number. If nothing arrives the model stays, and
    the aggregation still counts.
    """
    ready = exchange.ready(state, tick)
    policy, memory, granted, waiting = rules.policy, dict(state.memory), None, None
    draws = stream(rules.seed, "schedule", tick.index)
    grant = plan_step(policy, ready.rows, rules.num_symbols, draws, rules.allocation, memory.get("scheduler"))
    if grant.memory is not None:
        memory["scheduler"] = grant.memory
    if kept := memory.get("retransmission"):
        grant = uplink.resized_grant(rules.retransmission, grant, ready.rows.device[grant.picked], kept)
    if rules.admit is not None:
        grant = rules.admit(tick, ready.rows, grant)
    if grant.interference is not None and ready.link is not None:  # what was planned for, and what is
        ready = ready._replace(link=uplink.interfered_link(ready.link, grant, rules.modem))
    if tick.landed is not None and ready.link is not None:  # the server goes on with the uploads that are in
        waiting = tick, ready.rows
        granted = uplink.granted_uploads(rules.modem, rules.seed, tick, ready.link, uplink.sending_part(grant))
        memory["pending"], tick, link, grant = uplink.exchange_pending(memory.get("pending"), tick, granted)
        ready = cast(Landing, exchange).landed(state, tick, link)
    rows = ready.rows
    uploads = exchange.announce(state, tick, ready, grant)
    memory |= uploads.memory
    state, sent, model = state._replace(devices=uploads.devices), dict(uploads.sent), state.models[state.version]
    weights: Floats = np.zeros(0)
    edge = None if rules.edges is None else edges_in_step(rules.edges, tick, rows, grant)
    if len(uploads.arriving):
        cohort = weigh(rules, state, rows, uploads.arriving, memory, tick.job)
        cohort = cohort._replace(server_update=uploads.server_update)
        weights, aggregator, lent = cohort.weights, policy.aggregator, read_only(model)
        label = checks.part_label("aggregator", aggregator)
        if edge is None or rules.starts is None:
            starts = [state.models[version] for version in (tick.index - cohort.age).tolist()]
        else:
            cohort = cohort._replace(edge=edge[uploads.arriving])
            starts = rules.starts(state, cohort.device, tick.index - cohort.age)
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
    if edge is not None and rules.edges is not None:
        moved = rules.edges.attached(memory["edges"], rows.device, rows.num_samples, edge, uploads.arriving)
        model, told = rules.edges.averaged(tick.index, model, moved["samples"])
        memory["edges"], grant = moved, grant._replace(metrics={**grant.metrics, **told})
    onward = tick.received[0] if tick.received else None
    receive = rows.device[:0] if rules.reacts else rows.device
    keep = uplink.kept_versions(memory, state.version + 1, rules.history) if rules.reacts or rules.history else ()
    state = next_state(state, receive, rows.device[uploads.arriving], model, memory, onward, keep)
    reported = uploads.control_bits + float(len(rows.device) * sum(REPORT_BITS.get(name, 0) for name in policy.needs))
    again, keeps = uploads.again, uploads.keeps
    return state, Info(
        tick, rows, grant, sent, uploads.arriving, weights, reported, again, keeps, None, granted, waiting, edge
    )


def edges_in_step(edges: Hierarchical, tick: Tick, rows: Candidates, grant: Grant) -> Ints:
    """Return the edge of every ready device [m]: where it is now, or where its upload was sent."""
    edge = edges.edge(rows.device, tick.time, rows.cell)
    if grant.cell is not None:
        edge[grant.picked] = edges.edge(rows.device[grant.picked], tick.time, grant.cell)
    return edge


def weigh(
    rules: Rules,
    state: ServerState,
    rows: Candidates,
    arriving: Ints,
    memory: dict[str, Memory],
    job: Ints | None = None,
) -> Cohort:
    """Return those of the candidates whose updates arrive, with their weights; a weighting's memory goes on in `memory`.

    job: the number of the training that each candidate has finished [m].
    """
    weighting, num_devices = rules.policy.weighting, len(state.held)
    device, age, num_samples = (readonly_copy(each[arriving]) for each in (rows.device, rows.age, rows.num_samples))
    before, given = memory.get("weighting"), (num_samples, age)
    answer, after = checks.call_part(weighting, "weighting", before, num_devices, given, (device,))
    if after is not None:
        memory["weighting"] = after
    weights = read_only(checks.checked_weights(answer, len(age), checks.part_label("weighting", weighting)))
    rates, rate, steps = np.ones(len(age)), 1.0, None
    if rules.rates is not None:
        rates, rate = rules.rates(rows.tick - age), float(rules.rates(np.array([rows.tick]))[0])
    if rules.work is not None:
        work, own = rules.work.of(device, None if job is None else job[arriving])
        steps = np.broadcast_to(steps_per_training(work, num_samples), age.shape)
        rates = rates if own is None else rates * own
    return Cohort(device, age, num_samples, weights, num_devices, rates, rate, steps)


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
    if candidates.uplink is not None:
        columns["uplink"] = candidates.uplink._replace(snr=lend(candidates.uplink.snr))
    seen = candidates._replace(**columns)
    answer, memory = checks.call_part(scheduler, "scheduler", memory, candidates.num_devices, (seen, most, rng))
    label = checks.part_label("scheduler", scheduler)
    if isinstance(answer, Decision):
        grant = uplink.decided_grant(answer, most, candidates, num_symbols, memory, label)
    else:
        chosen = checks.checked_selection(answer, most, ready, label)
        capacity, cell = candidates.capacity[chosen.picked], candidates.cell
        if cell is None:
            symbols, bits = allocation(capacity, num_symbols)
        else:
            symbols, bits = cells.shared_by_cell(allocation, capacity, cell[chosen.picked], num_symbols)
        grant = Grant(chosen.picked, symbols, bits, chosen.proved_minimal, memory, chosen.metrics)
    if isinstance(allocation, OverTheAirAccess):  # of those that send at once, uncoded, the access says who is too weak
        return grant
    outage = granted_rates(candidates, grant) <= 0  # whatever symbols they were given
    return grant._replace(silent=outage) if outage.any() else grant


# What is known of a tick before anything is trained: who is ready, over which links.


def granted_rates(rows: Candidates, grant: Grant) -> Floats:
    """Return the bit/symbol at which the picked devices send [r]."""
    return rows.capacity[grant.picked] if grant.rate is None else grant.rate


def step_links(system: System, tick: Tick) -> Link:
    """Return the links of a tick's ready devices [m]."""
    found = system.channel(system.experiment.seed, tick.index, tick.time, tick.ready)
    return found if isinstance(found, Link) else Link(found, found)


def step_carried_bits(link: Link, grant: Grant, modem: Modem | None = None) -> Floats:
    """Return what the links of the picked devices carry in their symbols [r]; infinity where no grant can exceed it."""
    if grant.decision is not None:
        capacity, estimated, _ = uplink.granted_link(link, grant, modem)
    else:
        estimated, capacity = link.estimated_capacity[grant.picked], link.capacity[grant.picked]
    # a packet that is sent again in its old size may be larger than its new grant
    exceeds = (estimated > capacity) | (grant.bits > grant.symbols * estimated * _SLACK + _NOTHING)
    return np.where(exceeds, grant.symbols * capacity * _SLACK, np.inf)


def step_attempt(
    system: System, tick: Tick, link: Link, grant: Grant, sent_bits: Floats, memory: Memory | None = None
) -> uplink.Attempt:
    """Send packets of so many bits [r]. link: of the ready devices [m]. memory: of packets that are not complete."""
    modem, device = system.modem, tick.ready[grant.picked]
    carried = step_carried_bits(link, grant, modem)
    if callable(getattr(modem, "error", None)):
        errors = uplink.packet_errors(link, grant, modem, system.experiment.seed, tick.index, device)
        carried = np.where(errors, 0.0, carried)
    bits = np.minimum(sent_bits, grant.bits)  # one that ignores its budget (codec `ideal`) counts for no more
    if memory is None:
        return uplink.Attempt(np.asarray(bits > carried), np.zeros(len(bits), np.bool_), None)
    return uplink.attempt_uploads(system.retransmission, carried, bits, grant.bits, device, memory)


def sending_in_step(system: System, link: Link, grant: Grant) -> Bools:
    """Say which of the picked devices send at all [r]: who cannot pay does not, and of those that send at once not the weak."""
    sends = np.ones(len(grant.picked), np.bool_)
    if system.over_the_air:
        sends = sends_over_the_air(system.access, step_snr(link, grant))
    return sends if grant.silent is None else sends & ~grant.silent


def step_snr(link: Link, grant: Grant) -> Floats:
    """Return the SNR at which the picked devices are received at full power, a number [r]."""
    return shannon_snr(link.capacity[grant.picked])


def step_uplink(system: System, link: Link) -> UplinkView | None:
    """Return what a scheduler may ask of these links, if it may decide powers and blocks."""
    radio = system.experiment.radio
    if not system.decides:
        return None
    return uplink.uplink_view(link, system.modem, system.num_symbols, radio.symbol_rate, radio.max_power)


def step_candidates(
    system: System,
    tick: Tick,
    uploads: Ints | VersionedArray,
    link: Link | None = None,
    reports: Mapping[str, Any] | None = None,
) -> Candidates:
    """Return the ready devices of a tick over this tick's channel."""
    fleet, ready = system.fleet, tick.ready
    link = step_links(system, tick) if link is None else link
    return Candidates(
        num_devices=len(uploads),
        device=ready,
        num_samples=fleet.num_samples[ready],
        label_counts=fleet.label_counts[ready],
        age=tick.index - tick.start,  # a_k(t) = t - s_k(t) (eq:definition-alu)
        missed=tick.index - uploads[ready],
        capacity=link.estimated_capacity,
        tick=tick.index,
        battery=tick.battery,
        uplink=step_uplink(system, link),
        time=tick.time,
        cell=cells.cells_at(system, ready, tick.time) if system.cells is not None else None,
        **(reports or {}),
    )


def step_starts(system: System, state: ServerState, device: Ints, version: Ints) -> list[Vector]:
    """Return the models that devices began from with these versions [r d]; of edge servers, that of its edge by then."""
    models = [state.models[each] for each in version.tolist()]
    if system.edges is None:
        return models
    edge = system.edges.edge(device, system.model_timestamps[version])
    return [model.reshape(system.edges.count, -1)[own] for model, own in zip(models, edge.tolist(), strict=True)]


def step_learning_rates(system: System, start: Ints) -> Floats:
    """Return the learning rate of jobs that start from these versions [r]: set when the device receives the model."""
    return system.experiment.learning.learning_rate * step_relative_rates(system, start)


def step_relative_rates(system: System, start: Ints) -> Floats:
    """Return the learning rate of trainings from these versions, relative to learning.learning_rate [r]."""
    elapsed = system.model_timestamps[start] / system.experiment.timeline.horizon
    return system.schedule(elapsed)
