"""The oracle: a look-ahead of one step on held-out samples. It says how much a schedule can gain, and is none to deploy.

It asks for the outcome of many sets of ready devices and picks the best one. It looks one aggregation ahead, and it does not
ask for all sets: a schedule that gives up something now may end higher. So it is an estimate of what scheduling is worth, and
no bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np

from fedtide.parts.arguments import arg
from fedtide.types import Candidates, Floats, Rng, Selection

Subset: TypeAlias = tuple[int, ...]  # positions within the candidates, ascending


@dataclass(frozen=True)
class Oracle:
    """Looks one step ahead: picks the set whose model has the least loss on held-out samples."""

    search: Annotated[
        Literal["greedy", "exchange", "beam"],
        arg("greedy: add the best device, one by one; exchange: then replace one by one; beam: keep several sets"),
    ] = "exchange"
    passes: Annotated[int, arg("largest number of exchange rounds", ge=1, le=1000)] = 1
    width: Annotated[int, arg("number of sets of each size that the beam keeps", ge=1, le=10**6)] = 8
    fewest: Annotated[int, arg("smallest number of uploads, if enough devices are ready", ge=0, le=10**8)] = 1
    needs: ClassVar[tuple[str, ...]] = ("outcome",)

    def __call__(self, candidates: Candidates, limit: int, rng: Rng) -> Selection:
        """Pi = argmin of the held-out loss of theta(t+1) over the sets tried, none of them larger than R."""
        assert candidates.outcome is not None
        tried, count = _Tried(candidates.outcome), len(candidates.device)
        sizes = range(min(self.fewest, limit, count), min(limit, count) + 1)
        best = _grow(tried, count, sizes, self.width if self.search == "beam" else 1)
        if self.search == "exchange":
            best = _exchange(tried, best, count, sizes, self.passes)
        metrics = {"held_out_loss": tried.loss[best], "sets_tried": float(len(tried.loss))}
        return Selection(np.array(best, np.int64), metrics={k: v for k, v in metrics.items() if math.isfinite(v)})


class _Tried:
    """The losses of all sets that were asked for, each asked for once."""

    def __init__(self, outcome: Callable[[Sequence[Any]], Floats]) -> None:
        self.outcome, self.loss = outcome, dict[Subset, float]()

    def ranked(self, subsets: Iterable[Subset]) -> list[Subset]:
        """Return sets by their loss, the least first; of equals the one with lower positions."""
        wanted = sorted({*subsets})
        new = [each for each in wanted if each not in self.loss]
        if new:
            found = self.outcome([np.array(each, np.int64) for each in new])
            self.loss.update(zip(new, found.tolist(), strict=True))
        return sorted(wanted, key=lambda each: self.loss[each])


def _grow(tried: _Tried, count: int, sizes: range, width: int) -> Subset:
    """Add one device at a time to the best sets of each size; return the best that is as large as it may be."""
    beam: list[Subset] = [()]
    best: list[Subset] = [()] if 0 in sizes else []
    for size in range(1, sizes.stop):
        beam = tried.ranked(_with(each, k) for each in beam for k in range(count) if k not in each)[:width]
        best = [*best, beam[0]] if size in sizes else best
    return tried.ranked(best)[0]


def _exchange(tried: _Tried, best: Subset, count: int, sizes: range, passes: int) -> Subset:
    """Replace or leave out each device in turn, then add one, wherever that is better, until nothing is."""
    for _ in range(passes):
        before = best
        for member in (*before, None):
            rest = tuple(k for k in best if k != member)
            near = [best, rest, *(_with(rest, k) for k in range(count) if k not in best)]
            best = tried.ranked(each for each in near if len(each) in sizes)[0]
        if best == before:
            break
    return best


def _with(subset: Subset, k: int) -> Subset:
    return tuple(sorted((*subset, k)))
