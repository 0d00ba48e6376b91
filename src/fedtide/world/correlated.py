"""Fading that goes on from tick to tick: a sum of sinusoids, which is a function of time and needs no state.

The model is that of Zheng and Xiao ("Simulation models with correct statistical properties for Rayleigh fading channels",
IEEE Trans. Commun. 2003): h(t) = 1/sqrt(M) sum_n cos(2 pi f_D t cos a_n + p_n) + j cos(2 pi f_D t sin a_n + q_n) with
a_n = (2 pi n - pi + theta)/(4 M), n = 1..M, and theta, p_n, q_n uniform, drawn once per device. So
E[h(t) h*(t + s)] = J0(2 pi f_D s) exactly, the mean of |h|^2 over time is 1 for every device, and its variance over devices
is 1 - 3/(4 M), where Rayleigh has 1.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide import columns
from fedtide.core.arguments import arg
from fedtide.types import Floats, Ints, Link, read_only
from fedtide.world.channel import faded
from fedtide.world.coverage import Coverage, Equal

MOST_KEPT = 2**22  # sinusoids of a fleet that are kept between ticks, at 8 bytes; of larger ones they are drawn again
Singles: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Jakes:
    """Rayleigh fading with Jakes' spectrum, E[h(t) h*(t+s)] = J0(2 pi f_D s), f_D = v f_c / c; with K > 0 Rician."""

    num_devices: Annotated[int, arg("N", ge=1, key="fleet.num_devices")]
    doppler: Annotated[
        float,
        arg(
            "f_D = v f_c / c: speed times carrier over 3e8 m/s, 10 Hz for 1.5 m/s at 2 GHz",
            unit="cycles per unit of time",
            ge=0,
            le=1e9,
        ),
    ] = 10.0
    k_factor: Annotated[float, arg("K, power of a direct path over that of all others; a number", ge=0)] = 0.0
    paths: Annotated[int, arg("M, sinusoids in each of the two quadratures", ge=4, le=256)] = 8
    coverage: Annotated[Coverage, arg("average SNR of each link", key="run.coverage")] = Equal()  # noqa: RUF009 - a frozen value

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Link:
        """Return C_k at this time [m]; the tick's number does not matter."""
        speed, phase = _waves(seed, device, self.num_devices, self.paths)
        real, imaginary = _scattered(self.doppler * time, speed, phase)
        if self.k_factor > 0:
            along, across = _direct(self.doppler * time, seed, device)
            direct, others = math.sqrt(self.k_factor / (self.k_factor + 1)), 1 / math.sqrt(self.k_factor + 1)
            real, imaginary = direct * along + others * real, direct * across + others * imaginary
        return faded(self.coverage, seed, time, device, real**2 + imaginary**2)


def _waves(seed: int, device: Ints, num_devices: int, paths: int) -> tuple[Singles, Singles]:
    """Return how fast the sinusoids of these devices turn, in f_D, and their phases at time 0, in cycles [m 2M]."""
    if 2 * paths * num_devices > MOST_KEPT:
        return _drawn(seed, device, paths)
    speed, phase = _everyones(seed, num_devices, paths)
    return speed[device], phase[device]


@functools.lru_cache(maxsize=4)
def _everyones(seed: int, num_devices: int, paths: int) -> tuple[Singles, Singles]:
    """Return the sinusoids of all devices [N 2M]: a function of its arguments, kept since it is asked at every tick."""
    speed, phase = _drawn(seed, np.arange(num_devices), paths)
    return read_only(speed), read_only(phase)


def _drawn(seed: int, device: Ints, paths: int) -> tuple[Singles, Singles]:
    theta = np.pi * (2 * columns.uniform(seed, "jakes angle", device) - 1)
    angle = (2 * np.pi * np.arange(1, paths + 1) - np.pi + theta[:, None]) / (4 * paths)
    phase = columns.uniform(seed, "jakes phase", device[:, None], np.arange(2 * paths))
    return np.concatenate([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32), phase.astype(np.float32)


def _scattered(cycles: float, speed: Singles, phase: Singles) -> tuple[Floats, Floats]:
    """Return the two quadratures of h after so many cycles at full Doppler shift [m], each of variance 1/2."""
    turned = np.multiply(speed, cycles, dtype=np.float64)
    turned += phase
    turned -= np.floor(
        turned
    )  # in double precision; what is left of a turn is exact enough in single, which is quicker
    turned *= 2 * np.pi
    paths = speed.shape[1] // 2
    sums = np.cos(turned.astype(np.float32)).reshape(len(speed), 2, paths).sum(axis=2) / math.sqrt(paths)
    return sums[:, 0].astype(np.float64), sums[:, 1].astype(np.float64)


def _direct(cycles: float, seed: int, device: Ints) -> tuple[Floats, Floats]:
    """Return the two quadratures of a path of power 1 from a direction of each device's own [m]."""
    speed = np.cos(2 * np.pi * columns.uniform(seed, "jakes direct", device))
    turned = 2 * np.pi * ((cycles * speed + columns.uniform(seed, "jakes direct", device, draw=1)) % 1)
    return np.cos(turned), np.sin(turned)
