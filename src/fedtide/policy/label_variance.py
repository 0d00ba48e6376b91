"""The label variance Omega of a set of devices, and the subset of a given size that makes it smallest.

Omega(Pi) = sum_j |sum_{k in Pi} b_k^j - mean|^2. With the centred rows v_k = c b_k - sum_j b_k^j (whole numbers, c labels)
it is ||sum_{k in Pi} v_k||^2 / c^2: a cardinality-constrained binary quadratic problem. All arithmetic here is on whole
numbers held in float64, so it is exact (below 2^53) whatever the order of summation, and ties are real ties.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedtide.core.ram import need
from fedtide.types import Floats, Ints, Rng

# Up to this many subsets all are looked at (C(24,12) = 2.7 million, tens of milliseconds).
ENUMERATION_LIMIT = 3_000_000
RESTARTS = 96
MOST_MEMBERS = 1 << 16  # entries of a table of who is in which subset
MOST_SWAPS = 4_000_000  # looked at in one step: with thousands of candidates, fewer starts, to bound the memory


def label_variance(label_counts: Ints) -> float:
    """Return Omega of a set of devices, given their label counts [r c]."""
    total = label_counts.sum(axis=0, dtype=np.float64)
    return float(((total - total.mean()) ** 2).sum()) if len(label_counts) else 0.0


def minimise(label_counts: Ints, size: int, rng: Rng) -> tuple[Ints, bool]:
    """Return the `size` rows of label_counts [m c] with the least Omega, ascending, and whether that is proved.

    Among equals the set that is first in lexicographic order wins where all subsets are enumerated; beyond that, greedy
    descent by swaps from `RESTARTS` starts, proved only if it reaches the least value that whole numbers allow.
    """
    num_rows, num_labels = label_counts.shape
    if size >= num_rows:
        return np.arange(num_rows), True
    centred = (num_labels * label_counts - label_counts.sum(axis=1, keepdims=True)).astype(np.float64)
    if math.comb(num_rows, size) <= ENUMERATION_LIMIT:
        return _enumerate(centred, size), True
    picked, reached = _descend(centred, size, rng)
    total = int(label_counts[picked].sum())
    same_total = bool(np.all(label_counts.sum(axis=1) == label_counts[0].sum()))
    # Omega >= rest (c - rest) / c for whole counts with this total, rest = total mod c; reached = c^2 Omega.
    rest = total % num_labels
    return picked, reached == 0 or (same_total and reached <= rest * (num_labels - rest) * num_labels)


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
    return math.comb(width, size) * width <= MOST_MEMBERS


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


def _enumerate(centred: Floats, size: int) -> Ints:
    """Meet in the middle: ||a + b||^2 = ||a||^2 + ||b||^2 + 2 ab over the subsets a, b of the two halves."""
    half = len(centred) // 2
    left, right = centred[:half], centred[half:]
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


def _descend(centred: Floats, size: int, rng: Rng) -> tuple[Ints, float]:
    """Best-improvement swaps from a greedy and many random starts; return the best set and its ||sum v||^2."""
    num_rows = len(centred)
    starts = max(1, min(RESTARTS, MOST_SWAPS // (size * (num_rows - size))))
    need(
        8.0
        * (4 * num_rows**2 + 4 * starts * size * (num_rows - size)),  # gram, pair and what they are made from; changes
        f"choosing {size} of {num_rows:,} devices by their labels",
        "take policy.scheduler=random, best_channel or best_of_random_subsets, fewer devices (fleet.num_devices), or a smaller "
        "pool (policy.scheduler_args.pool_share)",
    )
    gram = centred @ centred.T
    own = np.diag(gram)
    pair = own[:, None] + own[None, :] - 2 * gram  # ||v_in - v_out||^2
    member = np.zeros((starts, num_rows), bool)
    np.put_along_axis(member, rng.random((starts, num_rows)).argsort(axis=1)[:, :size], True, axis=1)
    member[0] = _greedy(centred, size)
    active = np.arange(starts)
    while len(active):
        order = np.argsort(~member[active], axis=1, kind="stable")
        inside, outside = order[:, :size, None], order[:, None, size:]
        pull = member[active] @ gram  # s . v_k for the current sums s
        row = np.arange(len(active))[:, None, None]
        change = (pair[inside, outside] + 2 * (pull[row, outside] - pull[row, inside])).reshape(len(active), -1)
        best = change.argmin(axis=1)
        improves = np.flatnonzero(change[row[:, 0, 0], best] < 0)
        out, into = np.divmod(best[improves], num_rows - size)
        active = active[improves]
        member[active, inside[improves, out, 0]] = False
        member[active, outside[improves, 0, into]] = True
    values = ((member @ centred) ** 2).sum(axis=1)
    winner = int(values.argmin())
    return np.flatnonzero(member[winner]), float(values[winner])


def _greedy(centred: Floats, size: int) -> npt.NDArray[np.bool_]:
    member = np.zeros(len(centred), bool)
    total = np.zeros(centred.shape[1])
    for _ in range(size):
        cost = ((total + centred) ** 2).sum(axis=1)
        cost[member] = math.inf
        added = int(cost.argmin())
        member[added] = True
        total += centred[added]
    return member
