"""How good a model is."""

from __future__ import annotations

import math
from typing import Any

from fedtide.drivers.training import trainer_label
from fedtide.errors import TrainingError
from fedtide.learning.trainer import Score, Trainer
from fedtide.records import Scores
from fedtide.server.state import ServerState
from fedtide.system import System
from fedtide.types import Samples, Tick, Vector, lent


def is_due(system: System, tick: Tick) -> bool:
    """Say whether a tick's model is scored: at every evaluate_every of simulated time, and always at the end."""
    every = system.experiment.learning.evaluate_every
    if every <= 0 or tick.index >= len(system.ticks):
        return True
    before = float(system.born[tick.index])  # when the model before it was
    return int(tick.time / every + 1e-9) != int(before / every + 1e-9)


def evaluate(system: System, trainer: Trainer, state: ServerState, tick: Tick) -> Scores:
    """Score the new model if that is due."""
    learning = system.experiment.learning
    if not is_due(system, tick):
        return Scores()
    model = state.models[state.version]
    test = scored(trainer, model, system.dataset.test)
    train = scored(trainer, model, system.dataset.train).loss if learning.training_loss else None
    return Scores(test.accuracy, _finite(test.loss), _finite(train))


def _finite(loss: float | None) -> float | None:
    return loss if loss is not None and math.isfinite(loss) else None


def scored(trainer: Trainer, model: Vector, samples: Samples) -> Score:
    """Score a model; raise if a user's trainer returns something that is no score."""
    given: Any = trainer.evaluate(lent(model), samples)
    try:
        score = Score(float(given.accuracy), float(given.loss))
    except (AttributeError, TypeError, ValueError):
        score = Score(math.nan, math.nan)
    if not 0 <= score.accuracy <= 1:
        raise TrainingError(
            f"{trainer_label(trainer)} does not give an accuracy from 0 to 1: evaluate returns Score(accuracy, loss)"
        )
    return score
