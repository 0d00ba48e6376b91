"""CSI: what the server knows of a link. Estimation errors, packet errors.

A csi is a callable (seed, tick, time, device [m], snr [m]) -> Signal(snr [m], estimated_snr [m]): the SNR of the links in
truth, and what the server takes it for, both numbers and not in dB. A packet of more bits than its link carries is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, TypeAlias

import numpy as np

from fedtide import columns
from fedtide.parts.arguments import arg
from fedtide.radio.modem import shannon_capacity, shannon_snr
from fedtide.types import Floats, Ints, Signal

Csi: TypeAlias = Callable[[int, int, float, Ints, Floats], Signal]


@dataclass(frozen=True)
class Perfect:
    """The paper's: the server knows every link exactly."""

    exact: ClassVar[bool] = True  # it is not asked: the server knows what the channel says it knows

    def __call__(self, seed: int, tick: int, time: float, device: Ints, snr: Floats) -> Signal:
        """Return the SNR, known [m]."""
        return Signal(snr, snr)


# An estimate is h^ = h + e, with e complex normal; where it exceeds the truth, packets are lost.
#
# With w ~ CN(0, 1), drawn for every device and tick, the estimated SNR is |sqrt(SNR) + sqrt(v) w|^2, v the variance of e in
# units of the noise: either in proportion to the link's own power (an error of feedback or of age), or what is left of the
# noise after so many pilots. The phase of h does not matter.


_Margin: TypeAlias = Annotated[
    float, arg("back-off that the server subtracts from its estimate", unit="dB", ge=0, le=300)
]


@dataclass(frozen=True)
class Noisy:
    """Gaussian error in proportion to the link: h^ = h (1 + sqrt(v) w), w ~ CN(0,1), SNR^ = |h^|^2 less a margin."""

    error: Annotated[float, arg("v, normalised mean square error of the estimate (linear)", ge=0, le=100)] = 0.05
    margin_db: _Margin = 0.0

    def __call__(self, seed: int, tick: int, time: float, device: Ints, snr: Floats) -> Signal:
        """Return the SNR and its estimate [m]. P(outage) = P(|1 + sqrt(v) w|^2 > margin), whatever the SNR."""
        seen = _rounded(snr)
        return Signal(snr, _estimate(seed, tick, device, seen, self.error * seen, self.margin_db))


@dataclass(frozen=True)
class Pilots:
    """Least-squares estimate from L pilot symbols: h^ = h + w / sqrt(L), w ~ CN(0,1) in units of the noise, less a margin."""

    pilots: Annotated[int, arg("L, pilot symbols per device", ge=1, le=10**6)] = 8
    margin_db: _Margin = 0.0

    def __call__(self, seed: int, tick: int, time: float, device: Ints, snr: Floats) -> Signal:
        """Return the SNR and its estimate [m]."""
        variance = np.full(len(device), 1 / self.pilots)
        return Signal(snr, _estimate(seed, tick, device, _rounded(snr), variance, self.margin_db))


def _rounded(snr: Floats) -> Floats:
    """Return the SNR as it comes back from Shannon's capacity [m]: stored runs were made with these last digits."""
    return shannon_snr(shannon_capacity(snr))


def _estimate(seed: int, tick: int, device: Ints, snr: Floats, variance: Floats, margin_db: float) -> Floats:
    """Return the estimated SNR, less the margin [m]."""
    error = columns.complex_normal(seed, "estimation", device, tick)
    spread = np.sqrt(variance)
    return 10 ** (-margin_db / 10) * np.asarray((np.sqrt(snr) + spread * error.real) ** 2 + (spread * error.imag) ** 2)


@dataclass(frozen=True)
class PacketErrors:
    """Updates lost with q = 1 - exp(-m (sigma^2 + I)/(P h)) = 1 - exp(-m/SINR): an update is one packet, lost or not.

    Chen et al., "A joint learning and communications framework for federated learning over wireless networks", IEEE Trans.
    Wireless Commun. 2021. Their waterfall threshold m is 0.023 dB, 1.005 as a number (their released code has 1.08).
    The rate is that of the SINR too. The server knows the SINR and grants accordingly, but not who will be lost.
    """

    waterfall_db: Annotated[float, arg("m, waterfall threshold of the code", unit="dB", ge=-100, le=100)] = 0.023
    interference: Annotated[
        float, arg("I/sigma^2, power of interference over that of noise (linear)", ge=0, le=1e12)
    ] = 0.0

    def __call__(self, seed: int, tick: int, time: float, device: Ints, snr: Floats) -> Signal:
        """Return the SINR, 0 for those that are lost; the server knows the SINR and not who is lost [m]."""
        sinr = _rounded(snr) / (1 + self.interference)
        lost = columns.uniform(seed, "packet error", device, tick) < _loss_chance(sinr, self.waterfall_db)
        return Signal(np.where(lost, 0.0, sinr), sinr)


def _loss_chance(sinr: Floats, waterfall_db: float) -> Floats:
    """Return q = 1 - exp(-m/SINR) [m]; 1 without any signal."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(-np.expm1(-(10 ** (waterfall_db / 10)) / sinr))


CSIS: Final[dict[str, Any]] = {"perfect": Perfect, "noisy": Noisy, "pilots": Pilots, "packet_error": PacketErrors}
