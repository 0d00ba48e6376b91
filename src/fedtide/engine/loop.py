"""The loop of a run: step, score, record; then every sink is told. Simulator, coordinator and replay go through this one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from fedtide.devices.energy import Energy, counted
from fedtide.engine.step import Exchange, Info, ServerState, step
from fedtide.engine.system import MODEL_BITS, System
from fedtide.errors import TrainingError
from fedtide.learning.trainer import LocalWork, Score, Trainer, samples_per_training
from fedtide.parts import checks
from fedtide.radio.downlink import is_shared
from fedtide.runs.manifest import trainer_name
from fedtide.runs.record import Ledger, RoundRecord
from fedtide.schedule.label_variance import label_variance
from fedtide.types import Ints, Samples, Tick, Vector, readonly_copy

# What is told of every aggregation: a run folder, trackers, a progress bar, a trace.
Sink: TypeAlias = Callable[[RoundRecord, ServerState, Info], None]


class Stopwatch:
    """Charges the time that passes to one stage after the other."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Charge the time since the last lap to a stage."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


class Devices(Exchange, Protocol):
    """The devices of a whole run."""

    def prepare(self, state: ServerState, tick: Tick) -> ServerState:
        """Let the time pass until a tick; devices that wait for it receive the newest model."""
        ...


@dataclass
class Loop:
    """One run, as far as it has come."""

    system: System
    trainer: Trainer
    devices: Devices
    costs: Costs
    state: ServerState
    ledger: Ledger = Ledger()  # noqa: RUF009 - a frozen value
    rounds: list[RoundRecord] = field(default_factory=list)
    sinks: Sequence[tuple[str, Sink]] = ()  # each with the stage that its time is charged to
    names_ready: bool = True  # records say who was ready
    watch: Stopwatch = field(default_factory=Stopwatch)

    def run(self, ticks: Iterable[Tick]) -> Vector:
        """Go through these ticks; return the last model."""
        rules, watch = self.system.rules, self.watch
        for tick in ticks:
            state, info = step(rules, self.devices.prepare(self.state, tick), tick, self.devices)
            watch.lap("aggregation")
            scores = evaluate_model(self.system, self.trainer, state, tick)
            watch.lap("evaluation")
            record = round_record(info, scores, self.ledger, self.costs, self.names_ready)
            self.state, self.ledger = state, record.ledger
            self.rounds.append(record)
            for stage, sink in self.sinks:
                sink(record, state, info)
                watch.lap(stage)
        return self.state.models[self.state.version]


def told(on_round: Callable[[RoundRecord, int], None], total: int) -> Sink:
    """Return the sink that tells a caller of every record, and of how many there are in all."""
    return lambda record, *_: on_round(record, total)


# How good a model is.


class Scores(NamedTuple):
    """How the model after an aggregation does; None where it was not evaluated, or the loss is not finite."""

    accuracy: float | None = None
    loss: float | None = None
    train_loss: float | None = None


def is_due(system: System, tick: Tick) -> bool:
    """Say whether a tick's model is scored: at every evaluate_every of simulated time, and always at the end."""
    every = system.experiment.learning.evaluate_every
    if every <= 0 or tick.index >= len(system.ticks):
        return True
    before = float(system.model_timestamps[tick.index])  # when the model before it was
    return int(tick.time / every + 1e-9) != int(before / every + 1e-9)


def evaluate_model(system: System, trainer: Trainer, state: ServerState, tick: Tick) -> Scores:
    """Score the new model if that is due."""
    learning = system.experiment.learning
    if not is_due(system, tick):
        return Scores()
    model = state.models[state.version]
    test = score_model(trainer, model, system.dataset.test)
    train = score_model(trainer, model, system.dataset.train).loss if learning.training_loss else None
    return Scores(test.accuracy, _finite(test.loss), _finite(train))


def _finite(loss: float | None) -> float | None:
    return loss if loss is not None and math.isfinite(loss) else None


def score_model(trainer: Trainer, model: Vector, samples: Samples) -> Score:
    """Score a model; raise if a user's trainer returns something that is no score."""
    given: Any = trainer.evaluate(readonly_copy(model), samples)
    try:
        score = Score(float(given.accuracy), float(given.loss))
    except (AttributeError, TypeError, ValueError):
        score = Score(math.nan, math.nan)
    if not 0 <= score.accuracy <= 1:
        raise TrainingError(
            f"{trainer_label(trainer)} does not give an accuracy from 0 to 1: evaluate returns Score(accuracy, loss)"
        )
    return score


def trainer_label(trainer: Trainer) -> str:
    """Name a trainer in an error message about its answer."""
    if isinstance(trainer, checks.Guarded):
        return checks.part_label("trainer", trainer)
    return f"the trainer {trainer_name(trainer)}{checks.source_place(trainer)}"


# What an aggregation costs (symbols, bits, time on the air, joules), and its record.


@dataclass(frozen=True)
class Costs:
    """What the parts of an aggregation cost."""

    work: LocalWork  # of one local training
    seed: int
    model_bits: float  # of a model on its way to a device
    shared: bool  # one transmission serves all who receive a model
    symbol_rate: float  # symbols per unit of time; 0: time on the air is not counted
    energy: Energy | None  # None: not counted
    at_once: bool = False  # who sends does so on all symbols of the tick, together with the others

    def after(self, spent: Ledger, info: Info, bits: float, sending: Sequence[int]) -> Ledger:
        """Return what is spent after an aggregation. bits: of the payloads; sending: positions of those who sent one.

        All who are ready have trained and receive the new model, picked or not.
        """
        rows, grant = info.rows, info.grant
        samples, symbols = samples_per_training(self.work, rows.num_samples), float(grant.symbols.sum())
        receivers = min(len(rows.device), 1) if self.shared else len(rows.device)
        return Ledger(
            symbols=spent.symbols + symbols,
            bits=spent.bits + bits,
            samples_used=spent.samples_used + int(samples[list(sending)].sum()),
            samples_trained=spent.samples_trained + int(samples.sum()),
            control_bits=spent.control_bits + info.control_bits,
            bits_down=spent.bits_down + self.model_bits * receivers,
            air_time=spent.air_time + (symbols / self.symbol_rate if self.symbol_rate else 0.0),
            joules=spent.joules + self._joules(info, samples),
        )

    def _joules(self, info: Info, samples: Ints) -> float:
        if self.energy is None:
            return 0.0
        sent = np.zeros(len(samples))
        if self.at_once:  # those that stay silent send nothing
            sent[info.arrived] = info.grant.symbols.sum()
        else:
            sent[info.grant.picked] = info.grant.symbols
        return math.fsum(self.energy(self.seed, info.rows.device, samples, sent))  # in any order the same


def costs(system: System, num_parameters: int) -> Costs:
    """Return the costs of a system whose models have so many parameters."""
    return Costs(
        work=system.work,
        seed=system.experiment.seed,
        model_bits=MODEL_BITS * num_parameters,
        shared=is_shared(system.downlink),
        symbol_rate=system.experiment.radio.symbol_rate,
        energy=system.energy if counted(system.energy) else None,
        at_once=system.over_the_air,
    )


def round_record(info: Info, scores: Scores, ledger: Ledger, costs: Costs, names_ready: bool = True) -> RoundRecord:
    """Return the record. ledger: what was spent before. names_ready: False for a large fleet, which only counts them.

    A picked device that sent nothing has no bits; one whose update did not arrive weighs nothing.
    """
    rows, grant = info.rows, info.grant
    picked = rows.device[grant.picked].tolist()
    packets = [info.sent.get(device) for device in picked]
    weight = dict(zip(rows.device[info.arrived].tolist(), info.weights.tolist(), strict=True))
    sending = [position for position, packet in zip(grant.picked.tolist(), packets, strict=True) if packet]
    return RoundRecord(
        index=info.tick.index,
        time=info.tick.time,
        ready=rows.device.tolist() if names_ready else [],
        picked=picked,
        age=rows.age[grant.picked].tolist(),
        capacity=rows.capacity[grant.picked].tolist(),
        symbols=grant.symbols.tolist(),
        budget_bits=grant.bits.tolist(),
        sent_bits=[packet.bits if packet else 0 for packet in packets],
        overhead_bits=[packet.overhead_bits if packet else 0 for packet in packets],
        num_kept=[packet.num_kept if packet else 0 for packet in packets],
        label_variance=label_variance(rows.label_counts[grant.picked]),
        proved_minimal=grant.proved_minimal,
        weight=[weight.get(device, 0.0) for device in picked],
        test_accuracy=scores.accuracy,
        test_loss=scores.loss,
        train_loss=scores.train_loss,
        ledger=costs.after(ledger, info, sum(packet.bits for packet in packets if packet), sending),
        lost=[device for device in picked if device in info.sent and device not in weight],
        metrics=grant.metrics,
        unnamed=0 if names_ready else len(rows.device),
    )
