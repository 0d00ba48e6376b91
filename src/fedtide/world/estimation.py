"""What the server knows of a link that it estimates: h^ = h + e, with e complex normal. Believed above the truth: outage.

A capacity C stands for the SNR 2^C - 1, the square of |h| in units of the noise; the phase of h does not matter. So with
w ~ CN(0, 1), drawn for every device and tick, the believed SNR is |sqrt(SNR) + sqrt(v) w|^2, v the variance of e: either in
proportion to the link's own power (an error of feedback or of age), or what is left of the noise after so many pilots.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np

from fedtide import columns
from fedtide.core.arguments import arg
from fedtide.types import Floats, Ints, Link
from fedtide.world.channel import of_snr

MOST = 1000.0  # bit/symbol; its SNR is still a number

Margin: TypeAlias = Annotated[float, arg("back-off: what the server takes off its estimate", unit="dB", ge=0, le=300)]


@dataclass(frozen=True)
class Noisy:
    """Gaussian error in proportion to the link: h^ = h (1 + sqrt(v) w), w ~ CN(0,1), SNR^ = |h^|^2 less a margin."""

    error: Annotated[float, arg("v, normalised mean square error of the estimate; a number", ge=0, le=100)] = 0.05
    margin_db: Margin = 0.0

    def __call__(self, seed: int, tick: int, time: float, device: Ints, capacity: Floats) -> Link:
        """Return the links as they are, and estimated [m]. P(outage) = P(|1 + sqrt(v) w|^2 > margin), whatever the SNR."""
        snr = snr_of(capacity)
        return Link(capacity, _believed(seed, tick, device, snr, self.error * snr, self.margin_db))


@dataclass(frozen=True)
class Pilots:
    """Least-squares estimate from L pilot symbols: h^ = h + w / sqrt(L), w ~ CN(0,1) in units of the noise, less a margin."""

    pilots: Annotated[int, arg("L, pilot symbols of each device", ge=1, le=10**6)] = 8
    margin_db: Margin = 0.0

    def __call__(self, seed: int, tick: int, time: float, device: Ints, capacity: Floats) -> Link:
        """Return the links as they are, and estimated [m]."""
        variance = np.full(len(device), 1 / self.pilots)
        return Link(capacity, _believed(seed, tick, device, snr_of(capacity), variance, self.margin_db))


def snr_of(capacity: Floats) -> Floats:
    """Return 2^C - 1 [m]."""
    return np.asarray(np.expm1(np.minimum(capacity, MOST) * math.log(2)))


def _believed(seed: int, tick: int, device: Ints, snr: Floats, variance: Floats, margin_db: float) -> Floats:
    """Return the capacity that goes with the estimate [m]."""
    error = columns.complex_normal(seed, "estimation", device, tick)
    spread = np.sqrt(variance)
    found = (np.sqrt(snr) + spread * error.real) ** 2 + (spread * error.imag) ** 2
    return of_snr(10 ** (-margin_db / 10) * found)
