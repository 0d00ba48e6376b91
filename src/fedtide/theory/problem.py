"""A strongly convex task inside the simulator's own system: fleet, timeline, radio, policy and codec are the real ones."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedtide import config, data, system
from fedtide.errors import FedtideError
from fedtide.rng import stream
from fedtide.system import System
from fedtide.theory.objectives import LeastSquares, Objective, Softmax
from fedtide.theory.options import Options
from fedtide.types import Dataset, Floats, Ints, Samples, Vector
from fedtide.world.fleet import Fleet

SYMBOLS_PER_PARAMETER = 15.0  # at 13 dB and R = 4 most rounds then carry the whole update
MNIST_TRAIN = 6000  # samples that features are made of and devices draw from


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
    return Problem(options, objective, _system(options, objective), optimum, local, start.astype(np.float32))


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
    x, y, num_labels = _mnist(options) if options.data == "mnist" else _blobs(options)
    dealt = _deal(y, options)
    return Softmax([x[mine] for mine in dealt], [y[mine] for mine in dealt], num_labels, options.l2)


def _blobs(options: Options) -> tuple[Floats, Ints, int]:
    """Return Gaussian clouds around one centre per label, E||x||^2 = 1 [n p], labels [n] and their number."""
    rng = stream(options.seed, "synthetic", 2)
    num, p, c = options.num_devices * options.num_samples, options.num_features, options.num_labels
    labels = rng.permutation(np.arange(num, dtype=np.int64) % c)
    x = rng.standard_normal((c, p))[labels] + rng.standard_normal((num, p))
    return x / math.sqrt(2 * p), labels, c


def _mnist(options: Options) -> tuple[Floats, Ints, int]:
    """Return the leading principal components of MNIST images, whitened, E||x||^2 = 1 [n p], labels [n], 10."""
    wanted = options.num_devices * options.num_samples
    if wanted > 60_000:
        raise FedtideError(f"num_devices x num_samples = {wanted}: MNIST has 60000 training samples")
    dataset = data.of_mnist(num_train=max(wanted, MNIST_TRAIN))
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


def symbols(options: Options, objective: Objective) -> float:
    """Return n: as given, or SYMBOLS_PER_PARAMETER d."""
    return options.num_symbols or SYMBOLS_PER_PARAMETER * objective.num_parameters


def _system(options: Options, objective: Objective) -> System:
    """Build the simulator's system: E = 1, a constant step, the paper's combiner and codec."""
    horizon = options.num_ticks * options.period
    experiment = config.experiment(
        {
            "seed": options.seed,
            "fleet": {"num_devices": options.num_devices, "min_duration": options.min_duration, "max_duration": 1.0},
            "timeline": {"period": options.period, "horizon": horizon},
            "radio": {"num_symbols": symbols(options, objective), "snr_db": options.snr_db},
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
    fleet = Fleet(system.durations(experiment), partition, objective.num_samples, objective.label_counts)
    nothing = Samples(np.zeros((0, 1, 1, 1), np.float32), np.zeros(0, np.uint8))
    dataset = Dataset("theory", nothing, nothing, 2, "the objective holds the data")
    return system.build(experiment, dataset=dataset, fleet=fleet)
