"""How the picked devices share the symbols of a tick: one after the other, or all at once.

An access is a callable (updates [r d], weights [r], snr [r], rng) -> sum_k w_k u_k as the server hears it [d]: of devices that
send at once, on the same symbols, nobody's update is read by itself. snr: the SNR at which the server receives each at its full
power, a number. rng: the stream of the tick. What it may say of itself:

    separate = True                updates are read one by one, each from symbols of its own; it is not asked
    min_snr = 0.0                  devices received below this SNR, or not at all, stay silent
    symbols_per_parameter = 0.5    a symbol is complex, and carries two parameters
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

import numpy as np
import numpy.typing as npt

from fedtide.types import Floats, Rng, Shares, Vector

MIN_SNR = 0.0
SYMBOLS_PER_PARAMETER = 0.5


class Access(Protocol):
    """How the picked devices share the symbols of a tick."""

    def __call__(self, updates: Vector, weights: Floats, snr: Floats, rng: Rng, /) -> Vector | Floats:
        """Return what the server hears of devices that send at once [d]."""
        ...


@dataclass(frozen=True)
class Orthogonal:
    """The paper's: every device has symbols of its own, as many as the allocation gives it, and a codec fills them."""

    separate: ClassVar[bool] = True

    def __call__(self, updates: Vector, weights: Floats, snr: Floats, rng: Rng) -> Floats:
        """Return sum_k w_k u_k [d], which the server makes itself of what it reads."""
        return weighted(updates, weights)


def weighted(updates: Vector, weights: Floats) -> Floats:
    """Return sum_k w_k u_k [d] in float64, one device after the other."""
    total = np.zeros(updates.shape[1])
    for weight, update in zip(weights, updates, strict=True):
        total += weight * update
    return total


def separate(access: Access) -> bool:
    """Say whether the server reads the updates one by one."""
    return bool(getattr(access, "separate", False))


def sends(access: Access, snr: Floats) -> npt.NDArray[np.bool_]:
    """Say which of the devices received at these SNRs send at all [r]; one that has symbols of its own always does."""
    if separate(access):
        return np.ones(len(snr), np.bool_)
    return np.asarray((snr >= getattr(access, "min_snr", MIN_SNR)) & (snr > 0))


def symbols(access: Access, num_parameters: int) -> int:
    """Return how many symbols d parameters of all devices together take."""
    return math.ceil(num_parameters * getattr(access, "symbols_per_parameter", SYMBOLS_PER_PARAMETER))


@dataclass(frozen=True)
class AtOnce:
    """All use all symbols: each counts for an equal share of them, no bits are granted. Takes the allocation's place."""

    def __call__(self, capacity: Floats, num_symbols: float) -> Shares:
        """Return shares that add up to num_symbols, and no bits [r]."""
        count = len(capacity)
        return Shares(np.full(count, num_symbols / max(count, 1)), np.zeros(count))


ACCESSES: Final[dict[str, Any]] = {
    "orthogonal": Orthogonal,
    "over_the_air": "fedtide.world.over_the_air:OverTheAir",
}
