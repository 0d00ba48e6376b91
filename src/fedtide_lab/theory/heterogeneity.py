"""The paper's two measures of heterogeneity, Gamma and zeta, under its own partitions, and the error that the system settles at.

The task is softmax regression on the leading principal components of MNIST, on which every minimum can be computed. A seed draws
the samples, the partition, the fleet and the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedtide import simulate
from fedtide.data import iid, shards
from fedtide.learning import Score
from fedtide.rng import stream
from fedtide.types import Floats, Ints, Samples, Vector
from fedtide_lab.theory import bound, measure
from fedtide_lab.theory.measure import ConvexTrainer, Problem, SayLine, silent
from fedtide_lab.theory.objectives import Objective, Softmax
from fedtide_lab.theory.options import Options, make_options

CLAIM_SEEDS = range(10)  # fixed before the runs
SETTLING_SEEDS = range(6)  # fixed before the runs, too; fewer, as each run takes seconds
NUM_DEVICES = 40
IID = 0
SHARDS_PER_DEVICE = (1, 2, 3, 5, 10, IID)  # 40, 80, 120, 200 and 400 shards, and i.i.d. data
NUM_SAMPLES = (2400, 6000, 19_200, 60_000)  # |S|, multiples of 1,200: whole shards of equal size in every partition
SETTLING_STEP = 0.015  # alpha, below the paper's limit for every partition
PACES = {1.0: 1000, 0.25: 2000}  # T~ in units of T_max, and the aggregations of a run from theta*
_TAIL = 500  # of them, at the end, that are averaged
_LOSSES = 10  # models of that end whose loss is computed
_SUBSET = 3  # of the stream `synthetic`


class Spread(NamedTuple):
    """How much the devices' data differ under a partition."""

    seed: int
    shards: int  # per device
    samples: int  # |S|
    labels: float  # distinct ones per device, mean over devices
    gamma: float  # F* - sum_k |S_k|/|S| F_k* (def:Gamma)
    zeta: float  # max_k ||theta* - theta_k*||^2 (eq:noniid_b1)
    distance: float  # the mean over devices in place of the maximum


class Settled(NamedTuple):
    """Where the simulated system settles on the whole training set, starting from theta*."""

    seed: int
    shards: int
    period: float
    error: float  # ||theta(t) - theta*||^2, mean over the end of the run
    loss: float  # F - F*, mean over models of the end of the run
    step_share: float  # alpha as a share of the paper's limit


def claim_options(num_samples: int, seed: int = 0, period: float = 0.25) -> Options:
    """Return the options of the paper's fleet (N = 40, R = 0.2 N) on MNIST features, with so many samples in all."""
    each = num_samples // NUM_DEVICES
    return make_options(
        task="softmax",
        data="mnist",
        num_devices=NUM_DEVICES,
        num_samples=each,
        batch_size=min(50, each),
        limit=NUM_DEVICES // 5,
        period=period,
        num_symbols=3000 * 0.25 / period,  # 30 d in every aggregation
        num_ticks=PACES[period],
        num_draws=100,
        seed=seed,
    )


def mnist_pool(num_samples: int = NUM_SAMPLES[-1]) -> tuple[Floats, Ints]:
    """Return the features [n p] and the labels [n] of MNIST's training samples."""
    features, labels, _ = measure.mnist_features(claim_options(num_samples))
    return features, labels


def dealt_task(pool: tuple[Floats, Ints], num_samples: int, shards_per_device: int, seed: int) -> Softmax:
    """Deal num_samples of the pool, which the seed draws, to the devices as the paper does."""
    features, labels = pool
    chosen = np.sort(stream(seed, "synthetic", _SUBSET).permutation(len(labels))[:num_samples])
    x, y = features[chosen], labels[chosen]
    held = (
        iid(y, NUM_DEVICES, seed)
        if shards_per_device == IID
        else shards(y, NUM_DEVICES, seed, num_shards=shards_per_device * NUM_DEVICES)
    )
    mine = [held[k] for k in range(NUM_DEVICES)]
    return Softmax([x[which] for which in mine], [y[which] for which in mine], 10, claim_options(num_samples).l2)


def global_minimum(objective: Objective) -> Floats:
    """Return theta* [d]."""
    return objective.minimiser(_shares(objective))


def local_minima(objective: Objective) -> Floats:
    """Return theta_k* [N d]."""
    return np.array([objective.minimiser(alone) for alone in np.eye(len(objective.num_samples))])


def global_loss(objective: Objective, model: Floats) -> float:
    """Return F(model)."""
    return float(sum(share * objective.loss(k, model) for k, share in enumerate(_shares(objective))))


def gamma_of(objective: Objective, optimum: Floats, local: Floats) -> float:
    """Return Gamma, from theta* [d] and theta_k* [N d]."""
    lowest = [objective.loss(k, own) for k, own in enumerate(local)]
    return global_loss(objective, optimum) - float(_shares(objective) @ lowest)


def _shares(objective: Objective) -> Floats:
    return np.asarray(objective.num_samples / objective.num_samples.sum())


def gamma_limit(num_samples: Sequence[int], gamma: Sequence[float]) -> float:
    """Extrapolate Gamma to |S| -> infinity: a of the least-squares fit |S| Gamma = a |S| + b + c/|S|."""
    size = np.asarray(num_samples, np.float64)
    terms = np.stack([size, np.ones_like(size), 1 / size], axis=1)
    scale = np.abs(terms).max(axis=0)
    fitted, *_ = np.linalg.lstsq(terms / scale, size * np.asarray(gamma), rcond=None)
    return float(fitted[0] / scale[0])


def spreads(seeds: Sequence[int] = CLAIM_SEEDS, say: SayLine = silent) -> Iterator[Spread]:
    """Compute Gamma and zeta for every seed, partition and |S|."""
    pool = mnist_pool()
    for seed in seeds:
        for num_samples in NUM_SAMPLES:
            yield from _spreads_of_one_set(pool, num_samples, seed)
        say(f"Gamma and zeta: seed {seed}")


def _spreads_of_one_set(pool: tuple[Floats, Ints], num_samples: int, seed: int) -> Iterator[Spread]:
    """All partitions deal out all samples, so theta* is the same for all of them."""
    optimum = None
    for per_device in SHARDS_PER_DEVICE:
        objective = dealt_task(pool, num_samples, per_device, seed)
        optimum = global_minimum(objective) if optimum is None else optimum
        yield _spread(objective, optimum, local_minima(objective), seed, per_device)


def _spread(objective: Softmax, optimum: Floats, local: Floats, seed: int, per_device: int) -> Spread:
    away = ((local - optimum) ** 2).sum(axis=1)
    return Spread(
        seed=seed,
        shards=per_device,
        samples=int(objective.num_samples.sum()),
        labels=float((objective.label_counts > 0).sum(axis=1).mean()),
        gamma=gamma_of(objective, optimum, local),
        zeta=float(away.max()),
        distance=float(_shares(objective) @ away),
    )


@dataclass(frozen=True)
class _RecordingTrainer(ConvexTrainer):
    """Keeps every model that is evaluated."""

    models: list[Vector] = field(default_factory=list)

    def evaluate(self, model: Vector, samples: Samples) -> Score:
        self.models.append(model.copy())
        return super().evaluate(model, samples)


def settled_errors(seeds: Sequence[int] = SETTLING_SEEDS, say: SayLine = silent) -> Iterator[Settled]:
    """Simulate the system on the whole training set, from theta*, for every seed, partition and pace."""
    pool, optimum = mnist_pool(), None  # of all samples, so it is the same for every partition and seed
    for seed in seeds:
        for per_device in SHARDS_PER_DEVICE:
            objective = dealt_task(pool, NUM_SAMPLES[-1], per_device, seed)
            optimum = global_minimum(objective) if optimum is None else optimum
            for period in PACES:
                yield _settled(objective, optimum, seed, per_device, period)
        say(f"settled errors: seed {seed}")


def _settled(objective: Softmax, optimum: Floats, seed: int, per_device: int, period: float) -> Settled:
    options = claim_options(int(objective.num_samples.sum()), seed, period)
    start = optimum.astype(np.float32)
    unused = np.tile(optimum, (NUM_DEVICES, 1))  # theta_k*: the limit of the step size does not depend on them
    problem = Problem(options, objective, measure.system_of(options, objective), optimum, unused, start)
    limit = bound.PAPER_BOUND.step_limit(bound.bound_of(problem))
    system = measure.at_seed(problem, seed, SETTLING_STEP)
    trainer = _RecordingTrainer(objective, system.work, seed, start, optimum)
    simulate(system.experiment, system=system, trainer=trainer, threads=1)
    end = np.array(trainer.models[-_TAIL:], np.float64)
    sampled = end[:: _TAIL // _LOSSES]
    return Settled(
        seed=seed,
        shards=per_device,
        period=period,
        error=float(((end - optimum) ** 2).sum(axis=1).mean()),
        loss=float(np.mean([global_loss(objective, model) for model in sampled])) - global_loss(objective, optimum),
        step_share=SETTLING_STEP / limit,
    )
