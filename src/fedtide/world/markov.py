"""Devices that come and go by chance, without memory.

A device's state is a Markov process with two states. Nothing is stepped through from time 0: time is cut into windows, and what
happens in one is drawn by its own address. That the process has no memory makes it exact. Two devices, one on and one off, wait
together for the first call to come (at rate 1/mean_off) or to leave (1/mean_on), after which both are in the same state. So
from the first call of a window on, nobody has to know how it began, and what comes before that call is known from the window
before, which is almost never without a call. What was drawn is kept for a while: devices ask about the same windows again.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fedtide import columns
from fedtide.core.arguments import arg
from fedtide.errors import FedtideError
from fedtide.types import Floats, Ints, read_only

TURNS: Final = 2  # of being on and off in a window, on average
BLOCK: Final = 4096  # devices at most whose windows are drawn together
KEPT: Final = 256  # blocks of windows, some 500 kB each
AT_ONCE: Final = 8  # changes that are drawn together
MOST_WINDOWS: Final = 2.0**50  # beyond that the borders of windows run into each other


@dataclass(frozen=True)
class Markov:
    """On for Exp(mean_on), off for Exp(mean_off), in turn and for ever; at time 0 on with the share of time that it is on.

    That share is mean_on / (mean_on + mean_off), at any time.
    """

    mean_on: Annotated[float, arg("how long it stays on average", unit="units of time", gt=0)] = 4.0
    mean_off: Annotated[float, arg("how long it is away on average", unit="units of time", gt=0)] = 2.0
    num_devices: Annotated[
        int, arg("how many are drawn together; changes no time", ge=1, le=10**8, key="fleet.num_devices")
    ] = 40

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return when each is next there [m]."""
        found, asked, window = time.copy(), np.arange(len(device)), self._window(time)
        while len(asked):
            for rows, number, block in _groups(window, device[asked] // self._block):
                at = asked[rows]
                found[at] = self._next(_begun(self, seed, number, block), device[at] % self._block, time[at])
            later = found[asked] == np.inf
            asked, window = asked[later], window[later] + 1
        return found

    @staticmethod
    def _next(drawn: _Window, row: Ints, time: Floats) -> Floats:
        """Return when each is next there in a window [m]; infinity: no more in this one."""
        changes = drawn.changes[row]
        passed = (changes <= time[:, None]).sum(axis=1)
        on = drawn.on[row] ^ (passed % 2 == 1)
        return np.where(on, time, changes[np.arange(len(row)), passed])

    @property
    def _block(self) -> int:
        return min(self.num_devices, BLOCK)

    @property
    def _length(self) -> float:
        return TURNS * (self.mean_on + self.mean_off)

    def _window(self, time: Floats) -> Ints:
        """Return the window in which each time lies, as the borders are rounded [m]."""
        number = np.floor(time / self._length)
        for at in np.flatnonzero(~(number < MOST_WINDOWS))[:1]:
            raise FedtideError(
                f"availability=markov: mean_on={self.mean_on:g} and mean_off={self.mean_off:g} are nothing beside the time "
                f"{time[at]:g}; raise them"
            )
        number -= number * self._length > time
        return (number + ((number + 1) * self._length <= time)).astype(np.int64)


class _Window(NamedTuple):
    """What happens in a window to the devices of a block."""

    on: npt.NDArray[np.bool_]  # how each begins [block]
    changes: Floats  # when it comes or leaves, in turn and ascending; then infinity, at least once [block most]


def _groups(window: Ints, block: Ints) -> Iterator[tuple[Ints, int, int]]:
    """Give the rows of every window and block."""
    order = np.lexsort((block, window))
    window, block = window[order], block[order]
    cuts = np.flatnonzero((window[1:] != window[:-1]) | (block[1:] != block[:-1])) + 1
    for rows, first in zip(np.split(order, cuts), [0, *cuts.tolist()], strict=True):
        yield rows, int(window[first]), int(block[first])


@functools.lru_cache(maxsize=KEPT)
def _begun(part: Markov, seed: int, window: int, block: int) -> _Window:
    """Return a window with how it begins, which the last one with a call says."""
    size, (state, calls) = part._block, _drawn(part, seed, window, block)
    on, unknown, before = np.zeros(size, np.bool_), np.arange(size), window
    while before > 0 and len(unknown):
        before -= 1
        earlier, passed = _drawn(part, seed, before, block)
        count = np.isfinite(passed[unknown]).sum(axis=1)
        on[unknown] = earlier[unknown] ^ (count % 2 == 0)
        unknown = unknown[count == 0]
    if len(unknown):
        share = part.mean_on / (part.mean_on + part.mean_off)
        on[unknown] = columns.uniform(seed, "markov", block * size + unknown) < share
    idle = on == state  # who is called to be what it is does not change
    changes = np.where(idle[:, None], np.column_stack([calls[:, 1:], np.full(size, np.inf)]), calls)
    return _Window(read_only(on), read_only(changes))


@functools.lru_cache(maxsize=KEPT)
def _drawn(part: Markov, seed: int, window: int, block: int) -> tuple[Any, Floats]:
    """Return the state after the first call [block], and when that and the changes after it come [block most].

    In a row infinity comes after the last, at least once.
    """
    size, rate = part._block, 1 / part.mean_on + 1 / part.mean_off
    device = block * size + np.arange(size)
    state = columns.uniform(seed, "markov call", device, window) < 1 / part.mean_off / rate
    calls, since, asked = np.full((size, 0), np.inf), np.zeros(size), np.arange(size)
    while len(asked):
        number = np.arange(AT_ONCE) + calls.shape[1]
        is_on = state[asked, None] ^ (number % 2 == 0)  # while it waits for this change
        stay = np.where(number == 0, 1 / rate, np.where(is_on, part.mean_on, part.mean_off))
        stay *= columns.exponential(seed, "markov stay", device[asked, None], window, number)
        passed = since[asked, None] + np.cumsum(stay, axis=1)
        more = np.full((size, AT_ONCE), np.inf)
        more[asked] = window * part._length + passed
        more[more >= (window + 1) * part._length] = np.inf
        calls, since[asked] = np.hstack([calls, more]), passed[:, -1]
        asked = np.flatnonzero(np.isfinite(more[:, -1]))
    most = int(np.isfinite(calls).sum(axis=1).max())
    return read_only(state), read_only(np.ascontiguousarray(calls[:, : most + 1]))
