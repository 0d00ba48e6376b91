"""The uplinks of one tick: Rayleigh block fading and the capacity of a link (eq:cpct).

A channel is a callable (seed, tick, time, device [m]) -> Link(capacity [m], believed [m]) in bit/symbol, or the capacity
alone, which the server then knows exactly. It depends on its arguments alone, whoever else is asked, so that all policies
meet the same channel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np

from fedtide import columns
from fedtide.core.arguments import arg
from fedtide.rng import stream
from fedtide.types import Floats, Ints, Link
from fedtide.world.coverage import Coverage, Equal

FAINT = 1e-6  # SNR


def power_gain(seed: int, tick: int, num_devices: int) -> Floats:
    """Draw |h_k(t)|^2 of all N devices for one tick, h ~ CN(0, 1) i.i.d., so the gain is Exp(1) [N].

    Drawn for every device whether ready or not, so that all policies meet the same channel.
    """
    real, imaginary = stream(seed, "fading", tick).standard_normal((2, num_devices)) / np.sqrt(2)
    return np.asarray(real**2 + imaginary**2)


def capacity(gain: Floats, snr_db: float, large_scale: float | Floats = 1.0) -> Floats:
    """Return C_k = log2(1 + SNR beta_k |h_k|^2) in bit/symbol (eq:cpct) [N]; snr_db is the average SNR at beta = 1."""
    return of_snr(np.asarray(10 ** (snr_db / 10) * np.asarray(large_scale) * gain))


def of_snr(snr: Floats) -> Floats:
    """Return log2(1 + SNR) in bit/symbol [m]."""
    # log1p only where 1 + SNR loses digits of the SNR: elsewhere log2 has always been used, and runs keep their bits
    return np.asarray(np.where(snr < FAINT, np.log1p(snr) / math.log(2), np.log2(1 + snr)))


def faded(coverage: Coverage, seed: int, time: float, device: Ints, gain: Floats) -> Link:
    """Return the links of devices whose average SNR is multiplied by these gains [m], of mean 1; the server knows them."""
    found = of_snr(coverage(seed, device, np.full(len(device), time)) * gain)
    return Link(found, found)


class Channel(Protocol):
    """How well the uplinks carry."""

    def __call__(self, seed: int, tick: int, time: float, device: Ints, /) -> Link | Floats:
        """Return the links of these devices at this tick [m]."""
        ...


@dataclass(frozen=True)
class Rayleigh:
    """Rayleigh block fading: a new gain for every device and tick, |h_k|^2 ~ Exp(1).

    SNR and beta_k given here are those of coverage=equal; other coverages have their own.
    """

    num_devices: Annotated[int, arg("N, devices that the gains are drawn for", ge=1, le=10**8, key="fleet.num_devices")]
    snr_db: Annotated[float, arg("average received SNR", unit="dB", key="radio.snr_db")] = 13.0
    large_scale: Annotated[float | list[float], arg("beta_k: one, or one per device", key="radio.large_scale")] = 1.0
    coverage: Annotated[Coverage, arg("average SNR of each link", key="run.coverage")] = Equal()  # noqa: RUF009 - a frozen value

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Link:
        """Return C_k [m]. The gains come out of one stream, so they are drawn for all N, whoever is asked."""
        gain = power_gain(seed, tick, self.num_devices)[device]
        coverage = Equal(self.snr_db, self.large_scale) if isinstance(self.coverage, Equal) else self.coverage
        return faded(coverage, seed, time, device, gain)


@dataclass(frozen=True)
class RayleighByDevice:
    """Rayleigh block fading, each link drawn for itself: those of a few among a million cost a few draws.

    In distribution the same as `rayleigh`, whose gains come out of one stream and cost N draws a tick.
    """

    coverage: Annotated[Coverage, arg("average SNR of each link", key="run.coverage")] = Equal()  # noqa: RUF009 - a frozen value

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Link:
        """Return C_k [m]."""
        return faded(self.coverage, seed, time, device, columns.exponential(seed, "rayleigh", device, tick))


CHANNELS = {
    "rayleigh": Rayleigh,
    "rayleigh_by_device": RayleighByDevice,
    "rician": "fedtide.world.fading:Rician",
    "nakagami": "fedtide.world.fading:Nakagami",
    "jakes": "fedtide.world.correlated:Jakes",
    "trace": "fedtide.world.measured:Trace",
}
