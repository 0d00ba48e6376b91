"""How the symbols of one coherence block are shared, and how many a tick has.

An allocation is a callable (capacity [r], num_symbols) -> Shares(symbols [r], bits [r]), or the symbols alone: then everyone
sends as many bits as they carry. Capacities are in bit/symbol, as the server estimates them. Not all symbols need be spent.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide.parts.arguments import arg
from fedtide.types import Floats, Ints, Shares

Allocation: TypeAlias = Callable[[Floats, float], Shares | Floats]

# num_symbols (n) is defined for a period of a quarter of T_max; other frameworks get the same symbols per time.
_REFERENCE_TICKS_PER_MAX_DURATION = 4
FAINTEST = 1e-290  # bit/symbol


@dataclass(frozen=True)
class EqualBits:
    """The paper's: every device can send the same number of bits."""

    def __call__(self, capacity: Floats, num_symbols: float) -> Shares:
        """Return n_k and n_k C_k [r]."""
        return Shares(*equal_bits(capacity, num_symbols))


def equal_bits(capacity: Floats, num_symbols: float) -> tuple[Floats, Floats]:
    """Share num_symbols so that everyone can send the same number of bits (eq:nc): symbols n_k [r] and bits [r].

    B = n / sum_j(1/C_j), n_k = B / C_k: better channels get fewer symbols and one deep fade starves everyone. A link of
    capacity 0 is in outage: it gets nothing, and the others share.
    """
    alive = capacity > 0
    if not alive.all():
        shares = np.zeros((2, len(capacity)))
        shares[:, alive] = equal_bits(capacity[alive], num_symbols)
        return shares[0], shares[1]
    if len(capacity) == 0:
        return np.zeros(0), np.zeros(0)
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
    return _REFERENCE_TICKS_PER_MAX_DURATION * num_symbols * end / (max_duration * count)


def symbols_per_packet(bits: npt.ArrayLike, capacity: npt.ArrayLike, symbols: npt.ArrayLike) -> Floats:
    """Return the symbols that packets of these bits [r] take at these capacities in bit/symbol [r], at most those granted [r]."""
    sent, carried, granted = (np.asarray(each, np.float64) for each in (bits, capacity, symbols))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(sent > 0, np.minimum(sent / carried, granted), 0.0)


def symbols_sent(bits: Sequence[float], capacity: Sequence[float], symbols: Sequence[float]) -> float:
    """Return the symbols that all of these packets take together."""
    return math.fsum(symbols_per_packet(bits, capacity, symbols))


# Other ways to share a tick's symbols; every device sends at its nominal power, so that bits = symbols x capacity.
#
# Why there is no water-filling: that splits one transmitter's power over its links, and here every device has a transmitter
# of its own; links are known by their capacities at nominal power, and an allocation shares symbols. What is left of it,
# the greatest sum of bits over fixed links, is linear in the symbols and gives all of them to the best one (MaxSumRate).


def _filled(symbols: Floats, capacity: Floats) -> Shares:
    """Return the shares of devices that send as much as their symbols carry [r]."""
    return Shares(symbols, symbols * capacity)


@dataclass(frozen=True)
class EqualSymbols:
    """Every device gets the same number of symbols, n_k = n/r, which maximises the product of bits."""

    def __call__(self, capacity: Floats, num_symbols: float) -> Shares:
        """Return n/r and C_k n/r [r]."""
        return _filled(np.full(len(capacity), num_symbols / max(len(capacity), 1)), capacity)


@dataclass(frozen=True)
class MaxSumRate:
    """Maximises the sum of bits: each link gets a floor and the best link the rest; equal links share equally."""

    min_share: Annotated[
        float, arg("smallest grant, as a share of n/r: 0 is greedy, 1 is equal symbols", ge=0, le=1)
    ] = 0.0

    def __call__(self, capacity: Floats, num_symbols: float) -> Shares:
        """Return n_k = min_share n/r, and what is left to the best [r]."""
        if len(capacity) == 0:
            return _filled(np.zeros(0), capacity)
        floor, best = self.min_share * num_symbols / len(capacity), capacity == capacity.max()
        rest = (1 - self.min_share) * num_symbols
        return _filled(floor + np.where(best, rest / best.sum(), 0.0), capacity)


@dataclass(frozen=True)
class AlphaFair:
    """Maximises the sum of B_k^(1-alpha)/(1-alpha) over the bits B_k (Mo and Walrand 2000): n_k ~ C_k^((1-alpha)/alpha).

    Between all to the best (alpha to 0) and equal bits (alpha to infinity): 1/2 shares by capacity, 1 equally (of symbols,
    proportional fairness), 2 by 1/sqrt(C_k). A dead link gets nothing.
    """

    alpha: Annotated[
        float, arg("fairness: near 0 the best link takes all, 1 gives equal symbols, large values equal bits", gt=0)
    ] = 1.0

    def __call__(self, capacity: Floats, num_symbols: float) -> Shares:
        """Return n_k = n C_k^e / sum_j C_j^e with e = (1 - alpha)/alpha [r]."""
        alive = capacity > 0
        if not alive.any():
            return _filled(np.zeros(len(capacity)), capacity)
        power = (1 - self.alpha) / self.alpha * np.log(np.where(alive, capacity, 1.0))
        share = np.where(alive, np.exp(power - power[alive].max()), 0.0)  # the largest is 1: nothing overflows
        return _filled(num_symbols * (share / math.fsum(share)), capacity)


@dataclass(frozen=True)
class LatencyMinimal:
    """Minimises the time until the last of equally long updates is in: min max_k B/(w_k C_k), so w_k ~ 1/C_k.

    Everyone then finishes at the same time, which is what equal bits are; with `payload_bits` nobody gets more than that, and
    symbols are left over where all are served. A dead link, which never finishes, gets nothing.
    """

    payload_bits: Annotated[
        float | None, arg("bits that each device has to send; default: as many as fit", unit="bit", gt=0)
    ] = None

    def __call__(self, capacity: Floats, num_symbols: float) -> Shares:
        """Return n_k = B/C_k and B = min(n / sum_j(1/C_j), payload_bits) for those whose link carries anything [r]."""
        symbols, bits = equal_bits(capacity, num_symbols)
        most = float(bits.max(initial=0.0))
        if self.payload_bits is not None and most > self.payload_bits:
            return Shares(symbols * (self.payload_bits / most), np.where(bits > 0, self.payload_bits, 0.0))
        return Shares(symbols, bits)


# OFDMA: a tick's symbols come in whole resource blocks, which are handed out one by one.


def _max_min(capacity: Floats, count: int) -> Ints:
    """Give every block to whoever has the fewest bits so far, the better link first, then the first: blocks [r].

    No other division of `count` blocks has a greater smallest number of bits. With bits in units of a block, device k takes its
    block j + 1 at j C_k bits: the blocks given are the `count` first of all j C_k. Those that are surely among them are
    counted, so that the rest takes r steps or so, however many blocks there are.
    """
    r = len(capacity)
    level = count / math.fsum(1 / capacity)  # that all would reach with parts of blocks
    sure = level * max(1 - (r + 2) / max(count, 1), 0.0)  # at most count L/level + r of the j C_k lie below L
    blocks = np.ceil(sure / capacity).astype(np.int64)
    waiting = [(n * c, -c, k) for k, (n, c) in enumerate(zip(blocks.tolist(), capacity.tolist(), strict=True))]
    heapq.heapify(waiting)
    for _ in range(count - int(blocks.sum())):
        _, c, k = waiting[0]
        blocks[k] += 1
        heapq.heapreplace(waiting, (int(blocks[k]) * -c, c, k))
    return blocks


def _max_sum(capacity: Floats, count: int) -> Ints:
    """Give all blocks to the best link, of several to the first: blocks [r]."""
    blocks = np.zeros(len(capacity), np.int64)
    blocks[np.argmax(capacity)] = count
    return blocks


def _round_robin(capacity: Floats, count: int) -> Ints:
    """Give everyone the same number of blocks, and what is left to the better links, one each: blocks [r]."""
    blocks = np.full(len(capacity), count // len(capacity))
    blocks[np.argsort(-capacity, kind="stable")[: count % len(capacity)]] += 1
    return blocks


BLOCK_RULES: Final[Mapping[str, Callable[[Floats, int], Ints]]] = {
    "max_min": _max_min,
    "max_sum": _max_sum,
    "round_robin": _round_robin,
}
_MOST: Final = 2**53  # blocks


@dataclass(frozen=True)
class ResourceBlocks:
    """Whole resource blocks (LTE: 12 subcarriers x 14 symbols); remainders stay unused, dead links get none.

    With fewer blocks than devices some get none, and send nothing.
    """

    block_symbols: Annotated[float, arg("symbols per block", ge=1)] = 168.0
    rule: Annotated[
        Literal["max_min", "max_sum", "round_robin"],
        arg(
            "max_min: the next block goes to the device with the fewest bits; max_sum: all blocks to the best link; "
            "round_robin: the same number for each"
        ),
    ] = "max_min"

    def __call__(self, capacity: Floats, num_symbols: float) -> Shares:
        """Return whole multiples of block_symbols and what they carry [r]."""
        blocks = np.zeros(len(capacity), np.int64)
        alive = capacity >= FAINTEST
        count = min(math.floor(num_symbols / self.block_symbols * (1 + 1e-12)), _MOST)
        if alive.any():
            blocks[alive] = BLOCK_RULES[self.rule](capacity[alive], count)
        return _filled(blocks.astype(np.float64) * self.block_symbols, capacity)


ALLOCATIONS: Final[dict[str, Any]] = {
    "equal_bits": EqualBits,
    "equal_symbols": EqualSymbols,
    "max_sum_rate": MaxSumRate,
    "alpha_fair": AlphaFair,
    "latency_minimal": LatencyMinimal,
    "resource_blocks": ResourceBlocks,
}
