"""The job in fedtide: `python fedtide_job.py whole|training`.

whole: a run as `fedtide run` does it, with fading, proposed schedule, allocation, codec, records and checkpoints. training: the
native trainer in a bare loop, which is what frameworks without a radio do.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from export import experiment
from job import CORES, JOB, Laps

import fedtide
from fedtide.config import Experiment
from fedtide.engine.simulate import simulate
from fedtide.engine.system import System, build, make_trainer
from fedtide.runs import RoundRecord
from fedtide.types import Job


def settled(system: System) -> int:
    """Return the first tick from which on all have enough ready devices to pick from."""
    few = [tick.index for tick in system.ticks if len(tick.ready) < JOB.clients_per_round]
    return max(few, default=0) + 1


def whole(laps: Laps) -> float:
    """Run it and return the accuracy. It has a few ticks more: before enough devices are ready, and the last, with its test."""
    base: Experiment = experiment()
    system = build(base)
    before = settled(system) - 1
    horizon = system.ticks[before + JOB.all_rounds].time
    shorter = experiment(timeline={"horizon": horizon})
    system = build(shorter, dataset=system.dataset)
    seen: list[int] = [0]

    def on_round(record: RoundRecord, _: int) -> None:
        seen.append(record.ledger.samples_used)
        if before < record.index <= before + JOB.all_rounds:
            laps.lap(seen[-1] - seen[-2])

    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(system, CORES)
        result = simulate(shorter, Path(folder) / "run", system=system, trainer=trainer, on_round=on_round)
    return float(result.rounds[-1].test_accuracy)


def training(laps: Laps) -> float:
    """Train and average, no more."""
    system, rng = build(experiment()), np.random.default_rng(0)
    trainer = make_trainer(system, CORES)
    model = trainer.initial_model(0)
    for number in range(JOB.all_rounds):
        devices = rng.choice(JOB.num_devices, JOB.clients_per_round, replace=False).tolist()
        mine = system.fleet.partition
        jobs = [Job(k, number + 1, model, JOB.learning_rate, system.dataset.train, mine[k]) for k in devices]
        model = model + trainer.train(jobs).mean(0)
        laps.lap()
    return trainer.evaluate(model, system.dataset.test).accuracy


if __name__ == "__main__":
    way, laps = sys.argv[1], Laps()
    score = {"whole": whole, "training": training}[way](laps)
    laps.report(f"fedtide-{way}", fedtide.__version__, score)
