"""Local trainings of simulated devices, scores of models, wall time by stage."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from fedtide.core.versioned import versioned_dict
from fedtide.core.yaml12 import shown
from fedtide.engine.step import ServerState
from fedtide.engine.system import System
from fedtide.errors import TrainingError
from fedtide.learning.trainer import Score, Trainer
from fedtide.parts import checks
from fedtide.parts.checks import as_array
from fedtide.runs import Scores, trainer_name
from fedtide.types import Job, Memory, Samples, Tick, Trained, Vector, Vectors, read_only, readonly_copy

# Wall time by stage.


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


# Local trainings of devices that are simulated here, with what their trainer remembers of each.


DeviceMemory: TypeAlias = Mapping[str, Mapping[int, Memory]]  # what devices remember, by kind of part and device


def train_jobs(trainer: Trainer, jobs: Sequence[Job], devices: DeviceMemory) -> tuple[Vector, DeviceMemory]:
    """Train jobs of different devices; return the updates [r d], and what devices remember then."""
    own = checks.remembers(trainer)
    known = versioned_dict(devices.get("trainer", {})) if own else {}
    memory: dict[int, Memory] = {}
    for job in jobs if own else ():
        new = job.device not in known  # it is touched for the first time
        memory[job.device] = checks.first_memory(trainer, "trainer", len(job.start)) if new else known[job.device]
    lent = [
        job._replace(
            start=readonly_copy(job.start),
            indices=read_only(job.indices),
            memory=checks.copied_memory(memory[job.device]) if own else None,
        )
        for job in jobs
    ]
    answer: Any = trainer.train(lent)
    if not updates_state_on_train(trainer):
        return _checked(answer, jobs, trainer), devices
    label, given = trainer_label(trainer), answer.memory if isinstance(answer, Trained) else None
    if not isinstance(given, list | tuple) or len(given) != len(jobs):
        what = f"Trained with {shown(given)}" if isinstance(answer, Trained) else f"a {type(answer).__name__}"
        raise TrainingError(
            f"{label} has memory and returned {what}: return Trained(updates, memory), a row and a memory for each of the "
            f"{len(jobs)} jobs"
        )
    updates = _checked(answer.updates, jobs, trainer)
    for job, after in zip(jobs, given, strict=True):
        memory[job.device] = checks.checked_memory(after, memory[job.device], label)
    return updates, {**devices, "trainer": versioned_dict(known).after(memory)}


def updates_state_on_ack(trainer: Trainer) -> bool:
    """Say whether what a trainer remembers of a device goes on with what arrives, not with every training."""
    return checks.remembers(trainer) and callable(getattr(trainer, "arrived", None))


def updates_state_on_train(trainer: Trainer) -> bool:
    """Say whether a trainer has to train every ready device, picked or not, since its memory goes on with it."""
    return checks.remembers(trainer) and not updates_state_on_ack(trainer)


def acknowledge(trainer: Trainer, devices: DeviceMemory, device: Sequence[int], updates: Vectors) -> DeviceMemory:
    """Let a trainer that waits for it remember what arrived [l d]: only these devices' memory goes on."""
    if not updates_state_on_ack(trainer) or not device:
        return devices
    memory = versioned_dict(devices.get("trainer", {}))
    after = {k: after_arrival(trainer, memory.get(k), update) for k, update in zip(device, updates, strict=True)}
    return {**devices, "trainer": memory.after(after)}


def after_arrival(trainer: Trainer, memory: Memory | None, update: Vector) -> Memory:
    """Return what a trainer remembers of a device whose update [d] the server has, as it reads it."""
    before = checks.first_memory(trainer, "trainer", len(update)) if memory is None else memory
    call: Any = trainer
    return checks.checked_memory(
        call.arrived(checks.copied_memory(before), readonly_copy(update)), before, trainer_label(trainer)
    )


def close(trainer: Trainer) -> None:
    """Let a trainer go that holds something, such as the processes of a cluster."""
    made = trainer.policy if isinstance(trainer, checks.Guarded) else trainer
    if callable(let_go := getattr(made, "close", None)):
        let_go()


def _checked(answer: Any, jobs: Sequence[Job], trainer: Trainer) -> Vector:
    """Return what a trainer made as float32, which is what devices send, a row for each job; raise if it is something else."""
    shape, updates = (len(jobs), len(jobs[0].start)), as_array(answer)
    if updates.shape != shape or updates.dtype.kind not in "fiu":
        raise TrainingError(
            f"{trainer_label(trainer)} returned updates {updates.dtype}{list(updates.shape)}: it must give float32 "
            f"{list(shape)}, one row for each job"
        )
    with np.errstate(over="ignore"):
        made: Vector = updates.astype(np.float32, copy=False)
    return made


def trainer_label(trainer: Trainer) -> str:
    """Name a trainer in an error message about its answer."""
    if isinstance(trainer, checks.Guarded):
        return checks.part_label("trainer", trainer)
    return f"the trainer {trainer_name(trainer)}{checks.source_place(trainer)}"


# How good a model is.


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
    test = scored(trainer, model, system.dataset.test)
    train = scored(trainer, model, system.dataset.train).loss if learning.training_loss else None
    return Scores(test.accuracy, _finite(test.loss), _finite(train))


def _finite(loss: float | None) -> float | None:
    return loss if loss is not None and math.isfinite(loss) else None


def scored(trainer: Trainer, model: Vector, samples: Samples) -> Score:
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
