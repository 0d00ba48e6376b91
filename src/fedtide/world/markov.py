"""Devices that come and go by chance, without memory.

A device's state changes as a Markov process with two states. It is the same as this: one Poisson process of calls to come
(of rate 1/mean_off), one of calls to leave (1/mean_on), and the device does what the last call said. So the state at a time is
known from the last call of each process, and when a device is back from the next call to come: nothing is stepped through from
time 0. A Poisson process has no memory either, so it can be begun anew at the borders of windows, each with draws of its own
address, and what happened about a time is known from a window or two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np

from fedtide import columns
from fedtide.core.arguments import arg
from fedtide.errors import FedtideError
from fedtide.types import Floats, Ints

MOST_WINDOWS: Final = 2.0**50  # beyond that the borders of windows run into each other


@dataclass(frozen=True)
class Markov:
    """On for Exp(mean_on), off for Exp(mean_off), in turn and for ever; at time 0 on with the share of time that it is on.

    That share is mean_on / (mean_on + mean_off), at any time.
    """

    mean_on: Annotated[float, arg("how long it stays on average", unit="time", gt=0)] = 4.0
    mean_off: Annotated[float, arg("how long it is away on average", unit="time", gt=0)] = 2.0

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return when each is next there [m]."""
        came, left = (_Calls(seed, word, mean) for word, mean in (("come", self.mean_off), ("leave", self.mean_on)))
        coming, leaving = came.last(device, time), left.last(device, time)
        share = self.mean_on / (self.mean_on + self.mean_off)
        begun = columns.uniform(seed, "markov", device) < share
        on = np.where(np.maximum(coming, leaving) < 0, begun, coming >= leaving)
        found, away = time.copy(), np.flatnonzero(~on)
        found[away] = came.next(device[away], time[away])
        return found


@dataclass(frozen=True)
class _Calls:
    """A Poisson process per device: windows as long as the mean gap, and in each of them gaps ~ Exp from its start."""

    seed: int
    word: str
    mean: float

    def last(self, device: Ints, time: Floats) -> Floats:
        """Return the last call at that time or before [m]; -infinity: there was none since time 0."""
        found, asked, window = np.full(len(device), -np.inf), np.arange(len(device)), self._window(time)
        while len(asked):
            found[asked] = self._within(device[asked], window, time[asked], past=True)
            again = (found[asked] < 0) & (window > 0)
            asked, window = asked[again], window[again] - 1
        return found

    def next(self, device: Ints, time: Floats) -> Floats:
        """Return the first call after that time [m]."""
        found, asked, window = np.full(len(device), np.inf), np.arange(len(device)), self._window(time)
        while len(asked):
            found[asked] = self._within(device[asked], window, time[asked], past=False)
            again = found[asked] == np.inf
            asked, window = asked[again], window[again] + 1
        return found

    def _window(self, time: Floats) -> Ints:
        """Return the window in which each time lies, as the borders are rounded [m]."""
        number = np.floor(time / self.mean)
        for at in np.flatnonzero(~(number < MOST_WINDOWS))[:1]:
            raise FedtideError(
                f"availability=markov: a mean stay of {self.mean:g} is nothing beside the time {time[at]:g}; raise it"
            )
        number -= number * self.mean > time
        return (number + ((number + 1) * self.mean <= time)).astype(np.int64)

    def _within(self, device: Ints, window: Ints, time: Floats, past: bool) -> Floats:
        """Return the last call of a window at that time or before, or else the first after it; -+infinity: none [m]."""
        found, asked, gap = np.full(len(device), -np.inf if past else np.inf), np.arange(len(device)), 0
        since, border = np.zeros(len(device)), (window + 1) * self.mean
        while len(asked):
            drawn = columns.exponential(self.seed, f"markov {self.word}", device[asked], window[asked], draw=gap)
            since[asked] += self.mean * drawn
            call = window[asked] * self.mean + since[asked]
            inside, before = call < border[asked], call <= time[asked]
            hit = inside & (before if past else ~before)
            found[asked[hit]] = call[hit]
            asked, gap = asked[inside & before], gap + 1
        return found
