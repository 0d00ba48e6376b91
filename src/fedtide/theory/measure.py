"""What the simulated system does: E||theta(t) - theta*||^2 over seeds, by `simulate` with a trainer of our own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedtide.drivers.simulate import simulate
from fedtide.learning.trainer import LocalWork, Score, batches
from fedtide.studies.statistics import half_width
from fedtide.theory.objectives import Objective
from fedtide.theory.problem import Problem, at_seed
from fedtide.types import Floats, Ints, Job, Samples, Vector


@dataclass(frozen=True)
class ConvexTrainer:
    """One mini-batch step on a strongly convex objective (E = 1), in float64; updates leave as float32 like any other."""

    objective: Objective
    work: LocalWork
    seed: int
    start: Vector  # theta(1) [d]
    optimum: Floats  # theta* [d]

    def initial_model(self, seed: int) -> Vector:
        """Return theta(1), the same for every seed."""
        return self.start

    def train(self, jobs: Sequence[Job]) -> Vector:
        """Return -alpha grad F_k(theta; B_k) [r d], the batch from the simulator's own stream."""
        updates = np.empty((len(jobs), len(self.start)), np.float32)
        for row, job in enumerate(jobs):
            visited, _ = batches(self.seed, job.device, job.version, job.mine, self.work)
            gradients = self.objective.sample_gradients(job.device, job.start.astype(np.float64), visited)
            updates[row] = -job.learning_rate * gradients.mean(axis=0)
        return updates

    def evaluate(self, model: Vector, samples: Samples) -> Score:
        """Return ||theta - theta*||^2 as the loss, which is what is looked at here; there is no accuracy."""
        return Score(0.0, squared_distance(model, self.optimum))


def squared_distance(model: Vector | Floats, optimum: Floats) -> float:
    """Return ||model - optimum||^2 in float64."""
    gap = np.asarray(model, np.float64) - optimum
    return float(gap @ gap)


class Measured(NamedTuple):
    """Runs of one system: squared errors of theta(2), ..., theta(num_ticks + 1), and r_t (-1 in empty rounds)."""

    squared_error: Floats  # [seeds num_ticks]
    num_kept: Ints  # [seeds num_ticks]

    @property
    def mean(self) -> Floats:
        """Estimate of e(t+1) [num_ticks]."""
        return np.asarray(self.squared_error.mean(axis=0))

    @property
    def half_width(self) -> Floats:
        """Half of the 95 % confidence interval of the mean, by Student's t [num_ticks]."""
        return half_width(self.squared_error)


def _silent(_: str) -> None:
    pass


def squared_errors(
    problem: Problem, alpha: float, num_seeds: int, say: Callable[[str], None] = _silent, num_ticks: int | None = None
) -> Measured:
    """Simulate num_seeds runs with constant step alpha. Task, fleet and theta(1) are the same in all of them.

    Seeds start at options.seed + 1; channels, schedules, mini-batches and compression are drawn anew for each.
    num_ticks cuts the timeline short.
    """
    errors, kept = [], []
    for number in range(num_seeds):
        system = at_seed(problem, problem.options.seed + 1 + number, alpha)
        system = system._replace(ticks=system.ticks[:num_ticks])
        seed = system.experiment.seed
        trainer = ConvexTrainer(problem.objective, system.work, seed, problem.start, problem.optimum)
        result = simulate(system.experiment, system=system, trainer=trainer)
        errors.append([record.test_loss for record in result.rounds])
        kept.append([record.num_kept[0] if record.num_kept else -1 for record in result.rounds])
        say(f"run {number + 1} of {num_seeds}")
    return Measured(np.array(errors, np.float64), np.array(kept, np.int64))
