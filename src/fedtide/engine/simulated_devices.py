"""Simulated devices: they train when their update counts, and send over the channel of their tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedtide import testing
from fedtide.codec.base import Packet, Sent
from fedtide.core.memory_budget import require
from fedtide.engine.over_the_air import aircomp_sum, analog_packets
from fedtide.engine.sending import Packed, decode_lot, encode_lot, without
from fedtide.engine.step import SCALE_BITS, Announced, Delivered, ReadyDevices, ServerState
from fedtide.engine.system import System
from fedtide.engine.ticks import candidates_at, carried_bits, is_lost, is_sending, learning_rates, link_at, snr_at
from fedtide.engine.training import (
    DeviceMemory,
    Stopwatch,
    acknowledge,
    scored,
    train_jobs,
    trainer_label,
    updates_state_on_train,
)
from fedtide.errors import DivergedError
from fedtide.learning.trainer import Trainer
from fedtide.parts import checks
from fedtide.radio.over_the_air import separate
from fedtide.runs import trainer_name
from fedtide.types import Floats, Grant, Ints, Job, Link, Tick, Vector

_DIVERGED_WEIGHT = 1e6  # no weight of a model that learns is as large as this
# Of the updates that are there at once: numbers in all, and how many per thread at the least and at the most, so that threads
# do not wait for each other at the end of every lot.
_HELD, _FEWEST, _MOST = 1 << 24, 4, 32


class _Known(NamedTuple):
    """What is known of a tick's ready devices before the schedule is made."""

    link: Link  # [m]
    updates: Vector | None  # if they had to be trained already [m d]
    devices: DeviceMemory  # what they remember then


class Lot(NamedTuple):
    """Devices that train and send together."""

    device: Ints  # [l]
    start: Ints  # version that each trained from [l]
    bits: Floats  # granted [l]
    updates: Vector | None = None  # if they are trained already [l d]
    packets: Packed | None = None  # of those that arrive, if they are encoded already
    rest: Sequence[Lot] = ()  # those after it


@dataclass(frozen=True)
class Simulated:
    """Plays the devices of a system. eager: train every ready device, scheduled or not (same results, more work)."""

    system: System
    trainer: Trainer
    eager: bool = False
    watch: Stopwatch = Stopwatch()  # noqa: RUF009 - one that nobody reads
    threads: int = 1  # of the codec

    def prepare(self, state: ServerState, tick: Tick) -> ServerState:
        """Let the time pass until a tick: of simulated devices nothing changes."""
        return state

    def refuse_dice(self, state: ServerState, tick: Tick | None) -> None:
        """Raise if a trainer of the user's own trains the first devices of a tick otherwise when it is asked again."""
        if tick is not None and not checks.is_ours(self.trainer):
            jobs = self._jobs(state, tick.ready[:2], tick.start[:2])
            testing.refuse_dice(self.trainer, jobs, trainer_label(self.trainer))

    def ready(self, state: ServerState, tick: Tick) -> ReadyDevices:
        """Look up who is ready and how the links are; train first what a scheduler or a trainer's memory asks for."""
        system, needs = self.system, self.system.policy.needs
        link, devices, updates = link_at(system, tick), state.devices, None
        if len(tick.ready) and (self.eager or "update_sq_norm" in needs or updates_state_on_train(self.trainer)):
            _check_room(len(tick.ready), len(state.models[state.version]))
            updates, devices = train_jobs(self.trainer, self._jobs(state, tick.ready, tick.start), devices)
            self.watch.lap("training")
        reports: dict[str, Floats] = {}
        if "update_sq_norm" in needs:
            reports["update_sq_norm"] = np.array([_sq_norm(each) for each in (() if updates is None else updates)])
        if "loss" in needs:
            reports["loss"] = self._losses(state, tick)
            self.watch.lap("training")
        rows = candidates_at(system, tick, state.uploads, link.estimated_capacity, reports)
        self.watch.lap("scheduling")
        return ReadyDevices(rows, _Known(link, updates, devices))

    def announce(self, state: ServerState, tick: Tick, ready: ReadyDevices, grant: Grant) -> Announced:
        """Divide those that send into lots. A packet of more bits than its link carries is lost.

        Where that can be, who arrives is known when all are encoded: then all packets are held, which take together what the
        tick's symbols carry, and not their updates, R d numbers.
        """
        self.watch.lap("scheduling")
        system, known = self.system, ready.kept
        sending = is_sending(system, known.link, grant)
        picked = grant.picked[sending]
        if not separate(system.access):
            lots = self._lots(tick, known, picked, grant.bits[sending], max(len(picked), 1))
            heard = aircomp_sum(system.access, system.experiment.seed, tick.index, snr_at(known.link, grant)[sending])
            return Announced(picked, lots, known.devices, {}, heard, float(SCALE_BITS * len(picked)))
        size = self._lot_size(len(state.models[state.version]))
        lots = self._lots(tick, known, picked, grant.bits, size)
        if not np.any(grant.bits > carried_bits(known.link, grant)):
            return Announced(picked, lots, known.devices)
        packed = [self._encode(state._replace(devices=known.devices), tick, lot) for lot in lots]
        sent = {k: _size(packet) for lot in packed for k, packet in lot.sent.items()}
        gone = is_lost(known.link, grant, [sent[k].bits for k in tick.ready[picked].tolist()])
        lost = set(tick.ready[picked[gone]].tolist())
        left = [lot._replace(packets=without(each, lost)) for lot, each in zip(lots, packed, strict=True)]
        return Announced(picked[~gone], [lot for lot in left if lot.packets and lot.packets.sent], known.devices, sent)

    def send(self, state: ServerState, tick: Tick, lot: Lot) -> Delivered:
        """Train, encode and decode a lot; over the air, train it."""
        updates, packets = lot.updates, lot.packets
        if updates is None and packets is None:
            updates, _ = train_jobs(self.trainer, self._jobs(state, lot.device, lot.start), state.devices)
        if updates is not None and not separate(self.system.access):
            self._check_finite(state, tick, lot, updates)
            self.watch.lap("training")
            device = lot.device.tolist()
            devices = acknowledge(self.trainer, state.devices, device, updates)
            return Delivered(updates, analog_packets(device, updates), devices)
        packets = packets or self._encode(state, tick, lot._replace(updates=updates))
        decoded, devices = decode_lot(self.system.codec, packets, state.devices, self.threads)
        devices = acknowledge(self.trainer, devices, [*packets.sent], decoded)
        self.watch.lap("codec")
        return Delivered(decoded, {k: _size(packet) for k, packet in packets.sent.items()}, devices)

    def _lots(self, tick: Tick, known: _Known, picked: Ints, bits: Floats, size: int) -> list[Lot]:
        """Divide the picked devices into lots of some size, the last one first: each knows those after it."""
        lots: list[Lot] = []
        for first in reversed(range(0, len(picked), size)):
            at = picked[first : first + size]
            updates = None if known.updates is None else known.updates[at]
            lots = [Lot(tick.ready[at], tick.start[at], bits[first : first + size], updates, None, lots), *lots]
        return lots

    def _encode(self, state: ServerState, tick: Tick, lot: Lot) -> Packed:
        """Encode the updates of a lot, which are trained first if they are not yet."""
        updates = self._updates(state, lot)
        self._check_finite(state, tick, lot, updates)
        self.watch.lap("training")
        codec, seed = self.system.codec, self.system.experiment.seed
        packed = encode_lot(
            codec, seed, tick.index, lot.device.tolist(), lot.bits, updates, state.devices, self.threads
        )
        self.watch.lap("codec")
        return packed

    def _check_finite(self, state: ServerState, tick: Tick, lot: Lot, updates: Vector) -> None:
        """Raise if an update of a lot holds NaN or infinity. The error names those of the lots after it, too."""
        if np.isfinite(updates).all():
            return
        broken = []
        for each in (lot._replace(updates=updates), *lot.rest):
            finite = np.isfinite(self._updates(state, each)).all(axis=1)
            broken += each.device[~finite].tolist()
        some = ", ".join(map(str, broken[:8])) + (f" and {len(broken) - 8} more" if len(broken) > 8 else "")
        raise DivergedError(
            f"the update of device {some} at aggregation {tick.index} is not finite: training diverged; "
            f"{_culprit(self.system, self.trainer, state)} (everything up to the previous aggregation is saved)"
        )

    def _lot_size(self, num_parameters: int) -> int:
        """Return how many updates [d] are there at once."""
        return max(_FEWEST * self.threads, min(_MOST * self.threads, _HELD // num_parameters))

    def _updates(self, state: ServerState, lot: Lot) -> Vector:
        """Return the updates of a lot [l d], which are trained first if they are not yet."""
        if lot.updates is not None:
            return lot.updates
        return train_jobs(self.trainer, self._jobs(state, lot.device, lot.start), state.devices)[0]

    def _jobs(self, state: ServerState, device: Ints, start: Ints) -> list[Job]:
        """Return the trainings of these devices from the versions they hold."""
        train_set, partition = self.system.dataset.train, self.system.fleet.partition
        rates = learning_rates(self.system, start).tolist()
        return [
            Job(k, version, state.models[version], rate, train_set, partition[k])
            for k, version, rate in zip(device.tolist(), start.tolist(), rates, strict=True)
        ]

    def _losses(self, state: ServerState, tick: Tick) -> Floats:
        """Return the loss of the model that each ready device received, on its own samples [m]."""
        train, found = self.system.dataset.train, []
        for k, version in zip(tick.ready.tolist(), tick.start.tolist(), strict=True):
            own = train.taken(self.system.fleet.partition[k])
            found.append(scored(self.trainer, state.models[version], own).loss)
        return np.array(found)


def _check_room(num_ready: int, num_parameters: int) -> None:
    """Raise if the models and updates of all ready devices do not fit into memory."""
    require(
        8.0 * num_ready * num_parameters,
        f"training all {num_ready:,} ready devices before the schedule is made, {num_parameters:,} parameters each,",
        "take a scheduler that needs no updates, a trainer without memory, fewer devices or a smaller model",
    )


def _size(packet: Packet) -> Sent:
    """Return what is recorded of a packet."""
    return Sent(packet.num_kept, packet.bits, packet.overhead_bits)


def _sq_norm(update: Vector) -> float:
    return float(np.square(update, dtype=np.float64).sum())


def _culprit(system: System, trainer: Trainer, state: ServerState) -> str:
    """Say what most likely made the training diverge, and what to do."""
    learning = system.experiment.learning
    largest = max(float(np.abs(model).max()) for model in state.models.values())
    for kind, policy in (("aggregator", system.policy.aggregator), ("codec", system.codec)):
        if largest > _DIVERGED_WEIGHT and not checks.is_ours(policy):
            return (
                f"the global model holds values up to {largest:.3g}; look at {checks.part_label(kind, policy)}, "
                "which made it"
            )
    if learning.proximal * learning.learning_rate >= 2 and learning.learning_rate <= 1:
        return (
            f"learning.proximal={learning.proximal:g} times learning.learning_rate={learning.learning_rate:g} is at least 2, "
            "with which every step overshoots more than the last; lower learning.proximal"
        )
    if trainer_name(trainer) != learning.trainer.name:
        return f"look at {trainer_label(trainer)}, or lower learning.learning_rate={learning.learning_rate:g}"
    return f"lower learning.learning_rate={learning.learning_rate:g}"
