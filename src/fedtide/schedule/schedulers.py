"""Who uploads. A scheduler is a callable (candidates, limit, rng) -> positions within the candidates.

It returns at most min(limit, m) distinct positions, or a `Selection` to say more about them. A scheduler that looks at
`candidates.update_sq_norm` says `needs = ("update_sq_norm",)`; then every ready device is trained first. One whose
choice depends on who was chosen before (`candidates.missed`) sets `looks_back = True`. The schedulers here, the paper's and its
baselines, break ties in favour of the lower device number, on which stored numbers depend. Schedulers whose scores are often
equal draw lots (`schedule_largest_by_lot`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, Protocol

import numpy as np

from fedtide import columns
from fedtide.parts.arguments import arg
from fedtide.parts.checks import part_remembers
from fedtide.schedule.label_variance import STEPS, certify_label_variance, label_variance, minimise_label_variance
from fedtide.types import Candidates, Floats, Ints, Rng, Selection


def schedule_by_weight(weight: Floats | Ints, count: int, rng: Rng) -> Ints:
    """Draw `count` positions without replacement, each next one with a probability proportional to its weight [m] >= 0.

    Exponential clocks of rate w_k: the first to ring is k with probability w_k / sum w, and so is the next among those left
    (Efraimidis and Spirakis 2006). Weight 0 rings last.
    """
    with np.errstate(divide="ignore", over="ignore"):
        rings = rng.exponential(size=len(weight)) / weight
    return np.argsort(rings, kind="stable")[:count]


SMALL: Final = 1000  # values that are sorted as a whole
PoolShare = Annotated[float, arg("share of the N devices with the best channels, among which it chooses")]


class Scheduler(Protocol):
    """Chooses who uploads."""

    def __call__(self, candidates: Candidates, limit: int, rng: Rng) -> Ints | Selection:
        """Return min(limit, m) distinct positions."""
        ...


def scheduler_looks_back(scheduler: Scheduler) -> bool:
    """Say whether what a scheduler chooses depends on earlier ticks: it says so, or it has memory."""
    return bool(getattr(scheduler, "looks_back", False)) or part_remembers(scheduler)


def schedule_largest(value: Floats | Ints, count: int) -> Ints:
    """Return the positions of the `count` largest values, the earlier position first among equals.

    >>> schedule_largest(np.array([3, 9, 5, 9]), 3)
    array([1, 3, 2])
    """
    top = _top(value, count)
    return top[np.argsort(-value[top], kind="stable")]


def schedule_largest_by_lot(value: Floats | Ints, count: int, device: Ints, rng: Rng) -> Ints:
    """Return the positions of the `count` largest values; equals come in the order of numbers drawn for their devices [m].

    rng: that of the tick. Each number depends on it and on the device alone, not on who else is ready.
    """
    lots = np.argsort(columns.uniform(int(rng.integers(2**62)), "ties", device), kind="stable")
    return np.asarray(lots[schedule_largest(value[lots], count)])


def _top(value: Floats | Ints, count: int) -> Ints:
    """Return the positions of the `count` largest values, ascending; of equals the earlier ones."""
    if count >= len(value):
        return np.arange(len(value))
    last = np.partition(-value, count - 1)[count - 1] if len(value) > SMALL and count else np.nan
    if last != last:  # few, or not numbers: these come last, in their order
        return np.sort(np.argsort(-value, kind="stable")[:count])
    ahead = np.flatnonzero(-value < last)
    level = np.flatnonzero(-value == last)[: count - len(ahead)]
    return np.sort(np.concatenate([ahead, level]))


def _best_channels(candidates: Candidates, share: float, limit: int) -> Ints:
    """Return the min(m, max(floor(share N), limit)) positions with the best channels, ascending."""
    return _top(candidates.capacity, max(int(share * candidates.num_devices), limit))


@dataclass(frozen=True)
class Random:
    """R devices uniformly at random."""

    def __call__(self, candidates: Candidates, limit: int, rng: Rng) -> Ints:
        """Draw without replacement."""
        return rng.permutation(len(candidates.device))[:limit]


@dataclass(frozen=True)
class BestChannel:
    """BC: the R devices with the highest capacity."""

    def __call__(self, candidates: Candidates, limit: int, rng: Rng) -> Ints:
        """Sort by C_k(t)."""
        return schedule_largest(candidates.capacity, limit)


@dataclass(frozen=True)
class BestChannelBestNorm:
    """BCBN2: among the floor(0.5 N) best channels, the R largest ||u_k||^2."""

    pool_share: PoolShare = 0.5
    needs: ClassVar[tuple[str, ...]] = ("update_sq_norm",)

    def __call__(self, candidates: Candidates, limit: int, rng: Rng) -> Ints:
        """Sort by channel, then by update norm."""
        assert candidates.update_sq_norm is not None
        pool = _best_channels(candidates, self.pool_share, limit)
        return pool[schedule_largest(candidates.update_sq_norm[pool], limit)]


@dataclass(frozen=True)
class AgeBased:
    """Among the floor(0.5 N) best channels, the R devices that missed the most ticks so far."""

    pool_share: PoolShare = 0.5
    looks_back: ClassVar[bool] = True

    def __call__(self, candidates: Candidates, limit: int, rng: Rng) -> Ints:
        """Sort by channel, then by c_k(t), which counts every tick without an upload, ready or not, and never resets."""
        pool = _best_channels(candidates, self.pool_share, limit)
        return pool[schedule_largest(candidates.missed[pool], limit)]


@dataclass(frozen=True)
class Proposed:
    """The paper's channel-aware data-importance policy: among the best channels, the least label variance Omega."""

    pool_share: PoolShare = 0.5
    search: Annotated[
        Literal["swaps", "certified"],
        arg(
            "search used beyond 3 million subsets. swaps: descent from 96 starts; certified: slower, records a proved gap"
        ),
    ] = "swaps"
    time_limit: Annotated[
        int,
        arg(
            "largest effort of the certified search: about 10 ms by default; 0: no tree", unit="steps", ge=0, le=10**12
        ),
    ] = STEPS

    def __call__(self, candidates: Candidates, limit: int, rng: Rng) -> Selection:
        """Pi = argmin Omega over the subsets of Pi' with min(R, m) members."""
        pool = _best_channels(candidates, self.pool_share, limit)
        counts = candidates.label_counts[pool]
        if self.search == "swaps":
            chosen, proved = minimise_label_variance(counts, limit, rng)
            return Selection(pool[chosen], proved)
        found = certify_label_variance(counts, limit, rng, self.time_limit)
        metrics = {"label_variance_bound": found.bound, "label_gap": found.gap}
        return Selection(pool[found.picked], found.proved, metrics)


@dataclass(frozen=True)
class BestOfRandomSubsets:
    """The authors' released code: the least label variance among `tries` random subsets, in place of the argmin."""

    pool_share: PoolShare = 0.5
    tries: Annotated[int, arg("number of subsets drawn", ge=1, le=10**5)] = 30

    def __call__(self, candidates: Candidates, limit: int, rng: Rng) -> Selection:
        """Draw, score, keep the best."""
        pool = _best_channels(candidates, self.pool_share, limit)
        drawn = [np.sort(rng.permutation(pool)[:limit]) for _ in range(self.tries)]
        return Selection(min(drawn, key=lambda chosen: label_variance(candidates.label_counts[chosen])), False)


# The paper's and those that it compares with are here; the others are imported when they are named.
SCHEDULERS: Final[dict[str, Any]] = {
    "proposed": Proposed,
    "random": Random,
    "best_channel": BestChannel,
    "best_channel_best_norm": BestChannelBestNorm,
    "age_based": AgeBased,
    "best_of_random_subsets": BestOfRandomSubsets,
    "round_robin": "fedtide.schedule.baselines:RoundRobin",
    "proportional_fair": "fedtide.schedule.baselines:ProportionalFair",
    "threshold": "fedtide.schedule.baselines:Threshold",
    "soft_rate_label": "fedtide.schedule.baselines:SoftRateLabel",
    "whittle_age": "fedtide.schedule.baselines:WhittleAge",
    "drift_plus_penalty": "fedtide.schedule.baselines:DriftPlusPenalty",
    "max_loss": "fedtide.schedule.baselines:MaxLoss",
    "oort": "fedtide.schedule.baselines:Oort",
    "pisces": "fedtide.schedule.baselines:Pisces",
    "oracle": "fedtide.schedule.oracle:Oracle",
}
