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
from fedtide.core import parts
from fedtide.drivers.evaluation import evaluate
from fedtide.errors import FedtideError, RunFolderError
from fedtide.flower.history import read_history
from fedtide.flower.loaders import elsewhere, loader
from fedtide.flower.recorded import Recorded
from fedtide.flower.settings import check_timeline, deployment
from fedtide.flower.trace import Period, Trace, fingerprint
from fedtide.learning import native
from fedtide.records import Ledger, RoundRecord, RunFolder, costs, machine_fault, policy_folder, round_record
from fedtide.server.state import ServerState, begin
from fedtide.server.step import step
from fedtide.system import System, build, make_trainer
from fedtide.types import Vector

CHANGEABLE = ("policy", "codec", "learning", "radio.num_symbols")
REPORTS = {"update_sq_norm": "update norms", "loss": "losses"}  # columns of a trace that a scheduler may ask for


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
    with parts.beside(policy_folder(folder)):  # where the federation's own files were
        return _replayed(folder, changes, out, threads, on_round)


def _replayed(
    folder: Path,
    changes: Mapping[str, Any] | None,
    out: Path | None,
    threads: int,
    on_round: Callable[[RoundRecord, int], None] | None,
) -> Replayed:
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
    for name, words in REPORTS.items() if faithful else ():
        needed = name in system.policy.needs
        if any((getattr(each, name) is not None) != needed for each in recorded.periods):
            raise RunFolderError(
                f"the trace and the scheduler do not agree on whether it looks at {words}; restore experiment.yaml"
            )


class _Player:
    """The loop's state."""

    def __init__(self, experiment: Experiment, recorded: Trace, threads: int, faithful: bool) -> None:
        check_timeline(experiment)
        load = loader(deployment(recorded.header.deployment).loader)
        system = build(experiment, dataset=load(experiment, None), fleet=elsewhere(experiment))
        self._system = system._replace(num_symbols=recorded.header.num_symbols) if faithful else system
        _check_fit(self._system, recorded, faithful)
        self.faithful = faithful
        self.first_difference: int | None = None
        self._trainer = make_trainer(self._system, threads)
        self._devices = Recorded(
            self._system, self._trainer, recorded.periods, lambda part: load(experiment, part).train, faithful
        )
        self._last_use = {version: each.tick for each in recorded.periods for version in each.start}
        self.state = begin(self._trainer.initial_model(experiment.seed), experiment.fleet.num_devices)
        self._models = self.state.models
        self._ledger, self._costs = Ledger(), costs(self._system, len(self.model))

    @property
    def model(self) -> Vector:
        """The newest global model [d]."""
        return self._models[self.state.version]

    def step(self, period: Period) -> RoundRecord:
        """Play one period."""
        tick = self._system.ticks[period.tick - 1]
        state, info = step(self._system.rules, self.state, tick, self._devices)
        picked = info.rows.device[info.grant.picked].tolist()
        if self.faithful and (picked != period.picked or info.grant.bits.tolist() != period.bits):
            self._differs(tick.index)
        self._keep(state)
        if self.faithful and fingerprint(self.model) != period.model:
            self._differs(tick.index)
        scores = evaluate(self._system, self._trainer, self.state, tick)
        record = round_record(info, scores, self._ledger, self._costs)
        self._ledger = record.ledger
        return record

    def _differs(self, tick: int) -> None:
        if self.first_difference is None:
            self.first_difference = tick

    def _keep(self, state: ServerState) -> None:
        """Keep the models that a later period starts from, and the newest."""
        newest = state.version
        models = {**self._models, newest: state.models[newest]}
        self._models = {v: m for v, m in models.items() if v == newest or self._last_use.get(v, 0) >= newest}
        # Who holds a model that nobody will start from any more might as well hold the newest: a folder lacks none.
        gone = np.flatnonzero(~np.isin(state.held, list(self._models)))
        self.state = state._replace(models=self._models, held=state.held.put(gone, newest))
