"""What whole numbers allow: a bound on the label variance that looks at divisors and totals only.

Counts with the total T = g T' (g divides all counts) cannot always be even: Omega >= g^2 rest (c - rest) / c, rest = T' mod c;
the least over all totals that `size` rows can have. With label shards, g divides all rows but a few, whose shards straddle two
labels. Then every choice of these few leaves residues modulo g, and the others hold so many samples of each label at least
and at most: the least over all choices, each the best way to share the total among labels within these limits, in steps of g.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from fedtide.types import Ints

MOST_CELLS: Final = 40_000  # m R: beyond that one total is asked for, as nearly every residue can be had
MOST_ODD: Final = 8  # rows that a divisor of the others need not divide


def rounding(label_counts: Ints, size: int) -> int:
    """Return a c^2 Omega that no `size` rows of label_counts [m c] are below."""
    num_labels = int(label_counts.shape[1])
    common = _common(label_counts)
    totals = label_counts.sum(axis=1)
    residues = totals // common % num_labels
    few = len(totals) * size <= MOST_CELLS
    if np.all(residues == residues[0]):
        rests = [size * int(residues[0]) % num_labels]
    elif few:
        rests = _sums(np.bincount(residues, minlength=num_labels), size)
    else:
        rests = [0]
    least = common * common * num_labels * min(rest * (num_labels - rest) for rest in rests)
    return max(least, _shards(label_counts, size)) if few and np.all(totals == totals[0]) else least


def _common(label_counts: Ints) -> int:
    """Return the greatest common divisor of all counts, at least 1."""
    some = int(np.gcd.reduce(label_counts[:64], axis=None))
    return max(1, some if some == 1 else int(np.gcd.reduce(label_counts, axis=None)))


def _sums(num_rows: Ints, size: int) -> list[int]:
    """Return the residues that sums of `size` rows can have, given how many rows there are of each residue [c]."""
    can = np.zeros((size + 1, len(num_rows)), bool)  # by how many rows are taken, and the residue of their sum
    can[0, 0] = True
    for residue, there in enumerate(num_rows.tolist()):
        before = can.copy()
        for taken in range(1, min(there, size) + 1):
            can[taken:] |= np.roll(before[: size + 1 - taken], taken * residue, axis=1)
    return [int(each) for each in np.flatnonzero(can[size])]


def _shards(label_counts: Ints, size: int) -> int:
    """Return the bound for rows with one total, of which all but a few are multiples of some g > 1; 0 if they are not."""
    divisors = np.gcd.reduce(label_counts, axis=1)
    for common in sorted({*divisors.tolist()} - {0, 1}, reverse=True)[:MOST_ODD]:
        is_odd = (label_counts % common).any(axis=1)
        if is_odd.sum() <= MOST_ODD:
            return _shared(label_counts[is_odd], label_counts[~is_odd], common, size)
    return 0


def _shared(odd: Ints, others: Ints, common: int, size: int) -> int:
    """Return the least c^2 Omega of some odd rows [k c] and others [n c], multiples of `common`, `size` rows in all."""
    num_labels = others.shape[1]
    total = size * int(others[0].sum())
    taken = np.arange(1 << len(odd))[:, None] >> np.arange(len(odd)) & 1  # all choices of odd rows [2^k k]
    number = taken.sum(axis=1)
    taken = taken[(number <= size) & (number >= size - len(others))]
    part, left = taken @ odd, size - taken.sum(axis=1)
    ordered = np.zeros((len(others) + 1, num_labels), np.int64)
    ordered[1:] = np.sort(others, axis=0)
    upwards = ordered.cumsum(axis=0)  # what so many rows hold of a label, at least; all but so many: at most
    low, high = part + upwards[left], part + upwards[-1] - upwards[len(others) - left]
    # As much of each label as the mean allows, then one step after the other where it costs least: that is the best way.
    held = np.clip(part + (total - num_labels * part) // (num_labels * common) * common, low, high)
    while True:
        lacking = total - held.sum(axis=1)
        open_ = np.flatnonzero(lacking)
        if len(open_) == 0:
            return int(((num_labels * held - total) ** 2).sum(axis=1).min())
        step = common * np.sign(lacking[open_])[:, None]
        after = held[open_] + step
        cost = np.where(
            (after < low[open_]) | (after > high[open_]),
            np.inf,
            step * (2 * held[open_] + step - 2 * total / num_labels),
        )
        best = cost.argmin(axis=1)
        held[open_, best] += step[:, 0]
        keep = np.ones(len(held), bool)
        keep[open_[np.isinf(cost.min(axis=1))]] = (
            False  # no set has these odd rows: the others cannot make up the total
        )
        held, low, high = held[keep], low[keep], high[keep]
