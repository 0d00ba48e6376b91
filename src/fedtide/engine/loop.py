"""The loop of a run: step, score, record; then every sink is told. Simulator, coordinator and replay go through this one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from fedtide.config import Experiment
from fedtide.engine.exchange import Exchange
from fedtide.engine.step import Info, ServerState, detached_state, global_model, step
from fedtide.engine.system import System
from fedtide.errors import FedtideError, TrainingError
from fedtide.learning.metrics import ModelMetric, measure_model, predict_labels
from fedtide.learning.trainer import Score, Trainer
from fedtide.parts import checks, registry
from fedtide.runs.manifest import trainer_name
from fedtide.runs.record import Costs, Ledger, RoundRecord, Scores, round_record
from fedtide.types import MetricContext, Samples, Tick, Vector, readonly_copy

# What is told of every aggregation: a run folder, trackers, a progress bar, a trace.
Sink: TypeAlias = Callable[[RoundRecord, ServerState, Info], None]


class Stopwatch:
    """Charges the time that passes to one stage after the other."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = {}
        self._clock, self._last = clock, clock()

    def lap(self, stage: str) -> None:
        """Charge the time since the last lap to a stage."""
        now = self._clock()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


class Devices(Exchange, Protocol):
    """The devices of a whole run."""

    def prepare(self, state: ServerState, tick: Tick) -> ServerState | None:
        """Let the time pass until a tick; devices that wait for it receive the newest model. None: the run is over."""
        ...


class Settling(Protocol):
    """What lets time go on where it follows decisions."""

    def held(self, state: ServerState) -> ServerState:
        """Return the state with the versions that devices hold now."""
        ...

    def settle(self, state: ServerState, info: Info) -> tuple[ServerState, Info]:
        """Let devices go on after an aggregation; the info says when its model is there."""
        ...

    def told(self, progress: Mapping[str, float]) -> None:
        """Note what the last aggregation was found to be worth, by name."""
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

    def __post_init__(self) -> None:
        """The first state is a caller's, who may keep it: what comes after it must not hang on it."""
        self.state = detached_state(self.state)

    def run(self, ticks: Iterable[Tick], reaction: Settling | None = None) -> Vector:
        """Go through these ticks, or until nothing more is wanted; return the last model."""
        rules, watch, following = self.system.rules, self.watch, iter(ticks)
        metrics = make_metrics(self.system.experiment)
        tick = next(following, None)
        while tick is not None:
            state = reaction.held(self.state) if reaction else self.state
            prepared = self.devices.prepare(state, tick)
            if prepared is None:
                break
            state, info = step(rules, prepared, tick, self.devices)
            watch.lap("aggregation")
            scores = Scores()
            if reaction:
                state, info = reaction.settle(state, info)
            if evaluation_is_due(self.system, tick.index, info.time):
                scores = _evaluate_model(self.system, self.trainer, state, info, metrics)
            if reaction:
                reaction.told(progress_of(scores, info.grant.metrics))
            tick, failure = None, None
            try:
                tick = None if _is_enough(self.system, self.rounds, scores) else next(following, None)
            except FedtideError as error:  # of a timeline, say: this aggregation is recorded first
                failure = error
            if tick is None and failure is None and scores.accuracy is None:  # the last one is scored in any case
                scores = _evaluate_model(self.system, self.trainer, state, info, metrics)
            watch.lap("evaluation")
            record = round_record(info, scores, self.ledger, self.costs, self.names_ready)
            self.state, self.ledger = state, record.ledger
            self.rounds.append(record)
            for stage, sink in self.sinks:
                sink(record, state, info)
                watch.lap(stage)
            if failure is not None:
                raise failure
        return global_model(self.state)


def loop_sink(on_round: Callable[[RoundRecord, int], None], total: int) -> Sink:
    """Return the sink that tells a caller of every record, and of how many there are in all."""
    return lambda record, *_: on_round(record, total)


# How good a model is.


def evaluation_is_due(system: System, index: int, time: float) -> bool:
    """Say whether an aggregation's model is scored: at every evaluate_every of simulated time, and always at the end."""
    every = system.experiment.learning.evaluate_every
    if every <= 0 or index == len(system.ticks):
        return True
    before = float(system.model_timestamps[index])  # when the model before it was
    return int(time / every + 1e-9) != int(before / every + 1e-9)


def _is_enough(system: System, rounds: Sequence[RoundRecord], scores: Scores) -> bool:
    """Say whether a run ends here: it has reached its target, or has not become better for as long as it may."""
    learning = system.experiment.learning
    if scores.accuracy is None or (learning.target_accuracy is None and learning.patience is None):
        return False
    found = [each.test_accuracy for each in rounds if each.test_accuracy is not None] + [scores.accuracy]
    reached = learning.target_accuracy is not None and scores.accuracy >= learning.target_accuracy
    return reached or (learning.patience is not None and len(found) - 1 - found.index(max(found)) >= learning.patience)


def run_has_ended(system: System, rounds: Sequence[RoundRecord]) -> bool:
    """Say whether the last recorded aggregation met the target, or was the last that could have become better."""
    if not rounds:
        return False
    last = rounds[-1]
    return _is_enough(system, rounds[:-1], Scores(last.test_accuracy, last.test_loss, last.train_loss))


def progress_of(scores: Scores, metrics: Mapping[str, float]) -> dict[str, float]:
    """Return what an aggregation was found to be worth, by name, as a timeline sees it."""
    known = {"test_accuracy": scores.accuracy, "test_loss": scores.loss, "train_loss": scores.train_loss}
    return {**metrics, **scores.metrics, **{name: value for name, value in known.items() if value is not None}}


def make_metrics(experiment: Experiment) -> list[ModelMetric]:
    """Make what learning.metrics names."""
    return [registry.part("metric", part.name, part.args) for part in experiment.learning.metrics]


def metric_context(system: System, trainer: Trainer, model: Vector, index: int, time: float) -> MetricContext:
    """Return what metrics may look at besides a model."""
    data, lent = system.dataset.lent(), readonly_copy(model)
    return MetricContext(
        score=lambda samples: score_model(trainer, lent, samples),
        predict=lambda samples: predict_labels(trainer, system.model, lent, samples),
        test=data.test,
        train=data.train,
        holdings=system.fleet.partition,
        num_labels=data.num_labels,
        seed=system.experiment.seed,
        tick=index,
        time=time,
    )


def _evaluate_model(
    system: System, trainer: Trainer, state: ServerState, info: Info, metrics: Sequence[ModelMetric]
) -> Scores:
    """Score the newest model."""
    learning = system.experiment.learning
    model = global_model(state)
    test = score_model(trainer, model, system.dataset.test)
    train = score_model(trainer, model, system.dataset.train).loss if learning.training_loss else None
    context = metric_context(system, trainer, model, info.tick.index, info.time) if metrics else None
    measured = measure_model(metrics, readonly_copy(model), context) if context else {}
    return Scores(test.accuracy, _finite(test.loss), _finite(train), measured)


def _finite(loss: float | None) -> float | None:
    return loss if loss is not None and math.isfinite(loss) else None


def score_model(trainer: Trainer, model: Vector, samples: Samples) -> Score:
    """Score a model; raise if a user's trainer returns something that is not a score."""
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
