"""The label variance Omega of a set of devices, and the subset of a given size that makes it smallest.

Omega(Pi) = sum_j |sum_{k in Pi} b_k^j - mean|^2. With the centred rows v_k = c b_k - sum_j b_k^j (whole numbers, c labels)
it is ||sum_{k in Pi} v_k||^2 / c^2: a cardinality-constrained binary quadratic problem. All arithmetic here is on whole
numbers, held in float64 where it is exact (below 2^53), whatever the order of summation, so ties are real ties.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from fedtide.extension import native
from fedtide.types import Floats, Ints, Rng

ENUMERATION_LIMIT: Final = 3_000_000  # subsets that are all looked at (C(24,12) = 2.7 million, tens of milliseconds)
_TABLE_ENTRIES: Final = 1 << 16  # of a table of who is in which subset, at most
SWAP_RESTARTS: Final = 96


def label_variance(label_counts: Ints) -> float:
    """Return Omega of a set of devices, given their label counts [r c].

    >>> label_variance(np.array([[10, 0], [0, 10]])), label_variance(np.array([[10, 0], [10, 0]]))
    (0.0, 200.0)
    """
    total = label_counts.sum(axis=0, dtype=np.float64)
    return float(((total - total.mean()) ** 2).sum()) if len(label_counts) else 0.0


def minimise(label_counts: Ints, size: int, rng: Rng) -> tuple[Ints, bool]:
    """Return the `size` rows of label_counts [m c] with the least Omega, ascending, and whether that is proved.

    Among equals the set that is first in lexicographic order wins where all subsets are enumerated; beyond that, greedy
    descent by swaps from SWAP_RESTARTS starts, proved only if it reaches the least value that whole numbers allow.

    >>> minimise(np.array([[9, 0], [8, 1], [0, 9], [5, 5]]), 2, np.random.default_rng(0))
    (array([0, 2]), True)
    """
    exact = enumerated(label_counts, size)
    if exact is not None:
        return exact, True
    counts, coarse = manageable(label_counts, size)
    totals = counts.sum(axis=1)
    # Omega >= rest (c - rest) / c for whole counts with one total, rest = total mod c; reached = c^2 Omega.
    num_labels = counts.shape[1]
    rest = size * int(totals[0]) % num_labels if np.all(totals == totals[0]) else 0
    enough = rest * (num_labels - rest) * num_labels
    picked, reached = search(counts, size, rng, SWAP_RESTARTS, enough)
    return picked, reached <= enough and not coarse


def enumerated(label_counts: Ints, size: int) -> Ints | None:
    """Return the best `size` rows of label_counts [m c], the first in lexicographic order; None: there are too many subsets."""
    num_rows = len(label_counts)
    if size >= num_rows:
        return np.arange(num_rows)
    if not _few(num_rows, min(size, num_rows - size)):
        return None
    return _enumerate(centred(label_counts).astype(np.float64), size)


def _few(width: int, size: int) -> bool:
    """Say whether there are few enough subsets of `size`, at most width / 2, without counting millions of digits."""
    count = 1
    for taken in range(size):
        count = count * (width - taken) // (taken + 1)
        if count > ENUMERATION_LIMIT:
            return False
    return True


@lru_cache(maxsize=64)
def _combinations(width: int, size: int) -> Ints:
    """Return every subset of `size` out of `width`, in lexicographic order [C(width,size) size]."""
    count = math.comb(width, size)
    flat = np.fromiter(
        itertools.chain.from_iterable(itertools.combinations(range(width), size)), np.int64, count * size
    )
    return flat.reshape(count, size)


@lru_cache(maxsize=64)
def _members(width: int, size: int) -> Floats:
    """Return who is in every subset of `size` out of `width`, in lexicographic order, as 0 and 1 [C(width,size) width]."""
    found = np.zeros((math.comb(width, size), width))
    np.put_along_axis(found, _combinations(width, size), 1.0, axis=1)
    return found


def _tabulated(width: int, size: int) -> bool:
    """Say whether a table of who is in every subset is small: it saves most of the time of small enumerations."""
    return math.comb(width, size) * width <= _TABLE_ENTRIES


def _sums(rows: Floats, size: int) -> Floats:
    """Return the sum of every subset of `size` rows, subsets in lexicographic order [C(m,size) c]."""
    if _tabulated(len(rows), size):
        return np.asarray(_members(len(rows), size) @ rows)
    left_out = len(rows) - size
    if left_out < size:  # fewer to subtract than to add; the order of the complements is the reverse
        return np.asarray(rows.sum(axis=0) - rows[_combinations(len(rows), left_out)[::-1]].sum(axis=1))
    return np.asarray(rows[_combinations(len(rows), size)].sum(axis=1))


def _subset(width: int, size: int, number: int) -> Ints:
    """Return the subset with this number in lexicographic order."""
    if _tabulated(width, size):
        return np.flatnonzero(_members(width, size)[number])
    left_out = width - size
    if left_out < size:
        return np.delete(np.arange(width), _combinations(width, left_out)[::-1][number])
    return np.asarray(_combinations(width, size)[number])


def _enumerate(rows: Floats, size: int) -> Ints:
    """Meet in the middle: ||a + b||^2 = ||a||^2 + ||b||^2 + 2 ab over the subsets a, b of the two halves."""
    half = len(rows) // 2
    left, right = rows[:half], rows[half:]
    best: tuple[float, list[int]] = (math.inf, [])
    for from_left in range(max(0, size - len(right)), min(size, half) + 1):
        a, b = _sums(left, from_left), _sums(right, size - from_left)
        values = (2 * a) @ b.T
        values += (a**2).sum(axis=1)[:, None]
        values += (b**2).sum(axis=1)
        row, column = divmod(int(values.argmin()), len(b))  # the first of the smallest is the lexicographically first
        if values[row, column] <= best[0]:
            rest = half + _subset(len(right), size - from_left, column)
            chosen = [*_subset(half, from_left, row).tolist(), *rest.tolist()]
            best = min(best, (float(values[row, column]), chosen))
    return np.array(best[1], np.int64)


# Beyond that, swaps (native/schedule.cpp): one member out, one other row in, as long as that helps. Memory is O(m c).

_MOST_SWAPS: Final = 4_000_000  # that all starts together may choose from: with thousands of candidates, fewer starts
MOST_ROWS: Final = 23_170  # more candidates are sampled: looking at every swap takes too long


def manageable(label_counts: Ints, size: int) -> tuple[Ints, bool]:
    """Return counts whose sums have squares below 2^62, halved as often as it takes, and whether that was necessary."""
    num_labels = label_counts.shape[1]
    widest = max(abs(int(label_counts.min())), abs(int(label_counts.max())))
    halvings = 0
    while 4 * num_labels * ((size + 2) * num_labels * (widest >> halvings)) ** 2 >= 1 << 62:
        halvings += 1
    return (label_counts >> halvings if halvings else label_counts), halvings > 0


def centred(label_counts: Ints) -> Ints:
    """Return v_k = c b_k - sum_j b_k^j [m c]."""
    counts = np.asarray(label_counts, np.int64)
    return np.ascontiguousarray(counts.shape[1] * counts - counts.sum(axis=1, keepdims=True))


def search(label_counts: Ints, size: int, rng: Rng, restarts: int, enough: int) -> tuple[Ints, int]:
    """Return the best `size` rows of label_counts [m c] that swaps find, ascending, and their c^2 Omega.

    restarts: starts at most, the first one greedy, the others random. enough: no set is below, so what reaches it is taken.
    """
    if len(label_counts) > MOST_ROWS:
        return sampled(label_counts, size, rng, enough)
    return native.descend(centred(label_counts), size, random_starts(len(label_counts), size, rng, restarts), enough)


def random_starts(num_rows: int, size: int, rng: Rng, restarts: int) -> npt.NDArray[np.bool_]:
    """Return which rows are members at first, besides the greedy set: restarts - 1 times, or less [n m]."""
    starts = max(1, min(restarts, _MOST_SWAPS // (size * (num_rows - size))))
    member = np.zeros((starts, num_rows), bool)
    np.put_along_axis(member, rng.random((starts, num_rows)).argsort(axis=1)[:, :size], True, axis=1)
    return member[1:]  # the greedy set is in the place of the first


# Tens of thousands of candidates and more: a random sample of the swaps is looked at (native/schedule_sample.cpp).
#
# With so many candidates nearly every set can be made even, so it is enough to look at some of them: `size` random members,
# each in turn compared with a block of random others. A swap that helps is made. Those that do not help are kept, the best
# of each comparison: two of them at once often do, since what both leave is small.

_SAMPLED_OTHERS: Final = 1 << 16
_BLOCK: Final = 1 << 11  # of them, that a member is compared with at once
_VISITS: Final = 16_000  # of members, at most
_KEPT_SWAPS: Final = 2048  # that did not help, of which pairs are tried


def sampled(label_counts: Ints, size: int, rng: Rng, enough: int) -> tuple[Ints, int]:
    """Return `size` rows of label_counts [m c] with small Omega, ascending, and their c^2 Omega. enough: no set is below."""
    order = rng.permutation(len(label_counts))[: size + _SAMPLED_OTHERS]
    rows = centred(label_counts[order])
    picked, reached = native.sample(rows, size, enough, _BLOCK, _VISITS, _KEPT_SWAPS)
    return np.sort(order[picked]), reached
