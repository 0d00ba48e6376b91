"""Whittle's index of the age of information (Kadota, Sinha, Uysal-Biyikoglu, Singh and Modiano, "Scheduling policies for
minimizing age of information in broadcast wireless networks", IEEE/ACM Trans. Networking 2018), with frames of one slot.

    picked at t:  the R ready devices with the largest  I_k = (w_k p_k / 2) h_k (h_k + 2/p_k - 1)

h_k: age, in ticks since the last upload of device k that arrived (since 0 before the first), 1 right after it; w_k: weight,
here |S_k|; p_k: probability that an upload arrives, here (1 + arrived) / (1 + granted) of what the server has seen of device k,
so 1 while nothing is lost. I_k is the price per upload at which waiting and sending are equally good for a device alone, whose
cost is the average of w_k h_k.

It assumes that a device can always send something fresh, that losses are independent, and that capacities do not
matter. Here a device is ready only now and then; the index ranks those that are. Equal indices, which are frequent if all hold
equally many samples, are put in order by lot, drawn anew at every tick.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedtide.policy.scheduling import largest_by_lot
from fedtide.types import Candidates, Floats, Ints, Memory, Rng


def index(age: Floats | Ints, weight: Floats | Ints, success: Floats) -> Floats:
    """Return I_k of ages >= 1, weights and probabilities in (0, 1] [m]."""
    return np.asarray(weight * success / 2 * age * (age + 2 / success - 1))


@dataclass(frozen=True)
class WhittleAge:
    """The R largest Whittle indices of age: (w_k p_k / 2) h_k (h_k + 2/p_k - 1), h_k since the last upload that arrived."""

    def init(self, num_devices: int) -> Memory:
        """Return the ticks of the last grant and of the last arrival, and how many of each there were [N]."""
        names = ("granted_at", "arrived_at", "granted", "arrived")
        return {name: np.zeros(num_devices, np.int64) for name in names}

    def __call__(self, memory: Memory, candidates: Candidates, limit: int, rng: Rng) -> tuple[Ints, Memory]:
        """See whose last grant has arrived, then sort by index."""
        device, tick = candidates.device, candidates.tick
        uploads = tick - candidates.missed  # that arrived so far
        came = uploads > memory["arrived"][device]
        memory["arrived_at"][device[came]] = memory["granted_at"][device[came]]
        memory["arrived"][device[came]] = uploads[came]
        success = np.minimum((1 + memory["arrived"][device]) / (1 + memory["granted"][device]), 1.0)
        age = np.maximum(tick - memory["arrived_at"][device], 1)
        picked = largest_by_lot(index(age, candidates.num_samples, success), limit, device, rng)
        memory["granted_at"][device[picked]] = tick
        memory["granted"][device[picked]] += 1
        return picked, memory
