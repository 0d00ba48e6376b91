"""Lemmas 1-3 as inequalities between two numbers, on instances so small that both sides can be computed exactly.

Every expectation is a finite sum: over all mini-batches, over all kept sets, and over the quantiser in closed form.
All of it is conditional on r_t, so r_t stands where the theorem has r_min (docs/theory.md says why that is what is proved).
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple

import numpy as np

from fedtide.errors import FedtideError
from fedtide.types import Floats, Ints
from fedtide_lab.theory.bound import C_3, Constants, _curvature_term, _epsilon, tight_quantiser
from fedtide_lab.theory.objectives import Objective, _gradient

_MOST_TERMS = 20_000  # of one sum


class Instance(NamedTuple):
    """One age group M_m(t) in one round."""

    objective: Objective
    devices: Ints  # M_m(t) [j]
    weights: Floats  # w_k/c_m, sum 1 [j]
    model: Floats  # theta(t-m) [d]
    optimum: Floats  # theta* [d]
    local_optima: Floats  # theta_k* [N d]
    num_kept: int  # r_t
    num_levels: int  # nu
    batch_size: int
    alpha: float


class Inequality(NamedTuple):
    """left <= right?"""

    left: float
    right: float

    @property
    def holds(self) -> bool:
        """Is it true, rounding aside?"""
        return self.left <= self.right + 1e-9 * max(1.0, abs(self.left), abs(self.right))


def constants(instance: Instance) -> Constants:
    """Return the instance's constants, r_min = r_t; ages do not enter."""
    objective = instance.objective
    curvature, moments = objective.curvature(), objective.moments(instance.batch_size)
    local = instance.local_optima
    gaps = [objective.loss(k, instance.optimum) - objective.loss(k, own) for k, own in enumerate(local)]
    return Constants(
        d=objective.num_parameters,
        nu=instance.num_levels,
        mu=curvature.mu,
        L=curvature.L,
        C_1=moments.C_1,
        C_2=moments.C_2,
        zeta=float(((local - instance.optimum) ** 2).sum(axis=1).max()),
        local_gap=max(0.0, *gaps),
        r_min=instance.num_kept,
        a_lim=0,
        initial=_sq(instance.model - instance.optimum),
    )


def quantiser_variance(vectors: Floats, num_levels: int) -> Floats:
    """Return E||Q(v) - v||^2 of each row of vectors [b r], exactly: (||v||/nu)^2 sum_i p_i (1 - p_i) [b]."""
    norm = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled = num_levels * np.abs(vectors) / np.where(norm > 0, norm, 1.0)
    p = scaled - np.floor(scaled)
    return np.asarray((norm[:, 0] / num_levels) ** 2 * (p * (1 - p)).sum(axis=1))


def compression_noise(update: Floats, num_kept: int, num_levels: int) -> float:
    """Return E||Q(u~) - u~||^2 of an update [d], over all kept sets and the quantiser."""
    if num_kept == 0:
        return 0.0
    sets = _subsets(len(update), num_kept)
    return float(quantiser_variance(update[sets], num_levels).mean())


def batch_gradients(objective: Objective, device: int, model: Floats, batch_size: int) -> Floats:
    """Return the stochastic gradient of every mini-batch [batches d]."""
    gradients = objective.sample_gradients(device, model)
    sets = _subsets(len(gradients), min(batch_size, len(gradients)))
    return np.asarray(gradients[sets].mean(axis=1))


def mean_update(instance: Instance) -> Floats:
    """Return g-bar_m = (r_t/d) sum_k (w_k/c_m) grad F_k (def:g_bar1) [d]."""
    total = np.zeros(len(instance.model))
    for weight, k in zip(instance.weights, instance.devices, strict=True):
        total += weight * _gradient(instance.objective, int(k), instance.model)
    return total * (instance.num_kept / len(instance.model))


def update_noise(instance: Instance) -> float:
    """Return E||g_m - g-bar_m||^2 (eq:g_var), exactly; the devices are independent."""
    share = instance.num_kept / len(instance.model)
    total = 0.0
    for weight, k in zip(instance.weights, instance.devices, strict=True):
        drawn = batch_gradients(instance.objective, int(k), instance.model, instance.batch_size)
        quantised = [compression_noise(u, instance.num_kept, instance.num_levels) for u in drawn]
        second = float(np.mean(quantised)) + share * float((drawn**2).sum(axis=1).mean())
        total += weight**2 * (second - share**2 * _sq(drawn.mean(axis=0)))
    return total


def lemma_1(instance: Instance, c: Constants, q: float) -> Inequality:
    """Bound E||theta-breve_m(t+1) - theta*||^2 (lm:subset)."""
    alpha, gap = instance.alpha, _sq(instance.model - instance.optimum)
    left = _sq(instance.model - instance.optimum - alpha * mean_update(instance)) + alpha**2 * update_noise(instance)
    contraction = 1 - c.mu * alpha * c.rho + alpha**2 * _curvature_term(c, q)
    return Inequality(left, contraction * gap + alpha * _epsilon(c, alpha, q))


def lemma_2(instance: Instance, c: Constants) -> Inequality:
    """Bound ||theta(t-m) - theta* - alpha g-bar_m||^2 (lm:rearrange)."""
    alpha, gap = instance.alpha, _sq(instance.model - instance.optimum)
    left = _sq(instance.model - instance.optimum - alpha * mean_update(instance))
    right = (1 - c.mu * alpha * c.rho + 2 * c.L**2 * alpha**2) * gap + c.zeta * c.L * alpha * (2 * c.L * alpha + 1)
    return Inequality(left, right)


def lemma_3(instance: Instance, c: Constants, q: float) -> Inequality:
    """Bound E||g_m - g-bar_m||^2 (lm:var_g)."""
    gap, coefficient = _sq(instance.model - instance.optimum), C_3(c, q)
    return Inequality(update_noise(instance), coefficient * (gap + c.zeta) + 4 * c.C_1 * (1 + q))


def sharp_step(instance: Instance, c: Constants) -> Inequality:
    """Bound what Lemma 1 bounds by our one-step inequality, for alpha <= 1 / (L (1 + q) C_2)."""
    alpha, gap = instance.alpha, _sq(instance.model - instance.optimum)
    left = _sq(instance.model - instance.optimum - alpha * mean_update(instance)) + alpha**2 * update_noise(instance)
    noise = 2 * alpha * c.local_gap + alpha**2 * (1 + tight_quantiser(c)) * c.C_1
    return Inequality(left, (1 - c.mu * alpha * c.rho) * gap + c.rho * noise)


def sparsified_first(update: Floats, target: Floats, num_kept: int, num_levels: int) -> tuple[float, float]:
    """Return both sides of eq:after_rdmSp, averaged over the quantiser: what the codec does, and what the paper writes.

    Left: E||Q(u~) - g||^2 with the norm of the sparsified u~. Right: (r/d) E||Q(u) - g||^2 + (1 - r/d) ||g||^2.
    """
    share = num_kept / len(update)
    common = share * _sq(update - target) + (1 - share) * _sq(target)
    whole = float(quantiser_variance(update[None], num_levels)[0])
    return compression_noise(update, num_kept, num_levels) + common, share * whole + common


def _subsets(num: int, size: int) -> Ints:
    if math.comb(num, size) > _MOST_TERMS:
        raise FedtideError(
            f"{size} out of {num} makes {math.comb(num, size)} cases, more than {_MOST_TERMS}: the lemmas are checked "
            "exactly, on small instances; use fewer samples or parameters"
        )
    return np.array(list(combinations(range(num), size)), np.int64)


def _sq(vector: Floats) -> float:
    return float(vector @ vector)
