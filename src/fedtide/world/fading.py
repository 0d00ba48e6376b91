"""Block fading with a direct path, or milder and harsher than Rayleigh's: a new gain of mean 1 for every device and tick."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide import columns
from fedtide.core.arguments import arg
from fedtide.types import Floats, Ints, Link
from fedtide.world.channel import faded
from fedtide.world.coverage import Coverage, Equal


@dataclass(frozen=True)
class Rician:
    """Rician block fading, a direct path among many: |h|^2 = |sqrt(K/(K+1)) + CN(0,1)/sqrt(K+1)|^2, for every tick anew."""

    k_factor: Annotated[
        float, arg("K, power of the direct path over that of all others; a number, 0: Rayleigh", ge=0)
    ] = 3.0
    coverage: Annotated[Coverage, arg("average SNR of each link", key="run.coverage")] = Equal()  # noqa: RUF009 - a frozen value

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Link:
        """Return C_k [m]."""
        return faded(self.coverage, seed, time, device, rician_gain(seed, tick, device, self.k_factor))


def rician_gain(seed: int, tick: int, device: Ints, k_factor: float) -> Floats:
    """Return |h|^2 of these devices at this tick [m], of mean 1.

    The direct path's phase is left out: the others' are uniform, so that it changes nothing of |h|.
    """
    scattered = columns.complex_normal(seed, "rician", device, tick)
    direct = math.sqrt(k_factor / (k_factor + 1))
    return np.asarray((direct + scattered.real / math.sqrt(k_factor + 1)) ** 2 + scattered.imag**2 / (k_factor + 1))


@dataclass(frozen=True)
class Nakagami:
    """Nakagami-m block fading: |h|^2 ~ Gamma(m, 1/m), for every tick anew; m = 1 is Rayleigh, above it fades less."""

    m: Annotated[float, arg("shape: 1/m is the variance of the gain", ge=0.5, le=1e6)] = 2.0
    coverage: Annotated[Coverage, arg("average SNR of each link", key="run.coverage")] = Equal()  # noqa: RUF009 - a frozen value

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Link:
        """Return C_k [m]."""
        return faded(self.coverage, seed, time, device, nakagami_gain(seed, tick, device, self.m))


def nakagami_gain(seed: int, tick: int, device: Ints, m: float) -> Floats:
    """Return |h|^2 of these devices at this tick [m], of mean 1 and variance 1/m: the quantiles of uniform draws."""
    from scipy.special import gammaincinv

    return np.asarray(gammaincinv(m, columns.uniform(seed, "nakagami", device, tick)) / m)
