"""The server of a real federation: the simulator's loop with nodes as its devices, begun or continued."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import numpy as np

from fedtide import config
from fedtide.core.files import write_atomically
from fedtide.deploy import trace
from fedtide.deploy.conversation import Conversation
from fedtide.deploy.devices import RealDevices
from fedtide.deploy.mailbox import Mailbox
from fedtide.deploy.node import deployed_system, node_loader
from fedtide.deploy.saver import Saver
from fedtide.deploy.settings import Terms, check_release, check_terms, deployment
from fedtide.deploy.trace import TraceHeader
from fedtide.engine.loop import Loop, run_has_ended
from fedtide.engine.preflight import preflight_answers, preflight_own_parts
from fedtide.engine.step import Info, ServerState, detached_state, initial_state
from fedtide.engine.system import make_trainer, parameter_count
from fedtide.errors import FedtideError, RunFolderError
from fedtide.learning import native
from fedtide.learning.trainer import Trainer
from fedtide.runs import Ledger, RoundRecord, RunFolder, is_complete
from fedtide.runs.record import record_costs
from fedtide.runs.result import Result
from fedtide.trackers import Trackers
from fedtide.types import Dataset, Tick, Vector

_log = logging.getLogger("fedtide.deploy")

_LAST_PATIENCE: Final = 60  # seconds for which the end of a run waits for a disk that is full


class Coordinator:
    """Runs one federation to its end, from wherever its run folder stopped.

    clock returns seconds, sleep waits for some; tests give virtual ones. mailbox is Flower's grid. Periods are saved the way
    in which its requests are done. own: the data to score on and what gives and scores models, where a Flower app brings its
    own (`strategy.py`).
    """

    def __init__(
        self,
        mailbox: Mailbox,
        terms: Terms,
        folder: Path,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        on_round: Callable[[RoundRecord], None] | None = None,
        own: tuple[Dataset, Trainer] | None = None,
    ) -> None:
        check_terms(terms)
        self._terms, self._folder, self._on_round, self._sleep = terms, folder, on_round, sleep
        dataset = own[0] if own else node_loader(terms.deployment.loader)(terms.experiment, None)
        self._system = deployed_system(terms.experiment, dataset)
        self._trainer = own[1] if own else make_trainer(self._system)  # for the first model and the scores
        count = own and len(self._trainer.initial_model(terms.experiment.seed))
        num_parameters = count or parameter_count(self._system, self._trainer)
        preflight_own_parts(self._system, num_parameters)
        self._talk = Conversation(mailbox, terms, self._system.codec, num_parameters, dataset.num_labels, clock)
        self._saver = Saver(mailbox.run)
        self._devices = RealDevices(self._talk, terms, self._system, self._saver, sleep)

    def run(self) -> Vector:
        """Run all periods that are left and return the final model."""
        experiment, ticks = self._terms.experiment, self._system.ticks
        folder = RunFolder.open(self._folder, experiment)
        watching = Trackers([part.entry for part in experiment.tracker], _log.warning)
        try:
            state, ledger, rounds, writer = self._load(folder)
            spend = record_costs(self._system, len(state.models[state.version]))
            watching.begin(experiment, self._folder, len(ticks))

            def save(record: RoundRecord, state: ServerState, info: Info) -> None:
                period = self._devices.trace_line(state, info)
                self._talk.close_period(period)
                saved = detached_state(state)  # another thread reads it while the loop goes on

                def save_period() -> None:
                    writer.append(period)
                    folder.append(record, saved)
                    folder.checkpoint()

                self._saver.add(save_period)
                watching.round(record)
                if self._on_round:
                    self._on_round(record)

            left: Iterable[Tick] = ticks[state.version - 1 :]
            if self._system.world is not None:
                nobody = np.zeros(0, np.int64)
                left = (Tick(index, 0.0, nobody, nobody) for index in itertools.count(state.version))
            if is_complete(self._folder) or run_has_ended(self._system, rounds):
                left = ()
            if left:
                self._devices.wait_for_nodes()
            sinks = [("records", save)]
            loop = Loop(self._system, self._trainer, self._devices, spend, state, ledger, rounds, sinks)
            try:
                model = loop.run(left, self._devices if self._system.world is not None else None)
            except Exception:
                with contextlib.suppress(FedtideError):  # what went wrong before is told
                    self._saver.finish(self._sleep, 0)
                raise
            self._saver.finish(self._sleep, _LAST_PATIENCE)
            folder.finish(model)
            watching.end(Result(experiment, rounds, model, {}))
            return model
        finally:
            watching.end(None)
            folder.close()

    def _load(self, folder: RunFolder) -> tuple[ServerState, Ledger, list[RoundRecord], trace.Writer]:
        """Return the state to go on from; nothing of an unfinished period is kept.

        Everything is checked before anything is cut back.
        """
        experiment, settings = self._terms.experiment, self._terms.deployment.model_dump(mode="json")
        place, saved, before = self._folder, folder.load(), None
        if not is_complete(place):
            check_release(getattr(folder.header.versions, "fedtide", None), f"{place} was begun with")
        if (place / trace.NAME).exists():
            before = trace.read_trace_history(place)
            count = len(before.trace.periods)
            if count and deployment(before.trace.header.deployment) != self._terms.deployment:
                raise RunFolderError(f"{place} was begun with other deployment settings; restore them or start anew")
            if count > 1 and saved is None:
                raise RunFolderError(
                    f"{place} has {count} periods in {trace.NAME} but no checkpoint.npz to go on from; restore it or start in "
                    "a new folder"
                )
            if not is_complete(place):
                preflight_answers(place, self._system, trace.traced_answers(self._system, before), "in period")
        elif saved is not None:
            raise RunFolderError(
                f"{place} holds a run but no {trace.NAME}: it is a simulation's, or its trace was lost; choose another folder "
                "or restore the trace"
            )
        if saved is None or before is None:
            num_devices = experiment.fleet.num_devices
            header = TraceHeader(
                num_devices=num_devices,
                num_symbols=self._system.num_symbols,
                isa=native.native_isa(),
                deployment=settings,
                experiment=config.digest(experiment),
            )
            writer = trace.write_trace(place, trace.Trace(header, []))
            write_atomically(place / "deployment.json", self._terms.deployment.model_dump_json(indent=2).encode())
            return initial_state(self._trainer.initial_model(experiment.seed), num_devices), Ledger(), [], writer
        state, ledger, rounds = saved
        periods = before.trace.periods[: state.version - 1]
        self._talk.restore(periods)
        self._devices.resume(state, rounds, periods)
        _log.info("continuing at period %d", state.version)
        return state, ledger, rounds, trace.write_trace(place, before.trace._replace(periods=periods))
