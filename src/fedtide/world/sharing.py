"""Other ways to share a tick's symbols; every device sends at its nominal power, so that bits = symbols x capacity.

Why there is no water-filling: that splits one transmitter's power over its links, and here every device has a transmitter
of its own; links are known by their capacities at nominal power, and an allocation shares symbols. What is left of it, the
greatest sum of bits over fixed links, is linear in the symbols and gives all of them to the best one (MaxSumRate).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide.core.arguments import arg
from fedtide.types import Floats, Shares
from fedtide.world.allocation import equal_bits


def filled(symbols: Floats, capacity: Floats) -> Shares:
    """Return the shares of devices that send as much as their symbols carry [r]."""
    return Shares(symbols, symbols * capacity)


@dataclass(frozen=True)
class EqualSymbols:
    """Everyone gets the same number of symbols: n_k = n/r. Of all divisions it has the greatest product of bits."""

    def __call__(self, capacity: Floats, num_symbols: float) -> Shares:
        """Return n/r and C_k n/r [r]."""
        return filled(np.full(len(capacity), num_symbols / max(len(capacity), 1)), capacity)


@dataclass(frozen=True)
class MaxSumRate:
    """The greatest sum of bits: all symbols to the best link, but for a floor that everyone has; equal links share equally."""

    min_share: Annotated[float, arg("floor, as a share of n/r: 0 is greedy, 1 is equal symbols", ge=0, le=1)] = 0.0

    def __call__(self, capacity: Floats, num_symbols: float) -> Shares:
        """Return n_k = min_share n/r, and what is left to the best [r]."""
        if len(capacity) == 0:
            return filled(np.zeros(0), capacity)
        floor, best = self.min_share * num_symbols / len(capacity), capacity == capacity.max()
        rest = (1 - self.min_share) * num_symbols
        return filled(floor + np.where(best, rest / best.sum(), 0.0), capacity)


@dataclass(frozen=True)
class AlphaFair:
    """The greatest sum of B_k^(1-alpha)/(1-alpha) over the bits B_k (Mo and Walrand 2000): n_k ~ C_k^((1-alpha)/alpha).

    Between all to the best (alpha to 0) and equal bits (alpha to infinity): 1/2 shares by capacity, 1 equally (of symbols,
    proportional fairness), 2 by 1/sqrt(C_k). A dead link gets nothing.
    """

    alpha: Annotated[float, arg("how fair: near 0 the best takes all, 1 equal symbols, large equal bits", gt=0)] = 1.0

    def __call__(self, capacity: Floats, num_symbols: float) -> Shares:
        """Return n_k = n C_k^e / sum_j C_j^e with e = (1 - alpha)/alpha [r]."""
        alive = capacity > 0
        if not alive.any():
            return filled(np.zeros(len(capacity)), capacity)
        power = (1 - self.alpha) / self.alpha * np.log(np.where(alive, capacity, 1.0))
        share = np.where(alive, np.exp(power - power[alive].max()), 0.0)  # the largest is 1: nothing overflows
        return filled(num_symbols * (share / math.fsum(share)), capacity)


@dataclass(frozen=True)
class LatencyMinimal:
    """The bandwidth that has the last of equally long updates in soonest: min max_k B/(w_k C_k), so w_k ~ 1/C_k.

    Everyone then finishes at the same time, which is what equal bits are; with `payload_bits` nobody gets more than that, and
    symbols are left over where all are served. A dead link, which never finishes, gets nothing.
    """

    payload_bits: Annotated[
        float | None, arg("what each of them has to send; not given: as much as all can", unit="bit", gt=0)
    ] = None

    def __call__(self, capacity: Floats, num_symbols: float) -> Shares:
        """Return n_k = B/C_k and B = min(n / sum_j(1/C_j), payload_bits) for those whose link carries anything [r]."""
        alive = capacity > 0
        symbols, bits = np.zeros(len(capacity)), np.zeros(len(capacity))
        symbols[alive], bits[alive] = equal_bits(capacity[alive], num_symbols)
        most = float(bits.max(initial=0.0))
        if self.payload_bits is not None and most > self.payload_bits:
            return Shares(symbols * (self.payload_bits / most), np.where(alive, self.payload_bits, 0.0))
        return Shares(symbols, bits)
