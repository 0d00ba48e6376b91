"""How long a run will take on this machine: what it trains and evaluates, at the kernel's speed, measured for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from fedtide.engine.system import System, make_task
from fedtide.learning.trainer import trainer_backend
from fedtide.types import Job, Samples

_MOMENT: Final = 0.04  # seconds that each of two speeds is measured
_BATCHES: Final = 4  # of one call


class Pace(NamedTuple):
    """What a run takes of this machine."""

    training: float  # seconds
    evaluation: float  # seconds
    samples_per_second: float  # trained
    threads: int  # that train at a time


def run_pace(system: System, summary: Mapping[str, Any], threads: int) -> Pace | None:
    """Return how long the run of a plan will take; None if another trainer than our kernel trains, or nobody knows whom."""
    experiment, ledger = system.experiment, summary["ledger"]
    if trainer_backend(experiment.learning.trainer) != "native" or ledger is None:
        return None
    from fedtide.learning.native import NativeTrainer

    threads = min(threads, experiment.policy.limit)  # a device is trained by one
    task = make_task(system, threads)
    count = _BATCHES * task.work.batch_size
    trainer = NativeTrainer(task._replace(work=task.work._replace(epochs=1, steps=None)))
    some = Samples(np.zeros((count, *task.shape), np.float32), np.zeros(count, np.uint8))
    start, rows = trainer.initial_model(task.seed), np.arange(count)
    jobs = [Job(device, 1, start, experiment.learning.learning_rate, some, rows) for device in range(threads)]
    trained = count * threads / _seconds(lambda: trainer.train(jobs))
    scored = count / _seconds(lambda: trainer.evaluate(start, some))
    data = system.dataset
    tested = len(data.test.labels) + len(data.train.labels) * experiment.learning.training_loss
    evaluations = _evaluations(summary["aggregations"], experiment.timeline.horizon, experiment.learning.evaluate_every)
    return Pace(ledger["samples_used"] / trained, evaluations * tested / scored, trained, threads)


def _evaluations(aggregations: int, horizon: float, every: float) -> float:
    return min(aggregations, horizon / every + 1) if every > 0 else aggregations


def _seconds(call: Callable[[], Any]) -> float:
    """Return how long a call takes, on average over a moment; the first one, which warms up, does not count."""
    call()
    begun, calls = time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < _MOMENT or not calls:
        call()
        calls += 1
    return passed / calls if passed else _MOMENT
