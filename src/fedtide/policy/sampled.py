"""Small label variance of tens of thousands of candidates and more: swaps, of which a random sample is looked at.

With so many candidates nearly every set can be made even, so it is enough to look at some of them: `size` random members, each
in turn compared with a block of random others. A swap that helps is made. Those that do not help are kept, the best of each
comparison: two of them at once often do, since what both leave is small. In the compiled extension, or in NumPy, with the
same sets.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedtide.policy.swaps import centred, exact, native, square
from fedtide.types import Ints, Rng

OTHERS: Final = 1 << 16  # that are sampled
BLOCK: Final = 1 << 11  # of them, that a member is compared with at once
VISITS: Final = 16_000  # of members, at most
KEPT: Final = 2048  # swaps that did not help, of which pairs are tried
CHUNK: Final = 128  # of them, with all others at once


def sampled(label_counts: Ints, size: int, rng: Rng, enough: int) -> tuple[Ints, int]:
    """Return `size` rows of label_counts [m c] with small Omega, ascending, and their c^2 Omega. enough: no set is below."""
    order = rng.permutation(len(label_counts))[: size + OTHERS]
    rows = centred(label_counts[order])
    extension = native()
    sample = extension.sample if extension is not None else sample_in_numpy
    picked, reached = sample(rows, size, enough, BLOCK, VISITS, KEPT)
    return np.sort(order[picked]), reached


def sample_in_numpy(centred: Ints, size: int, enough: int, block: int, visits: int, kept: int) -> tuple[Ints, int]:
    """Swap among the first `size` rows [m c] and the others; see the extension's `sample`."""
    rows = exact(centred, size)
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
    for first in range(0, len(kept), CHUNK):
        rows = slice(first, first + CHUNK)
        after = total + change[rows]
        value = 2 * (after @ change.T)
        value += own
        value += (after**2).sum(axis=1)[:, None]
        value[(out[rows, None] == out) | (into[rows, None] == into)] = best  # nobody comes or goes twice
        one, two = divmod(int(value.argmin()), len(kept))
        if value[one, two] < best:
            best, chosen = value[one, two], [kept[first + one], kept[two]]
    return chosen
