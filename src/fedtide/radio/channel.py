"""Channels: the SNR of every uplink at a tick, by block fading or correlated fading.

A channel is a callable (seed, tick, time, device [m]) -> SNR [m], a number and not in dB; one that knows rates rather than
SNRs returns Link(capacity [m], estimated_capacity [m]) in bit/symbol. It depends on its arguments alone, whoever else is
asked, so that all policies meet the same channel. What a modem makes of an SNR is in `modem.py`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Annotated, Any, Final, Protocol

import numpy as np

from fedtide import columns
from fedtide.parts.arguments import arg
from fedtide.radio.cell import Coverage, Equal
from fedtide.radio.propagation import Singles, float32_cosine, sum_of_rows
from fedtide.rng import stream
from fedtide.types import Floats, Ints, Link, read_only


def power_gain(seed: int, tick: int, num_devices: int) -> Floats:
    """Draw |h_k(t)|^2 of all N devices for one tick, h ~ CN(0, 1) i.i.d., so the gain is Exp(1) [N].

    Drawn for every device whether ready or not, so that all policies meet the same channel.
    """
    real, imaginary = stream(seed, "fading", tick).standard_normal((2, num_devices)) / np.sqrt(2)
    return np.asarray(real**2 + imaginary**2)


def faded(coverage: Coverage, seed: int, time: float, device: Ints, gain: Floats) -> Floats:
    """Return the SNR of devices whose average SNR is multiplied by these gains of mean 1 [m]."""
    return coverage(seed, device, np.full(len(device), time)) * gain


class Channel(Protocol):
    """How strong the uplinks are."""

    def __call__(self, seed: int, tick: int, time: float, device: Ints, /) -> Floats | Link:
        """Return the SNR of these devices at this tick, or the links themselves [m]."""
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

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Floats:
        """Return SNR_k [m]. The gains come out of one stream, so they are drawn for all N, whoever is asked."""
        gain = power_gain(seed, tick, self.num_devices)[device]
        coverage = Equal(self.snr_db, self.large_scale) if isinstance(self.coverage, Equal) else self.coverage
        return faded(coverage, seed, time, device, gain)


@dataclass(frozen=True)
class RayleighByDevice:
    """Rayleigh block fading, each link drawn for itself: those of a few among a million cost a few draws.

    In distribution the same as `rayleigh`, whose gains come out of one stream and cost N draws a tick.
    """

    coverage: Annotated[Coverage, arg("average SNR of each link", key="run.coverage")] = Equal()  # noqa: RUF009 - a frozen value

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Floats:
        """Return SNR_k [m]."""
        return faded(self.coverage, seed, time, device, columns.exponential(seed, "rayleigh", device, tick))


# Block fading with a direct path, or milder and harsher than Rayleigh's: a new gain of mean 1 for every device and tick.


@dataclass(frozen=True)
class Rician:
    """Rician block fading, a direct path among many: |h|^2 = |sqrt(K/(K+1)) + CN(0,1)/sqrt(K+1)|^2, for every tick anew."""

    k_factor: Annotated[
        float, arg("K, power of the direct path over that of all others; a number, 0: Rayleigh", ge=0)
    ] = 3.0
    coverage: Annotated[Coverage, arg("average SNR of each link", key="run.coverage")] = Equal()  # noqa: RUF009 - a frozen value

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Floats:
        """Return SNR_k [m]."""
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

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Floats:
        """Return SNR_k [m]."""
        return faded(self.coverage, seed, time, device, nakagami_gain(seed, tick, device, self.m))


def nakagami_gain(seed: int, tick: int, device: Ints, m: float) -> Floats:
    """Return |h|^2 of these devices at this tick [m], of mean 1 and variance 1/m: the quantiles of uniform draws."""
    from scipy.special import gammaincinv

    return np.asarray(gammaincinv(m, columns.uniform(seed, "nakagami", device, tick)) / m)


# Fading that goes on from tick to tick: a sum of sinusoids, which is a function of time and needs no state.
#
# The model is that of Zheng and Xiao ("Simulation models with correct statistical properties for Rayleigh fading channels",
# IEEE Trans. Commun. 2003): h(t) = 1/sqrt(M) sum_n cos(2 pi f_D t cos a_n + p_n) + j cos(2 pi f_D t sin a_n + q_n) with a_n
# = (2 pi n - pi + theta)/(4 M), n = 1..M, and theta, p_n, q_n uniform, drawn once per device. So E[h(t) h*(t + s)] = J0(2
# pi f_D s) exactly, the mean of |h|^2 over time is 1 for every device, and its variance over devices is 1 - 3/(4 M), where
# Rayleigh has 1.


MOST_WAVES_KEPT = (
    2**22
)  # sinusoids of a fleet that are kept between ticks, at 8 bytes; of larger ones they are drawn again


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

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Floats:
        """Return SNR_k at this time [m]; the tick's number does not matter."""
        speed, phase = _waves(seed, device, self.num_devices, self.paths, self.k_factor > 0)
        return faded(
            self.coverage, seed, time, device, jakes_gain(self.doppler * time, speed, phase, self.paths, self.k_factor)
        )


def jakes_gain(cycles: float, speed: Singles, phase: Singles, paths: int, k_factor: float = 0.0) -> Floats:
    """Return |h|^2 of mean 1 after so many cycles at full Doppler shift [m], of sinusoids as `_drawn` gives them."""
    turned = np.multiply(speed, cycles, dtype=np.float64)
    turned += phase
    waves = float32_cosine(turned)
    real, imaginary = (sum_of_rows(each) / math.sqrt(paths) for each in (waves[:paths], waves[paths : 2 * paths]))
    if k_factor > 0:
        direct, others = math.sqrt(k_factor / (k_factor + 1)), 1 / math.sqrt(k_factor + 1)
        real, imaginary = direct * waves[-2] + others * real, direct * waves[-1] + others * imaginary
    return np.asarray(real**2 + imaginary**2)


def _waves(seed: int, device: Ints, num_devices: int, paths: int, direct: bool) -> tuple[Singles, Singles]:
    """Return how fast the sinusoids of these devices turn, in f_D, and their phases at time 0, in cycles [2M m].

    direct: two more for a direct path, its cosine and its sine [2M+2 m].
    """
    if 2 * (paths + 1) * num_devices > MOST_WAVES_KEPT:
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


CHANNELS: Final[dict[str, Any]] = {
    "rayleigh": Rayleigh,
    "rayleigh_by_device": RayleighByDevice,
    "rician": Rician,
    "nakagami": Nakagami,
    "jakes": Jakes,
    "trace": "fedtide.radio.trace:TraceChannel",
}
