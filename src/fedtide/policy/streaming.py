"""Combiners that take what arrives one device after the other, so that memory does not grow with their number.

Such a combiner says streams = True and has begin(model [d], weights [r], age [r]) -> Sums, with memory begin(memory, model,
weights, age, device [r]); then every start and update is added, in order, and `end` gives what a call gives, to the bit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedtide.core import parts
from fedtide.types import Floats, Vector


@dataclass
class Sums:
    """sum_k s_k u_k from some beginning and, if asked for, sum_k w_k theta_k, as `weighted_sum` adds them up."""

    scales: Floats  # s_k, of the updates [r]
    updates: Floats  # the sum so far [d]
    finish: Callable[[Floats, Floats], Any]  # (sum of starts, sum of updates) -> what the combiner answers
    weights: Floats | None = None  # w_k, of the starts [r]; None: they are not asked for
    starts: Floats = dataclasses.field(default_factory=lambda: np.zeros(0))  # their sum so far [d]
    count: int = 0

    def add(self, start: Vector, update: Vector) -> None:
        """Add what the next device began from [d], and its update [d]."""
        if self.weights is not None:
            self.starts += self.weights[self.count] * start
        self.updates += self.scales[self.count] * update
        self.count += 1

    def end(self) -> Any:
        """Return what the combiner answers."""
        return self.finish(self.starts, self.updates)

    def then(self, go_on: Callable[[Any], Any]) -> Sums:
        """Return these sums for a combiner that goes on from what this one answers."""
        finish = self.finish
        return dataclasses.replace(self, finish=lambda starts, updates: go_on(finish(starts, updates)))


def of_updates(scales: Floats, model: Vector) -> Sums:
    """Return theta + sum_k s_k u_k in the type of theta, still to be summed."""
    return Sums(scales, model.astype(np.float64), lambda _, updates: updates.astype(model.dtype))


def of_models(weights: Floats, num_parameters: int, finish: Callable[[Floats], Any]) -> Sums:
    """Return what `finish` makes of sum_k w_k theta_k + sum_k w_k u_k, still to be summed."""
    zero = np.zeros(num_parameters)
    return Sums(weights, zero, lambda starts, updates: finish(starts + updates), weights, zero.copy())


def fed(sums: Sums, starts: Iterable[Vector], updates: Iterable[Vector]) -> Any:
    """Return the answer for all starts and updates [r d] at once."""
    for start, update in zip(starts, updates, strict=True):
        sums.add(start, update)
    return sums.end()


def streams(combiner: Any) -> bool:
    """Say whether a combiner can be fed one update after the other. A user's own, also around one of ours, gets them all."""
    return parts.is_ours(combiner) and bool(getattr(combiner, "streams", False))
