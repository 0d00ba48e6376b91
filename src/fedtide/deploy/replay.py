"""A federation's trace, replayed in the simulator: to the bit, or with another policy in its place.

Who was ready, from which version, over which link and with which data comes from the trace; training, encoding, scheduling
and aggregation are done anew. Unchanged, every model must come out with the bits that the devices made (on the same
instruction path). In a what-if a picked device arrives unless the trace saw it fail in that very period.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtide import config
from fedtide.codec.baselines import is_secret
from fedtide.config import Experiment
from fedtide.core.faults import fault_text
from fedtide.core.files import file_is_there
from fedtide.deploy.node import deployed_system, node_loader
from fedtide.deploy.settings import check_deployment_timeline, deployment
from fedtide.deploy.trace import (
    NAME,
    Period,
    read_trace_history,
    trace_fingerprint,
    traced_candidates,
    traced_links,
    traced_tick,
)
from fedtide.engine.devices import (
    DeviceMemory,
    Packed,
    acknowledge_devices,
    aircomp_sum,
    analog_packets,
    decode_lot,
    encode_lot,
    lot_without_lost,
    train_jobs,
    updates_state_on_train,
)
from fedtide.engine.exchange import Announced, Delivered, ReadyDevices
from fedtide.engine.loop import Loop, Sink, score_model
from fedtide.engine.step import (
    SCALE_BITS,
    Info,
    ServerState,
    initial_state,
    sending_in_step,
    step_learning_rates,
    step_links,
    step_snr,
)
from fedtide.engine.system import System, make_trainer
from fedtide.errors import FedtideError, RunFolderError, TrainingError
from fedtide.learning import native
from fedtide.learning.trainer import Trainer
from fedtide.parts import user_code
from fedtide.radio.over_the_air import is_not_over_the_air
from fedtide.runs import RoundRecord, RunFolder
from fedtide.runs.record import record_costs
from fedtide.timeline.clock import RecordedTimes
from fedtide.types import Grant, Job, Samples, Tick, Vector

_CHANGEABLE = ("policy", "codec", "learning", "radio.num_symbols")


@dataclass
class RecordedDevices:
    """The devices of a trace. faithful: the policy is the recorded one, too, so that what was reported is taken as it is."""

    system: System
    trainer: Trainer
    periods: list[Period]
    samples: Callable[[int], Samples]  # of a part of the data
    faithful: bool
    capacity: str = ""  # the deployment's setting of this name
    _models: dict[int, Vector] = field(default_factory=dict)  # by version, those that a later period starts from
    _kept: dict[int, Vector] = field(default_factory=dict)  # by device, updates that were made before the schedule

    def __post_init__(self) -> None:
        """Note when each model is last trained from."""
        self._last_use = {version: period.tick for period in self.periods for version in period.start}
        self._trained = np.zeros(self.system.fleet.num_devices, np.int64)  # last version that each was ready with

    def prepare(self, state: ServerState, tick: Tick) -> ServerState:
        """Keep the models that a later period starts from, and the newest."""
        newest = state.version
        self._models[newest] = state.models[newest]
        self._models = {v: m for v, m in self._models.items() if v == newest or self._last_use.get(v, 0) >= newest}
        # Who holds a model that nobody will start from any more might as well hold the newest: a folder lacks none.
        gone = np.flatnonzero(~np.isin(state.held, list(self._models)))
        return state._replace(models=self._models, held=state.held.put(gone, newest))

    def ready(self, state: ServerState, tick: Tick) -> ReadyDevices:
        """Return the rows of the trace; train first what a scheduler or a trainer's memory asks for."""
        period, needs, faithful = self.periods[tick.index - 1], self.system.policy.needs, self.faithful
        link = traced_links(period, self.system, self.capacity)
        rows = traced_candidates(period, self.system, state.uploads, link, faithful)
        updates, memory = np.empty((0, 0), np.float32), _remembered(state, period)
        wants_norms = "update_sq_norm" in needs and not faithful
        self._fresh = tick.start > self._trained[tick.ready]
        self._trained[tick.ready] = tick.start
        if trained := updates_state_on_train(self.trainer) or wants_norms:
            new = tick.ready[self._fresh].tolist()
            updates, memory = self._train(state, period, new)
            self._kept |= dict(zip(new, updates, strict=True))
            updates = np.array([self._kept[device] for device in period.ready])
        if wants_norms:
            norms = [float(np.square(update, dtype=np.float64).sum()) for update in updates]
            rows = rows._replace(update_sq_norm=np.array(norms))
        if "loss" in needs and not faithful:
            starts = zip(period.start, period.data, strict=True)
            losses = [score_model(self.trainer, state.models[start], self.samples(part)).loss for start, part in starts]
            rows = rows._replace(loss=np.array(losses))
        return ReadyDevices(rows, None, (updates if trained else None, memory))

    def announce(self, state: ServerState, tick: Tick, ready: ReadyDevices, grant: Grant) -> Announced:
        """Train and encode as devices did; who failed then fails now, and what was lost is lost."""
        period, (updates, memory) = self.periods[tick.index - 1], ready.kept
        lost, access, seed = period.lost or [], self.system.access, self.system.experiment.seed
        failed = {*period.picked} - {*period.arrived} - {*lost}
        link = None  # of updates that are sent at once, over a simulated radio; else what was lost is on record
        if not is_not_over_the_air(access):
            link = step_links(self.system, tick)
        picked = grant.picked
        if link:
            picked = picked[sending_in_step(self.system, link, grant)]
        elif grant.silent is not None and not self.faithful:  # whom another policy picked in outage
            picked = picked[~grant.silent]
        picked = picked[~np.isin(ready.rows.device[picked], list(failed))]
        device = ready.rows.device[picked].tolist()
        if updates is None:
            updates, memory = self._train(state, period, device)
        else:
            updates = updates[picked]
        if link:
            heard = aircomp_sum(access, seed, tick.index, step_snr(link, grant._replace(picked=picked)))
            sent = analog_packets(device, updates)
            return Announced(picked, [(device, updates)], memory, sent, heard, float(SCALE_BITS * len(sent)))
        granted = grant.bits[np.isin(grant.picked, picked)]
        lot = encode_lot(self.system.codec, seed, tick.index, device, granted, updates, memory)
        return Announced(picked[~np.isin(device, lost)], [lot_without_lost(lot, lost)], memory, lot.sent)

    def send(self, state: ServerState, tick: Tick, lot: Any) -> Delivered:
        """Decode as the server did."""
        if isinstance(lot, Packed):
            updates, memory = decode_lot(self.system.codec, lot, state.devices)
            return Delivered(updates, {}, acknowledge_devices(self.trainer, memory, [*lot.sent], updates))
        return Delivered(lot[1], {}, acknowledge_devices(self.trainer, state.devices, *lot))

    def held(self, state: ServerState) -> ServerState:
        """Return the state as it is."""
        return state

    def settle(self, state: ServerState, info: Info) -> tuple[ServerState, Info]:
        """Return when the model was there, and what was handed out by then."""
        period, times = self.periods[info.tick.index - 1], self.system.model_timestamps
        if period.done is None or not isinstance(times, RecordedTimes):
            raise ValueError("it does not say when its model arrived")
        times.append(period.done)
        tick = info.tick._replace(fresh=self._fresh, num_receivers=period.receivers)
        return state, info._replace(tick=tick, done=period.done)

    def told(self, progress: Mapping[str, float]) -> None:
        """Do nothing: when the server acted is on record."""

    def _train(self, state: ServerState, period: Period, devices: list[int]) -> tuple[Vector, DeviceMemory]:
        """Train these devices from the versions and with the data that the trace says."""
        if not devices:
            return np.empty((0, 0), np.float32), _remembered(state, period)
        place = {device: row for row, device in enumerate(period.ready)}
        rows = [place[device] for device in devices]
        start = [period.start[row] for row in rows]
        told = [period.learning_rate[row] for row in rows]
        rates = told if self.faithful else step_learning_rates(self.system, np.array(start, np.int64)).tolist()
        jobs = []
        for device, row, version, rate in zip(devices, rows, start, rates, strict=True):
            samples = self.samples(period.data[row])
            jobs.append(Job(device, version, state.models[version], rate, samples, np.arange(len(samples.labels))))
        updates, after = train_jobs(self.trainer, jobs, _remembered(state, period))
        if not np.isfinite(updates).all():
            raise TrainingError(
                f"training diverged in period {period.tick} of the replay; lower learning.learning_rate"
            )
        return updates, after


def _remembered(state: ServerState, period: Period) -> DeviceMemory:
    """Return what devices remember at the beginning of a period, without what their nodes had lost by then."""
    forgot: dict[Any, list[int]] = dict(period.forgot or {})
    return {
        kind: {device: memory for device, memory in rows.items() if device not in forgot.get(kind, ())}
        for kind, rows in state.devices.items()
    }


class Replayed(NamedTuple):
    """What came out."""

    experiment: Experiment
    rounds: list[RoundRecord]
    model: Vector
    compared: int  # periods whose model was compared with the recorded one
    first_difference: int | None  # the first period whose model or schedule differs from the recorded one
    isa: tuple[str, list[str]]  # the path here, and those that the devices used


def replay(
    folder: Path,
    changes: Mapping[str, Any] | None = None,
    out: Path | None = None,
    threads: int = 1,
    on_round: Callable[[RoundRecord, int], None] | None = None,
) -> Replayed:
    """Play the trace of a run folder. changes: keys of the experiment that differ; out: a folder for the new rounds."""
    original, _, recorded, user_folder = read_trace_history(folder)
    periods = recorded.periods
    if not periods:
        raise RunFolderError(f"{folder} has no finished period yet; there is nothing to replay")
    with user_code.search_user_folder(user_folder):
        experiment = _changed(original, changes or {})
        faithful = experiment == original
        check_deployment_timeline(experiment)
        settings = deployment(recorded.header.deployment)
        load = node_loader(settings.loader)
        system = deployed_system(experiment, load(experiment, None))
        if faithful and is_secret(system.codec):
            raise FedtideError(
                f"codec.name={experiment.codec.name}: only the nodes of {folder} know the noise in their updates; replay it with "
                "another codec, or simulate it with `fedtide run`, whose noise comes from the seed"
            )
        system = system._replace(num_symbols=recorded.header.num_symbols) if faithful else system
        trainer = make_trainer(system, threads)
        samples = functools.cache(lambda part: load(experiment, part).train)
        devices = RecordedDevices(system, trainer, periods, samples, faithful, settings.capacity)
        state = initial_state(trainer.initial_model(experiment.seed), experiment.fleet.num_devices)
        differs: list[int] = []  # periods whose model or schedule differs from the recorded one

        def compare(record: RoundRecord, state: ServerState, info: Info) -> None:
            period = periods[record.index - 1]
            same_plan = record.picked == period.picked and info.grant.bits.tolist() == period.bits
            if faithful and not (same_plan and trace_fingerprint(state.models[state.version]) == period.model):
                differs.append(record.index)

        with _new_folder(out, experiment) as run:
            sinks: list[tuple[str, Sink]] = [("other", compare)]
            if run:
                sinks.append(("records", run.append))
            if on_round:
                sinks.append(("other", lambda record, *_: on_round(record, len(periods))))
            loop = Loop(system, trainer, devices, record_costs(system, len(state.models[1])), state, sinks=sinks)
            try:
                ticks = (traced_tick(period, system) for period in periods)
                model = loop.run(ticks, devices if system.world is not None else None)
            except (IndexError, KeyError, ValueError) as error:  # sealed, and yet it cannot have happened
                problem = f"{folder / NAME} cannot be played in period {state.version + len(loop.rounds)}"
                raise RunFolderError(f"{problem} ({fault_text(error)}); restore it from a copy") from error
            if run:
                run.checkpoint()
                run.finish(model)
    paths = sorted({path for period in periods for path in period.isa})
    compared, first = len(periods) if faithful else 0, differs[0] if differs else None
    return Replayed(experiment, loop.rounds, model, compared, first, (native.native_isa(), paths))


@contextlib.contextmanager
def _new_folder(out: Path | None, experiment: Experiment) -> Iterator[RunFolder | None]:
    """Give a run folder that comes to be when all is done.

    Half a replay must not lie about: a resume would go on with the simulator's devices in place of the trace's.
    """
    if out is None:
        yield None
        return
    place = out.resolve()
    aside = place.with_name(f".{place.name}.{os.getpid()}.part")
    if file_is_there(place) and (not place.is_dir() or any(place.iterdir())):
        raise RunFolderError(f"{out} is there already and not empty; choose a new folder with --out")
    try:
        with contextlib.closing(RunFolder.open(aside, experiment)) as run:
            yield run
        os.replace(aside, place)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _changed(original: Experiment, changes: Mapping[str, Any]) -> Experiment:
    """Return the experiment with changes that a trace can answer."""
    for group, inner in changes.items():
        keys = [f"{group}.{key}" for key in inner] if isinstance(inner, Mapping) else [group]
        for key in keys:
            if group not in _CHANGEABLE and key not in _CHANGEABLE:
                raise FedtideError(
                    f"{key} is part of what happened and cannot be changed in a replay; change {', '.join(_CHANGEABLE)}"
                )
    return config.experiment(config.merge_nested(config.dump(original), changes))
