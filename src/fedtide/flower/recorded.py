"""Recorded devices: who was ready, over which link and with which data comes from a trace; the rest is done anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fedtide.drivers.evaluation import scored
from fedtide.drivers.ticks import is_sending, learning_rates, link_at, snr_at
from fedtide.drivers.training import Devices, acknowledged, goes_on, train
from fedtide.errors import TrainingError
from fedtide.flower.history import candidates
from fedtide.flower.trace import Period
from fedtide.learning.trainer import Trainer
from fedtide.server.at_once import superposed
from fedtide.server.sending import packed, received
from fedtide.server.state import ServerState
from fedtide.server.step import Ready, Received
from fedtide.system import System
from fedtide.types import Floats, Grant, Ints, Job, Samples, Tick, Vector
from fedtide.world.access import separate


@dataclass
class Recorded:
    """Plays the devices of a trace. faithful: the policy is the recorded one too, so that what was reported is taken as it is.

    In a what-if a picked device arrives unless the trace saw it fail in that very period.
    """

    system: System
    trainer: Trainer
    periods: list[Period]
    load: Callable[[int], Samples]  # the samples of a part of the data
    faithful: bool
    _samples: dict[int, Samples] = field(default_factory=dict)

    def ready(self, state: ServerState, tick: Tick) -> Ready:
        """Return the rows of the trace; train first what a scheduler or a trainer's memory asks for."""
        period, policy, dataset = self.periods[tick.index - 1], self.system.policy, self.system.dataset
        rows = candidates(period, self.system.fleet.num_devices, dataset.num_labels, state.uploads, self.faithful)
        updates: dict[int, Vector] = {}
        devices = _remembered(state, period)
        if goes_on(self.trainer) or (policy.needs_update_norm and not self.faithful):
            updates, devices = self._train(state, period, rows.device.tolist())
        if not self.faithful:
            rows = rows._replace(update_sq_norm=None, loss=None)
        if policy.needs_update_norm and not self.faithful:
            norms = [float(np.square(updates[k], dtype=np.float64).sum()) for k in rows.device.tolist()]
            rows = rows._replace(update_sq_norm=np.array(norms))
        if "loss" in policy.needs and not self.faithful:
            rows = rows._replace(loss=self._losses(state, period))
        return Ready(rows, (updates, devices))

    def collect(self, state: ServerState, tick: Tick, ready: Ready, grant: Grant) -> Received:
        """Train, encode and decode as devices and server did; who failed then fails now, and what was lost is lost."""
        period, (updates, devices) = self.periods[tick.index - 1], ready.kept
        lost = period.lost or []
        failed = set(period.picked) - set(period.arrived) - set(lost)
        link = None  # of updates that are sent at once, over a simulated radio; else what was lost is on record
        if not separate(self.system.access):
            link = link_at(self.system, tick._replace(ready=ready.rows.device))
        picked = grant.picked[is_sending(self.system, link, grant)] if link else grant.picked
        positions = [each for each in picked.tolist() if int(ready.rows.device[each]) not in failed]
        device = ready.rows.device[positions].tolist()
        if not updates:
            updates, devices = self._train(state, period, device)
        if link:
            snr = snr_at(link, grant._replace(picked=np.array(positions, np.int64)))
            heard = superposed(
                self.system.access, self.system.experiment.seed, tick.index, device, snr, updates, devices
            )
            return acknowledged(self.trainer, heard)
        granted = grant.bits[np.isin(grant.picked, positions)]
        codec = self.system.codec
        lot = packed(codec, self.system.experiment.seed, tick.index, device, granted, updates, devices)
        return acknowledged(self.trainer, received(codec, lot, lost, devices))

    def _train(self, state: ServerState, period: Period, devices: list[int]) -> tuple[dict[int, Vector], Devices]:
        """Train these devices from the versions and with the data that the trace says."""
        place = {device: each for each, device in enumerate(period.ready)}
        chosen = [place[device] for device in devices]
        start = np.array([period.start[each] for each in chosen], np.int64)
        rates = self._rates(period, chosen, start).tolist()
        jobs = []
        for device, each, version, rate in zip(devices, chosen, start.tolist(), rates, strict=True):
            samples = self._data(period.data[each])
            mine = np.arange(len(samples.labels))
            jobs.append(Job(device, version, state.models[version], rate, samples, mine))
        updates, after = train(self.trainer, jobs, _remembered(state, period))
        if not all(np.isfinite(each).all() for each in updates.values()):
            raise TrainingError(
                f"training diverged in period {period.tick} of the replay; lower learning.learning_rate"
            )
        return updates, after

    def _losses(self, state: ServerState, period: Period) -> Floats:
        rows = zip(period.start, period.data, strict=True)
        return np.array([scored(self.trainer, state.models[v], self._data(part)).loss for v, part in rows])

    def _rates(self, period: Period, chosen: list[int], start: Ints) -> Floats:
        if self.faithful:
            return np.array([period.learning_rate[each] for each in chosen])
        return learning_rates(self.system, start)

    def _data(self, part: int) -> Samples:
        if part not in self._samples:
            self._samples[part] = self.load(part)
        return self._samples[part]


def _remembered(state: ServerState, period: Period) -> Devices:
    """Return what devices remember at the beginning of a period, without what their nodes had lost by then."""
    forgot = period.forgot or {}
    return {
        kind: {device: each for device, each in rows.items() if device not in forgot.get(kind, ())}
        for kind, rows in state.devices.items()
    }
