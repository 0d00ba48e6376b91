"""The border between a user's parts of the world and ours: what they answer is checked here, and nowhere else.

Each wrapper calls a part with arrays of its own and returns what it answers in our types, or raises one line that begins with
the label under which the user knows the part. Our own parts run bare, under the contract tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from fedtide.core.answers import as_array, shown
from fedtide.errors import FedtideError, TrainingError
from fedtide.types import Floats, Ints, Link, Shares, lent
from fedtide.world.allocation import Allocation
from fedtide.world.availability import Availability, always
from fedtide.world.channel import Channel
from fedtide.world.coverage import Coverage
from fedtide.world.csi import Csi, exact
from fedtide.world.downlink import Downlink, instant, shared
from fedtide.world.duration import Duration, redraws
from fedtide.world.energy import Energy, counted

SLACK = 1 + 1e-9  # what rounding may add
NOTHING = 1e-9  # bits; products of links too faint to matter round to 0


@dataclass(frozen=True)
class CheckedDuration:
    """A user's duration whose answers are numbers > 0, one per device."""

    part: Duration
    label: str

    @property
    def redraws(self) -> bool:
        """Whether a device's jobs may differ in length."""
        return redraws(self.part)

    def __call__(self, seed: int, device: Ints, job: Ints) -> Floats:
        """Return what the part answers [m]."""
        found = _column(self.part(seed, lent(device), lent(job)), len(device), self.label, "durations", FedtideError)
        for at in np.flatnonzero(~(found > 0))[:1]:
            raise FedtideError(
                f"{self.label} returned {found[at]} for job {job[at]} of device {device[at]}: it must give times > 0"
            )
        return found


@dataclass(frozen=True)
class CheckedAvailability:
    """A user's availability whose answers are times not before the ones asked, one per device."""

    part: Availability
    label: str

    @property
    def always(self) -> bool:
        """Whether every device is always there."""
        return always(self.part)

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return what the part answers [m]."""
        found = _column(self.part(seed, lent(device), lent(time)), len(device), self.label, "times", FedtideError)
        for at in np.flatnonzero(~(found >= time))[:1]:
            raise FedtideError(
                f"{self.label} returned {found[at]} for device {device[at]} at time {time[at]}: "
                "it must give when the device is next there, at that time or later"
            )
        return found


@dataclass(frozen=True)
class CheckedChannel:
    """A user's channel whose answers are links, one per device."""

    part: Channel
    label: str

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Link:
        """Return what the part answers [m]."""
        return checked_link(self.part(seed, tick, time, lent(device)), len(device), self.label)


@dataclass(frozen=True)
class CheckedCoverage:
    """A user's coverage whose answers are finite numbers >= 0, one per device."""

    part: Coverage
    label: str

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return what the part answers [m]."""
        return _amounts(self.part(seed, lent(device), lent(time)), len(device), self.label, "average SNRs")


@dataclass(frozen=True)
class CheckedCsi:
    """A user's csi whose answers are links, one per device."""

    part: Csi
    label: str

    @property
    def exact(self) -> bool:
        """Whether the server knows what the channel says it knows."""
        return exact(self.part)

    def __call__(self, seed: int, tick: int, time: float, device: Ints, capacity: Floats) -> Link:
        """Return what the part answers [m]."""
        return checked_link(self.part(seed, tick, time, lent(device), lent(capacity)), len(device), self.label)


@dataclass(frozen=True)
class CheckedDownlink:
    """A user's downlink whose answers are times >= 0, one per device."""

    part: Downlink
    label: str

    @property
    def instant(self) -> bool:
        """Whether nobody ever waits for a model."""
        return instant(self.part)

    @property
    def shared(self) -> bool:
        """Whether one transmission serves all."""
        return shared(self.part)

    def __call__(self, seed: int, device: Ints, time: Floats, bits: float) -> Floats:
        """Return what the part answers [m]."""
        answer = self.part(seed, lent(device), lent(time), bits)
        found = _column(answer, len(device), self.label, "times", FedtideError)
        for at in np.flatnonzero(~(found >= 0))[:1]:
            raise FedtideError(
                f"{self.label} returned {found[at]} for device {device[at]}: it must give times, 0 or more"
            )
        return found


@dataclass(frozen=True)
class CheckedEnergy:
    """A user's energy whose answers are finite numbers >= 0, one per device."""

    part: Energy
    label: str

    @property
    def counted(self) -> bool:
        """Whether anything is known of energy."""
        return counted(self.part)

    def __call__(self, seed: int, device: Ints, samples: Ints, symbols: Floats) -> Floats:
        """Return what the part answers [m]."""
        answer = self.part(seed, lent(device), lent(samples), lent(symbols))
        return _amounts(answer, len(device), self.label, "energies in J")


@dataclass(frozen=True)
class CheckedAllocation:
    """A user's allocation whose answers are shares that fit into the symbols there are."""

    part: Allocation
    label: str

    def __call__(self, capacity: Floats, num_symbols: float) -> Shares:
        """Return what the part answers [r]."""
        return checked_shares(self.part(lent(capacity), num_symbols), capacity, num_symbols, self.label)


CHECKS: Final[dict[str, Any]] = {
    "duration": CheckedDuration,
    "availability": CheckedAvailability,
    "channel": CheckedChannel,
    "coverage": CheckedCoverage,
    "csi": CheckedCsi,
    "downlink": CheckedDownlink,
    "energy": CheckedEnergy,
    "allocation": CheckedAllocation,
}
CHECKED: Final = tuple(CHECKS.values())


def refuse_dice(kind: str, part: Any, seed: int, num_devices: int) -> None:
    """Raise if a user's part that is asked before the run answers otherwise when it is asked again. It is cheap to ask."""
    device = np.arange(min(num_devices, 1000))
    time = np.zeros(len(device))
    asked: dict[str, tuple[Any, ...]] = {
        "duration": (seed, device, np.ones_like(device)),
        "availability": (seed, device, time),
        "downlink": (seed, device, time, 1e6),
    }
    if kind in asked and not np.array_equal(part(*asked[kind]), part(*asked[kind])):
        raise TrainingError(
            f"{part.label} gives another answer when it is called again with the same arguments: draw only by seed, from "
            "fedtide.columns, and keep no state"
        )


def checked_link(answer: Any, m: int, label: str) -> Link:
    """Return what a channel answered as links [m]; if it gave the capacity alone, the server knows it."""
    given = answer if isinstance(answer, Link) else Link(answer, answer)
    found = _amounts(given.capacity, m, label, "capacities in bit/symbol")
    if given.believed is given.capacity:
        return Link(found, found)
    return Link(found, _amounts(given.believed, m, label, "believed capacities in bit/symbol"))


def checked_shares(answer: Any, capacity: Floats, num_symbols: float, label: str) -> Shares:
    """Return what an allocation answered as shares [r]; if it gave the symbols alone, all of them are filled."""
    given = answer.symbols if isinstance(answer, Shares) else answer
    symbols = _amounts(given, len(capacity), label, "numbers of symbols")
    with np.errstate(over="ignore"):
        total, carried = float(symbols.sum()), symbols * capacity
    if total > num_symbols * SLACK:
        raise TrainingError(
            f"{label} returned {total:.12g} symbols in all, {shown(symbols)}: there are {num_symbols:.12g} to share"
        )
    wanted = answer.bits if isinstance(answer, Shares) else carried
    bits = _amounts(wanted, len(capacity), label, "numbers of bits")
    for at in np.flatnonzero(bits > carried * SLACK + NOTHING)[:1]:
        raise TrainingError(
            f"{label} returned {bits[at]:.12g} bits at position {at}: its {symbols[at]:.12g} symbols carry "
            f"{carried[at]:.12g} at {capacity[at]:.6g} bit/symbol; grant at most that"
        )
    return Shares(symbols, bits)


def _amounts(answer: Any, count: int, label: str, what: str) -> Floats:
    """Return finite numbers >= 0 of our own [count]; raise if they are anything else."""
    found = _column(answer, count, label, what, TrainingError)
    for at in np.flatnonzero(~(np.isfinite(found) & (found >= 0)))[:1]:
        raise TrainingError(f"{label} returned {found[at]} at position {at}: it must give finite {what}, 0 or more")
    return found


def _column(answer: Any, count: int, label: str, what: str, failure: type[FedtideError]) -> Floats:
    """Return what a part answered as floats of our own [count]; raise if it is anything else."""
    found = as_array(answer)
    if found.shape != (count,) or (count and found.dtype.kind not in "fiu"):
        seen = f"an array of shape {found.shape} and type {found.dtype}" if found.dtype != object else shown(answer)
        raise failure(f"{label} returned {seen}: it must give an array of {count} {what}, one per device")
    return np.array(found, np.float64)  # a copy: whoever made it may write to it again
