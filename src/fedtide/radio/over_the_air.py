"""How the picked devices share the symbols of a tick: one after the other, or all at once over the air.

An access is a callable (updates [r d], weights [r], snr [r], rng) -> sum_k w_k u_k as the server hears it [d]: of devices that
send at once, on the same symbols, nobody's update is read by itself. snr: the SNR at which the server receives each at its
full power, a number. rng: the stream of the tick. What it may say of itself:

    separate = True                updates are read one by one, each from symbols of its own; it is not asked
    min_snr = 0.0                  devices received below this SNR, or not at all, stay silent
    symbols_per_parameter = 0.5    a symbol is complex, and carries two parameters
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide.parts.arguments import arg
from fedtide.types import Floats, Rng, Shares, Vector

Access: TypeAlias = Callable[[Vector, Floats, Floats, Rng], Vector | Floats]
MIN_SNR = 0.0
ANALOG_SYMBOLS_PER_PARAMETER = 0.5


@dataclass(frozen=True)
class Orthogonal:
    """The paper's: every device has its own symbols, given by the allocation and filled by a codec."""

    separate: ClassVar[bool] = True

    def __call__(self, updates: Vector, weights: Floats, snr: Floats, rng: Rng) -> Floats:
        """Return sum_k w_k u_k [d], which the server makes itself of what it reads."""
        return _weighted(updates, weights)


def _weighted(updates: Vector, weights: Floats) -> Floats:
    """Return sum_k w_k u_k [d] in float64, one device after the other."""
    total = np.zeros(updates.shape[1])
    for weight, update in zip(weights, updates, strict=True):
        total += weight * update
    return total


def is_not_over_the_air(access: Access) -> bool:
    """Say whether the server reads the updates one by one."""
    return bool(getattr(access, "separate", False))


def sends_over_the_air(access: Access, snr: Floats) -> npt.NDArray[np.bool_]:
    """Say which of the devices received at these SNRs send at all [r]; one that has symbols of its own always does."""
    if is_not_over_the_air(access):
        return np.ones(len(snr), np.bool_)
    return np.asarray((snr >= getattr(access, "min_snr", MIN_SNR)) & (snr > 0))


def symbols_over_the_air(access: Access, num_parameters: int) -> int:
    """Return how many symbols d parameters of all devices together take."""
    return math.ceil(num_parameters * getattr(access, "symbols_per_parameter", ANALOG_SYMBOLS_PER_PARAMETER))


@dataclass(frozen=True)
class OverTheAirAccess:
    """All use all symbols: each counts for an equal share of them, no bits are granted. Takes the allocation's place."""

    def __call__(self, capacity: Floats, num_symbols: float) -> Shares:
        """Return shares that add up to num_symbols, and no bits [r]."""
        count = len(capacity)
        return Shares(np.full(count, num_symbols / max(count, 1)), np.zeros(count))


# Over-the-air aggregation: devices send their updates at once, uncoded, and the air adds them up.
#
# Zhu, Wang, Huang, Broadband analog aggregation for low-latency federated edge learning (IEEE Trans. Wireless Commun.
# 2020), for truncated channel inversion; Amiri, Gündüz, Federated learning over wireless fading channels (2020), for
# symbols that carry two parameters; Yang, Jiang, Shi, Ding, Federated learning via over-the-air computation (2020), for the
# amplitude that all reach.
#
#     x_k = a w_k u_k / h_k                   what device k sends, if |h_k|^2 is at least the threshold; else it stays silent
#     y = sum_k h_k x_k + z                   what the server receives, z ~ CN(0, sigma^2) in every symbol
#     y / a = sum_k w_k u_k + noise           what it goes on with
#
# A symbol carries two parameters (its real and its imaginary part), d/2 symbols the update, whoever sends. The power of
# device k, a^2 w_k^2 2 ||u_k||^2 / (d |h_k|^2) on average over these symbols, is P at most; at P it is received with the
# SNR gamma_k = P |h_k|^2 / sigma^2, with which it would have the capacity log2(1 + gamma_k). So the amplitude that all can
# reach is
#
#     a^2 = min_k P |h_k|^2 d / (2 w_k^2 ||u_k||^2)
#
# and the noise of a parameter, half of sigma^2 / a^2, has the variance
#
#     v = max_k w_k^2 ||u_k||^2 / (d gamma_k)
#
# Who knows what: every device knows its own h_k as it is (pilots of the server, and a channel that is the same both ways).
# Those above the threshold report ||u_k||^2 / (d gamma_k), one number each, which the ledger counts as 32 control bits; so
# the server knows who sends, without knowing the channels, weighs these alone (sum_k w_k = 1 over them), and tells them a
# and their w_k. All are in step, and a channel stays as it is while they send. `radio.csi` is what schedulers see, and has
# no part in it.


@dataclass(frozen=True)
class OverTheAir:
    """All devices send at once, analog, with truncated channel inversion; the server receives sum_k w_k u_k plus noise.

    Takes d/2 symbols whoever sends, no bits, and needs codec.name=ideal. The noise of a parameter has the variance
    max_k w_k^2 ||u_k||^2 / (d SNR_k), of the device that reaches its full power first.
    """

    min_snr: Annotated[float, arg("SNR at full power below which a device stays silent (linear, not dB)", ge=0)] = 1.0

    def __call__(self, updates: Vector, weights: Floats, snr: Floats, rng: Rng) -> Floats:
        """Return sum_k w_k u_k + sqrt(v) n, n ~ N(0, 1) [d]."""
        noise = math.sqrt(_noise_variance(updates, weights, snr))
        return np.asarray(_weighted(updates, weights) + noise * rng.standard_normal(updates.shape[1]))


def _noise_variance(updates: Vector, weights: Floats, snr: Floats) -> float:
    """Return v = max_k w_k^2 ||u_k||^2 / (d gamma_k), of each parameter; gamma_k > 0. Nothing sent: no noise."""
    power = np.array([np.square(each, dtype=np.float64).mean() for each in updates])  # ||u_k||^2 / d [r]
    return float((weights**2 * power / snr).max(initial=0.0))


ACCESSES: Final[dict[str, Any]] = {"orthogonal": Orthogonal, "over_the_air": OverTheAir}
