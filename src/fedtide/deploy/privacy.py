"""Label histograms with differential privacy, and what they cost the schedule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedtide.config import Experiment
from fedtide.deploy.settings import Deployment
from fedtide.engine.making import load_dataset
from fedtide.engine.step import step_candidates
from fedtide.engine.system import System, build
from fedtide.engine.ticks import grant_at_tick
from fedtide.errors import FedtideError
from fedtide.schedule.label_variance import label_variance
from fedtide.schedule.schedulers import SCHEDULERS
from fedtide.types import Ints, Rng

# Two-sided geometric (discrete Laplace) noise on clipped counts.
#
# Unit of privacy: one sample, added or removed. It changes one count by at most one, so the histogram's L1 sensitivity is 1
# and noise with P(z) proportional to exp(-epsilon |z|) on every count gives epsilon-differential privacy. Clipping before
# the noise never enlarges that difference; clipping after it, and the sum of the noisy counts as |S_k|, are
# post-processing. Whole-number noise has no low-order bits that could tell the count (Mironov 2012). The draw must be
# secret and made once: a server that knew the seed could subtract the noise, and one that sees many draws could average it
# away.


_MIN_EPSILON = 1e-12  # below it the noise goes beyond whole numbers of 64 bits


def private_counts(counts: Ints, epsilon: float, clip: int, rng: Rng) -> Ints:
    """Return noisy counts [c] or [m c], whole numbers in 0..clip, at least one sample in all."""
    if not (epsilon >= _MIN_EPSILON and math.isfinite(epsilon)):
        raise FedtideError(f"epsilon={epsilon}: it must be a positive number from {_MIN_EPSILON:g}, such as 1.0")
    success = -math.expm1(-epsilon)  # 1 - exp(-epsilon), the geometric law's p
    noise = rng.geometric(success, counts.shape) - rng.geometric(success, counts.shape)
    noisy: Ints = np.clip(np.clip(counts, 0, clip) + noise, 0, clip)
    empty = noisy.sum(axis=-1) == 0
    if empty.any():  # a device that seems to hold nothing could not be weighed
        noisy[..., 0] = np.where(empty, 1, noisy[..., 0])
    return noisy


def reported_counts(counts: Ints, settings: Deployment, secret: bytes) -> Ints:
    """Return the label counts [c] that a node reports: private ones if the deployment asks for that."""
    if settings.epsilon is None:
        return counts
    return private_counts(counts, settings.epsilon, settings.label_clip, secret_rng(secret))


def secret_rng(secret: bytes) -> Rng:
    """Return the generator that a node's secret names; the same secret gives the same noise."""
    return np.random.Generator(np.random.PCG64(int.from_bytes(secret, "big")))


# -- the price: plans only, nothing is trained. Omega is always taken over the true counts -------------------------


class Price(NamedTuple):
    """One epsilon. Means over all aggregations and draws of Omega over the true counts."""

    epsilon: float
    label_variance: float
    exact: float  # with exact counts
    random: float  # without looking at labels at all


def privacy_cost(
    experiment: Experiment, epsilons: Sequence[float], draws: int = 10, clip: int = 100_000
) -> list[Price]:
    """Return the price of each epsilon, over `draws` independent draws of the noise."""
    system = build(experiment, dataset=load_dataset(experiment, images=False))
    true = system.fleet.label_counts[:]
    exact = _mean_variance(system, true)
    blind = system._replace(policy=system.policy._replace(scheduler=SCHEDULERS["random"]()))
    random = _mean_variance(blind, true)

    def noisy(epsilon: float, draw: int) -> float:  # a study may repeat its noise, a node must not
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([experiment.seed, draw])))
        return _mean_variance(system, private_counts(true, epsilon, clip, rng))

    return [
        Price(epsilon, float(np.mean([noisy(epsilon, draw) for draw in range(draws)])), exact, random)
        for epsilon in epsilons
    ]


def _mean_variance(system: System, shown: Ints) -> float:
    """Return the mean Omega over the true counts [N c] when the scheduler is shown these counts [N c]."""
    fleet = system.fleet._replace(label_counts=shown, num_samples=shown.sum(axis=1))
    seen, uploads = system._replace(fleet=fleet), np.zeros(fleet.num_devices, np.int64)
    reached = []
    for tick in system.ticks:
        rows = step_candidates(seen, tick, uploads)
        picked = rows.device[grant_at_tick(seen, tick, rows).picked]
        uploads[picked] += 1
        if len(picked):
            reached.append(label_variance(system.fleet.label_counts[picked]))
    return float(np.mean(reached)) if reached else 0.0
