"""How the symbols of one coherence block are shared, and how many a tick has.

An allocation is a callable (capacity [r], num_symbols) -> Shares(symbols [r], bits [r]), or the symbols alone: then everyone
sends as many bits as they carry. Capacities are in bit/symbol, as the server believes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from fedtide.types import Floats, Shares

# num_symbols (n) is defined for a period of a quarter of T_max; other frameworks get the same symbols per time.
REFERENCE_TICKS_PER_MAX_DURATION = 4
FAINTEST = 1e-290  # bit/symbol


class Allocation(Protocol):
    """Who gets how many symbols."""

    def __call__(self, capacity: Floats, num_symbols: float, /) -> Shares | Floats:
        """Share num_symbols among the scheduled devices, not all of which need be spent [r]."""
        ...


@dataclass(frozen=True)
class EqualBits:
    """The paper's: everyone can send the same number of bits."""

    def __call__(self, capacity: Floats, num_symbols: float) -> Shares:
        """Return n_k and n_k C_k [r]."""
        return Shares(*equal_bits(capacity, num_symbols))


def equal_bits(capacity: Floats, num_symbols: float) -> tuple[Floats, Floats]:
    """Share num_symbols so that everyone can send the same number of bits (eq:nc): symbols n_k [r] and bits [r].

    B = n / sum_j(1/C_j), n_k = B / C_k: better channels get fewer symbols and one deep fade starves everyone. A link of
    capacity 0 takes all symbols and nobody sends a bit.
    """
    if len(capacity) == 0:
        return np.zeros(0), np.zeros(0)
    dead = capacity <= 0
    if dead.any():
        return np.where(dead, num_symbols / dead.sum(), 0.0), np.zeros(len(capacity))
    worst = float(capacity.min())
    if worst < FAINTEST:  # its inverse overflows: the same, counted in the worst link's symbols
        share = worst / capacity
        symbols = num_symbols * (share / math.fsum(share))
        return symbols, np.full(len(capacity), worst * float(symbols.max()))
    bits = num_symbols / math.fsum(1 / capacity)
    return bits / capacity, np.full(len(capacity), bits)


def symbols_per_tick(count: int, end: float, num_symbols: float, max_duration: float) -> float:
    """Return the symbols each of so many ticks, up to that time, may spend so that all frameworks spend the same over time.

    4 n T' / (T_max ticks), with T' the time of the last tick. That is n for a period of T_max/4, n 4 T~/T_max for
    another period, 4 n for FedAvg, and the paper's share of FedAsync with N_FA uploads in T'.
    """
    if not count:
        return 0.0
    return REFERENCE_TICKS_PER_MAX_DURATION * num_symbols * end / (max_duration * count)


def symbols_sent(bits: Sequence[float], capacity: Sequence[float], symbols: Sequence[float]) -> float:
    """Return the symbols that packets of these bits [r] take at these capacities in bit/symbol [r], at most those granted."""
    uploads = zip(bits, capacity, symbols, strict=True)
    return sum(min(sent / carries, granted) for sent, carries, granted in uploads if sent and carries)


ALLOCATIONS: Final[dict[str, Any]] = {
    "equal_bits": EqualBits,
    "equal_symbols": "fedtide.world.sharing:EqualSymbols",
    "max_sum_rate": "fedtide.world.sharing:MaxSumRate",
    "alpha_fair": "fedtide.world.sharing:AlphaFair",
    "latency_minimal": "fedtide.world.sharing:LatencyMinimal",
    "resource_blocks": "fedtide.world.blocks:ResourceBlocks",
}
