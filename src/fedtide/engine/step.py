"""One aggregation, as in the paper: who is ready, who uploads, what arrives, the next model; and what the server carries on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from fedtide.aggregate.averages import Aggregator, Weighting, fed, needs_rates, streams
from fedtide.codec.base import Packet, Sent
from fedtide.config.effort import LARGE_FLEET_DEVICES
from fedtide.core.versioned import VersionedArray, VersionedDict, counts, versioned_array, versioned_dict
from fedtide.engine import checks
from fedtide.parts import registry, user_code
from fedtide.radio.allocation import Allocation, EqualBits
from fedtide.rng import stream
from fedtide.schedule.schedulers import Scheduler
from fedtide.types import (
    Candidates,
    Floats,
    Grant,
    Ints,
    Memory,
    Rng,
    Selection,
    Tick,
    Vector,
    read_only,
    readonly_copy,
)

# What the server is made of, and what it carries from one aggregation to the next.


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


class Arrived(NamedTuple):
    """The devices whose updates reached the server, one row each."""

    device: Ints  # [r]
    start: Ints  # version each began from [r]
    num_samples: Ints  # [r]


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
    before = counts(held[ready])
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
    kept: Any = None  # what an exchange wants to be handed back when it collects


class UpdateStream(NamedTuple):
    """Updates that are made when they are asked for, so that memory does not grow with their number."""

    device: Sequence[int]  # those that will arrive, in the order of the grant
    updates: Iterator[Vector]  # one after the other, as the server decodes them [d]


class Received(NamedTuple):
    """What came of a grant. Packets are by device number, of those picked that sent anything at all."""

    sent: Mapping[int, Packet | Sent]
    updates: Mapping[int, Vector]  # of those that arrived, as the server decodes them [d]
    devices: Mapping[str, Mapping[int, Memory]] = {}  # what simulated devices remember now
    # weights [r] -> sum_k w_k u_k as it is heard [d], if the updates were sent at once; None: they are read one by one
    heard: Callable[[Floats], Vector] | None = None
    control_bits: float = 0.0  # what was agreed on before, besides what the ready devices reported
    # in the place of updates; sent and devices are whole once all of them have been asked for
    coming: UpdateStream | None = None


class Exchange(Protocol):
    """The devices, as the server meets them."""

    def ready(self, state: ServerState, tick: Tick) -> ReadyDevices:
        """Return who is ready, with what each reports."""
        ...

    def collect(self, state: ServerState, tick: Tick, ready: ReadyDevices, grant: Grant) -> Received:
        """Have those who were granted bits send their updates; return what came."""
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
    """Aggregate once: K(t), Pi(t), the updates that arrive, theta(t+1)."""
    ready = exchange.ready(state, tick)
    rows, policy = ready.rows, rules.policy
    draws = stream(rules.seed, "schedule", tick.index)
    grant = plan_step(policy, rows, rules.num_symbols, draws, rules.allocation, state.memory.get("scheduler"))
    received = exchange.collect(state, tick, ready, grant)
    there = set(received.coming.device if received.coming else received.updates)
    came = np.array([each for each in grant.picked.tolist() if int(rows.device[each]) in there], np.int64)
    arrived = Arrived(rows.device[came], tick.index - rows.age[came], rows.num_samples[came])
    updates: Iterable[Vector] = (received.updates[k] for k in arrived.device.tolist())
    updates = received.coming.updates if received.coming else updates
    memory = state.memory if grant.memory is None else {**state.memory, "scheduler": grant.memory}
    onward = tick.received[0] if tick.received else None
    given = (policy, rows.device, arrived, updates, received.heard, rules.rates, onward)
    state, weights = absorb(state._replace(memory=memory), *given)
    reported = received.control_bits + float(len(rows.device) * sum(REPORT_BITS[name] for name in policy.needs))
    return state._replace(devices=received.devices), Info(tick, rows, grant, received.sent, came, weights, reported)


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
    label = user_code.part_label("scheduler", scheduler)
    remembers = registry.remembers(scheduler)
    if remembers and memory is None:
        memory = checks.first_memory(scheduler, "scheduler", candidates.num_devices)
    most = min(policy.limit, ready)  # |Pi| <= min(R, |K|)
    if most == 0:
        return Grant(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), memory=memory)
    # Ours do not write to what they are given; of a large fleet a copy of it would take longer than most schedules.
    lend = read_only if ready > LARGE_FLEET_DEVICES and user_code.is_ours(scheduler) else readonly_copy
    columns: dict[str, Any] = {
        key: lend(each) for key, each in candidates._asdict().items() if isinstance(each, np.ndarray)
    }
    seen = candidates._replace(**columns)
    if memory is not None:
        call: Any = scheduler
        answer, memory = checks.checked_pair(call(checks.readonly_memory(memory), seen, most, rng), memory, label)
    else:
        answer = scheduler(seen, most, rng)
    selection = answer if isinstance(answer, Selection) else Selection(answer)
    picked = checks.positions(selection.picked, most, ready, label)
    believed = candidates.capacity[picked]
    symbols, bits = allocation(believed, num_symbols)
    proved, metrics = checks.truth(selection.proved_minimal, label), checks.metrics(selection.metrics, label)
    return Grant(picked, symbols, bits, proved, memory, metrics)


def absorb(
    state: ServerState,
    policy: Policy,
    ready: Ints,
    arrived: Arrived,
    updates: Iterable[Vector],
    heard: Callable[[Floats], Vector] | None = None,
    rates: Callable[[Ints], Floats] | None = None,
    onward: Ints | None = None,
) -> tuple[ServerState, Floats]:
    """Aggregate the updates [r d] that arrived, and hand the new model to every ready device.

    Updates may come one after the other: an aggregator that streams asks for the next when it has added the last.
    heard: of updates that were sent at once, what is heard of their sum under these weights [r] -> [d]. Then an aggregator gets it
    in the place of every update: weights have the sum 1, so that sum_k w_k u_k is what was heard.
    rates: as in `Rules`, for an aggregator that wants to know. onward: the version that each ready device goes on with [m], if not
    the new one.

    Returns the next state and the weights [r]. If nothing arrived the model stays, and the aggregation still counts.
    """
    weights: Floats = np.zeros(0)
    model, memory = state.models[state.version], dict(state.memory)
    if len(arrived.device):
        age = state.version - arrived.start
        num_devices = len(state.held)
        answer = _called(
            "weighting",
            policy.weighting,
            memory,
            num_devices,
            arrived,
            readonly_copy(arrived.num_samples),
            readonly_copy(age),
        )
        weights = checks.weights(answer, len(age), user_code.part_label("weighting", policy.weighting))
        updates = checks.checked_finite(arrived.device, updates, state.version)
        starts = [state.models[int(version)] for version in arrived.start]
        if heard is None and streams(policy.aggregator):
            aggregator: Any = policy.aggregator
            given: tuple[Any, ...] = (readonly_copy(model), readonly_copy(weights), readonly_copy(age))
            answer = _called(
                "aggregator",
                policy.aggregator,
                memory,
                readonly_copy(model),
                arrived,
                *given,
                call=lambda *given: fed(aggregator.begin(*given), starts, updates),
            )
        else:
            rows = np.stack(list(updates))
            if heard is not None:
                rows = np.broadcast_to(heard(weights), rows.shape)
            given = (
                readonly_copy(model),
                read_only(np.stack(starts)),
                read_only(rows),
                readonly_copy(weights),
                readonly_copy(age),
            )
            told: tuple[Any, ...] = ()
            if rates is not None and needs_rates(policy.aggregator):
                told = rates(arrived.start), float(rates(np.array([state.version]))[0])
            asked: Any = policy.aggregator
            answer = _called(
                "aggregator",
                asked,
                memory,
                readonly_copy(model),
                arrived,
                *given,
                call=lambda *given: asked(*given, *told),
            )
        model = checks.vector(answer, len(model), user_code.part_label("aggregator", policy.aggregator))
    return next_state(state, ready, arrived.device, model, memory, onward), weights


def _called(
    kind: str, part: Any, memory: dict[str, Memory], first: Any, arrived: Arrived, *given: Any, call: Any = None
) -> Any:
    """Call a weighting or an aggregator; one with memory is handed its own, and what it remembers then is put back.

    call: what is called in the place of the part itself.
    """
    call = call or part
    if not registry.remembers(part):
        return call(*given)
    before = memory[kind] if kind in memory else checks.first_memory(part, kind, first)
    answer = call(checks.readonly_memory(before), *given, readonly_copy(arrived.device))
    answer, memory[kind] = checks.checked_pair(answer, before, user_code.part_label(kind, part))
    return answer
