"""Schedulers of other papers: turns, channels, age of information, energy, losses. docs/schedulers.md compares them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal

import numpy as np

from fedtide.parts.arguments import arg
from fedtide.schedule.schedulers import schedule_by_weight, schedule_largest, schedule_largest_by_lot
from fedtide.types import Candidates, Floats, Ints, Memory, Rng

# picked at t: the first R ready devices in the cyclic order q+1, q+2, ..., N-1, 0, ..., q;   q <- the last of them
#
# The fair reference of H. H. Yang, Liu, Quek and Poor, "Scheduling policies for federated learning in wireless networks" (2020).


@dataclass(frozen=True)
class RoundRobin:
    """The devices in turn, by number; those that are not ready are skipped."""

    def init(self, num_devices: int) -> Memory:
        """Return who was served last: nobody, as if it had been device N-1."""
        return {"last": np.array(num_devices - 1, np.int64)}

    def __call__(self, memory: Memory, candidates: Candidates, limit: int, rng: Rng) -> tuple[Ints, Memory]:
        """Sort by how far each is ahead of the one served last."""
        ahead = (candidates.device - int(memory["last"]) - 1) % candidates.num_devices
        picked = np.argsort(ahead, kind="stable")[:limit]
        return picked, {"last": np.array(candidates.device[picked[-1]], np.int64)}


# Viswanath, Tse and Laroia, "Opportunistic beamforming using dumb antennas" (2002), sec. II:
#
#     picked at t:  the R ready devices with the largest C_k(t) / R_k(t)
#     R_k(t+1) = (1 - 1/t_c) R_k(t) + (1/t_c) C_k(t) 1{k picked at t}      for every device, ready or not;   R_k(1) = 1


_LEAST: Final = 1e-200  # bit/symbol: whoever waits for ever is not forgotten to 0


@dataclass(frozen=True)
class ProportionalFair:
    """The R best channels relative to each device's average so far: C_k / R_k."""

    window: Annotated[float, arg("t_c, averaging window", unit="ticks", gt=1)] = 20.0

    def init(self, num_devices: int) -> Memory:
        """Return R_k(1) in bit/symbol [N], and the last tick that was seen."""
        return {"rate": np.ones(num_devices), "tick": np.zeros((), np.int64)}

    def __call__(self, memory: Memory, candidates: Candidates, limit: int, rng: Rng) -> tuple[Ints, Memory]:
        """Pick by C_k / R_k, then go on with all averages."""
        kept, device = 1 - 1 / self.window, candidates.device
        idle = max(candidates.tick - int(memory["tick"]) - 1, 0)
        rate = np.maximum(memory["rate"] * kept**idle, _LEAST)
        picked = schedule_largest(candidates.capacity / rate[device], limit)
        rate *= kept
        rate[device[picked]] += candidates.capacity[picked] / self.window
        return picked, {"rate": rate, "tick": np.array(candidates.tick, np.int64)}


# Gesbert and Alouini, "How much feedback is multi-user diversity really worth?" (ICC 2004).


@dataclass(frozen=True)
class Threshold:
    """The R best channels among those with at least a given capacity."""

    least: Annotated[float, arg("C_th, capacity threshold", unit="bit/symbol", ge=0)] = 3.0

    def __call__(self, candidates: Candidates, limit: int, rng: Rng) -> Ints:
        """Cut, then sort by C_k(t)."""
        strong = np.flatnonzero(candidates.capacity >= self.least)
        return strong[schedule_largest(candidates.capacity[strong], limit)]


# In place of the paper's hard cut at the N/2 best channels, for Pi with T samples of c labels:
#
#     F(Pi)   = rho(Pi) - weight omega(Pi)
#     rho     = B(Pi) / max_{|Pi'| = |Pi|} B(Pi'),       B(Pi) = n / sum_{k in Pi} 1/C_k
#     omega   = Omega(Pi) / (T^2 (1 - 1/c)),             Omega(Pi) = sum_j |sum_{k in Pi} b_k^j - T/c|^2
#     picked: Pi = {}; R times: add the ready device that makes F largest (of equals, the lower number);
#             then `passes` times, for each member in turn: exchange it for the device that makes F largest
#
# O((1 + passes) R m c).


_FAINTEST: Final = 1e-12  # of the best capacity: what is below counts as this, so that 1/C is finite


@dataclass(frozen=True)
class SoftRateLabel:
    """Greedy: adds the device that most improves bits per upload - weight x label variance, both scaled to 0..1."""

    weight: Annotated[float, arg("weight of the label variance relative to the bits; 0: best channels", ge=0)] = 10.0
    passes: Annotated[int, arg("exchanges per member after the greedy choice; 0: greedy only", ge=0, le=1000)] = 2

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
        airtime = best / np.maximum(capacity, _FAINTEST * best)  # symbols per bit, in those of the best link [m]
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


# Kadota, Sinha, Uysal-Biyikoglu, Singh and Modiano, "Scheduling policies for minimizing age of information in broadcast
# wireless networks" (IEEE/ACM Trans. Networking 2018), with frames of one slot:
#
#     picked at t:  the R ready devices with the largest  I_k = (w_k p_k / 2) h_k (h_k + 2/p_k - 1)
#
# h_k: ticks since the last upload of device k that arrived (since 0 before the first), 1 right after it; w_k = |S_k|;
# p_k = (1 + arrived) / (1 + granted): probability that an upload arrives, of what the server has seen of device k.


def _whittle_index(age: Floats | Ints, weight: Floats | Ints, success: Floats) -> Floats:
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
        picked = schedule_largest_by_lot(_whittle_index(age, candidates.num_samples, success), limit, device, rng)
        memory["granted_at"][device[picked]] = tick
        memory["granted"][device[picked]] += 1
        return picked, memory


# Neely, "Stochastic network optimization with application to communication and queueing systems" (2010), ch. 4:
#
#     largest average gain of those picked, subject to  lim (1/T) sum_t e_k(t) 1{k picked at t} <= E  for every device:
#
#     picked at t:  of the ready devices with V g_k - Z_k(t) e_k(t) > 0, the R largest; fewer than R if there are fewer
#     Z_k(t+1) = max(Z_k(t) + e_k(t) 1{k picked at t} - E, 0),   Z_k(1) = 0      for every device, ready or not
#
# e_k = joules_per_symbol payload_bits / C_k in J; Z_k: how far device k is over its budget, in J; g_k: 1 on average over the
# ready devices. Ticks at which nobody was ready are ticks of the budget, too.


@dataclass(frozen=True)
class DriftPlusPenalty:
    """The R largest V g_k - Z_k e_k, positive ones only: gain within an average energy budget per device (Lyapunov)."""

    budget: Annotated[float, arg("E: mean energy that a device may spend on uploads", unit="J per tick", gt=0)] = 0.01
    value: Annotated[float, arg("V: weight of the gain", unit="J^2", gt=0)] = 0.01
    payload_bits: Annotated[float, arg("bits of an upload", unit="bit", gt=0)] = 1e5
    joules_per_symbol: Annotated[float, arg("energy per symbol sent", unit="J", gt=0)] = 1e-6
    gain: Annotated[
        Literal["samples", "capacity"],
        arg("the gain g_k: samples (|S_k|) or capacity (C_k), relative to the mean of the ready devices"),
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
        best = schedule_largest_by_lot(score, limit, device[can], rng)
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


# Cho, Wang and Joshi, "Client selection in federated learning: convergence analysis and power-of-choice selection strategies"
# (2020), sec. 3:
#
#     1. draw a set A of d ready devices without replacement, device k with probability p_k = |S_k| / sum |S_j|
#     2. picked: the R devices of A with the largest local loss F_k(theta_k)


@dataclass(frozen=True)
class MaxLoss:
    """Power of choice: of d devices drawn by data size, the R with the largest local loss."""

    drawn: Annotated[int | None, arg("d: number of devices drawn, at least R; default: 2 R", ge=1, le=10**8)] = None
    needs: ClassVar[tuple[str, ...]] = ("loss",)

    def __call__(self, candidates: Candidates, limit: int, rng: Rng) -> Ints:
        """Draw, then sort by loss."""
        assert candidates.loss is not None
        count = max(2 * limit if self.drawn is None else self.drawn, limit)
        pool = np.sort(schedule_by_weight(candidates.num_samples, count, rng))
        return pool[schedule_largest(candidates.loss[pool], limit)]


# Lai, Zhu, Madhyastha and Chowdhury, "Oort: efficient federated learning via guided participant selection" (OSDI 2021), alg. 1:
#
#     Util_k = [ U_k / max_j U_j + sqrt(0.1 log t / L_k) ] (T / D_k)^(alpha 1{T < D_k}),      U_k = |S_k| F_k
#     eps_t  = max(eps_min, eps_0 decay^(t-1))
#     picked at t:  eps_t R devices that were never picked, drawn by speed 1/D_k; the others among those picked before:
#                   all with Util_k >= cutoff x (the last that would be among the best), drawn by Util_k
#
# F_k: loss of the model that device k received, on its own samples. L_k: tick at which k was last picked. D_k = a_k + 1: ticks
# from receiving a model to being ready; T: preferred duration. eps_t R is rounded up or down at random, with that mean.


@dataclass(frozen=True)
class Oort:
    """Oort: drawn by loss x data size, a bonus for waiting and a penalty for being slow; some devices are explored."""

    explore: Annotated[float, arg("eps_0: initial share of R for new devices", ge=0, le=1)] = 0.9
    explore_least: Annotated[float, arg("eps_min: smallest share for new devices", ge=0, le=1)] = 0.2
    decay: Annotated[float, arg("decay of this share per tick", gt=0, le=1)] = 0.98
    cutoff: Annotated[
        float, arg("c: devices with at least this share of the R-th best utility take part in the draw", ge=0, le=1)
    ] = 0.95
    preferred: Annotated[float, arg("T: duration beyond which devices are penalised", unit="ticks", gt=0)] = 2.0
    penalty: Annotated[float, arg("alpha: exponent of this penalty", ge=0)] = 2.0
    needs: ClassVar[tuple[str, ...]] = ("loss",)

    def init(self, num_devices: int) -> Memory:
        """Return L_k [N], 0 for never."""
        return {"last": np.zeros(num_devices, np.int64)}

    def __call__(self, memory: Memory, candidates: Candidates, limit: int, rng: Rng) -> tuple[Ints, Memory]:
        """Explore, exploit, remember who was picked."""
        tick, device = max(candidates.tick, 1), candidates.device
        known = memory["last"][device] > 0
        old, new = np.flatnonzero(known), np.flatnonzero(~known)
        share = _explored_share(self, tick)
        wanted = max(math.floor(share * limit + rng.random()), limit - len(old))
        explored = min(wanted, len(new), limit)
        util = self.utility(candidates, memory["last"][device], old)
        count = limit - explored
        if count:
            util_of_last = np.sort(util)[-count]
            admitted = util >= self.cutoff * util_of_last
            old, util = old[admitted], util[admitted]
        drawn = schedule_largest(util, count) if len(util) == count else schedule_by_weight(util, count, rng)
        picked = np.concatenate([old[drawn], new[schedule_by_weight(1 / (candidates.age[new] + 1.0), explored, rng)]])
        memory["last"][device[picked]] = tick
        return picked, memory

    def utility(self, candidates: Candidates, last: Ints, which: Ints) -> Floats:
        """Return Util_k of some positions; last: L_k [m]."""
        assert candidates.loss is not None
        value = candidates.num_samples[which] * np.maximum(candidates.loss[which], 0.0)
        best = value.max(initial=0.0)
        waiting = np.sqrt(0.1 * math.log(max(candidates.tick, 1)) / last[which])
        speed = np.minimum(self.preferred / (candidates.age[which] + 1.0), 1.0) ** self.penalty
        return np.asarray((value / (best or 1.0) + waiting) * speed)


def _explored_share(scheduler: Oort | Pisces, tick: int) -> float:
    """Return eps_t, the share of R that goes to devices that were never picked."""
    return max(scheduler.explore_least, scheduler.explore * scheduler.decay ** (tick - 1))


# Jiang, Wang, Li and Li, "Pisces: efficient federated learning via guided asynchronous training" (SoCC 2022):
#
#     U_k = |S_k| F_k / (a_k + 1)^beta
#     picked at t:  Binomial(R, eps_t) devices that were never picked, at random; the others those with the largest U_k
#
# F_k and eps_t as for Oort. With `credit`, losses are clustered (DBSCAN): a loss is an outlier if it is farther than `radius`
# from every loss that has at least R/2 losses within `radius`, itself included. A device whose loss was an outlier `credit`
# times is never picked again. Fewer than R losses are not judged.


@dataclass(frozen=True)
class Pisces:
    """Pisces: the largest loss x data size / (age + 1)^beta; some devices are explored, odd losses may be excluded."""

    staleness: Annotated[float, arg("beta: exponent of 1 + age", ge=0)] = 0.5
    explore: Annotated[float, arg("eps_0: initial share of R for new devices", ge=0, le=1)] = 0.9
    explore_least: Annotated[float, arg("eps_min: smallest share for new devices", ge=0, le=1)] = 0.3
    decay: Annotated[float, arg("decay of this share per tick", gt=0, le=1)] = 0.98
    credit: Annotated[
        int | None, arg("number of outlying losses that exclude a device; default: none is excluded", ge=1, le=10**9)
    ] = None
    radius: Annotated[float, arg("radius of a cluster of losses", unit="nats", gt=0)] = 0.5
    limit: Annotated[int, arg("R: number of losses needed to judge any", key="policy.limit", ge=1, le=10**8)] = 1
    needs: ClassVar[tuple[str, ...]] = ("loss",)

    def init(self, num_devices: int) -> Memory:
        """Return who was picked before, and how many outlying losses each device had [N]."""
        return {"picked": np.zeros(num_devices, np.bool_), "outlying": np.zeros(num_devices, np.int64)}

    def __call__(self, memory: Memory, candidates: Candidates, limit: int, rng: Rng) -> tuple[Ints, Memory]:
        """Leave out liars, explore, exploit."""
        device, loss = candidates.device, candidates.loss
        assert loss is not None
        if self.credit is not None and len(loss) >= self.limit:
            memory["outlying"][device] += _outlying(loss, self.radius, math.ceil(self.limit / 2))
        trusted = memory["outlying"][device] < (np.inf if self.credit is None else self.credit)
        known = memory["picked"][device]
        old, new = np.flatnonzero(trusted & known), np.flatnonzero(trusted & ~known)
        wanted = int(rng.binomial(limit, _explored_share(self, max(candidates.tick, 1))))
        explored = min(len(new), max(wanted, limit - len(old)))
        value = candidates.num_samples[old] * np.maximum(loss[old], 0.0) / (candidates.age[old] + 1.0) ** self.staleness
        best = old[schedule_largest(value, min(limit - explored, len(old)))]
        picked = np.concatenate([best, rng.permutation(new)[:explored]])
        memory["picked"][device[picked]] = True
        return picked, memory


def _outlying(loss: Floats, radius: float, enough: int) -> Ints:
    """Return 1 for every loss [m] that is near no loss with enough others around it (DBSCAN in one dimension), else 0."""

    def near(points: Floats) -> Ints:
        ordered = np.sort(points)
        below = np.searchsorted(ordered, loss - radius, "left")
        return np.asarray(np.searchsorted(ordered, loss + radius, "right") - below)

    return np.asarray(near(loss[near(loss) >= enough]) == 0, np.int64)
