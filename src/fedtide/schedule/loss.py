"""Schedulers that look at losses: power of choice, Oort."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedtide.parts.arguments import arg
from fedtide.schedule.schedulers import by_weight, largest
from fedtide.types import Candidates, Floats, Ints, Memory, Rng

# Power of choice (Cho, Wang and Joshi, "Client selection in federated learning: convergence analysis and power-of-choice
# selection strategies", arXiv:2010.01243, 2020, sec. 3).
#
#     1. draw a set A of d ready devices without replacement, device k with probability p_k = |S_k| / sum |S_j|
#     2. picked: the R devices of A with the largest local loss F_k(theta_k)
#
# d >= R: with d = R it is random selection by data size (little bias, slow), with d = m the R largest losses of all (fast,
# biased). The paper's devices of A compute F_k at the newest model and are as many as d; here F_k is of the model that
# device k received, and every ready device reports it, which is counted: 32 bits each.


@dataclass(frozen=True)
class MaxLoss:
    """Power of choice: of d devices drawn by data size, the R with the largest local loss."""

    drawn: Annotated[int | None, arg("d: devices that are drawn, at least R; not given: 2 R", ge=1, le=10**8)] = None
    needs: ClassVar[tuple[str, ...]] = ("loss",)

    def __call__(self, candidates: Candidates, limit: int, rng: Rng) -> Ints:
        """Draw, then sort by loss."""
        assert candidates.loss is not None
        count = max(2 * limit if self.drawn is None else self.drawn, limit)
        pool = np.sort(by_weight(candidates.num_samples, count, rng))
        return pool[largest(candidates.loss[pool], limit)]


# Oort (Lai, Zhu, Madhyastha and Chowdhury, "Oort: efficient federated learning via guided participant selection", OSDI
# 2021, algorithm 1).
#
#     Util_k = [ U_k / max_j U_j + sqrt(0.1 log t / L_k) ] (T / D_k)^(alpha 1{T < D_k}),      U_k = |S_k| F_k
#     eps_t  = max(eps_min, eps_0 decay^(t-1))
#     picked at t:  eps_t R devices that were never picked, drawn by speed 1/D_k; the others among those picked before:
#                   all with Util_k >= cutoff x (the last that would be among the best), drawn by Util_k
#
# F_k: loss of the model that device k received, on its own samples. L_k: tick at which k was last picked. D_k: how long k
# takes, which here is a_k + 1 ticks from receiving a model to being ready; T: preferred duration in ticks.
#
# What differs. The paper's U_k = |S_k| sqrt(mean of loss^2 over the samples) comes from the last participation; here every
# ready device reports its mean loss anew (32 bits each, counted), and U_k = |S_k| F_k is the same if all samples have the
# same loss. U_k is scaled by the largest among those picked before, so that the bonus for waiting counts whatever the unit
# of U_k. T is fixed (no pacer), and nobody is clipped or excluded. eps_t R is rounded up or down at random, with that mean.
#
# The authors' code does not divide by the largest U_k. It clips U_k at a quantile and takes (U_k - min U) / (max U - min U)
# over all feasible clients. The worst one then has only its bonus for waiting; here it keeps U_k / max U. That code draws
# new clients by data size and speed, here by speed alone.


@dataclass(frozen=True)
class Oort:
    """Oort: drawn by loss x data size, a bonus for waiting and a penalty for being slow; some devices are explored."""

    explore: Annotated[float, arg("eps_0: share of R that goes to new devices at first", ge=0, le=1)] = 0.9
    explore_least: Annotated[float, arg("eps_min: share that it falls to", ge=0, le=1)] = 0.2
    decay: Annotated[float, arg("of the share, per tick", gt=0, le=1)] = 0.98
    cutoff: Annotated[float, arg("c: share of the R-th best utility that admits to the draw", ge=0, le=1)] = 0.95
    preferred: Annotated[float, arg("T: duration from which on slow devices count less", unit="ticks", gt=0)] = 2.0
    penalty: Annotated[float, arg("alpha: how much less", ge=0)] = 2.0
    needs: ClassVar[tuple[str, ...]] = ("loss",)

    def init(self, num_devices: int) -> Memory:
        """Return L_k [N], 0 for never."""
        return {"last": np.zeros(num_devices, np.int64)}

    def __call__(self, memory: Memory, candidates: Candidates, limit: int, rng: Rng) -> tuple[Ints, Memory]:
        """Explore, exploit, remember who was picked."""
        tick, device = max(candidates.tick, 1), candidates.device
        known = memory["last"][device] > 0
        old, new = np.flatnonzero(known), np.flatnonzero(~known)
        share = max(self.explore_least, self.explore * self.decay ** (tick - 1))
        wanted = max(math.floor(share * limit + rng.random()), limit - len(old))
        explored = min(wanted, len(new), limit)
        util = self.utility(candidates, memory["last"][device], old)
        count = limit - explored
        if count:
            util_of_last = np.sort(util)[-count]
            admitted = util >= self.cutoff * util_of_last
            old, util = old[admitted], util[admitted]
        drawn = largest(util, count) if len(util) == count else by_weight(util, count, rng)
        picked = np.concatenate([old[drawn], new[by_weight(1 / (candidates.age[new] + 1.0), explored, rng)]])
        memory["last"][device[picked]] = tick
        return picked, memory

    def utility(self, candidates: Candidates, last: Ints, which: Ints) -> Floats:
        """Return Util_k of some positions; last: L_k [m]."""
        assert candidates.loss is not None
        value = candidates.num_samples[which] * np.maximum(candidates.loss[which], 0.0)
        best = value.max(initial=0.0)
        waiting = np.sqrt(0.1 * math.log(max(candidates.tick, 1)) / last[which])
        speed = np.minimum(self.preferred / (candidates.age[which] + 1.0), 1.0) ** self.penalty
        return np.asarray((value / (best or 1.0) + waiting) * speed)
