"""Schedulers that look at age and energy: Whittle's index, drift plus penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from fedtide.parts.arguments import arg
from fedtide.schedule.schedulers import largest_by_lot
from fedtide.types import Candidates, Floats, Ints, Memory, Rng

# Whittle's index of the age of information (Kadota, Sinha, Uysal-Biyikoglu, Singh and Modiano, "Scheduling policies for
# minimizing age of information in broadcast wireless networks", IEEE/ACM Trans. Networking 2018), with frames of one slot.
#
#     picked at t:  the R ready devices with the largest  I_k = (w_k p_k / 2) h_k (h_k + 2/p_k - 1)
#
# h_k: age, in ticks since the last upload of device k that arrived (since 0 before the first), 1 right after it; w_k:
# weight, here |S_k|; p_k: probability that an upload arrives, here (1 + arrived) / (1 + granted) of what the server has
# seen of device k, so 1 while nothing is lost. I_k is the price per upload at which waiting and sending are equally good
# for a device alone, whose cost is the average of w_k h_k.
#
# It assumes that a device can always send something fresh, that losses are independent, and that capacities do not matter.
# Here a device is ready only now and then; the index ranks those that are. Equal indices, which are frequent if all hold
# equally many samples, are put in order by lot, drawn anew at every tick.


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


# Lyapunov drift plus penalty under an energy budget (Neely, "Stochastic network optimization with application to
# communication and queueing systems", 2010, ch. 4; for federated learning e.g. Xu and Wang, "Client selection and bandwidth
# allocation in wireless federated learning networks: a long-term perspective", 2021).
#
#     largest average gain of those picked, subject to  lim (1/T) sum_t e_k(t) 1{k picked at t} <= E  for every device:
#
#     picked at t:  of the ready devices with V g_k - Z_k(t) e_k(t) > 0, the R largest; fewer than R if there are fewer
#     Z_k(t+1) = max(Z_k(t) + e_k(t) 1{k picked at t} - E, 0),   Z_k(1) = 0      for every device, ready or not
#
# e_k = joules_per_symbol payload_bits / C_k: what sending the payload at capacity C_k takes, in J; E: budget in J per tick;
# Z_k: virtual queue, how far device k is over its budget, in J; g_k: gain, without unit, 1 on average over the ready
# devices; V in J^2: what a gain of 1 is worth. Ticks at which nobody was ready are ticks of the budget, too.
#
# After T ticks the average energy of device k is at most E + Z_k(T+1) / T, and Z_k <= V g_max / e_min + e_max: a large V
# gains more and meets the budget later. Equal scores (all queues that are empty, with equal data) are put in order by lot,
# drawn anew at every tick. e_k is a model of what an upload costs; what the radio grants is up to its allocation.


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
