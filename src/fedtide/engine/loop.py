"""The loop of a run: step, score, record; then every sink is told. Simulator, coordinator and replay go through this one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from fedtide.engine.step import Exchange, Info, ServerState, step
from fedtide.engine.system import System
from fedtide.errors import TrainingError
from fedtide.learning.trainer import Score, Trainer
from fedtide.parts import checks
from fedtide.runs.manifest import trainer_name
from fedtide.runs.record import Costs, Ledger, RoundRecord, Scores, round_record
from fedtide.types import Samples, Tick, Vector, readonly_copy

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
            scores = _evaluate_model(self.system, self.trainer, state, tick)
            watch.lap("evaluation")
            record = round_record(info, scores, self.ledger, self.costs, self.names_ready)
            self.state, self.ledger = state, record.ledger
            self.rounds.append(record)
            for stage, sink in self.sinks:
                sink(record, state, info)
                watch.lap(stage)
        return self.state.models[self.state.version]


def loop_sink(on_round: Callable[[RoundRecord, int], None], total: int) -> Sink:
    """Return the sink that tells a caller of every record, and of how many there are in all."""
    return lambda record, *_: on_round(record, total)


# How good a model is.


def evaluation_is_due(system: System, tick: Tick) -> bool:
    """Say whether a tick's model is scored: at every evaluate_every of simulated time, and always at the end."""
    every = system.experiment.learning.evaluate_every
    if every <= 0 or tick.index >= len(system.ticks):
        return True
    before = float(system.model_timestamps[tick.index])  # when the model before it was
    return int(tick.time / every + 1e-9) != int(before / every + 1e-9)


def _evaluate_model(system: System, trainer: Trainer, state: ServerState, tick: Tick) -> Scores:
    """Score the new model if that is due."""
    learning = system.experiment.learning
    if not evaluation_is_due(system, tick):
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
