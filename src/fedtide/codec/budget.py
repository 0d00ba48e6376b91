"""How many elements a bit budget carries (eq:bitQuota)."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from fedtide.types import Floats, Ints

NORM_BITS = 32


def level_bits(num_levels: int) -> int:
    """Return the bits of one kept element: its level out of num_levels + 1, and its sign."""
    return math.ceil(math.log2(num_levels + 1)) + 1


def bit_count(num_parameters: int, num_kept: int | Ints, element_bits: int) -> Floats:
    """Return f(r) = log2 C(d, r) + 32 + r * element_bits, the left side of eq:bitQuota, for one r or many."""
    log2_factorial, r = _log2_factorials(num_parameters), np.asarray(num_kept, np.int64)
    index_bits = log2_factorial[-1] - log2_factorial[r] - log2_factorial[num_parameters - r]
    # C(d, 1) = C(d, d - 1) = d: the only ones that can be a power of two, so that f meets a whole budget exactly.
    index_bits = np.where((r == 1) | (r == num_parameters - 1), math.log2(num_parameters), index_bits)
    return np.asarray(index_bits + NORM_BITS + r * element_bits, np.float64)


@lru_cache(maxsize=16)
def _log2_factorials(most: int) -> Floats:
    """Return log2(n!) for n = 0..most. The standard library's lgamma: importing SciPy's takes longer than a whole plan."""
    return np.fromiter((math.lgamma(n + 1) for n in range(most + 1)), np.float64, most + 1) / math.log(2)


def whole_bit_count(num_parameters: int, element_bits: int) -> Floats:
    """Return what the authors' released code counts for r = 0..d elements [d+1].

    That code builds a table, g(r) = g(r-1) + ceil(log2((d - r + 1) / r)) + element_bits from g(0) = 32: log2 C(d, r) as a sum
    of logarithms, each rounded up.
    """
    r = np.arange(1, num_parameters + 1)
    steps = np.ceil(np.log2((num_parameters - r + 1) / r)) + element_bits
    return np.cumsum(np.concatenate([[float(NORM_BITS)], steps]))


@lru_cache(maxsize=16)
def _least_bits_from(num_parameters: int, element_bits: int, whole_bits: bool) -> Floats:
    """Return min_{r' >= r} f(r') for every r [d+1]. f has a peak near r = d; this is non-decreasing, so it can be searched."""
    counts = bit_count(num_parameters, np.arange(num_parameters + 1), element_bits)
    counts = whole_bit_count(num_parameters, element_bits) if whole_bits else counts
    return np.asarray(np.minimum.accumulate(counts[::-1])[::-1])


def max_kept(num_parameters: int, budget_bits: float, element_bits: int, whole_bits: bool = False) -> int:
    """Return the largest r with f(r) <= budget_bits, or -1 if not even the norm fits (then nothing is sent).

    whole_bits: count as the authors' released code does.
    """
    least = _least_bits_from(num_parameters, element_bits, whole_bits)
    return int(np.searchsorted(least, budget_bits, side="right")) - 1
