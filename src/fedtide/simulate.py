"""The simulator: the paper's list of steps on a virtual clock. The mathematics lives in the parts it calls."""

from __future__ import annotations

import math
import time as wall
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedtide import plugins
from fedtide.codec.base import Packet, most_bits
from fedtide.config import Experiment
from fedtide.errors import FedtideError, TrainingError
from fedtide.learning.schedule import SCHEDULES
from fedtide.learning.trainer import Score, Trainer
from fedtide.policy.candidates import candidates
from fedtide.policy.label_variance import label_variance
from fedtide.radio.channel import capacity, power_gain
from fedtide.records import Ledger, RoundRecord, RunFolder
from fedtide.rng import stream
from fedtide.server import Arrived, ServerState, absorb, begin, check_finite, checked_vector, plan
from fedtide.system import System, build, make_trainer
from fedtide.types import Candidates, Dataset, Floats, Grant, Ints, Tick, Vector, read_only


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
    system: System | None = None,
    dataset: Dataset | None = None,
    trainer: Trainer | None = None,
) -> Result:
    """Run an experiment and return its rounds and final model.

    folder: where to keep the run; if it holds a part of this run already, that is continued. threads: jobs trained at a
    time. eager: train every ready device, scheduled or not (same results, more work). on_round is called with every record
    and the number of ticks in all. None of these changes a bit of the result. system: what `build` made of this very
    experiment, dataset: its data, trainer: what `make_trainer` made of the system; to use them for several runs.
    """
    if system is not None and system.experiment != experiment:
        raise FedtideError("the system was built from another experiment; build it from the one that is simulated")
    watch = Stopwatch()
    system = system or build(experiment, dataset=dataset)
    trainer = trainer or make_trainer(system, threads)
    run = RunFolder.open(Path(folder), experiment) if folder is not None else None
    try:
        saved = run.load() if run else None
        if saved:
            state, ledger, rounds = saved
            _check_schedule(system, rounds)
        else:
            model = trainer.initial_model(experiment.seed)
            state, ledger, rounds = begin(model, system.fleet.num_devices), Ledger(), []
        watch.lap("set-up")
        for tick in system.ticks[state.version - 1 :]:
            state, record = _step(system, trainer, state, ledger, tick, eager, watch)
            ledger = record.ledger
            rounds.append(record)
            if run:
                run.append(record, state)
                watch.lap("records")
            if on_round:
                on_round(record, len(system.ticks))
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
    return Result(experiment, rounds, model, watch.seconds)


def _check_schedule(system: System, rounds: Sequence[RoundRecord]) -> None:
    """Raise if a user's scheduler does not pick again what it picked before a run was interrupted.

    It is asked again in the same order, so one that counts its calls has its count back.
    """
    if not isinstance(system.policy.scheduler, plugins.Guarded) or system.policy.needs_update_norm:
        return
    for record, again in zip(rounds, planned(system), strict=False):
        if again.grant is not None and again.candidates.device[again.grant.picked].tolist() != record.picked:
            raise TrainingError(
                f"{system.policy.scheduler.label} picks other devices at aggregation {record.index} than before the "
                "interruption: make it depend on its arguments alone (candidates.tick counts the aggregations, rng is the "
                "same each time), or begin anew in another folder"
            )


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
    check_finite(device, updates, tick.index)
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
    updates = trainer.train(starts, device, start, learning_rates(system, start))
    return dict(zip(device.tolist(), updates, strict=True))


def _encoded(system: System, update: Vector, bits: float, device: int, tick: Tick) -> Packet:
    """Encode an update; raise if a user's codec returns something else than a packet."""
    rng = stream(system.experiment.seed, "compress", device, tick.index)
    packet: object = system.codec.encode(read_only(update), bits, rng)
    if not isinstance(packet, Packet):
        codec = plugins.label("codec", system.codec)
        raise TrainingError(f"{codec} encoded to a {type(packet).__name__}: return fedtide.codec.base.packet(...)")
    if packet.bits > bits and packet.bits > most_bits(system.codec, len(update), bits):
        codec = plugins.label("codec", system.codec)
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
    test = trainer.evaluate(model, system.dataset.test)
    loss = trainer.evaluate(model, system.dataset.train).loss if learning.training_loss else None
    return test, loss if loss is not None and math.isfinite(loss) else None
