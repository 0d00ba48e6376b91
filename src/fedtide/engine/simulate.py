"""The simulator: the paper's list of steps on a virtual clock. The mathematics lives in the parts it calls."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedtide.aggregate.base import as_aggregator
from fedtide.aggregate.hierarchical import edge_servers, idle_edges_warning
from fedtide.config import Experiment
from fedtide.config.workload import LARGE_FLEET_DEVICES
from fedtide.engine.devices import Simulated
from fedtide.engine.loop import (
    Loop,
    Sink,
    Stopwatch,
    evaluation_is_due,
    loop_sink,
    progress_of,
    run_has_ended,
    trainer_label,
)
from fedtide.engine.making import load_dataset
from fedtide.engine.preflight import (
    Answered,
    preflight_answers,
    preflight_experiment,
    preflight_folder,
    preflight_handed_parts,
    preflight_memory,
    preflight_own_parts,
    preflight_trainer,
)
from fedtide.engine.reaction import Reaction
from fedtide.engine.step import ServerState, initial_state, spread_over_edges, step_candidates
from fedtide.engine.system import System, build, make_trainer
from fedtide.errors import DivergedError, FedtideError, RunFolderError, TrainingError
from fedtide.learning.trainer import MOST_THREADS, Trainer
from fedtide.parts.checks import answer_as_array, checked_callback, checked_vector, unguarded_part
from fedtide.runs import Ledger, RoundRecord, RunFolder, RunHeader, is_complete, run_identity
from fedtide.runs.record import Scores, record_costs
from fedtide.runs.result import Result
from fedtide.timeline.clock import ticks_since
from fedtide.trackers import Trackers
from fedtide.types import Dataset, Tick, Vector


def simulate(
    experiment: Experiment | Mapping[str, Any] | Path | str,
    folder: Path | str | RunHeader | None = None,
    *,
    threads: int = os.cpu_count() or 1,
    eager: bool = False,
    on_round: Callable[[RoundRecord, int], None] | None = None,
    say: Callable[[str], None] | None = None,
    system: System | None = None,
    dataset: Dataset | None = None,
    trainer: Trainer | None = None,
    tracker: Sequence[Any] = (),
    warn: Callable[[str], None] | None = None,
) -> Result:
    """Run an experiment and return its result.

    If the folder has an interrupted run of this experiment, it continues; a complete run is only read. Of the arguments below,
    only `experiment`, `dataset`, `system` and `trainer` affect the result.

    experiment: an Experiment, or a file or mapping to build one from.
    folder: the run folder, as a path or a header from `fedtide.runs.read_run_header`; None stores nothing.
    threads: number of devices trained in parallel; by default one per core.
    eager: train every ready device, picked or not (same result, more work).
    on_round: a function that is called after every aggregation with its record and the total number of aggregations.
    say: a function that is called with a line of text about each download.
    system: the result of `build` for this experiment, to share it between runs.
    dataset: a data set to use instead of the one that the experiment names.
    trainer: the result of `make_trainer` for the system.
    tracker: additional trackers.
    warn: a function that is called with a message if a tracker fails.

    Returns: The result, with one record per aggregation and the final model.

    Raises: FedtideError if the experiment is invalid, its data is not available, training fails, or the folder belongs to another
    experiment, data set, system or trainer. Its `exit_code` tells which.

    >>> import fedtide
    >>> small = {"data.name": "synthetic", "learning.model": "softmax", "timeline.horizon": 0.5}
    >>> result = fedtide.simulate({**small, "data.num_train": 400, "data.num_test": 100})
    >>> len(result.rounds), result.complete
    (2, True)
    """
    watch = Stopwatch()
    experiment = preflight_experiment(experiment)
    if isinstance(threads, bool) or not isinstance(threads, int | np.integer) or threads < 1:
        raise FedtideError(f"threads={threads!r} must be a whole number of at least 1")
    if on_round is not None and not callable(on_round):
        raise FedtideError(f"on_round={on_round!r} cannot be called: give a function of a record and a number")
    on_round, say = checked_callback("on_round", on_round), checked_callback("say", say)
    handed = preflight_handed_parts(experiment, dataset, system, trainer)
    where = preflight_folder(folder)
    watching = Trackers([*(part.entry for part in experiment.tracker), *tracker], warn or _warned)
    if system is None:
        dataset = dataset or (load_dataset(experiment, say) if say else load_dataset(experiment))
        watch.lap("data")
        system = build(experiment, dataset=dataset)
    # Views of this run's own: a trainer that is used for several runs reads the data anew, which may have changed.
    policy = system.policy._replace(
        aggregator=as_aggregator(system.policy.aggregator)
    )  # a caller's own may be a plain function
    system = system._replace(dataset=system.dataset.lent(), policy=policy, edges=edge_servers(policy.aggregator))
    trainer = trainer or make_trainer(system, threads)
    preflight_trainer(trainer, system)
    first = _first_model(trainer, experiment)
    preflight_memory(system, trainer, first)
    watch.lap("set-up")
    preflight_own_parts(system, len(first))
    run = None
    if where is not None:
        run = RunFolder.open(where, experiment, run_identity(system, trainer), handed)
    try:
        saved = run.load() if run else None
        if saved and run:
            state, ledger, rounds = saved
            if system.world is None and not run_has_ended(system, rounds):
                _check_complete(run, state, len(system.ticks))
            if not is_complete(run.path):
                preflight_answers(run.path, system, _answered(system, rounds))
        else:
            state, ledger, rounds = initial_state(first, system.fleet.num_devices), Ledger(), []
            if system.edges is not None:
                state = spread_over_edges(state, system.edges, system.fleet.num_samples)
        watch.lap("records" if run else "set-up")
        reaction, ticks = None, ticks_since(system.ticks, state.version)
        if system.world is not None:
            reaction = Reaction(system, len(first))
            last = rounds[-1] if rounds else None
            scores = Scores(last.test_accuracy, last.test_loss, last.train_loss) if last else Scores()
            state = reaction.resume(state, rounds, progress_of(scores, last.metrics if last else {}))
            system, ticks = system._replace(model_timestamps=reaction.times), reaction.ticks()
        if run_has_ended(system, rounds):
            ticks = iter(())
        devices = Simulated(system, trainer, eager, watch, min(threads, MOST_THREADS))
        spend = record_costs(system, len(first))
        names_ready = system.fleet.num_devices <= LARGE_FLEET_DEVICES
        watching.begin(experiment, run.path if run else None, len(system.ticks))
        sinks: list[tuple[str, Sink]] = []
        if run:
            sinks.append(("records", run.append))
        if watching:
            sinks.append(("other", lambda record, *_: watching.round(record)))
        if on_round:
            sinks.append(("other", loop_sink(on_round, len(system.ticks))))
        loop = Loop(system, trainer, devices, spend, state, ledger, rounds, sinks, names_ready, watch)
        devices.refuse_dice(
            state,
            next(iter(ticks_since(system.ticks, state.version)), None) if reaction is None else _first_jobs(state),
        )
        try:
            model = loop.run(ticks, reaction)
        except DivergedError as error:
            rest = ticks_since(system.ticks, loop.state.version)
            left = [
                (each.index, each.time)
                for each in rest
                if each.index == loop.state.version or evaluation_is_due(system, each.index, each.time)
            ]
            if reaction is not None:  # nobody knows when it would have acted: now, and at the end
                now, index = reaction.world.time, loop.state.version
                left = [(index, now), (index + 1, max(now, experiment.timeline.horizon))]
            error.so_far = rounds, len(first), left
            raise
        if run:
            run.checkpoint()
            run.finish(model)
        watch.lap("records" if run else "other")
        result = Result(experiment, rounds, model, watch.seconds, handed=handed)
        watching.end(result)
        if system.edges is not None and (idle := idle_edges_warning(loop.state.memory["edges"]["uploads"].tolist())):
            (warn or _warned)(idle)
        return result
    except BaseException:
        try:
            if run:  # Ctrl-C and errors leave a run that can be resumed from its last aggregation
                run.checkpoint()
        finally:
            watching.end(None)
        raise
    finally:
        if run:
            run.close()
        if "trainer" not in handed and callable(let_go := getattr(unguarded_part(trainer), "close", None)):
            let_go()  # such as the processes of a cluster


def _first_jobs(state: ServerState) -> Tick:
    """Return a tick at which the first two devices have trained from the newest model."""
    device = np.arange(min(2, len(state.held)))
    return Tick(state.version, 0.0, device, np.full_like(device, state.version), job=np.ones_like(device))


def _warned(line: str) -> None:
    warnings.warn(line, RuntimeWarning, stacklevel=3)


def _first_model(trainer: Trainer, experiment: Experiment) -> Vector:
    """Return theta(1) [d] as our own copy."""
    model, label = answer_as_array(trainer.initial_model(experiment.seed)), trainer_label(trainer)
    if model.ndim != 1 or not len(model):
        raise TrainingError(
            f"{label} began with an array of shape {model.shape}: initial_model gives a vector of float32"
        )
    return checked_vector(model, len(model), f"{label}: initial_model")


def _check_complete(run: RunFolder, state: ServerState, num_ticks: int) -> None:
    """Raise if a folder has a final model and yet rounds to go."""
    if is_complete(run.path) and state.version - 1 != num_ticks:
        raise RunFolderError(
            f"{run.path} holds a final model after {state.version - 1} of {num_ticks} aggregations, which is not one; "
            f"remove {run.path / 'model.npy'} and resume the run"
        )


def _answered(system: System, rounds: Sequence[RoundRecord]) -> Iterator[Answered]:
    """Return what the policies of a run saw and answered so far; update norms are not on record."""
    uploads = np.zeros(system.fleet.num_devices, np.int64)
    for record, tick in zip(rounds, system.ticks, strict=False):
        weight = dict(zip(record.picked, record.weight, strict=True))
        came = zip(record.picked, record.num_kept, strict=True)
        # of those that send at once, the weak stay silent: they keep nothing
        arrived = [device for device, kept in came if device not in record.lost and (kept or not system.over_the_air)]
        rows = step_candidates(system, tick, uploads)
        yield Answered(rows, record.picked, arrived, [weight[device] for device in arrived])
        uploads[arrived] += 1
