"""The simulator: the paper's list of steps on a virtual clock. The mathematics lives in the parts it calls."""

from __future__ import annotations

import math
import time as wall
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtide.codec.base import Packet, checked_packet, most_bits
from fedtide.config import Experiment
from fedtide.core import parts as plugins
from fedtide.core.ram import need
from fedtide.drivers.again import Answered, check_answers
from fedtide.drivers.handed import check_arguments, check_handed, check_trainer, checked_folder
from fedtide.drivers.witness import Witness
from fedtide.errors import RunFolderError, TrainingError
from fedtide.learning.schedule import SCHEDULES
from fedtide.learning.trainer import Score, Trainer, make_jobs
from fedtide.policy.candidates import candidates
from fedtide.policy.label_variance import label_variance
from fedtide.records import Ledger, RoundRecord, RunFolder, identity, is_complete, trainer_name
from fedtide.rng import stream
from fedtide.server.step import Arrived, ServerState, absorb, begin, check_finite, checked_vector, plan
from fedtide.system import System, build, load_dataset, make_trainer
from fedtide.types import Candidates, Dataset, Floats, Grant, Ints, Samples, Tick, Vector, lent
from fedtide.world.channel import capacity, power_gain

LARGE = 1e6  # no weight of a model that learns is as large as this


class Planned(NamedTuple):
    """One tick as the radio and the scheduler make it; grant is None while a scheduler waits for update norms."""

    tick: Tick
    candidates: Candidates
    grant: Grant | None


class Result(NamedTuple):
    """A finished run."""

    experiment: Experiment
    rounds: list[RoundRecord]
    model: Vector
    seconds: dict[str, float]  # wall time by stage of this session


def candidates_at(system: System, tick: Tick, uploads: Ints) -> Candidates:
    """Return the ready devices of a tick over this tick's channel."""
    experiment, fleet = system.experiment, system.fleet
    gain = power_gain(experiment.seed, tick.index, fleet.num_devices)
    scale = np.asarray(experiment.radio.large_scale, np.float64)
    return candidates(fleet, tick, capacity(gain, experiment.radio.snr_db, scale), uploads)


def grant_at(system: System, tick: Tick, rows: Candidates) -> Grant:
    """Schedule one tick and share its symbols."""
    return plan(system.policy, rows, system.num_symbols, stream(system.experiment.seed, "schedule", tick.index))


def planned(system: System) -> Iterator[Planned]:
    """Plan every tick without training: readiness, ages and channels never depend on the model."""
    uploads = np.zeros(system.fleet.num_devices, np.int64)
    for tick in system.ticks:
        rows = candidates_at(system, tick, uploads)
        if system.policy.needs_update_norm:
            yield Planned(tick, rows, None)
            continue
        grant = grant_at(system, tick, rows)
        uploads[rows.device[grant.picked]] += 1
        yield Planned(tick, rows, grant)


def learning_rates(system: System, start: Ints) -> Floats:
    """Return the learning rate of jobs that start from these versions [r]: set when the device receives the model."""
    experiment = system.experiment
    elapsed = system.born[start] / experiment.timeline.horizon
    return experiment.learning.learning_rate * SCHEDULES[experiment.learning.schedule](elapsed)


class Stopwatch:
    """Wall time by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = wall.perf_counter()

    def lap(self, stage: str) -> None:
        """Charge the time since the last lap to a stage."""
        now = wall.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


def simulate(
    experiment: Experiment,
    folder: Path | str | None = None,
    *,
    threads: int = 1,
    eager: bool = False,
    on_round: Callable[[RoundRecord, int], None] | None = None,
    say: Callable[[str], None] | None = None,
    system: System | None = None,
    dataset: Dataset | None = None,
    trainer: Trainer | None = None,
) -> Result:
    """Run an experiment and return its rounds and final model.

    folder: where to keep the run; if it holds a part of this run already, that is continued. threads: jobs trained at a
    time. eager: train every ready device, scheduled or not (same results, more work). on_round is called with every record
    and the number of ticks in all, say with what is fetched. None of these changes a bit of the result. system: what `build`
    made of this very experiment, dataset: its data, trainer: what `make_trainer` made of the system; to use them for several
    runs. What is handed over belongs to the run: a folder that was begun with something else is refused.
    """
    watch = Stopwatch()
    check_arguments(experiment, threads, on_round)
    handed = check_handed(experiment, dataset, system, trainer)
    where = checked_folder(folder)
    if system is None:
        dataset = dataset or (load_dataset(experiment, say) if say else load_dataset(experiment))
        watch.lap("data")
        system = build(experiment, dataset=dataset)
    _check_work(system)
    trainer = trainer or make_trainer(system, threads)
    check_trainer(trainer, system)
    watch.lap("set-up")
    run, witness = None, None
    if where is not None:
        witness = Witness(system)
        run = RunFolder.open(where, experiment, identity(system, trainer), handed)
        run.keeps_state = witness.keeps_state
        system = witness.system
    try:
        saved = run.load() if run else None
        if saved and run and witness:
            state, ledger, rounds = saved
            _check_complete(run, state, len(system.ticks))
            if not is_complete(run.path):
                check_answers(run.path, witness, _answered(system, rounds))
        else:
            state, ledger, rounds = begin(_first_model(trainer, experiment), system.fleet.num_devices), Ledger(), []
        watch.lap("records" if run else "set-up")
        for tick in system.ticks[state.version - 1 :]:
            state, record = _step(system, trainer, state, ledger, tick, eager, watch)
            ledger = record.ledger
            rounds.append(record)
            if run:
                run.append(record, state)
                watch.lap("records")
            if on_round:
                on_round(record, len(system.ticks))
                watch.lap("other")
        model = state.models[state.version]
        if run:
            run.checkpoint()
            run.finish(model)
    except BaseException:
        if run:  # Ctrl-C and errors leave a run that can be resumed from its last aggregation
            run.checkpoint()
        raise
    finally:
        if run:
            run.close()
    watch.lap("records" if run else "other")
    return Result(experiment, rounds, model, watch.seconds)


def _check_work(system: System) -> None:
    """Raise if the sample numbers that one aggregation's trainings visit do not fit into memory."""
    work, most = system.work, samples_per_training(system, system.fleet.num_samples.max()[None])[0]
    key = "local_epochs" if work.steps is None else "local_steps"
    need(16.0 * float(most), f"the order of the {most:,} samples of one local training", f"lower learning.{key}")


def _first_model(trainer: Trainer, experiment: Experiment) -> Vector:
    """Return theta(1) [d] as our own copy."""
    model = trainer.initial_model(experiment.seed)
    shape = np.shape(model)
    if len(shape) != 1 or not shape[0]:
        raise TrainingError(
            f"the trainer began with an array of shape {shape}: initial_model gives a vector of float32"
        )
    return checked_vector(model, shape[0], "the trainer's initial_model")


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
        yield Answered(candidates_at(system, tick, uploads), record.picked, record.picked, record.weight)
        uploads[record.picked] += 1


def _step(
    system: System, trainer: Trainer, state: ServerState, ledger: Ledger, tick: Tick, eager: bool, watch: Stopwatch
) -> tuple[ServerState, RoundRecord]:
    """One aggregation, as in the paper: ready, schedule, train, encode, decode, aggregate, record."""
    rows = candidates_at(system, tick, state.uploads)
    trained: Mapping[int, Vector] = {}
    if eager or system.policy.needs_update_norm:
        trained = _train(system, trainer, state, tick.ready, tick.start)
        watch.lap("training")
    if system.policy.needs_update_norm:
        rows = rows._replace(update_sq_norm=np.array([_sq_norm(trained[int(device)]) for device in tick.ready]))
    grant = grant_at(system, tick, rows)
    watch.lap("scheduling")
    device, start = tick.ready[grant.picked], tick.start[grant.picked]
    if not trained:
        trained = _train(system, trainer, state, device, start)
        watch.lap("training")
    updates = _stack([trained[int(k)] for k in device], state)
    check_finite(device, updates, tick.index, lambda: _culprit(system, trainer, state))
    packets = [
        _encoded(system, update, bits, int(k), tick)
        for update, bits, k in zip(updates, grant.bits, device, strict=True)
    ]
    received = _stack([_decoded(system, packet, updates.shape[1]) for packet in packets], state)
    watch.lap("codec")
    arrived = Arrived(device, start, rows.num_samples[grant.picked])
    state, weights = absorb(state, system.policy, tick.ready, arrived, received)
    watch.lap("aggregation")
    test, train_loss = evaluate(system, trainer, state, tick)
    watch.lap("evaluation")
    samples = samples_per_training(system, rows.num_samples)
    record = RoundRecord(
        index=tick.index,
        time=tick.time,
        ready=tick.ready.tolist(),
        picked=device.tolist(),
        age=rows.age[grant.picked].tolist(),
        capacity=rows.capacity[grant.picked].tolist(),
        symbols=grant.symbols.tolist(),
        budget_bits=grant.bits.tolist(),
        sent_bits=[packet.bits for packet in packets],
        overhead_bits=[packet.overhead_bits for packet in packets],
        num_kept=[packet.num_kept for packet in packets],
        label_variance=label_variance(rows.label_counts[grant.picked]),
        proved_minimal=grant.proved_minimal,
        weight=weights.tolist(),
        test_accuracy=test.accuracy if test else None,
        test_loss=test.loss if test and math.isfinite(test.loss) else None,
        train_loss=train_loss,
        ledger=Ledger(
            symbols=ledger.symbols + float(grant.symbols.sum()),
            bits=ledger.bits + sum(packet.bits for packet in packets),
            samples_used=ledger.samples_used + int(samples[grant.picked].sum()),
            samples_trained=ledger.samples_trained + int(samples.sum()),
        ),
    )
    return state, record


def _train(system: System, trainer: Trainer, state: ServerState, device: Ints, start: Ints) -> dict[int, Vector]:
    """Train these devices from the versions they hold; updates by device."""
    if len(device) == 0:
        return {}
    starts = np.stack([state.models[int(version)] for version in start])
    rates, samples = learning_rates(system, start), system.dataset.train
    updates = np.asarray(trainer.train(make_jobs(starts, device, start, rates, samples, system.fleet.partition)))
    if updates.shape != starts.shape or updates.dtype.kind not in "fiu":
        raise TrainingError(
            f"the trainer {trainer_name(trainer)} returned updates {updates.dtype}{list(updates.shape)}: it must give float32 "
            f"{list(starts.shape)}, one row for each job"
        )
    return dict(zip(device.tolist(), updates, strict=True))


def _culprit(system: System, trainer: Trainer, state: ServerState) -> str:
    """Say what most likely made the training diverge, and what to do."""
    learning = system.experiment.learning
    largest = max(float(np.abs(model).max()) for model in state.models.values())
    for kind, policy in (("combiner", system.policy.combiner), ("codec", system.codec)):
        if largest > LARGE and not plugins.is_ours(policy):
            return f"the global model holds values up to {largest:.3g}; look at {plugins.label(kind, policy)}, which made it"
    if learning.proximal * learning.learning_rate >= 2 and learning.learning_rate <= 1:
        return (
            f"learning.proximal={learning.proximal:g} times learning.learning_rate={learning.learning_rate:g} is at least 2, "
            "with which every step overshoots more than the last; lower learning.proximal"
        )
    if trainer_name(trainer) != learning.trainer:
        return (
            f"look at the trainer {trainer_name(trainer)}, or lower learning.learning_rate={learning.learning_rate:g}"
        )
    return f"lower learning.learning_rate={learning.learning_rate:g}"


def _encoded(system: System, update: Vector, bits: float, device: int, tick: Tick) -> Packet:
    """Encode an update; raise if a user's codec returns something else than a packet."""
    rng = stream(system.experiment.seed, "compress", device, tick.index)
    packet: object = system.codec.encode(lent(update), bits, rng)
    if not isinstance(packet, Packet):
        codec = plugins.label("codec", system.codec)
        raise TrainingError(f"{codec} encoded to a {type(packet).__name__}: return fedtide.codec.base.packet(...)")
    codec = plugins.label("codec", system.codec)
    packet = checked_packet(packet, len(update), codec)
    if packet.bits > bits and packet.bits > most_bits(system.codec, len(update), bits, codec):
        raise TrainingError(
            f"{codec} encoded to {packet.bits} bits, and {bits:.1f} were granted to device {device} at aggregation "
            f"{tick.index}: keep to budget_bits"
        )
    return packet


def _decoded(system: System, packet: Packet, num_parameters: int) -> Vector:
    """Decode an update; raise if a user's codec returns something else than d numbers."""
    return checked_vector(system.codec.decode(packet), num_parameters, plugins.label("codec", system.codec))


def _stack(vectors: list[Vector], state: ServerState) -> Vector:
    return np.stack(vectors) if vectors else np.empty((0, len(state.models[state.version])), np.float32)


def _sq_norm(update: Vector) -> float:
    return float(np.square(update, dtype=np.float64).sum())


def samples_per_training(system: System, num_samples: Ints) -> Ints:
    """Return how many samples one local training of these devices visits."""
    work = system.work
    if work.steps is None:
        return num_samples * (work.epochs or 0)
    full, rest = np.divmod(work.steps, -(-num_samples // work.batch_size))
    return np.asarray(full * num_samples + np.minimum(rest * work.batch_size, num_samples))


def evaluate(system: System, trainer: Trainer, state: ServerState, tick: Tick) -> tuple[Score | None, float | None]:
    """Score the new model at every evaluate_every of simulated time, and always at the end."""
    learning = system.experiment.learning
    if learning.evaluate_every > 0 and tick.index < len(system.ticks):
        before = system.ticks[tick.index - 2].time if tick.index > 1 else 0.0
        if int(tick.time / learning.evaluate_every + 1e-9) == int(before / learning.evaluate_every + 1e-9):
            return None, None
    model = state.models[state.version]
    test = _scored(trainer, model, system.dataset.test)
    loss = _scored(trainer, model, system.dataset.train).loss if learning.training_loss else None
    return test, loss if loss is not None and math.isfinite(loss) else None


def _scored(trainer: Trainer, model: Vector, samples: Samples) -> Score:
    """Score a model; raise if a user's trainer returns something that is no score."""
    given: Any = trainer.evaluate(lent(model), samples)
    try:
        score = Score(float(given.accuracy), float(given.loss))
    except (AttributeError, TypeError, ValueError):
        score = Score(math.nan, math.nan)
    if not 0 <= score.accuracy <= 1:
        raise TrainingError(
            f"the trainer {trainer_name(trainer)} does not give an accuracy from 0 to 1: evaluate returns Score(accuracy, loss)"
        )
    return score
