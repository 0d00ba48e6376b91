"""What private label histograms cost the schedule: the label variance reached when the scheduler sees noisy counts.

Plans only, nothing is trained: the timeline and channels of the experiment, its scheduler, and counts with noise. Omega is
always taken over the true counts, so the price is in the devices that are picked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedtide.config import Experiment
from fedtide.drivers.ticks import candidates_at, grant_at
from fedtide.flower.privacy import private_counts
from fedtide.policy.label_variance import label_variance
from fedtide.policy.scheduling import SCHEDULERS
from fedtide.system import System, build, load_dataset
from fedtide.types import Ints, Rng


class Price(NamedTuple):
    """One epsilon. Means over all aggregations and draws of Omega over the true counts."""

    epsilon: float
    label_variance: float
    exact: float  # with exact counts
    random: float  # without looking at labels at all


def study(experiment: Experiment, epsilons: Sequence[float], draws: int = 10, clip: int = 100_000) -> list[Price]:
    """Return the price of each epsilon, over `draws` independent draws of the noise."""
    system = build(experiment, dataset=load_dataset(experiment, images=False))
    true = system.fleet.label_counts[:]
    exact = _mean_variance(system, true)
    blind = system._replace(policy=system.policy._replace(scheduler=SCHEDULERS["random"]()))
    random = _mean_variance(blind, true)
    prices = []
    for epsilon in epsilons:
        reached = []
        for draw in range(draws):
            noisy = private_counts(true, epsilon, clip, _rng(experiment.seed, draw))
            reached.append(_mean_variance(system, noisy))
        prices.append(Price(epsilon, float(np.mean(reached)), exact, random))
    return prices


def _rng(seed: int, draw: int) -> Rng:
    """Return the noise of one draw: a study may repeat it, a node must not."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, draw])))


def _mean_variance(system: System, shown: Ints) -> float:
    """Return the mean Omega over the true counts [N c] when the scheduler is shown these counts [N c]."""
    uploads = np.zeros(system.fleet.num_devices, np.int64)
    reached = []
    for tick in system.ticks:
        rows = candidates_at(system, tick, uploads)
        grant = grant_at(
            system,
            tick,
            rows._replace(label_counts=shown[rows.device], num_samples=shown[rows.device].sum(axis=1)),
        )
        picked = rows.device[grant.picked]
        uploads[picked] += 1
        if len(picked):
            reached.append(label_variance(system.fleet.label_counts[picked]))
    return float(np.mean(reached)) if reached else 0.0
