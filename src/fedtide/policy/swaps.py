"""Small label variance by swaps: one member out, one other row in, as long as that helps. Memory is O(m c).

In the compiled extension, or in NumPy where there is none, with the same sets: all comparisons are of whole numbers.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedtide.types import Ints, Rng

MOST_SWAPS: Final = 4_000_000  # that all starts together may choose from: with thousands of candidates, fewer starts
MOST_ROWS: Final = 23_170  # more candidates are sampled: looking at every swap takes too long
CHUNK: Final = 1 << 20  # swaps that NumPy looks at at once


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
        from fedtide.policy.sampled import sampled  # it is seldom needed

        return sampled(label_counts, size, rng, enough)
    extension = native()
    descend = extension.descend if extension is not None else descend_in_numpy
    return descend(centred(label_counts), size, random_starts(len(label_counts), size, rng, restarts), enough)


def random_starts(num_rows: int, size: int, rng: Rng, restarts: int) -> npt.NDArray[np.bool_]:
    """Return which rows are members at first, besides the greedy set: restarts - 1 times, or less [n m]."""
    starts = max(1, min(restarts, MOST_SWAPS // (size * (num_rows - size))))
    member = np.zeros((starts, num_rows), bool)
    np.put_along_axis(member, rng.random((starts, num_rows)).argsort(axis=1)[:, :size], True, axis=1)
    return member[1:]  # the greedy set is in the place of the first


def descend_in_numpy(centred: Ints, size: int, starts: npt.NDArray[np.bool_], enough: int) -> tuple[Ints, int]:
    """Swap from the greedy set and then from every start [n m]; see the extension's `descend`."""
    rows = exact(centred, size)
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
    height = max(1, CHUNK // len(outside))
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


def exact(centred: Ints, size: int) -> npt.NDArray[Any]:
    """Return the rows as float64, which is faster, where that holds every number exactly; else as they are."""
    widest = max(int(centred.max()), -int(centred.min()))
    small = 4 * centred.shape[1] * ((size + 2) * widest) ** 2 < 1 << 53
    return centred.astype(np.float64) if small else centred.copy()


def square(vector: npt.NDArray[Any]) -> int:
    """Return ||vector||^2."""
    return int(vector @ vector)
