"""OFDMA: a tick's symbols come in whole resource blocks, which are handed out one by one."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import numpy as np

from fedtide.core.arguments import arg
from fedtide.types import Floats, Ints, Shares
from fedtide.world.allocation import FAINTEST
from fedtide.world.sharing import filled


def max_min(capacity: Floats, count: int) -> Ints:
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


def max_sum(capacity: Floats, count: int) -> Ints:
    """Give all blocks to the best link, of several to the first: blocks [r]."""
    blocks = np.zeros(len(capacity), np.int64)
    blocks[np.argmax(capacity)] = count
    return blocks


def round_robin(capacity: Floats, count: int) -> Ints:
    """Give everyone the same number of blocks, and what is left to the better links, one each: blocks [r]."""
    blocks = np.full(len(capacity), count // len(capacity))
    blocks[np.argsort(-capacity, kind="stable")[: count % len(capacity)]] += 1
    return blocks


RULES: Final[Mapping[str, Callable[[Floats, int], Ints]]] = {
    "max_min": max_min,
    "max_sum": max_sum,
    "round_robin": round_robin,
}
MOST: Final = 2**53  # blocks


@dataclass(frozen=True)
class ResourceBlocks:
    """Whole resource blocks (LTE: 12 subcarriers x 14 symbols); what does not fill one is not used, dead links get none.

    With fewer blocks than devices some get none, and send nothing.
    """

    block_symbols: Annotated[float, arg("symbols of a block", ge=1)] = 168.0
    rule: Annotated[
        Literal["max_min", "max_sum", "round_robin"],
        arg("max_min: the next block to the fewest bits; max_sum: all to the best link; round_robin: equally many"),
    ] = "max_min"

    def __call__(self, capacity: Floats, num_symbols: float) -> Shares:
        """Return whole multiples of block_symbols and what they carry [r]."""
        blocks = np.zeros(len(capacity), np.int64)
        alive = capacity >= FAINTEST
        count = min(math.floor(num_symbols / self.block_symbols * (1 + 1e-12)), MOST)
        if alive.any():
            blocks[alive] = RULES[self.rule](capacity[alive], count)
        return filled(blocks.astype(np.float64) * self.block_symbols, capacity)
