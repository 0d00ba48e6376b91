"""A strongly convex task inside the simulator's own system: fleet, timeline, radio, policy and codec are the real ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from fedtide import config, data, simulate
from fedtide.devices import Fleet
from fedtide.engine import System, build, system_durations
from fedtide.errors import FedtideError
from fedtide.learning import LocalWork, Score, batches
from fedtide.rng import stream
from fedtide.studies import half_width
from fedtide.types import Dataset, Floats, Ints, Job, Samples, Vector
from fedtide_lab.theory.objectives import LeastSquares, Objective, Softmax
from fedtide_lab.theory.options import Options

_SYMBOLS_PER_PARAMETER = 15.0  # at 13 dB and R = 4 most rounds then carry the whole update
_MNIST_TRAIN = 6000  # samples that features are made of and devices draw from


SayLine: TypeAlias = Callable[[str], None]  # called with one line as things get done


def silent(_: str) -> None:
    """Say nothing."""


class Problem(NamedTuple):
    """Who learns what, and where the minima lie."""

    options: Options
    objective: Objective
    system: System  # with experiment.learning.learning_rate still to be set
    optimum: Floats  # theta* [d]
    local_optima: Floats  # theta_k* [N d]
    start: Vector  # theta(1) [d]


def make_problem(options: Options) -> Problem:
    """Make the task and its system; nothing is simulated yet."""
    objective = _objective(options)
    shares = objective.num_samples / objective.num_samples.sum()  # eq:globalLoss_f
    optimum = objective.minimiser(shares)
    local = np.array([objective.minimiser(alone) for alone in np.eye(options.num_devices)])
    direction = stream(options.seed, "initial_model").standard_normal(objective.num_parameters)
    start = optimum + options.start_distance * direction / np.linalg.norm(direction)
    return Problem(options, objective, system_of(options, objective), optimum, local, start.astype(np.float32))


def at_seed(problem: Problem, seed: int, learning_rate: float) -> System:
    """Return the system with this seed for channels, schedules, batches and compression; task and fleet stay."""
    experiment = problem.system.experiment
    learning = experiment.learning.model_copy(update={"learning_rate": learning_rate})
    return problem.system._replace(experiment=experiment.model_copy(update={"seed": seed, "learning": learning}))


def _objective(options: Options) -> Objective:
    return _least_squares(options) if options.task == "least_squares" else _softmax(options)


def _least_squares(options: Options) -> LeastSquares:
    """Y = x.theta_k + noise; X'X/n has the eigenvalues 1/condition..1 in axes of its own on every device."""
    p, n = options.num_features, options.num_samples
    spectrum = np.linspace(1 / options.condition, 1, p)
    common = stream(options.seed, "synthetic", 0).standard_normal(p)
    features, targets = [], []
    for device in range(options.num_devices):
        rng = stream(options.seed, "synthetic", 1, device)
        orthonormal, _ = np.linalg.qr(rng.standard_normal((n, p)))
        axes, _ = np.linalg.qr(rng.standard_normal((p, p)))
        x = math.sqrt(n) * (orthonormal * np.sqrt(spectrum)) @ axes.T
        own = common + options.heterogeneity * rng.standard_normal(p) / math.sqrt(p)
        features.append(x)
        targets.append(x @ own + options.noise * rng.standard_normal(n))
    return LeastSquares(features, targets, options.l2)


def _softmax(options: Options) -> Softmax:
    x, y, num_labels = mnist_features(options) if options.data == "mnist" else _blobs(options)
    dealt = _deal(y, options)
    return Softmax([x[mine] for mine in dealt], [y[mine] for mine in dealt], num_labels, options.l2)


def _blobs(options: Options) -> tuple[Floats, Ints, int]:
    """Return Gaussian clouds around one centre per label, E||x||^2 = 1 [n p], labels [n] and their number."""
    rng = stream(options.seed, "synthetic", 2)
    num, p, c = options.num_devices * options.num_samples, options.num_features, options.num_labels
    labels = rng.permutation(np.arange(num, dtype=np.int64) % c)
    x = rng.standard_normal((c, p))[labels] + rng.standard_normal((num, p))
    return x / math.sqrt(2 * p), labels, c


def mnist_features(options: Options) -> tuple[Floats, Ints, int]:
    """Return the leading principal components of MNIST images, whitened, E||x||^2 = 1 [n p], labels [n], 10."""
    wanted = options.num_devices * options.num_samples
    if wanted > 60_000:
        raise FedtideError(f"num_devices x num_samples = {wanted}: MNIST has 60000 training samples")
    dataset = data.load("mnist", num_train=max(wanted, _MNIST_TRAIN))
    images = dataset.train.floats().reshape(len(dataset.train.labels), -1).astype(np.float64)
    centred = images - images.mean(axis=0)
    values, axes = np.linalg.eigh(centred.T @ centred / len(centred))
    leading = slice(len(values) - options.num_features, None)
    scores = centred @ axes[:, leading] / np.sqrt(values[leading] * options.num_features)
    return scores[:wanted], dataset.train.labels[:wanted].astype(np.int64), dataset.num_labels


def _deal(labels: Ints, options: Options) -> list[Ints]:
    """Give every device num_samples: a share `heterogeneity` from the label-sorted samples, the rest at random."""
    n, num = options.num_samples, len(labels)
    from_sorted = round(options.heterogeneity * n)
    order = stream(options.seed, "partition").permutation(num)
    first = order[: options.num_devices * from_sorted]
    rest = order[len(first) :]
    by_label = first[np.argsort(labels[first], kind="stable")]
    parts = zip(
        by_label.reshape(options.num_devices, from_sorted),
        rest[: options.num_devices * (n - from_sorted)].reshape(options.num_devices, n - from_sorted),
        strict=True,
    )
    return [np.sort(np.concatenate(part)) for part in parts]


def symbols_per_tick_of(options: Options, objective: Objective) -> float:
    """Return n: as given, or SYMBOLS_PER_PARAMETER d."""
    return options.num_symbols or _SYMBOLS_PER_PARAMETER * objective.num_parameters


def system_of(options: Options, objective: Objective) -> System:
    """Build the simulator's system: E = 1, a constant step, the paper's aggregator and codec."""
    horizon = options.num_ticks * options.period
    experiment = config.experiment(
        {
            "seed": options.seed,
            "fleet": {"num_devices": options.num_devices, "min_duration": options.min_duration, "max_duration": 1.0},
            "timeline": {"period": options.period, "horizon": horizon},
            "radio": {"num_symbols": symbols_per_tick_of(options, objective), "snr_db": options.snr_db},
            "policy": {"scheduler": options.scheduler, "limit": options.limit, "age_base": options.age_base},
            "codec": {"num_levels": options.num_levels},
            "data": {"name": "synthetic", "partition": "iid"},
            "learning": {
                "model": "softmax",
                "local_steps": 1,
                "batch_size": options.batch_size,
                "schedule": "constant",
                "proximal": 0.0,  # its gradient is zero in the first step, whatever lambda
            },
        }
    )
    partition = [np.arange(n) for n in objective.num_samples]  # a device's samples, counted on the device
    fleet = Fleet(system_durations(experiment), partition, objective.num_samples, objective.label_counts)
    nothing = Samples(np.zeros((0, 1, 1, 1), np.float32), np.zeros(0, np.uint8))
    dataset = Dataset("theory", nothing, nothing, 2, "the objective holds the data")
    return build(experiment, dataset=dataset, fleet=fleet)


# What the simulated system does: E||theta(t) - theta*||^2 over seeds, by `simulate` with a trainer of our own.


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
            visited, _ = batches(self.seed, *job.address, job.indices, self.work)
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


def squared_errors(
    problem: Problem, alpha: float, num_seeds: int, say: SayLine = silent, num_ticks: int | None = None
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
