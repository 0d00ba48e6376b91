"""The uplink of one aggregation: what links carry at a power, what a joint decision grants, what arrives, how long it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide import columns
from fedtide.core.yaml12 import shown
from fedtide.errors import TrainingError
from fedtide.parts import checks
from fedtide.radio.allocation import symbols_per_packet
from fedtide.radio.modem import Modem, achieved_capacity, shannon_capacity, shannon_snr
from fedtide.radio.retransmission import Retransmission, max_attempts
from fedtide.types import (
    Candidates,
    Decision,
    Floats,
    Grant,
    Ints,
    Link,
    Memory,
    Selection,
    Signal,
    Tick,
    UplinkView,
    packet_error_chance,
    per_link,
)

if TYPE_CHECKING:
    from fedtide.engine.system import System

Bools: TypeAlias = npt.NDArray[np.bool_]
_SLACK: Final = 1 + 1e-9  # what rounding may add to a product
_LONGEST: Final = 100  # characters of an answer in a message


# What links carry: at their nominal power, or as a decision says.


def _signal(link: Link, modem: Modem) -> tuple[Signal, Modem]:
    """Return how strong links are, and the modem that made their capacities of it."""
    if link.signal is not None:
        return link.signal, modem
    return Signal(shannon_snr(link.capacity), shannon_snr(link.estimated_capacity)), shannon_capacity


def uplink_view(
    link: Link, modem: Modem, num_symbols: float, symbol_rate: float = 0.0, max_power: float = 1.0
) -> UplinkView:
    """Return what a scheduler may ask of the links [m]."""
    signal, used = _signal(link, modem)
    snr = signal.estimated_snr
    return UplinkView(snr if snr.ndim == 2 else snr[:, None], used, num_symbols, symbol_rate, max_power)


def _chosen(column: Floats, picked: Any, decision: Decision) -> Floats:
    """Return the SNR of the picked devices at the powers of a decision, in their blocks [r], or in all [r b]."""
    found: Floats = column[picked]
    found = found[:, None] if found.ndim == 1 else found
    if decision.block is not None:
        found = np.take_along_axis(found, decision.block[:, None], axis=1)
    return found if decision.power is None else found * decision.power[:, None]


def granted_link(link: Link, grant: Grant, modem: Modem | None = None) -> Link:
    """Return the links of the picked devices, as they send [r]. modem: needed if a decision sets powers or blocks."""
    decision = grant.decision
    if decision is None or (decision.power is None and decision.block is None):
        return Link(link.capacity[grant.picked], link.estimated_capacity[grant.picked])
    signal, used = _signal(link, modem or shannon_capacity)
    chosen = Signal(*(_chosen(column, grant.picked, decision) for column in signal))
    capacity, estimated = achieved_capacity(used, *chosen), per_link(used, chosen.estimated_snr)
    return Link(capacity.mean(axis=1), estimated.mean(axis=1), chosen)


def interfered_link(link: Link, grant: Grant, modem: Modem) -> Link:
    """Return the links [m] with those of the picked devices as they are under interference: SINR = SNR / (1 + I)."""
    if grant.interference is None:
        return link
    signal, used = _signal(link, modem)
    snr, capacity = signal.snr.copy(), link.capacity.copy()
    met = 1 + grant.interference
    snr[grant.picked] = found = snr[grant.picked] / (met if snr.ndim == 1 else met[:, None])
    carried = achieved_capacity(used, found, signal.estimated_snr[grant.picked])
    capacity[grant.picked] = carried if carried.ndim == 1 else carried.mean(axis=1)
    return Link(capacity, link.estimated_capacity, link.signal and Signal(snr, signal.estimated_snr))


def packet_errors(link: Link, grant: Grant, modem: Modem, seed: int, tick: int, device: Any) -> Bools:
    """Say which packets of these devices [r] are lost though their links could carry them; none for most modems."""
    if link.signal is None or not callable(getattr(modem, "error", None)) or not len(grant.picked):
        return np.zeros(len(grant.picked), np.bool_)
    decision = grant.decision or Decision(grant.picked, grant.symbols)
    snr, estimated = (_chosen(column, grant.picked, decision) for column in link.signal)
    likely = packet_error_chance(modem, snr, estimated, grant.bits[:, None]).mean(axis=1)
    return np.asarray(columns.uniform(seed, "packet", device, tick) < likely)


# What a scheduler decides jointly.


def decided_grant(
    answer: Decision, most: int, candidates: Candidates, num_symbols: float, memory: Memory | None, label: str
) -> Grant:
    """Return what a joint decision grants; raise if it spends more than there is."""
    label = f"{label} decided at aggregation {candidates.tick}"
    chosen = checks.checked_selection(
        Selection(answer.picked, None, answer.metrics), most, len(candidates.device), label
    )
    order, count = np.argsort(np.asarray(answer.picked), kind="stable"), len(chosen.picked)

    def column(name: str, is_right: Callable[[Any], Any], wanted: str, kinds: str = "fiu") -> Any:
        value = getattr(answer, name)
        if value is None and name != "symbols":
            return None
        found = checks.answer_as_array(value)
        if found.shape != (count,) or (count and found.dtype.kind not in kinds):
            raise TrainingError(f"{label} {name}={shown(value, _LONGEST)}: give {count} numbers, one per picked device")
        for bad in found[~(np.isfinite(found) & is_right(found))][:1]:
            raise TrainingError(f"{label} {name}={bad}: it must be {wanted}")
        return np.array(found[order], np.int64 if kinds == "iu" else np.float64)

    uplink = candidates.uplink
    if uplink is None and (answer.power is not None or answer.block is not None):
        raise TrainingError(
            f"{label} powers or blocks, and the SNR of these links is not known: decide picked and symbols"
        )
    blocks, most_power = (1, 1.0) if uplink is None else (uplink.snr.shape[1], uplink.max_power)
    decision = Decision(
        chosen.picked,
        column("symbols", lambda found: found >= 0, "a finite number >= 0"),
        column("bits", lambda found: found >= 0, "a finite number >= 0"),
        column(
            "power", lambda found: (found > 0) & (found <= most_power * _SLACK), f"above 0 and at most {most_power:g}"
        ),
        column("block", lambda found: (found >= 0) & (found < blocks), f"from 0 to {blocks - 1}", "iu"),
        column("share", lambda found: found >= 0, "a finite number >= 0"),
        column("speed", lambda found: (found > 0) & (found <= _SLACK), "above 0 and at most 1"),
        chosen.metrics,
    )
    cell = None if candidates.cell is None else candidates.cell[chosen.picked]
    for each in (None,) if cell is None else np.unique(cell).tolist():  # every cell has as many symbols
        here = slice(None) if cell is None else cell == each
        where, symbols = "" if cell is None else f" in cell {each}", decision.symbols[here]
        share = None if decision.share is None else decision.share[here]
        _refuse_excess(label, f"symbols{where}", float(symbols.sum()), num_symbols)
        if share is not None:
            _refuse_excess(label, f"share of the band{where}", float(share.sum()), 1.0)
        if decision.block is not None and count:
            used = np.bincount(decision.block[here], symbols, blocks)
            _refuse_excess(label, f"symbols in block {used.argmax()}{where}", float(used.max()), num_symbols / blocks)
            if share is not None:
                used = np.bincount(decision.block[here], share, blocks)
                what = f"share of the band in block {used.argmax()}{where}"
                _refuse_excess(label, what, float(used.max()), 1 / blocks)
    capacity = candidates.capacity[chosen.picked]
    if uplink is not None and (decision.power is not None or decision.block is not None):
        capacity = per_link(uplink.modem, _chosen(uplink.snr, chosen.picked, decision)).mean(axis=1)
    carried = decision.symbols * capacity
    bits = carried if decision.bits is None else decision.bits
    for at in np.flatnonzero(bits > carried * _SLACK)[:1]:
        raise TrainingError(
            f"{label} {bits[at]:.12g} bits in {decision.symbols[at]:.12g} symbols, which carry {carried[at]:.12g} at "
            f"{capacity[at]:.6g} bit/symbol; grant at most that"
        )
    made = Grant(chosen.picked, decision.symbols, bits, None, memory, chosen.metrics)
    return made._replace(power=decision.power, rate=capacity, decision=decision)


def _refuse_excess(label: str, what: str, spent: float, there: float) -> None:
    if spent > there * _SLACK:
        raise TrainingError(f"{label} {spent:.12g} {what} in all: there are {there:.12g}; spend at most that")


def refuse_unused(system: System, tick: Tick, grant: Grant) -> None:
    """Raise if a decision sets what nothing in this experiment follows."""
    decision = grant.decision
    if decision is None:
        return
    at_once, uploads, real = system.over_the_air, system.experiment.timeline.uploads, not len(system.fleet.partition)
    follow = "no clock follows it; set timeline.uploads, fleet.unpicked or fleet.concurrency"
    unused = {
        "speed": (system.world is None or real, "nodes train as fast as they can; leave it out" if real else follow),
        "share": (uploads == "fixed" and not real, "uploads take a fixed time; set timeline.uploads=wait"),
        "power": (at_once, "an access over the air sets powers itself; leave it out"),
        "block": (at_once, "devices that send at once use all blocks; leave it out"),
    }
    for name, (is_unused, why) in unused.items():
        if is_unused and getattr(decision, name) is not None:
            label = checks.part_label("scheduler", system.policy.scheduler)
            raise TrainingError(f"{label} decided at aggregation {tick.index} {name}, and {why}")


def grant_of_some(grant: Grant, which: Bools) -> Grant:
    """Return a grant with some of its devices only [r]."""
    decision = grant.decision
    if decision is not None:
        given = decision._asdict().items()
        columns: dict[str, Any] = {name: column[which] for name, column in given if isinstance(column, np.ndarray)}
        decision = decision._replace(**columns)
    picked, symbols, bits = grant.picked[which], grant.symbols[which], grant.bits[which]
    more: dict[str, Any] = {
        name: None if (column := getattr(grant, name)) is None else column[which]
        for name in ("power", "rate", "cell", "interference")
    }
    return grant._replace(picked=picked, symbols=symbols, bits=bits, silent=None, decision=decision, **more)


def sending_part(grant: Grant) -> Grant:
    """Return the grant of those who can pay for it."""
    return grant if grant.silent is None else grant_of_some(grant, ~grant.silent)


# What arrives.


class Attempt(NamedTuple):
    """What becomes of the packets of a grant."""

    lost: Bools  # does not arrive [r]
    again: Bools  # and is sent again [r]
    memory: Memory | None  # what the server has of packets that are not complete [N]; None: it keeps nothing


def first_attempts(num_devices: int) -> Memory:
    """Return what the server has of packets at the beginning: nothing [N]."""
    zeros = np.zeros(num_devices)
    return {"bits": zeros, "collected": zeros.copy(), "attempts": np.zeros(num_devices, np.int64)}


def resized_grant(retransmission: Any, grant: Grant, device: Any, memory: Memory | None) -> Grant:
    """Return the grant with packets that are sent again in their old size, if their attempts are combined."""
    if memory is None or not getattr(retransmission, "combines", False) or not len(device):
        return grant
    return grant._replace(bits=np.where(memory["attempts"][device] > 0, memory["bits"][device], grant.bits))


def attempt_uploads(
    retransmission: Retransmission, carried: Floats, sent_bits: Floats, budget: Floats, device: Any, memory: Memory
) -> Attempt:
    """Send packets of so many bits [r] over links that carry so many [r]; infinity where nothing can be lost.

    budget: what they were encoded into [r], and will be again.
    """
    before = memory["collected"][device]
    collected = np.asarray(retransmission(carried, before))
    lost, tried = np.asarray(sent_bits > collected), memory["attempts"][device] + 1
    again = lost & (tried < max_attempts(retransmission))
    after = checks.copied_memory(memory)
    after["collected"][device] = np.where(again, collected, 0.0)
    after["attempts"][device] = np.where(again, tried, 0)
    after["bits"][device] = np.where(again, budget, 0.0)
    return Attempt(lost, again, after)


# What is on its way: uploads of a server that does not wait for them.


class Granted(NamedTuple):
    """To whom the uplink of a tick is granted."""

    device: Ints  # [r]
    start: Ints  # the version that each trained from [r]
    job: Ints  # the number of its training [r]
    speed: Floats  # at which each trained [r]
    began: Floats  # when each received its model [r] ...
    ended: Floats  # ... and had its update [r]
    grant: Grant
    link: Link  # of these, as they send; one whose packet is lost carries nothing [r]


def granted_uploads(modem: Modem, seed: int, tick: Tick, link: Link, grant: Grant) -> Granted:
    """Return to whom the uplink of a tick is granted. link: of the ready devices [m]."""
    device, sends = tick.ready[grant.picked], granted_link(link, grant, modem)
    lost = packet_errors(link, grant, modem, seed, tick.index, device)
    sends = Link(np.where(lost, 0.0, sends.capacity), sends.estimated_capacity)
    speed = np.ones(len(device)) if tick.speed is None else tick.speed[grant.picked]
    job = np.ones(len(device), np.int64) if tick.job is None else tick.job[grant.picked]
    assert tick.began is not None
    assert tick.ended is not None
    times = tick.began[grant.picked], tick.ended[grant.picked]
    return Granted(device, tick.start[grant.picked], job, speed, *times, grant, sends)


def exchange_pending(memory: Memory | None, tick: Tick, new: Granted) -> tuple[Memory, Tick, Link, Grant]:
    """Put new uploads on their way and take out those that are in: what is on its way then, and these as a tick."""
    power = np.ones(len(new.device)) if new.grant.power is None else new.grant.power
    columns = (*new[:_HOW_TRAINED], new.grant.symbols, new.grant.bits, *new.link[:2], power)
    put: Memory = dict(zip(_PENDING, columns, strict=True))
    if new.grant.cell is not None and new.grant.interference is not None:
        put |= {"cell": new.grant.cell, "interference": new.grant.interference}
    before = memory or {name: column[:0] for name, column in put.items()}
    assert tick.landed is not None
    is_in = np.isin(before["device"], tick.landed)
    after = {name: np.concatenate([before[name][~is_in], put[name]]) for name in put}
    order = np.flatnonzero(is_in)[np.argsort(before["device"][is_in])]
    here = {name: before[name][order] for name in put}
    grant = Grant(np.arange(len(order)), here["symbols"], here["bits"], metrics=new.grant.metrics, power=here["power"])
    grant = grant._replace(cell=here.get("cell"), interference=here.get("interference"))
    link = Link(here["capacity"], here["estimated"])
    trained: dict[str, Any] = {name: here[name] for name in _PENDING[1:_HOW_TRAINED]}
    tick = tick._replace(ready=here["device"], fresh=None, **trained)
    return after, tick, link, grant


_PENDING: Final = (
    *("device", "start", "job", "speed", "began", "ended"),
    *("symbols", "bits", "capacity", "estimated", "power"),
)
_HOW_TRAINED: Final = 6  # of them say how devices trained, as fields of a tick do


def kept_versions(memory: Mapping[str, Memory], newest: int, history: int) -> set[int]:
    """Return the versions that are needed whoever holds them: of uploads on their way, and the last ones."""
    pending = memory.get("pending", {}).get("start", np.zeros(0, np.int64))
    return {*pending.tolist(), *range(newest - history, newest)}


# How long it takes.


def planned_tick_bits(system: System, num_parameters: int, budgets: list[float]) -> list[int] | None:
    """Return what the codec will send under these budgets [r]; None if it depends on the updates."""
    if system.over_the_air:  # uncoded
        return [0] * len(budgets)
    ask: Any = getattr(system.codec, "planned_bits", None)
    if ask is None:
        return None
    answers = {bits: int(ask(num_parameters, bits)) for bits in dict.fromkeys(budgets)}  # equal bits are asked for once
    return [answers[bits] for bits in budgets]


def planned_symbols(system: System, num_parameters: int, grant: Grant, rate: Floats) -> Floats:
    """Return the symbols that packets will take at so many bit/symbol [r]; all that are granted if nobody knows their size."""
    if system.over_the_air:
        return np.full(len(grant.picked), grant.symbols.sum())
    bits = planned_tick_bits(system, num_parameters, grant.bits.tolist())
    return symbols_per_packet(grant.bits.tolist() if bits is None else bits, rate, grant.symbols)


def upload_times(
    grant: Grant, symbols: Floats, symbol_rate: float, num_blocks: int = 1, at_once: bool = False
) -> Floats:
    """Return how long so many symbols are on the air [r].

    A device has the share of the band that was decided, or as much of the band, or of its block, as of their symbols.
    """
    decision = grant.decision
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.ones(1) if at_once else grant.symbols / _sums_by_cell(grant)
        if decision is not None and decision.block is not None:
            own = decision.block if grant.cell is None else decision.block + num_blocks * grant.cell
            share = grant.symbols / np.bincount(own, grant.symbols)[own] / num_blocks
        if decision is not None and decision.share is not None:
            share = decision.share
        return np.where(symbols > 0, symbols / (share * symbol_rate), 0.0)


def _sums_by_cell(grant: Grant) -> Floats | float:
    """Return the symbols that are granted in the cell of each device [r]."""
    if grant.cell is None:
        return grant.symbols.sum()  # type: ignore[no-any-return]
    return np.asarray(np.bincount(grant.cell, grant.symbols)[grant.cell], np.float64)
