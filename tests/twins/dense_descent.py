"""Swap descent with all inner products in two m x m matrices and all starts at once: the slow twin of native/schedule.cpp."""

from __future__ import annotations

import math

import numpy as np


def descend(centred: np.ndarray, size: int, rng: np.random.Generator, restarts: int = 96) -> tuple[np.ndarray, float]:
    """Best-improvement swaps from a greedy and many random starts; return the best set and its ||sum v||^2."""
    num_rows = len(centred)
    starts = max(1, min(restarts, 4_000_000 // (size * (num_rows - size))))
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


def _greedy(centred: np.ndarray, size: int) -> np.ndarray:
    member = np.zeros(len(centred), bool)
    total = np.zeros(centred.shape[1])
    for _ in range(size):
        cost = ((total + centred) ** 2).sum(axis=1)
        cost[member] = math.inf
        added = int(cost.argmin())
        member[added] = True
        total += centred[added]
    return member
