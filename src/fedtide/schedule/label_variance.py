"""The label variance Omega of a set of devices, and the subset of a given size that makes it smallest.

Omega(Pi) = sum_j |sum_{k in Pi} b_k^j - mean|^2. With the centred rows v_k = c b_k - sum_j b_k^j (whole numbers, c labels)
it is ||sum_{k in Pi} v_k||^2 / c^2: a cardinality-constrained binary quadratic problem. All arithmetic here is on whole
numbers, held in float64 where it is exact (below 2^53), whatever the order of summation, so ties are real ties.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import Final, NamedTuple

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


def minimise_label_variance(label_counts: Ints, size: int, rng: Rng) -> tuple[Ints, bool]:
    """Return the `size` rows of label_counts [m c] with the least Omega, ascending, and whether that is proved.

    Among equals the set that is first in lexicographic order wins where all subsets are enumerated; beyond that, greedy
    descent by swaps from SWAP_RESTARTS starts, proved only if it reaches the least value that whole numbers allow.

    >>> minimise_label_variance(np.array([[9, 0], [8, 1], [0, 9], [5, 5]]), 2, np.random.default_rng(0))
    (array([0, 2]), True)
    """
    exact = _enumerated(label_counts, size)
    if exact is not None:
        return exact, True
    counts, coarse = _manageable(label_counts, size)
    totals = counts.sum(axis=1)
    # Omega >= rest (c - rest) / c for whole counts with one total, rest = total mod c; reached = c^2 Omega.
    num_labels = counts.shape[1]
    rest = size * int(totals[0]) % num_labels if np.all(totals == totals[0]) else 0
    enough = rest * (num_labels - rest) * num_labels
    picked, reached = _search(counts, size, rng, SWAP_RESTARTS, enough)
    return picked, reached <= enough and not coarse


def _enumerated(label_counts: Ints, size: int) -> Ints | None:
    """Return the best `size` rows of label_counts [m c], the first in lexicographic order; None: there are too many subsets."""
    num_rows = len(label_counts)
    if size >= num_rows:
        return np.arange(num_rows)
    if not _few(num_rows, min(size, num_rows - size)):
        return None
    return _enumerate(_centred(label_counts).astype(np.float64), size)


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


def _sums(rows: Floats, size: int) -> Floats:
    """Return the sum of every subset of `size` rows, subsets in lexicographic order [C(m,size) c]."""
    if math.comb(len(rows), size) * len(rows) <= _TABLE_ENTRIES:  # saves most of the time of small enumerations
        return np.asarray(_members(len(rows), size) @ rows)
    left_out = len(rows) - size
    if left_out < size:  # fewer to subtract than to add; the order of the complements is the reverse
        return np.asarray(rows.sum(axis=0) - rows[_combinations(len(rows), left_out)[::-1]].sum(axis=1))
    return np.asarray(rows[_combinations(len(rows), size)].sum(axis=1))


def _subset(width: int, size: int, number: int) -> list[int]:
    """Return the subset with this number in lexicographic order."""
    return list(next(itertools.islice(itertools.combinations(range(width), size), number, None)))


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
            rest = [half + each for each in _subset(len(right), size - from_left, column)]
            chosen = [*_subset(half, from_left, row), *rest]
            best = min(best, (float(values[row, column]), chosen))
    return np.array(best[1], np.int64)


# Beyond that, swaps (native/schedule.cpp): one member out, one other row in, as long as that helps. Memory is O(m c).

_MOST_SWAPS: Final = 4_000_000  # that all starts together may choose from: with thousands of candidates, fewer starts
MOST_ROWS: Final = 23_170  # more candidates are sampled: looking at every swap takes too long


def _manageable(label_counts: Ints, size: int) -> tuple[Ints, bool]:
    """Return counts whose sums have squares below 2^62, halved as often as it takes, and whether that was necessary."""
    num_labels = label_counts.shape[1]
    widest = max(abs(int(label_counts.min())), abs(int(label_counts.max())))
    halvings = 0
    while 4 * num_labels * ((size + 2) * num_labels * (widest >> halvings)) ** 2 >= 1 << 62:
        halvings += 1
    return (label_counts >> halvings if halvings else label_counts), halvings > 0


def _centred(label_counts: Ints) -> Ints:
    """Return v_k = c b_k - sum_j b_k^j [m c]."""
    counts = np.asarray(label_counts, np.int64)
    return np.ascontiguousarray(counts.shape[1] * counts - counts.sum(axis=1, keepdims=True))


def _search(label_counts: Ints, size: int, rng: Rng, restarts: int, enough: int) -> tuple[Ints, int]:
    """Return the best `size` rows of label_counts [m c] that swaps find, ascending, and their c^2 Omega.

    restarts: starts at most, the first one greedy, the others random. enough: no set is below, so what reaches it is taken.
    """
    if len(label_counts) > MOST_ROWS:
        return _sampled(label_counts, size, rng, enough)
    return native.descend(_centred(label_counts), size, _random_starts(len(label_counts), size, rng, restarts), enough)


def _random_starts(num_rows: int, size: int, rng: Rng, restarts: int) -> npt.NDArray[np.bool_]:
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


def _sampled(label_counts: Ints, size: int, rng: Rng, enough: int) -> tuple[Ints, int]:
    """Return `size` rows of label_counts [m c] with small Omega, ascending, and their c^2 Omega. enough: no set is below."""
    order = rng.permutation(len(label_counts))[: size + _SAMPLED_OTHERS]
    rows = _centred(label_counts[order])
    picked, reached = native.sample(rows, size, enough, _BLOCK, _VISITS, _KEPT_SWAPS)
    return np.sort(order[picked]), reached


# The least label variance with a certificate: a set, and a value that no set is below.
#
# Three bounds, in units of c^2 Omega, which are whole numbers:
#
#     rounding    what whole numbers allow at all
#     separation  ||sum|| >= (sum of the `size` smallest u v_k) / ||u|| for any direction u: how far labels that are rare among
#                 the candidates keep every set from even (u: from Frank and Wolfe's steps towards the nearest point)
#     tree        branch and bound over the coordinates in which the rows spread most (native/schedule_tree.cpp)
#
# The set comes from swap descent from CERTIFIED_RESTARTS starts, those of the plain search among them, then again from the best
# set after a few random swaps, and from the tree. Limits count steps, so the answer is the same on every machine.


# What whole numbers allow: a bound on the label variance that looks at divisors and totals only.
#
# Counts with the total T = g T' (g divides all counts) cannot always be even: Omega >= g^2 rest (c - rest) / c, rest = T'
# mod c; the least over all totals that `size` rows can have. With label shards, g divides all rows but a few, whose shards
# straddle two labels. Then every choice of these few leaves residues modulo g, and the others hold so many samples of each
# label at least and at most: the least over all choices, each the best way to share the total among labels within these
# limits, in steps of g.


_ROUNDING_CELLS: Final = 40_000  # m R: beyond that one total is asked for, as nearly every residue can be had
_MOST_ODD: Final = 8  # rows that a divisor of the others need not divide


def _rounding(label_counts: Ints, size: int) -> int:
    """Return a c^2 Omega that no `size` rows of label_counts [m c] are below."""
    num_labels = int(label_counts.shape[1])
    common = _common(label_counts)
    totals = label_counts.sum(axis=1)
    residues = totals // common % num_labels
    few = len(totals) * size <= _ROUNDING_CELLS
    if np.all(residues == residues[0]):
        rests = [size * int(residues[0]) % num_labels]
    elif few:
        rests = _residue_sums(np.bincount(residues, minlength=num_labels), size)
    else:
        rests = [0]
    least = common * common * num_labels * min(rest * (num_labels - rest) for rest in rests)
    return max(least, _shards(label_counts, size)) if few and np.all(totals == totals[0]) else least


def _common(label_counts: Ints) -> int:
    """Return the greatest common divisor of all counts, at least 1."""
    some = int(np.gcd.reduce(label_counts[:64], axis=None))
    return max(1, some if some == 1 else int(np.gcd.reduce(label_counts, axis=None)))


def _residue_sums(num_rows: Ints, size: int) -> list[int]:
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


def certify_label_variance(label_counts: Ints, size: int, rng: Rng, steps: int = STEPS) -> Certified:
    """Return the best `size` rows of label_counts [m c] that are found, and what is proved of them.

    steps: of random swaps (a fifth of them) and of the tree. A step is a member compared with up to 32 others, or a node.
    """
    picked = _enumerated(label_counts, size)
    if picked is not None:
        return _certified(label_counts, picked, None)
    counts, coarse = _manageable(label_counts, size)
    rows, bound = _centred(counts), _rounding(counts, size)
    if len(rows) > MOST_ROWS:
        picked, reached = _sampled(counts, size, rng, bound)
        bound = max(bound, _separation(rows, size)) if reached > bound else bound
        return _certified(label_counts, picked, 0 if coarse else bound)
    starts, seed = _random_starts(len(rows), size, rng, CERTIFIED_RESTARTS), int(rng.integers(1 << 62))
    picked, reached = _disturbed(rows, size, starts[:_FIRST], bound, seed, steps // 20)
    if reached > bound:
        bound = max(bound, _separation(rows, size))
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


def _separation(rows: Ints, size: int) -> int:
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
