"""What the server knows of a link: channel state information, estimation errors, packet errors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol, TypeAlias

import numpy as np

from fedtide import columns
from fedtide.parts.arguments import arg
from fedtide.radio.channel import Channel, of_snr
from fedtide.types import Floats, Ints, Link

# What the server knows of a link: channel state information.
#
# A csi is a callable (seed, tick, time, device [m], capacity [m]) -> Link(capacity [m], estimated_capacity [m]) in bit/symbol: what
# the links carry in truth, and what the server takes them for. A packet of more bits than its link carries does not arrive.
# If its attribute `exact` is True, it is not asked: the server knows what the channel says it knows.


class Csi(Protocol):
    """What the server knows of a link."""

    def __call__(self, seed: int, tick: int, time: float, device: Ints, capacity: Floats, /) -> Link:
        """Return what these links carry and what the server takes them for [m]."""
        ...


@dataclass(frozen=True)
class Perfect:
    """The paper's: the server knows every link as it is."""

    exact: ClassVar[bool] = True

    def __call__(self, seed: int, tick: int, time: float, device: Ints, capacity: Floats) -> Link:
        """Return the capacity, known [m]."""
        return Link(capacity, capacity)


def is_perfect(csi: Csi) -> bool:
    """Say whether the server knows what the channel says it knows."""
    return bool(getattr(csi, "exact", False))


@dataclass(frozen=True)
class Estimated:
    """A channel of which the server knows what a csi lets it know."""

    channel: Channel
    csi: Csi

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Link:
        """Return the links [m]; what the channel itself says that the server believes does not count."""
        link = self.channel(seed, tick, time, device)
        return self.csi(seed, tick, time, device, link.capacity if isinstance(link, Link) else link)


CSIS = {
    "perfect": Perfect,
    "noisy": "fedtide.radio.csi:Noisy",
    "pilots": "fedtide.radio.csi:Pilots",
    "packet_error": "fedtide.radio.csi:PacketErrors",
}


# What the server knows of a link that it estimates: h^ = h + e, with e complex normal. Believed above the truth: outage.
#
# A capacity C stands for the SNR 2^C - 1, the square of |h| in units of the noise; the phase of h does not matter. So with
# w ~ CN(0, 1), drawn for every device and tick, the believed SNR is |sqrt(SNR) + sqrt(v) w|^2, v the variance of e: either
# in proportion to the link's own power (an error of feedback or of age), or what is left of the noise after so many pilots.


_MOST = 1000.0  # bit/symbol; its SNR is still a number

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
    return np.asarray(np.expm1(np.minimum(capacity, _MOST) * math.log(2)))


def _believed(seed: int, tick: int, device: Ints, snr: Floats, variance: Floats, margin_db: float) -> Floats:
    """Return the capacity that goes with the estimate [m]."""
    error = columns.complex_normal(seed, "estimation", device, tick)
    spread = np.sqrt(variance)
    found = (np.sqrt(snr) + spread * error.real) ** 2 + (spread * error.imag) ** 2
    return of_snr(10 ** (-margin_db / 10) * found)


# Packets that are lost although the link would have carried them.


@dataclass(frozen=True)
class PacketErrors:
    """Updates lost with q = 1 - exp(-m (sigma^2 + I)/(P h)) = 1 - exp(-m/SINR): an update is one packet, lost or not.

    Chen et al., "A joint learning and communications framework for federated learning over wireless networks", IEEE Trans.
    Wireless Commun. 2021. Their waterfall threshold m is 0.023 dB, 1.005 as a number (their released code has 1.08).
    The rate is that of the SINR too. The server knows the SINR and grants accordingly, but not who will be lost.
    """

    waterfall_db: Annotated[float, arg("m, waterfall threshold of the code", unit="dB", ge=-100, le=100)] = 0.023
    interference: Annotated[
        float, arg("I/sigma^2, power of interference over that of noise; a number", ge=0, le=1e12)
    ] = 0.0

    def __call__(self, seed: int, tick: int, time: float, device: Ints, capacity: Floats) -> Link:
        """Return log2(1 + SINR), or 0 for those that are lost; the server believes the former [m]."""
        sinr = snr_of(capacity) / (1 + self.interference)
        believed = of_snr(sinr)
        lost = columns.uniform(seed, "packet error", device, tick) < loss_chance(sinr, self.waterfall_db)
        return Link(np.where(lost, 0.0, believed), believed)


def loss_chance(sinr: Floats, waterfall_db: float) -> Floats:
    """Return q = 1 - exp(-m/SINR) [m]; 1 without any signal."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(-np.expm1(-(10 ** (waterfall_db / 10)) / sinr))
