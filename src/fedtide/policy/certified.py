"""The least label variance with a certificate: a set, and a value that no set is below.

Three bounds, in units of c^2 Omega, which are whole numbers (label_variance.py has the rows v_k and c):

    rounding    what whole numbers allow at all (rounding.py)
    separation  ||sum|| >= (sum of the `size` smallest u v_k) / ||u|| for any direction u: how far labels that are rare among
                the candidates keep every set from even (u: from Frank and Wolfe's steps towards the nearest point)
    tree        branch and bound over the coordinates in which the rows spread most (native/schedule_tree.cpp)

The set comes from swap descent from `RESTARTS` starts, those of the plain search among them, then again from the best set after
a few random swaps, and from the tree. Limits count steps, so the answer is the same on every machine.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fedtide.errors import FedtideError
from fedtide.policy import swaps
from fedtide.policy.label_variance import enumerated
from fedtide.policy.rounding import rounding
from fedtide.policy.sampled import sampled
from fedtide.types import Ints, Rng

RESTARTS: Final = 200
FIRST: Final = 7  # of them, after which random swaps are tried: with label shards that is enough more often than not
STEPS: Final = 400_000  # if nothing is said: about 10 ms
MOST_CELLS: Final = 40_000  # m R: a larger tree would not be searched in a lifetime, and its tables take memory
LOOKED_AT: Final = 4_000_000  # numbers, in all steps towards a separating direction


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
    native = swaps.native()
    if native is None:
        raise FedtideError(
            "the scheduler's search=certified needs the compiled extension, which is not there: install fedtide with a C++ "
            "compiler, or take policy.scheduler_args.search=swaps"
        )
    counts, coarse = swaps.manageable(label_counts, size)
    rows, bound = swaps.centred(counts), rounding(counts, size)
    if len(rows) > swaps.MOST_ROWS:
        picked, reached = sampled(counts, size, rng, bound)
        bound = max(bound, separation(rows, size)) if reached > bound else bound
        return _certified(label_counts, picked, 0 if coarse else bound)
    starts, seed = swaps.random_starts(len(rows), size, rng, RESTARTS), int(rng.integers(1 << 62))
    picked, reached = _disturbed(rows, size, starts[:FIRST], bound, seed, steps // 20)
    if reached > bound:
        bound = max(bound, separation(rows, size))
        other = _disturbed(rows, size, starts[FIRST:], bound, seed + 1, steps // 5 - steps // 20)
        picked, reached = min((picked, reached), other, key=lambda found: found[1])
    if reached > bound and len(rows) * size <= MOST_CELLS:
        better, reached, bound, _ = native.branch(rows, size, reached, bound, steps - steps // 5)
        picked = better if len(better) else picked
    return _certified(label_counts, picked, 0 if coarse else bound)


def _disturbed(
    rows: Ints, size: int, starts: npt.NDArray[np.bool_], enough: int, seed: int, steps: int
) -> tuple[Ints, int]:
    """Descend from every start [n m], then from the best set again after random swaps; return the set and its c^2 Omega."""
    native = swaps.native()
    assert native is not None
    picked, reached = native.descend(rows, size, starts, enough)
    if reached <= enough:
        return picked, reached
    member = np.zeros((1, len(rows)), bool)
    member[0, picked] = True
    found: tuple[Ints, int] = native.disturb(rows, size, member, enough, seed, steps)
    return found


def separation(centred: Ints, size: int) -> int:
    """Return a c^2 Omega that no `size` rows v_k [m c] are below, by a direction that keeps all of them from the origin."""
    native = swaps.native()
    assert native is not None
    below, square = map(int, native.separate(centred, size, max(1, min(100, LOOKED_AT // centred.size))))
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
