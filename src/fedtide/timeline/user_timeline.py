"""The border between a user's timeline and ours: how it is called, and whether its ticks can be.

What it gives is looked at while it goes on, since nobody knows beforehand how long that is. Ours are looked at likewise where
the jobs of a device differ in length.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from fedtide.config.effort import MOST_TICKS
from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError
from fedtide.types import Ints, Tick

# Of a user's own timeline nobody knows how long it goes on: it is looked at while it does.
_LOOK_EVERY = 100_000  # ticks
_HOPELESS = 3 * MOST_TICKS  # ticks it would have at its pace so far


def _endless(index: int, time: float, horizon: float, at_once: int, num_devices: int) -> str | None:
    """Say why a timeline that has come to a tick (at_once of them at this instant) will not end; None if it may."""
    if at_once > max(num_devices, 1000):
        return f"{at_once:,} ticks lie at time {time:g}: its clock stands still"
    if index > MOST_TICKS:
        return f"it has more than {MOST_TICKS:,} ticks, at time {time:g} of {horizon:g}; lower timeline.horizon"
    count = index * (horizon / time) if time > 0 else math.inf
    if index % _LOOK_EVERY == 0 and count > _HOPELESS:
        return f"at its pace it would have about {count:.3g} ticks (at most {MOST_TICKS:,}); lower timeline.horizon"
    return None


def _plain(tick: Any) -> Tick | None:
    """Return a tick with its columns as arrays; None if it is none."""
    try:
        time, given, start = float(tick.time), np.asarray(tick.ready), np.asarray(tick.start)
    except Exception:  # it has no such columns, or they do not become arrays
        return None
    if given.ndim != 1 or start.dtype.kind not in "iuf" or given.dtype.kind not in "iuf":
        return None
    ready = given.astype(np.int64, copy=False)
    received = getattr(tick, "received", None)
    return Tick(tick.index, time, ready, start, received) if np.array_equal(ready, given) else None


def _some(numbers: Ints) -> str:
    return shown(numbers.ravel()[:30].tolist())


def checked_ticks(ticks: Iterable[Tick], num_devices: int, horizon: float, label: str = "the timeline") -> list[Tick]:
    """Return all ticks in our own types, or raise if a timeline breaks the contract or does not come to its end."""
    return list(checking(ticks, num_devices, horizon, label))


def checking(
    ticks: Iterable[Tick], num_devices: int, horizon: float, label: str = "the timeline", ours: bool = False
) -> Iterator[Tick]:
    """Return the ticks in our own types one by one, or raise if a timeline breaks the contract or does not come to its end.

    The contract: indices 1, 2, ..., no time travel, nothing beyond the horizon, no device ready before it began.
    ours: devices that were away may begin with a newer model than the one that was there when they were last ready.
    """
    version = np.ones(num_devices, np.int64)
    time, at_once = 0.0, 0
    for index, given in enumerate(ticks, 1):
        tick = _plain(given)
        if tick is None:
            raise FedtideError(
                f"{label} is inconsistent at tick {index}: it is {shown(given)}; give Tick(index, time, ready, start) with a "
                "number for the time and whole numbers for who is ready and where from"
            )
        ready = tick.ready
        problem = None
        if tick.index != index:
            problem = f"tick {index} says its index is {tick.index}"
        elif not (math.isfinite(tick.time) and tick.time >= time):
            problem = f"its time {tick.time} lies before the previous tick's {time}"
        elif tick.time > horizon * (1 + 1e-9):
            problem = f"its time {tick.time} lies beyond timeline.horizon={horizon}"
        elif len(ready) and (np.any(np.diff(ready) <= 0) or ready[0] < 0 or ready[-1] >= num_devices):
            problem = f"its ready devices {_some(ready)} are not ascending, distinct and below {num_devices}"
        elif not ours and not np.array_equal(version[ready], tick.start):
            problem = f"its start versions {_some(tick.start)} should be {_some(version[ready])}"
        elif tick.received is not None and not np.isin(tick.received[0], (index, index + 1)).all():
            problem = f"its devices go on with versions {_some(tick.received[0])}, not with {index} or {index + 1}"
        else:
            at_once = at_once + 1 if tick.time == time else 1
            problem = _endless(index, tick.time, horizon, at_once, num_devices)
        if problem:
            raise FedtideError(f"{label} is inconsistent at tick {index}: {problem}")
        yield Tick(index, tick.time, ready, tick.start if ours else version[ready], tick.received)
        version[ready] = index + 1 if tick.received is None else tick.received[0]
        time = tick.time
