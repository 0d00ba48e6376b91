"""Simulated devices: they train when their update counts, and send over the channel of their tick."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedtide.aggregate.averages import streams
from fedtide.codec.base import Sent
from fedtide.core.memory_budget import require
from fedtide.engine import checks
from fedtide.engine.over_the_air import aircomp_sum
from fedtide.engine.sending import Packed, packed, received
from fedtide.engine.step import ReadyDevices, Received, ServerState, UpdateStream
from fedtide.engine.system import System
from fedtide.engine.ticks import candidates_at, carried_bits, is_lost, is_sending, learning_rates, link_at, snr_at
from fedtide.engine.training import (
    DeviceTraining,
    Stopwatch,
    acknowledged,
    refuse_dice,
    scored,
    train_jobs,
    trainer_label,
    updates_state_on_train,
)
from fedtide.learning.trainer import Trainer
from fedtide.parts import user_code
from fedtide.radio.over_the_air import separate
from fedtide.runs import trainer_name
from fedtide.types import Floats, Grant, Ints, Job, Link, Memory, Tick, Vector

_DIVERGED_WEIGHT = 1e6  # no weight of a model that learns is as large as this
# Of the updates that are there at once: numbers in all, and how many per thread at the least and at the most, so that threads
# do not wait for each other at the end of every lot.
_HELD, _FEWEST, _MOST = 1 << 24, 4, 32


class _LinkSnapshot(NamedTuple):
    """What is known of a tick's ready devices before the schedule is made."""

    link: Link  # [m]
    updates: Mapping[int, Vector]  # by device, if they had to be trained already
    devices: DeviceTraining  # what they remember then


@dataclass(frozen=True)
class Simulated:
    """Plays the devices of a system. eager: train every ready device, scheduled or not (same results, more work)."""

    system: System
    trainer: Trainer
    eager: bool = False
    watch: Stopwatch = Stopwatch()  # noqa: RUF009 - one that nobody reads
    threads: int = 1  # of the codec
    asked: list[bool] = field(default_factory=list, compare=False)  # not empty: the trainer was asked for a lot again

    def ready(self, state: ServerState, tick: Tick) -> ReadyDevices:
        """Look up who is ready and how the links are; train first what a scheduler or a trainer's memory asks for."""
        system, needs = self.system, self.system.policy.needs
        link, devices = link_at(system, tick), state.devices
        updates: dict[int, Vector] = {}
        if self.eager or "update_sq_norm" in needs or updates_state_on_train(self.trainer):
            _check_room(len(tick.ready), len(state.models[state.version]))
            updates, devices = self._train(state, tick.ready, tick.start)
            self.watch.lap("training")
        reports: dict[str, Floats] = {}
        if "update_sq_norm" in needs:
            reports["update_sq_norm"] = np.array([_sq_norm(updates[k]) for k in tick.ready.tolist()])
        if "loss" in needs:
            reports["loss"] = self._losses(state, tick)
            self.watch.lap("training")
        rows = candidates_at(system, tick, state.uploads, link.estimated_capacity, reports)
        self.watch.lap("scheduling")
        return ReadyDevices(rows, _LinkSnapshot(link, updates, devices))

    def collect(self, state: ServerState, tick: Tick, ready: ReadyDevices, grant: Grant) -> Received:
        """Train, encode, send; a packet of more bits than its link carries is lost. Or train and send at once, uncoded.

        Updates that are not needed all at once are made when they are asked for, a lot at a time.
        """
        self.watch.lap("scheduling")
        system, kept = self.system, ready.kept
        sending = is_sending(system, kept.link, grant)
        device, start = tick.ready[grant.picked[sending]], tick.start[grant.picked[sending]]
        trained = self._trained(state, tick, kept, device, start)
        if not separate(system.access):
            updates, snr = dict(trained), snr_at(kept.link, grant)[sending]
            self.watch.lap("training")
            seed, senders = system.experiment.seed, device.tolist()
            heard = aircomp_sum(system.access, seed, tick.index, senders, snr, updates, kept.devices)
            self.watch.lap("codec")
            return acknowledged(self.trainer, heard)
        sent: dict[int, Sent] = {}
        devices = dict(kept.devices)
        lots: Iterable[Packed] = self._lots(tick, grant.bits, trained, sent, kept.devices)
        lost: set[int] = set()
        if np.any(grant.bits > carried_bits(kept.link, grant)):  # then who arrives is known when all are encoded
            lots = list(lots)  # all packets together take what the tick's symbols carry, not R d numbers
            bits = [sent[k].bits for k in device.tolist()]
            lost = set(device[is_lost(kept.link, grant, bits)].tolist())
        arriving = [k for k in device.tolist() if k not in lost]
        coming = self._coming(lots, lost, devices)
        if arriving and streams(system.policy.aggregator):  # of what is all lost nobody would ask for
            return Received(sent, {}, devices, coming=UpdateStream(arriving, coming))
        updates = dict(zip(arriving, coming, strict=True))
        return Received(sent, updates, devices)

    def _trained(
        self, state: ServerState, tick: Tick, kept: _LinkSnapshot, device: Ints, start: Ints
    ) -> Iterator[tuple[int, Vector]]:
        """Train these devices a lot at a time; return each with its update, raise if one is not finite."""

        def updates() -> Iterator[Vector]:
            lot = self._lot(len(state.models[state.version]))
            for first in range(0, len(device), lot):
                some = device[first : first + lot]
                found = kept.updates or self._train(state, some, start[first : first + lot])[0]
                yield from (found[k] for k in some.tolist())

        found = checks.checked_finite(device, updates(), tick.index, lambda: _culprit(self.system, self.trainer, state))
        return zip(device.tolist(), found, strict=True)

    def _lots(
        self,
        tick: Tick,
        granted: Floats,
        trained: Iterator[tuple[int, Vector]],
        sent: dict[int, Sent],
        devices: DeviceTraining,
    ) -> Iterator[Packed]:
        """Return the encoded updates a lot at a time; note what is sent. devices: what they remember before."""
        codec, seed = self.system.codec, self.system.experiment.seed
        first = next(trained, None)
        while first is not None:
            begin = len(sent)
            updates = dict([first, *itertools.islice(trained, self._lot(len(first[1])) - 1)])
            self.watch.lap("training")
            bits = granted[begin : begin + len(updates)]
            lot = packed(codec, seed, tick.index, [*updates], bits, updates, devices, self.threads)
            sent.update({k: Sent(each.num_kept, each.bits, each.overhead_bits) for k, each in lot.sent.items()})
            self.watch.lap("codec")
            yield lot
            first = next(trained, None)

    def _coming(
        self, lots: Iterable[Packed], lost: set[int], devices: dict[str, Mapping[int, Memory]]
    ) -> Iterator[Vector]:
        """Return the updates [d] that arrive, as the server decodes them; note what devices remember."""
        for lot in lots:
            found = acknowledged(self.trainer, received(self.system.codec, lot, lost, devices, self.threads))
            devices.update(found.devices)
            self.watch.lap("codec")
            yield from found.updates.values()
            self.watch.lap("aggregation")

    def _lot(self, num_parameters: int) -> int:
        """Return how many updates [d] are there at once."""
        return max(_FEWEST * self.threads, min(_MOST * self.threads, _HELD // num_parameters))

    def _train(self, state: ServerState, device: Ints, start: Ints) -> tuple[dict[int, Vector], DeviceTraining]:
        """Train these devices from the versions they hold; updates by device, and what devices remember then."""
        train_set, partition = self.system.dataset.train, self.system.fleet.partition
        rates = learning_rates(self.system, start).tolist()
        jobs = [
            Job(k, version, state.models[version], rate, train_set, partition[k])
            for k, version, rate in zip(device.tolist(), start.tolist(), rates, strict=True)
        ]
        found = train_jobs(self.trainer, jobs, state.devices)
        if jobs and not self.asked:
            self.asked.append(True)
            refuse_dice(self.trainer, jobs, state.devices, found[0])
        return found

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


def _sq_norm(update: Vector) -> float:
    return float(np.square(update, dtype=np.float64).sum())


def _culprit(system: System, trainer: Trainer, state: ServerState) -> str:
    """Say what most likely made the training diverge, and what to do."""
    learning = system.experiment.learning
    largest = max(float(np.abs(model).max()) for model in state.models.values())
    for kind, policy in (("aggregator", system.policy.aggregator), ("codec", system.codec)):
        if largest > _DIVERGED_WEIGHT and not user_code.is_ours(policy):
            return (
                f"the global model holds values up to {largest:.3g}; look at {user_code.part_label(kind, policy)}, "
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
