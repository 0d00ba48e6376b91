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
from typing import Annotated

import numpy as np

from fedtide import columns
from fedtide.core.arguments import arg
from fedtide.types import Floats, Ints, Link, read_only
from fedtide.world.channel import faded
from fedtide.world.coverage import Coverage, Equal
from fedtide.world.waves import Singles, cosine, sum_of_rows

MOST_KEPT = 2**22  # sinusoids of a fleet that are kept between ticks, at 8 bytes; of larger ones they are drawn again


@dataclass(frozen=True)
class Jakes:
    """Rayleigh fading with Jakes' spectrum, E[h(t) h*(t+s)] = J0(2 pi f_D s), f_D = v f_c / c; with K > 0 Rician."""

    num_devices: Annotated[int, arg("N", ge=1, le=10**8, key="fleet.num_devices")]
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
        speed, phase = _waves(seed, device, self.num_devices, self.paths, self.k_factor > 0)
        return faded(
            self.coverage, seed, time, device, gain(self.doppler * time, speed, phase, self.paths, self.k_factor)
        )


def gain(cycles: float, speed: Singles, phase: Singles, paths: int, k_factor: float = 0.0) -> Floats:
    """Return |h|^2 of mean 1 after so many cycles at full Doppler shift [m], of sinusoids as `_drawn` gives them."""
    turned = np.multiply(speed, cycles, dtype=np.float64)
    turned += phase
    waves = cosine(turned)
    real, imaginary = (sum_of_rows(each) / math.sqrt(paths) for each in (waves[:paths], waves[paths : 2 * paths]))
    if k_factor > 0:
        direct, others = math.sqrt(k_factor / (k_factor + 1)), 1 / math.sqrt(k_factor + 1)
        real, imaginary = direct * waves[-2] + others * real, direct * waves[-1] + others * imaginary
    return np.asarray(real**2 + imaginary**2)


def _waves(seed: int, device: Ints, num_devices: int, paths: int, direct: bool) -> tuple[Singles, Singles]:
    """Return how fast the sinusoids of these devices turn, in f_D, and their phases at time 0, in cycles [2M m].

    direct: two more for a direct path, its cosine and its sine [2M+2 m].
    """
    if 2 * (paths + 1) * num_devices > MOST_KEPT:
        return _drawn(seed, device, paths, direct)
    speed, phase = _everyones(seed, num_devices, paths, direct)
    return np.take(speed, device, axis=1), np.take(phase, device, axis=1)


@functools.lru_cache(maxsize=4)
def _everyones(seed: int, num_devices: int, paths: int, direct: bool) -> tuple[Singles, Singles]:
    """Return the sinusoids of all devices [2M N]: a function of its arguments, kept since it is asked at every tick."""
    speed, phase = _drawn(seed, np.arange(num_devices), paths, direct)
    return read_only(speed), read_only(phase)


def _drawn(seed: int, device: Ints, paths: int, direct: bool) -> tuple[Singles, Singles]:
    theta = np.pi * (2 * columns.uniform(seed, "jakes angle", device) - 1)
    angle = (2 * np.pi * np.arange(1, paths + 1)[:, None] - np.pi + theta) / (4 * paths)
    speed = [np.cos(angle), np.sin(angle)]
    phase = [columns.uniform(seed, "jakes phase", device, np.arange(2 * paths)[:, None])]
    if direct:  # from a direction of each device's own
        speed += [np.cos(2 * np.pi * columns.uniform(seed, "jakes direct", device))[None]] * 2
        begun = columns.uniform(seed, "jakes direct", device, draw=1)
        phase += [begun[None], begun[None] - 0.25]  # a sine is a cosine a quarter of a turn later
    return np.concatenate(speed).astype(np.float32), np.concatenate(phase).astype(np.float32)
