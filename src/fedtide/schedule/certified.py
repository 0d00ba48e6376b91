"""The least label variance with a certificate: a set, and a value that no set is below.

Three bounds, in units of c^2 Omega, which are whole numbers (label_variance.py has the rows v_k and c):

    rounding    what whole numbers allow at all
    separation  ||sum|| >= (sum of the `size` smallest u v_k) / ||u|| for any direction u: how far labels that are rare among
                the candidates keep every set from even (u: from Frank and Wolfe's steps towards the nearest point)
    tree        branch and bound over the coordinates in which the rows spread most (native/schedule_tree.cpp)

The set comes from swap descent from CERTIFIED_RESTARTS starts, those of the plain search among them, then again from the best
set after a few random swaps, and from the tree. Limits count steps, so the answer is the same on every machine.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fedtide.extension import native
from fedtide.schedule.label_variance import MOST_ROWS, centred, enumerated, manageable, random_starts, sampled
from fedtide.types import Ints, Rng

# What whole numbers allow: a bound on the label variance that looks at divisors and totals only.
#
# Counts with the total T = g T' (g divides all counts) cannot always be even: Omega >= g^2 rest (c - rest) / c, rest = T'
# mod c; the least over all totals that `size` rows can have. With label shards, g divides all rows but a few, whose shards
# straddle two labels. Then every choice of these few leaves residues modulo g, and the others hold so many samples of each
# label at least and at most: the least over all choices, each the best way to share the total among labels within these
# limits, in steps of g.


_ROUNDING_CELLS: Final = 40_000  # m R: beyond that one total is asked for, as nearly every residue can be had
_MOST_ODD: Final = 8  # rows that a divisor of the others need not divide


def rounding(label_counts: Ints, size: int) -> int:
    """Return a c^2 Omega that no `size` rows of label_counts [m c] are below."""
    num_labels = int(label_counts.shape[1])
    common = _common(label_counts)
    totals = label_counts.sum(axis=1)
    residues = totals // common % num_labels
    few = len(totals) * size <= _ROUNDING_CELLS
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
    for common in sorted({*divisors.tolist()} - {0, 1}, reverse=True)[:_MOST_ODD]:
        is_odd = (label_counts % common).any(axis=1)
        if is_odd.sum() <= _MOST_ODD:
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
        beyond = (after < low[open_]) | (after > high[open_])
        cost = np.where(beyond, np.inf, step * (2 * held[open_] + step - 2 * total / num_labels))
        best = cost.argmin(axis=1)
        held[open_, best] += step[:, 0]
        keep = np.ones(len(held), bool)
        keep[open_[np.isinf(cost.min(axis=1))]] = (
            False  # no set has these odd rows: the others cannot make up the total
        )
        held, low, high = held[keep], low[keep], high[keep]


CERTIFIED_RESTARTS: Final = 200
_FIRST: Final = 7  # of them, after which random swaps are tried: with label shards that is enough more often than not
STEPS: Final = 400_000  # if nothing is said: about 10 ms
_TREE_CELLS: Final = 40_000  # m R: a larger tree would not be searched in a lifetime, and its tables take memory
_LOOKED_AT: Final = 4_000_000  # numbers, in all steps towards a separating direction


class Certified(NamedTuple):
    """A set of rows, and what is proved of it."""

    picked: Ints  # ascending [r]
    reached: float  # Omega of it
    bound: float  # no set has less
    gap: float  # sqrt(reached / c) - sqrt(bound / c), in samples per label: 0 if it is proved to be the best

    @property
    def proved(self) -> bool:
        """Whether no set is better."""
        return self.gap == 0


def certify(label_counts: Ints, size: int, rng: Rng, steps: int = STEPS) -> Certified:
    """Return the best `size` rows of label_counts [m c] that are found, and what is proved of them.

    steps: of random swaps (a fifth of them) and of the tree. A step is a member compared with up to 32 others, or a node.
    """
    picked = enumerated(label_counts, size)
    if picked is not None:
        return _certified(label_counts, picked, None)
    counts, coarse = manageable(label_counts, size)
    rows, bound = centred(counts), rounding(counts, size)
    if len(rows) > MOST_ROWS:
        picked, reached = sampled(counts, size, rng, bound)
        bound = max(bound, separation(rows, size)) if reached > bound else bound
        return _certified(label_counts, picked, 0 if coarse else bound)
    starts, seed = random_starts(len(rows), size, rng, CERTIFIED_RESTARTS), int(rng.integers(1 << 62))
    picked, reached = _disturbed(rows, size, starts[:_FIRST], bound, seed, steps // 20)
    if reached > bound:
        bound = max(bound, separation(rows, size))
        other = _disturbed(rows, size, starts[_FIRST:], bound, seed + 1, steps // 5 - steps // 20)
        picked, reached = min((picked, reached), other, key=lambda found: found[1])
    if reached > bound and len(rows) * size <= _TREE_CELLS:
        better, reached, bound, _ = native.branch(rows, size, reached, bound, steps - steps // 5)
        picked = better if len(better) else picked
    return _certified(label_counts, picked, 0 if coarse else bound)


def _disturbed(
    rows: Ints, size: int, starts: npt.NDArray[np.bool_], enough: int, seed: int, steps: int
) -> tuple[Ints, int]:
    """Descend from every start [n m], then from the best set again after random swaps; return the set and its c^2 Omega."""
    picked, reached = native.descend(rows, size, starts, enough)
    if reached <= enough:
        return picked, reached
    member = np.zeros((1, len(rows)), bool)
    member[0, picked] = True
    return native.disturb(rows, size, member, enough, seed, steps)


def separation(rows: Ints, size: int) -> int:
    """Return a c^2 Omega that no `size` rows v_k [m c] are below, by a direction that keeps all of them from the origin."""
    below, square = map(int, native.separate(rows, size, max(1, min(100, _LOOKED_AT // rows.size))))
    return -(-(below**2) // square) if below > 0 else 0


def _certified(label_counts: Ints, picked: Ints, bound: int | None) -> Certified:
    """Say it in samples. bound: of c^2 Omega; None: nothing is below this set."""
    num_labels = label_counts.shape[1]
    total = [int(each) for each in label_counts[picked].sum(axis=0)]
    reached = num_labels * (num_labels * sum(each**2 for each in total) - sum(total) ** 2)
    least = reached if bound is None else min(reached, -(-bound // num_labels) * num_labels)  # it is a multiple of c
    scale = num_labels**2
    gap = math.sqrt(reached / scale / num_labels) - math.sqrt(least / scale / num_labels)
    return Certified(picked, reached / scale, least / scale, gap)
