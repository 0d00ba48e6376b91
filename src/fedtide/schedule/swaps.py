"""Small label variance by swaps: one member out, one other row in, as long as that helps."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedtide.types import Ints, Rng

# Small label variance by swaps: one member out, one other row in, as long as that helps. Memory is O(m c).
#
# In the compiled extension, or in NumPy where there is none, with the same sets: all comparisons are of whole numbers.


_MOST_SWAPS: Final = 4_000_000  # that all starts together may choose from: with thousands of candidates, fewer starts
MOST_ROWS: Final = 23_170  # more candidates are sampled: looking at every swap takes too long
_SWAPS_AT_ONCE: Final = 1 << 20  # swaps that NumPy looks at at once


def native() -> ModuleType | None:
    """Return the extension; None: installed without a compiler. It is loaded late, as most runs need it for training only."""
    try:
        import fedtide._native as found
    except ImportError:
        return None
    return found


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
        # DROP  # it is seldom needed

        return sampled(label_counts, size, rng, enough)
    extension = native()
    descend = extension.descend if extension is not None else descend_in_numpy
    return descend(centred(label_counts), size, random_starts(len(label_counts), size, rng, restarts), enough)


def random_starts(num_rows: int, size: int, rng: Rng, restarts: int) -> npt.NDArray[np.bool_]:
    """Return which rows are members at first, besides the greedy set: restarts - 1 times, or less [n m]."""
    starts = max(1, min(restarts, _MOST_SWAPS // (size * (num_rows - size))))
    member = np.zeros((starts, num_rows), bool)
    np.put_along_axis(member, rng.random((starts, num_rows)).argsort(axis=1)[:, :size], True, axis=1)
    return member[1:]  # the greedy set is in the place of the first


def descend_in_numpy(centred: Ints, size: int, starts: npt.NDArray[np.bool_], enough: int) -> tuple[Ints, int]:
    """Swap from the greedy set and then from every start [n m]; see the extension's `descend`."""
    rows = exact_in_float64(centred, size)
    best: tuple[Ints, int] = np.zeros(0, np.int64), -1
    for start in range(len(starts) + 1):
        member = starts[start - 1].copy() if start else _greedy(rows, size)
        while _improve(rows, member):
            pass
        reached = square(rows[member].sum(axis=0))
        if start == 0 or reached < best[1]:
            best = np.flatnonzero(member), reached
        if best[1] <= enough:
            break
    return best


def _improve(rows: npt.NDArray[Any], member: npt.NDArray[np.bool_]) -> bool:
    """Make the best swap, of equals the first; say whether there was one."""
    inside, outside = np.flatnonzero(member), np.flatnonzero(~member)
    total = rows[inside].sum(axis=0)
    others = rows[outside].T
    own = (others**2).sum(axis=0)
    best, out, into = total @ total, -1, -1
    height = max(1, _SWAPS_AT_ONCE // len(outside))
    for first in range(0, len(inside), height):
        left = total - rows[inside[first : first + height]]
        value = 2 * (left @ others)
        value += own
        value += (left**2).sum(axis=1)[:, None]
        row, column = divmod(int(value.argmin()), len(outside))
        if value[row, column] < best:
            best, out, into = value[row, column], first + row, column
    if out < 0:
        return False
    member[inside[out]], member[outside[into]] = False, True
    return True


def _greedy(rows: npt.NDArray[Any], size: int) -> npt.NDArray[np.bool_]:
    """Add one row at a time, the one that leaves the least; of equals the first."""
    member = np.zeros(len(rows), bool)
    total = np.zeros(rows.shape[1], rows.dtype)
    others = np.arange(len(rows))
    for _ in range(size):
        added = int(((total + rows[others]) ** 2).sum(axis=1).argmin())
        member[others[added]] = True
        total = total + rows[others[added]]
        others = np.delete(others, added)
    return member


def exact_in_float64(centred: Ints, size: int) -> npt.NDArray[Any]:
    """Return the rows as float64, which is faster, where that holds every number exactly; else as they are."""
    widest = max(int(centred.max()), -int(centred.min()))
    small = 4 * centred.shape[1] * ((size + 2) * widest) ** 2 < 1 << 53
    return centred.astype(np.float64) if small else centred.copy()


def square(vector: npt.NDArray[Any]) -> int:
    """Return ||vector||^2."""
    return int(vector @ vector)


# Small label variance of tens of thousands of candidates and more: swaps, of which a random sample is looked at.
#
# With so many candidates nearly every set can be made even, so it is enough to look at some of them: `size` random members,
# each in turn compared with a block of random others. A swap that helps is made. Those that do not help are kept, the best
# of each comparison: two of them at once often do, since what both leave is small. In the compiled extension, or in NumPy,
# with the same sets.


_OTHERS: Final = 1 << 16  # that are sampled
_BLOCK: Final = 1 << 11  # of them, that a member is compared with at once
_VISITS: Final = 16_000  # of members, at most
_KEPT: Final = 2048  # swaps that did not help, of which pairs are tried
_SAMPLED_CHUNK: Final = 128  # of them, with all others at once


def sampled(label_counts: Ints, size: int, rng: Rng, enough: int) -> tuple[Ints, int]:
    """Return `size` rows of label_counts [m c] with small Omega, ascending, and their c^2 Omega. enough: no set is below."""
    order = rng.permutation(len(label_counts))[: size + _OTHERS]
    rows = centred(label_counts[order])
    extension = native()
    sample = extension.sample if extension is not None else sample_in_numpy
    picked, reached = sample(rows, size, enough, _BLOCK, _VISITS, _KEPT)
    return np.sort(order[picked]), reached


def sample_in_numpy(centred: Ints, size: int, enough: int, block: int, visits: int, kept: int) -> tuple[Ints, int]:
    """Swap among the first `size` rows [m c] and the others; see the extension's `sample`."""
    rows = exact_in_float64(centred, size)
    inside, others = rows[:size], np.ascontiguousarray(rows[size:].T)
    own = (others**2).sum(axis=0)
    number = np.arange(len(rows))
    total = inside.sum(axis=0)
    blocks = -(-others.shape[1] // block)
    waiting: list[tuple[int, int]] = []  # swaps that did not help, since the last one that was made: member, other
    for visit in range(visits):
        if square(total) <= enough:
            break
        member, first = visit % size, (visit + visit // size) % blocks * block
        left = total - inside[member]
        value = own[first : first + block] + 2 * (left @ others[:, first : first + block])
        found = int(value.argmin())
        waiting.append((member, first + found))
        helps = value[found] + left @ left < total @ total
        if not helps and len(waiting) < kept:
            continue
        for out, into in waiting[-1:] if helps else _pair(total, inside, others, waiting):
            total = total - inside[out] + others[:, into]
            inside[out], others[:, into] = others[:, into].copy(), inside[out].copy()
            own[into] = others[:, into] @ others[:, into]
            number[out], number[size + into] = number[size + into], number[out]
        waiting = []
    return np.sort(number[:size]), square(total)


def _pair(
    total: npt.NDArray[Any], inside: npt.NDArray[Any], others: npt.NDArray[Any], kept: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return the two swaps that are best together; none if they do not help. total [c], inside [r c], others [c n]."""
    out, into = np.array(kept).T
    change = others[:, into].T - inside[out]  # [k c]
    own = (change**2).sum(axis=1)
    best, chosen = total @ total, []
    for first in range(0, len(kept), _SAMPLED_CHUNK):
        rows = slice(first, first + _SAMPLED_CHUNK)
        after = total + change[rows]
        value = 2 * (after @ change.T)
        value += own
        value += (after**2).sum(axis=1)[:, None]
        value[(out[rows, None] == out) | (into[rows, None] == into)] = best  # nobody comes or goes twice
        one, two = divmod(int(value.argmin()), len(kept))
        if value[one, two] < best:
            best, chosen = value[one, two], [kept[first + one], kept[two]]
    return chosen
