"""One aggregation, as in the paper: who is ready, who uploads, what arrives, the next model.

`step` is the only copy of it. Simulated devices, recorded ones and real ones differ in their `Exchange` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedtide.codec.base import Packet, Sent
from fedtide.config.effort import LARGE
from fedtide.core import parts
from fedtide.policy.inner import needs_rates
from fedtide.policy.streaming import fed, streams
from fedtide.rng import stream
from fedtide.server import border
from fedtide.server.state import REPORT_BITS, Arrived, Policy, Rules, ServerState, next_state
from fedtide.types import Candidates, Floats, Grant, Ints, Memory, Rng, Selection, Tick, Vector, lent, read_only
from fedtide.world.allocation import Allocation, EqualBits


class Ready(NamedTuple):
    """Who is ready at a tick."""

    rows: Candidates  # [m]
    kept: Any = None  # what an exchange wants to be handed back when it collects


class Coming(NamedTuple):
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
    coming: Coming | None = None


class Exchange(Protocol):
    """The devices, as the server meets them."""

    def ready(self, state: ServerState, tick: Tick) -> Ready:
        """Return who is ready, with what each reports."""
        ...

    def collect(self, state: ServerState, tick: Tick, ready: Ready, grant: Grant) -> Received:
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
    grant = plan(policy, rows, rules.num_symbols, draws, rules.allocation, state.memory.get("scheduler"))
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


def plan(
    policy: Policy,
    candidates: Candidates,
    num_symbols: float,
    rng: Rng,
    allocation: Allocation = EqualBits(),  # noqa: B008 - a frozen value
    memory: Memory | None = None,
) -> Grant:
    """Choose who uploads and share the symbols; raise if a part breaks its contract. memory: the scheduler's."""
    ready, scheduler = len(candidates.device), policy.scheduler
    label = parts.label("scheduler", scheduler)
    remembers = parts.remembers(scheduler)
    if remembers and memory is None:
        memory = border.first_memory(scheduler, "scheduler", candidates.num_devices)
    most = min(policy.limit, ready)  # |Pi| <= min(R, |K|)
    if most == 0:
        return Grant(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), memory=memory)
    # Ours do not write to what they are given; of a large fleet a copy of it would take longer than most schedules.
    lend = read_only if ready > LARGE and parts.is_ours(scheduler) else lent
    columns: dict[str, Any] = {
        key: lend(each) for key, each in candidates._asdict().items() if isinstance(each, np.ndarray)
    }
    seen = candidates._replace(**columns)
    if memory is not None:
        call: Any = scheduler
        answer, memory = border.pair(call(border.lent_memory(memory), seen, most, rng), memory, label)
    else:
        answer = scheduler(seen, most, rng)
    selection = answer if isinstance(answer, Selection) else Selection(answer)
    picked = border.positions(selection.picked, most, ready, label)
    believed = candidates.capacity[picked]
    symbols, bits = allocation(believed, num_symbols)
    proved, metrics = border.truth(selection.proved_minimal, label), border.metrics(selection.metrics, label)
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

    Updates may come one after the other: a combiner that streams asks for the next when it has added the last.
    heard: of updates that were sent at once, what is heard of their sum under these weights [r] -> [d]. Then a combiner gets it
    in the place of every update: weights have the sum 1, so that sum_k w_k u_k is what was heard.
    rates: as in `Rules`, for a combiner that wants to know. onward: the version that each ready device goes on with [m], if not
    the new one.

    Returns the next state and the weights [r]. If nothing arrived the model stays, and the aggregation still counts.
    """
    weights: Floats = np.zeros(0)
    model, memory = state.models[state.version], dict(state.memory)
    if len(arrived.device):
        age = state.version - arrived.start
        num_devices = len(state.held)
        answer = _called(
            "weighting", policy.weighting, memory, num_devices, arrived, lent(arrived.num_samples), lent(age)
        )
        weights = border.weights(answer, len(age), parts.label("weighting", policy.weighting))
        updates = border.finite(arrived.device, updates, state.version)
        starts = [state.models[int(version)] for version in arrived.start]
        if heard is None and streams(policy.combiner):
            combiner: Any = policy.combiner
            given: tuple[Any, ...] = (lent(model), lent(weights), lent(age))
            answer = _called(
                "combiner",
                policy.combiner,
                memory,
                lent(model),
                arrived,
                *given,
                call=lambda *given: fed(combiner.begin(*given), starts, updates),
            )
        else:
            rows = np.stack(list(updates))
            if heard is not None:
                rows = np.broadcast_to(heard(weights), rows.shape)
            given = (lent(model), read_only(np.stack(starts)), read_only(rows), lent(weights), lent(age))
            told: tuple[Any, ...] = ()
            if rates is not None and needs_rates(policy.combiner):
                told = rates(arrived.start), float(rates(np.array([state.version]))[0])
            asked: Any = policy.combiner
            answer = _called(
                "combiner", asked, memory, lent(model), arrived, *given, call=lambda *given: asked(*given, *told)
            )
        model = border.vector(answer, len(model), parts.label("combiner", policy.combiner))
    return next_state(state, ready, arrived.device, model, memory, onward), weights


def _called(
    kind: str, part: Any, memory: dict[str, Memory], first: Any, arrived: Arrived, *given: Any, call: Any = None
) -> Any:
    """Call a weighting or a combiner; one with memory is handed its own, and what it remembers then is put back.

    call: what is called in the place of the part itself.
    """
    call = call or part
    if not parts.remembers(part):
        return call(*given)
    before = memory[kind] if kind in memory else border.first_memory(part, kind, first)
    answer = call(border.lent_memory(before), *given, lent(arrived.device))
    answer, memory[kind] = border.pair(answer, before, parts.label(kind, part))
    return answer
