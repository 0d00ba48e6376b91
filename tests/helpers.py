"""Small systems and a trainer without learning in it, for tests that are about something else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import fedtide
from fedtide import config
from fedtide.data.synthetic import synthetic
from fedtide.learning.trainer import Score
from fedtide.rng import stream
from fedtide.types import Candidates, Clock, Dataset, Floats, Job, Samples, Tick

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"

SMALL: dict[str, Any] = {
    "data": {"name": "synthetic", "partition": "iid"},
    "fleet": {"num_devices": 6},
    "timeline": {"horizon": 3.0},
    "policy": {"limit": 3},
    "radio": {"num_symbols": 400},
    "learning": {"model": "softmax", "trainer": "torch", "local_epochs": 1, "batch_size": 4, "learning_rate": 0.1},
}


def small(*trees: dict[str, Any], **groups: Any) -> fedtide.Experiment:
    """Return the small experiment with some keys changed."""
    return config.experiment(SMALL, *trees, groups)


def small_dataset(seed: int = 0, num_train: int = 48, num_labels: int = 3, side: int = 8) -> Dataset:
    """Return a few tiny images."""
    return synthetic(seed, num_train, 20, num_labels=num_labels, side=side)


@dataclass
class FakeTrainer:
    """Gives updates that depend on the job alone, in no time; `broken` (device, version) jobs give NaN."""

    num_parameters: int = 30
    seed: int = 0
    broken: frozenset[tuple[int, int]] = frozenset()
    jobs: list[tuple[int, int]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def initial_model(self, seed: int) -> np.ndarray:
        return stream(seed, "initial_model").standard_normal(self.num_parameters).astype(np.float32)

    def train(self, jobs: Sequence[Job]) -> np.ndarray:
        updates = []
        for k, v, model, rate, *_ in jobs:
            self.jobs.append((k, v))
            self.rates.append(rate)
            noise = stream(self.seed, "batches", k, v).standard_normal(self.num_parameters)
            update = (rate * (noise - model)).astype(np.float32)
            updates.append(np.full_like(update, np.nan) if (k, v) in self.broken else update)
        return np.stack(updates)

    def evaluate(self, model: np.ndarray, samples: Samples) -> Score:
        norm = float(np.square(model, dtype=np.float64).sum())
        return Score(1 / (1 + norm), norm + len(samples.labels))


def run(experiment: fedtide.Experiment, folder: Path | None = None, **kwargs: Any) -> fedtide.Result:
    """Simulate with the fake trainer and the small data set."""
    kwargs.setdefault("trainer", FakeTrainer())
    kwargs.setdefault("dataset", small_dataset())
    return fedtide.simulate(experiment, folder, **kwargs)


def constant_clock(duration: Any, horizon: float) -> Clock:
    """Return the clock of devices that are always there and take as long for every job [N]."""
    known: Floats = np.asarray(duration, np.float64)
    return Clock(len(known), horizon, lambda device, job, time: known[device])


def ticks_of(timeline: Any, duration: Any, horizon: float) -> list[Tick]:
    """Return all ticks of a timeline for devices that take as long for every job [N]."""
    return list(timeline(constant_clock(duration, horizon)))


def make_candidates(
    capacity: Any,
    *,
    num_devices: int | None = None,
    label_counts: Any = None,
    age: Any = None,
    missed: Any = None,
    update_sq_norm: Any = None,
) -> Candidates:
    """Return a table of ready devices; what is not given is dull."""
    capacity = np.asarray(capacity, np.float64)
    m = len(capacity)
    counts = np.ones((m, 3), np.int64) if label_counts is None else np.asarray(label_counts, np.int64)
    return Candidates(
        num_devices=num_devices or m,
        device=np.arange(m),
        num_samples=counts.sum(axis=1),
        label_counts=counts,
        age=np.zeros(m, np.int64) if age is None else np.asarray(age, np.int64),
        missed=np.zeros(m, np.int64) if missed is None else np.asarray(missed, np.int64),
        capacity=capacity,
        update_sq_norm=None if update_sq_norm is None else np.asarray(update_sq_norm, np.float64),
    )
