"""A federation's trace, played again in the simulator: to the bit, or with another policy in its place.

Readiness, start versions, links and rows come from the trace; training, encoding, scheduling and aggregation are done anew.
Unchanged, every model must come out with the bits that the devices made (on the same instruction path). In a what-if a
picked device arrives unless the trace saw it fail in that very period.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtide import config
from fedtide.config import Experiment
from fedtide.core import parts as plugins
from fedtide.drivers.simulate import learning_rates
from fedtide.errors import FedtideError, RunFolderError, TrainingError
from fedtide.flower import node
from fedtide.flower.history import candidates, read_history
from fedtide.flower.journal import Aggregation, Got, round_record
from fedtide.flower.loaders import bare_system, loader
from fedtide.flower.settings import deployment
from fedtide.flower.trace import Period, Trace, fingerprint
from fedtide.learning import native
from fedtide.records import Ledger, RoundRecord, RunFolder, machine_fault
from fedtide.rng import stream
from fedtide.server.step import Arrived, ServerState, absorb, begin, checked_vector, plan
from fedtide.system import System, make_trainer
from fedtide.types import Floats, Ints, Samples, Vector

CHANGEABLE = ("policy", "codec", "learning", "radio.num_symbols")


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
    original, _, recorded = read_history(folder)
    if not recorded.periods:
        raise RunFolderError(f"{folder} has no finished period yet; there is nothing to replay")
    experiment = _changed(original, changes or {})
    player = _Player(experiment, recorded, threads, faithful=experiment == original)
    with _new_folder(out, experiment) as run:
        rounds = []
        for period in recorded.periods:
            rounds.append(player.step(period))
            if run:
                run.append(rounds[-1], player.state)
            if on_round:
                on_round(rounds[-1], len(recorded.periods))
        model = player.model
        if run:
            run.checkpoint()
            run.finish(model)
    paths = sorted({path for period in recorded.periods for path in period.isa})
    compared = len(recorded.periods) if player.faithful else 0
    return Replayed(experiment, rounds, model, compared, player.first_difference, (native.isa(), paths))


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
    with _writable(out):
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise RunFolderError(f"{out} is there already and not empty; choose a new folder with --out")
    try:
        run = RunFolder.open(aside, experiment)
        try:
            yield run
        finally:
            run.close()
        with _writable(out):
            os.replace(aside, place)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def _writable(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise machine_fault(out, "used", error) from error


def _changed(original: Experiment, changes: Mapping[str, Any]) -> Experiment:
    """Return the experiment with changes that a trace can answer."""
    for group, inner in changes.items():
        keys = [f"{group}.{key}" for key in inner] if isinstance(inner, Mapping) else [group]
        for key in keys:
            if group not in CHANGEABLE and key not in CHANGEABLE:
                raise FedtideError(
                    f"{key} is part of what happened and cannot be changed in a replay; change {', '.join(CHANGEABLE)}"
                )
    return config.experiment(config.lay(config.dump(original), changes))


def _check_fit(system: System, recorded: Trace, faithful: bool) -> None:
    """Raise if a trace has more periods than the experiment, or lacks what its scheduler looks at."""
    if len(recorded.periods) > len(system.ticks):
        raise RunFolderError(
            f"the trace has {len(recorded.periods)} periods and timeline.horizon ends after {len(system.ticks)}: "
            "it is of another experiment; restore experiment.yaml"
        )
    if faithful and any(
        (each.update_sq_norm is not None) != system.policy.needs_update_norm for each in recorded.periods
    ):
        raise RunFolderError(
            "the trace and the scheduler do not agree on whether it looks at update norms; restore experiment.yaml"
        )


class _Player:
    """The loop's state."""

    def __init__(self, experiment: Experiment, recorded: Trace, threads: int, faithful: bool) -> None:
        settings = deployment(recorded.header.deployment)
        load = loader(settings.loader)
        dataset = load(experiment, None)
        bare = bare_system(experiment, dataset.test.images.shape[1:], dataset.num_labels)
        self.faithful = faithful
        self.first_difference: int | None = None
        self._load: Callable[[int], Samples] = lambda part: load(experiment, part).train
        self._trainer = make_trainer(bare, threads)
        symbols = recorded.header.num_symbols if faithful else bare.num_symbols
        self._system: System = bare._replace(dataset=dataset, num_symbols=symbols)
        _check_fit(self._system, recorded, faithful)
        self._samples: dict[int, Samples] = {}
        model = self._trainer.initial_model(experiment.seed)
        self._models: dict[int, Vector] = {1: model}
        self._last_use = {version: each.tick for each in recorded.periods for version in each.start}
        self.state = begin(model, experiment.fleet.num_devices)
        self._ledger = Ledger()

    @property
    def model(self) -> Vector:
        """The newest global model [d]."""
        return self._models[self.state.version]

    def step(self, period: Period) -> RoundRecord:
        """Play one period."""
        tick, system = period.tick, self._system
        rows = candidates(
            period, system.fleet.num_devices, system.dataset.num_labels, self.state.uploads, self.faithful
        )
        updates: dict[int, Vector] = {}
        if system.policy.needs_update_norm and not self.faithful:
            updates = self._train(period, rows.device.tolist())
            norms = [float(np.square(updates[k], dtype=np.float64).sum()) for k in rows.device.tolist()]
            rows = rows._replace(update_sq_norm=np.array(norms))
        grant = plan(system.policy, rows, system.num_symbols, stream(system.experiment.seed, "schedule", tick))
        picked = rows.device[grant.picked].tolist()
        if self.faithful and (picked != period.picked or grant.bits.tolist() != period.bits):
            self._differs(tick)
        failed = set(period.picked) - set(period.arrived)
        came = [position for position, k in zip(grant.picked.tolist(), picked, strict=True) if k not in failed]
        device = rows.device[came]
        if not updates:
            updates = self._train(period, device.tolist())
        bits = dict(zip(picked, grant.bits.tolist(), strict=True))
        got = {k: self._sent(updates[k], bits[k], k, tick) for k in device.tolist()}
        stacked = np.array([each.update for each in got.values()], np.float32).reshape(-1, len(self.model))
        arrived = Arrived(device, tick - rows.age[came], rows.num_samples[came])
        state = self.state._replace(models=self._models)
        state, weights = absorb(state, system.policy, rows.device, arrived, stacked)
        self._keep(state)
        if self.faithful and fingerprint(self.model) != period.model:
            self._differs(tick)
        result = Aggregation(tick, rows, grant, got, dict(zip(device.tolist(), weights.tolist(), strict=True)))
        time = system.ticks[tick - 1].time
        record = round_record(system, self._trainer, self.state, self._ledger, result, time)
        self._ledger = record.ledger
        return record

    def _sent(self, update: Vector, bits: float, device: int, tick: int) -> Got:
        """Encode and decode as device and server did."""
        packet = node.encode(self._system, update, device, tick, bits)
        codec = plugins.label("codec", self._system.codec)
        return Got(packet, checked_vector(self._system.codec.decode(packet), len(update), codec), 0.0)

    def _differs(self, tick: int) -> None:
        if self.first_difference is None:
            self.first_difference = tick

    def _keep(self, state: ServerState) -> None:
        """Keep the models that a later period starts from, and the newest."""
        newest = state.version
        self._models[newest] = state.models[newest]
        self._models = {v: m for v, m in self._models.items() if v == newest or self._last_use.get(v, 0) >= newest}
        # Who holds a model that nobody will start from any more might as well hold the newest: a folder lacks none.
        held = np.where(np.isin(state.held, list(self._models)), state.held, newest)
        self.state = state._replace(models=self._models, held=held)

    def _train(self, period: Period, devices: list[int]) -> dict[int, Vector]:
        """Train these devices from the versions and with the data that the trace says; updates by device."""
        if not devices:
            return {}
        position = {device: place for place, device in enumerate(period.ready)}
        chosen = [position[device] for device in devices]
        start = np.array([period.start[place] for place in chosen], np.int64)
        rate = self._rates(period, chosen, start)
        own = [self._data(period.data[place]) for place in chosen]
        jobs = [
            node.own_job(self._models[version].copy(), *rest)
            for version, *rest in zip(start.tolist(), devices, start.tolist(), rate.tolist(), own, strict=True)
        ]
        updates = self._trainer.train(jobs)
        if not np.isfinite(updates).all():
            raise TrainingError(
                f"training diverged in period {period.tick} of the replay; lower learning.learning_rate"
            )
        return dict(zip(devices, updates, strict=True))

    def _rates(self, period: Period, chosen: list[int], start: Ints) -> Floats:
        if self.faithful:
            return np.array([period.learning_rate[place] for place in chosen])
        return learning_rates(self._system, start)

    def _data(self, part: int) -> Samples:
        if part not in self._samples:
            self._samples[part] = self._load(part)
        return self._samples[part]
