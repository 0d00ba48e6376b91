"""Lyapunov drift plus penalty under an energy budget (Neely, "Stochastic network optimization with application to
communication and queueing systems", 2010, ch. 4; for federated learning e.g. Xu and Wang, "Client selection and bandwidth
allocation in wireless federated learning networks: a long-term perspective", 2021).

    largest average gain of those picked, subject to  lim (1/T) sum_t e_k(t) 1{k picked at t} <= E  for every device:

    picked at t:  of the ready devices with V g_k - Z_k(t) e_k(t) > 0, the R largest; fewer than R if there are fewer
    Z_k(t+1) = max(Z_k(t) + e_k(t) 1{k picked at t} - E, 0),   Z_k(1) = 0      for every device, ready or not

e_k = joules_per_symbol payload_bits / C_k: what sending the payload at capacity C_k takes, in J; E: budget in J per tick; Z_k:
virtual queue, how far device k is over its budget, in J; g_k: gain, without unit, 1 on average over the ready devices; V in
J^2: what a gain of 1 is worth. Ticks at which nobody was ready are ticks of the budget, too.

After T ticks the average energy of device k is at most E + Z_k(T+1) / T, and Z_k <= V g_max / e_min + e_max: a large V
gains more and meets the budget later. Equal scores (all queues that are empty, with equal data) are put in order by lot, drawn
anew at every tick. e_k is a model of what an upload costs; what the radio grants is up to its allocation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from fedtide.core.arguments import arg
from fedtide.policy.scheduling import largest_by_lot
from fedtide.types import Candidates, Floats, Ints, Memory, Rng


@dataclass(frozen=True)
class DriftPlusPenalty:
    """The R largest V g_k - Z_k e_k, positive ones only: gain within an average energy budget per device (Lyapunov)."""

    budget: Annotated[float, arg("E: what a device may spend on uploads on average", unit="J per tick", gt=0)] = 0.01
    value: Annotated[float, arg("V: what a gain of 1 is worth", unit="J^2", gt=0)] = 0.01
    payload_bits: Annotated[float, arg("what an upload sends", unit="bit", gt=0)] = 1e5
    joules_per_symbol: Annotated[float, arg("of sending one", unit="J", gt=0)] = 1e-6
    gain: Annotated[
        Literal["samples", "capacity"],
        arg("g_k: samples: by |S_k|; capacity: by C_k; each relative to the mean of the ready devices"),
    ] = "samples"

    def init(self, num_devices: int) -> Memory:
        """Return Z_k(1) in J [N], and the last tick that was seen."""
        return {"queue": np.zeros(num_devices), "tick": np.zeros((), np.int64)}

    def __call__(self, memory: Memory, candidates: Candidates, limit: int, rng: Rng) -> tuple[Ints, Memory]:
        """Pick by V g_k - Z_k e_k, then go on with all queues."""
        device, tick = candidates.device, candidates.tick
        idle = max(tick - int(memory["tick"]) - 1, 0)
        queue = np.maximum(memory["queue"] - idle * self.budget, 0.0)
        energy = self.energy(candidates.capacity)
        can = np.flatnonzero(np.isfinite(energy))  # no energy is enough for a dead link
        with np.errstate(over="ignore"):
            score = self.value * self._gain(candidates)[can] - queue[device[can]] * energy[can]
        best = largest_by_lot(score, limit, device[can], rng)
        picked = can[best[score[best] > 0]]
        queue[device[picked]] += energy[picked]
        return picked, {"queue": np.maximum(queue - self.budget, 0.0), "tick": np.array(tick, np.int64)}

    def energy(self, capacity: Floats) -> Floats:
        """Return e_k in J of capacities in bit/symbol [m]; infinity for a dead link."""
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(self.joules_per_symbol * self.payload_bits / capacity)

    def _gain(self, candidates: Candidates) -> Floats:
        """Return g_k [m]."""
        raw = candidates.num_samples if self.gain == "samples" else candidates.capacity
        return np.asarray(raw / (raw.mean() or 1.0))
