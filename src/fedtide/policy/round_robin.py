"""Round robin: the devices take turns.

    picked at t:  the first R ready devices in the cyclic order q+1, q+2, ..., N-1, 0, 1, ..., q
    q <- the last of them

q: number of the device that was served last. It is the fair reference of H. H. Yang, Liu, Quek and Poor, "Scheduling policies
for federated learning in wireless networks", 2020, where groups of R devices take turns; here the turn passes over whoever
is not ready, who waits for the next round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedtide.types import Candidates, Ints, Memory, Rng


@dataclass(frozen=True)
class RoundRobin:
    """The devices in turn, by number; those not ready are passed over."""

    def init(self, num_devices: int) -> Memory:
        """Return who was served last: nobody, as if it had been device N-1."""
        return {"last": np.array(num_devices - 1, np.int64)}

    def __call__(self, memory: Memory, candidates: Candidates, limit: int, rng: Rng) -> tuple[Ints, Memory]:
        """Sort by how far each is ahead of the one served last."""
        ahead = (candidates.device - int(memory["last"]) - 1) % candidates.num_devices
        picked = np.argsort(ahead, kind="stable")[:limit]
        return picked, {"last": np.array(candidates.device[picked[-1]], np.int64)}
