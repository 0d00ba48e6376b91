"""Schedulers that look at turns and channels: round robin, proportional fair, threshold, soft rate and labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np

from fedtide.parts.arguments import arg
from fedtide.schedule.schedulers import largest
from fedtide.types import Candidates, Floats, Ints, Memory, Rng

# Round robin: the devices take turns.
#
#     picked at t:  the first R ready devices in the cyclic order q+1, q+2, ..., N-1, 0, 1, ..., q
#     q <- the last of them
#
# q: number of the device that was served last. It is the fair reference of H. H. Yang, Liu, Quek and Poor, "Scheduling
# policies for federated learning in wireless networks", 2020, where groups of R devices take turns; here the turn passes
# over whoever is not ready, who waits for the next round.


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


# Proportional fair scheduling (Viswanath, Tse and Laroia, "Opportunistic beamforming using dumb antennas", 2002, sec. II).
#
#     picked at t:  the R ready devices with the largest C_k(t) / R_k(t)
#     R_k(t+1) = (1 - 1/t_c) R_k(t) + (1/t_c) C_k(t) 1{k picked at t}      for every device, ready or not
#
# R_k: average rate of device k in bit/symbol; t_c: window in ticks; C_k: capacity as the server believes it, which stands
# for the rate that a picked device gets. Over a long window sum_k log R_k is largest. The paper picks one user per slot;
# here R. Ticks at which nobody was ready count, too. R_k(1) = 1 bit/symbol for all.


_LEAST: Final = 1e-200  # bit/symbol: whoever waits for ever is not forgotten to 0


@dataclass(frozen=True)
class ProportionalFair:
    """The R best channels relative to what each device had on average so far: C_k / R_k."""

    window: Annotated[float, arg("t_c: over which the past is averaged", unit="ticks", gt=1)] = 20.0

    def init(self, num_devices: int) -> Memory:
        """Return R_k(1) in bit/symbol [N], and the last tick that was seen."""
        return {"rate": np.ones(num_devices), "tick": np.zeros((), np.int64)}

    def __call__(self, memory: Memory, candidates: Candidates, limit: int, rng: Rng) -> tuple[Ints, Memory]:
        """Pick by C_k / R_k, then go on with all averages."""
        kept, device = 1 - 1 / self.window, candidates.device
        idle = max(candidates.tick - int(memory["tick"]) - 1, 0)
        rate = np.maximum(memory["rate"] * kept**idle, _LEAST)
        picked = largest(candidates.capacity / rate[device], limit)
        rate *= kept
        rate[device[picked]] += candidates.capacity[picked] / self.window
        return picked, {"rate": rate, "tick": np.array(candidates.tick, np.int64)}


# Selective multiuser diversity (Gesbert and Alouini, "How much feedback is multi-user diversity really worth?", ICC 2004).
#
#     picked at t:  of the ready devices with C_k(t) >= C_th, the R best; fewer than R if there are fewer
#
# C_th: threshold in bit/symbol. In the paper users below a threshold of the SNR keep silent, and the best of the others is
# served; here R are. Under equal bits one deep fade starves all, and nobody below the threshold can do so.


@dataclass(frozen=True)
class Threshold:
    """The R best channels of those with at least a given capacity; fewer than R if there are fewer."""

    least: Annotated[float, arg("C_th: capacity that is needed", unit="bit/symbol", ge=0)] = 3.0

    def __call__(self, candidates: Candidates, limit: int, rng: Rng) -> Ints:
        """Cut, then sort by C_k(t)."""
        strong = np.flatnonzero(candidates.capacity >= self.least)
        return strong[largest(candidates.capacity[strong], limit)]


# Bits per upload against label variance, in place of the paper's hard cut at the N/2 best channels.
#
#     F(Pi)   = rho(Pi) - weight omega(Pi)
#     rho     = B(Pi) / max_{|Pi'| = |Pi|} B(Pi'),       B(Pi) = n / sum_{k in Pi} 1/C_k
#     omega   = Omega(Pi) / (T^2 (1 - 1/c)),             Omega(Pi) = sum_j |sum_{k in Pi} b_k^j - T/c|^2
#     picked: Pi = {}; R times: add the ready device that makes F largest (of equals, the lower number);
#             then `passes` times, for each member in turn: exchange it for the device that makes F largest
#
# B: bits of every upload if all send equally many (eq:nc, `equal_bits`), the harmonic mean of the capacities times n /
# |Pi|; rho is 1 for the best channels. b_k^j: samples of label j of c at device k; T: all samples of Pi. omega is the
# paper's label variance relative to its largest value, 0 if all labels are equally frequent and 1 if there is one label
# alone. So both lie within 0..1, and the weight has no unit: the share of the bits that one gives for going from one label
# to all of them evenly.
#
# weight 0 is the best channels; a large weight is the greedy descent of the label variance over all ready devices. O((1 +
# passes) R m c).


_FAINTEST: Final = 1e-12  # of the best capacity: what is below counts as this, so that 1/C is finite


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
