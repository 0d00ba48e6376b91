"""Modems: the bits that a symbol carries at an SNR. Channel, CSI and modem together make an uplink.

A modem is a callable (snr [m]) -> capacity [m] in bit/symbol: what links carry that are received at these SNRs, numbers and
not in dB. It depends on its argument alone, link by link.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from fedtide.types import Floats, Ints, Link

if TYPE_CHECKING:
    from fedtide.radio.channel import Channel
    from fedtide.radio.csi import Csi

_FAINT_SNR = 1e-6
_LARGEST_CAPACITY = 1000.0  # bit/symbol; its SNR is still a number


Modem: TypeAlias = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Shannon:
    """The paper's: C = log2(1 + SNR) in bit/symbol (eq:cpct)."""

    def __call__(self, snr: Floats) -> Floats:
        """Return C_k [m]."""
        return shannon_capacity(snr)


MODEMS: Final[dict[str, Any]] = {"shannon": Shannon}


def shannon_capacity(snr: Floats) -> Floats:
    """Return log2(1 + SNR) in bit/symbol [m]."""
    # log1p only where 1 + SNR loses digits of the SNR: elsewhere log2 has always been used, and runs keep their bits
    return np.asarray(np.where(snr < _FAINT_SNR, np.log1p(snr) / math.log(2), np.log2(1 + snr)))


def shannon_snr(capacity: Floats) -> Floats:
    """Return the SNR 2^C - 1 at which links have this capacity, a number [m]."""
    return np.asarray(np.expm1(np.minimum(capacity, _LARGEST_CAPACITY) * math.log(2)))


@dataclass(frozen=True)
class Uplink:
    """Channel, CSI and modem: what the uplinks carry, and what the server believes that they carry."""

    channel: Channel
    csi: Csi
    modem: Modem

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Link:
        """Return the links of these devices at this tick [m]."""
        found, modem = self.channel(seed, tick, time, device), self.modem
        known = bool(getattr(self.csi, "exact", False))  # the server knows what the channel says it knows
        if isinstance(found, Link):
            if known:
                return found
            found, modem = shannon_snr(found.capacity), shannon_capacity  # rates have passed a modem already
        if known:
            capacity = modem(found)
            return Link(capacity, capacity)
        signal = self.csi(seed, tick, time, device, found)
        return Link(modem(signal.snr), modem(signal.estimated_snr))
