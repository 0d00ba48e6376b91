"""Bits per upload against label variance, in place of the paper's hard cut at the N/2 best channels.

    F(Pi)   = rho(Pi) - weight omega(Pi)
    rho     = B(Pi) / max_{|Pi'| = |Pi|} B(Pi'),       B(Pi) = n / sum_{k in Pi} 1/C_k
    omega   = Omega(Pi) / (T^2 (1 - 1/c)),             Omega(Pi) = sum_j |sum_{k in Pi} b_k^j - T/c|^2
    picked: Pi = {}; R times: add the ready device that makes F largest (of equals, the lower number);
            then `passes` times, for each member in turn: exchange it for the device that makes F largest

B: bits of every upload if all send equally many (eq:nc, `equal_bits`), the harmonic mean of the capacities times n / |Pi|;
rho is 1 for the best channels. b_k^j: samples of label j of c at device k; T: all samples of Pi. omega is the paper's label
variance relative to its largest value, 0 if all labels are equally frequent and 1 if there is one label alone. So both lie
within 0..1, and the weight has no unit: the share of the bits that one gives for going from one label to all of them evenly.

weight 0 is the best channels; a large weight is the greedy descent of the label variance over all ready devices.
O((1 + passes) R m c).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np

from fedtide.core.arguments import arg
from fedtide.types import Candidates, Floats, Ints, Rng

FAINTEST: Final = 1e-12  # of the best capacity: what is below counts as this, so that 1/C is finite


@dataclass(frozen=True)
class SoftRateLabel:
    """Greedy: each time the device that most improves bits per upload minus weight x label variance, both within 0..1."""

    weight: Annotated[float, arg("of the label variance beside the bits; 0: best channels", ge=0)] = 10.0
    passes: Annotated[int, arg("how often each member may be exchanged in the end; 0: greedy alone", ge=0, le=1000)] = 2

    def __call__(self, candidates: Candidates, limit: int, rng: Rng) -> Ints:
        """Add one device at a time, then exchange one at a time."""
        score = self._scores(candidates)
        picked: list[int] = []
        for _ in range(limit):
            picked.append(int(_without(score(picked), picked).argmax()))
        for _ in range(self.passes):
            before = list(picked)
            for at in range(limit):
                others = picked[:at] + picked[at + 1 :]
                value = _without(score(others), others)
                best = int(value.argmax())
                if value[best] > value[picked[at]]:
                    picked[at] = best
            if picked == before:
                break
        return np.array(picked, np.int64)

    def _scores(self, candidates: Candidates) -> Callable[[list[int]], Floats]:
        """Return what gives F of some members with each of the candidates besides [m]."""
        counts, capacity = candidates.label_counts, candidates.capacity
        num_labels = counts.shape[1]
        size = counts.sum(axis=1).astype(np.float64)
        centred = (num_labels * counts - counts.sum(axis=1, keepdims=True)).astype(np.float64)  # exact: whole numbers
        own = (centred**2).sum(axis=1)
        most = num_labels**2 * max(1 - 1 / num_labels, 1 / num_labels)  # with one label Omega is 0 anyway
        best = float(capacity.max()) or 1.0
        airtime = best / np.maximum(capacity, FAINTEST * best)  # symbols per bit, in those of the best link [m]
        least = np.cumsum(np.sort(airtime))

        def score(members: list[int]) -> Floats:
            labels = centred[members].sum(axis=0)
            squares = float(labels @ labels) + 2 * (centred @ labels) + own
            omega = squares / (most * np.maximum(size[members].sum() + size, 1.0) ** 2)
            return np.asarray(least[len(members)] / (airtime[members].sum() + airtime) - self.weight * omega)

        return score


def _without(value: Floats, members: list[int]) -> Floats:
    """Return values of which members have none."""
    value[members] = -np.inf
    return value
