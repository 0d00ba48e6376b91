"""The twins of native/schedule.cpp and native/schedule_sample.cpp: swaps in NumPy, with the same sets.

All comparisons are of whole numbers.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedtide.types import Ints

_SWAPS_AT_ONCE: Final = 1 << 20
_SAMPLED_CHUNK: Final = 128  # swaps that did not help, compared with all others at once


def descend(centred: Ints, size: int, starts: npt.NDArray[np.bool_], enough: int) -> tuple[Ints, int]:
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


def sample(centred: Ints, size: int, enough: int, block: int, visits: int, kept: int) -> tuple[Ints, int]:
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
