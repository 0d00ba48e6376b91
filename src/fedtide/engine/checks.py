"""Checks of what parts answer: one line with the part, the value and the reason."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final

import numpy as np

from fedtide.devices.availability import Availability, always
from fedtide.devices.duration import Duration, redraws
from fedtide.devices.energy import Energy, counted
from fedtide.errors import FedtideError, TrainingError
from fedtide.parts import user_code
from fedtide.parts.arguments import MOST_MEMORY
from fedtide.parts.user_code import as_array, short_answer
from fedtide.radio.allocation import Allocation
from fedtide.radio.cell import Coverage
from fedtide.radio.channel import Channel
from fedtide.radio.csi import Csi, is_perfect
from fedtide.radio.downlink import Downlink, instant, is_shared
from fedtide.radio.modem import Modem
from fedtide.types import Floats, Ints, Link, Memory, Shares, Signal, Vector, readonly_copy

# Checks of what a user's parts answer, so that the mathematics need not: one line with the part, the value and the reason.
#
# Ours run under the contract tests, and through here too: what is cheap is checked always.


_LONGEST_NAME = 100  # characters: it is a file's name in the checkpoint


def positions(answer: Any, most: int, ready: int, scheduler: str) -> Ints:
    """Return the positions that a scheduler picked, ascending; it may pick fewer than it may."""
    picked = as_array(answer)
    problem = None
    if picked.ndim != 1 or (len(picked) and not np.issubdtype(picked.dtype, np.integer)):
        problem = "they must be a one-dimensional array of whole numbers"
    elif len(picked) > most:
        problem = f"there are {len(picked)}, and at most min(limit, ready) = {most} are asked for"
    elif len(set(picked.tolist())) != len(picked):
        problem = "some are duplicates"
    elif len(picked) and (picked.min() < 0 or picked.max() >= ready):
        problem = (
            f"they must lie in 0..{ready - 1}; a scheduler returns positions within the candidates, not device numbers"
        )
    if problem:
        raise TrainingError(f"{scheduler} returned positions {short_answer(answer)}: {problem}")
    return np.sort(picked).astype(np.int64)


def truth(answer: Any, scheduler: str) -> bool | None:
    """Return what a scheduler says of its choice: proved minimal, not proved, or None."""
    if answer is None or isinstance(answer, (bool, np.bool_)):
        return None if answer is None else bool(answer)
    raise TrainingError(f"{scheduler} said proved_minimal={short_answer(answer)}: say True, False or None")


def metrics(answer: Any, scheduler: str) -> dict[str, float]:
    """Return what a scheduler says besides of its choice: finite numbers by name, for the record."""
    if not isinstance(answer, Mapping):
        raise TrainingError(f"{scheduler} said metrics={short_answer(answer)}: give finite numbers by name, or nothing")
    for name, value in answer.items():
        number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
        if not isinstance(name, str) or not number:
            raise TrainingError(
                f"{scheduler} said metrics[{short_answer(name)}]={short_answer(value)}: give finite numbers by "
                "name, or leave it out"
            )
    return {name: float(value) for name, value in answer.items()}


def weights(answer: Any, count: int, weighting: str) -> Floats:
    """Return the weights [count] that a weighting gave."""
    given = as_array(answer)
    found = given.astype(np.float64) if given.dtype.kind in "fiub" else np.array(np.nan)
    exact = given.dtype.itemsize >= 8  # else they add up to 1 as well as single precision can
    if found.shape != (count,) or not np.all(found >= 0) or not abs(found.sum() - 1) < (1e-9 if exact else 1e-5):
        total = f" (the sum is {found.sum():.12g})" if found.shape == (count,) else ""
        raise TrainingError(
            f"{weighting} returned {short_answer(answer)}{total}: it must give {count} weights >= 0 with sum 1"
        )
    return found if exact else found / found.sum()


def vector(answer: Any, num_parameters: int, part: str) -> Vector:
    """Return what an aggregator or a codec made as a float32 [d] of our own, or say how it went wrong.

    It is a copy: whoever made it may write to it again, or may have returned what it was given.
    """
    found = as_array(answer)
    if found.shape != (num_parameters,) or found.dtype.kind not in "fiu":
        what = f"an array of shape {found.shape}" if found.ndim else f"{short_answer(answer)}"
        raise TrainingError(f"{part} returned {what}: it must give the {num_parameters} numbers of the model")
    with np.errstate(over="ignore"):
        made = np.array(found, np.float32)
    if not np.isfinite(made).all():
        at = int(np.flatnonzero(~np.isfinite(made))[0])
        raise TrainingError(
            f"{part} returned {found[at]} at position {at}: it must give finite numbers (what it was given was finite)"
        )
    return made


def first_memory(part: Any, kind: str, *given: Any) -> Memory:
    """Return what a part remembers at the beginning."""
    return memory_arrays(part.init(*given), f"{user_code.part_label(kind, part)}: init")


def checked_pair(answer: Any, before: Memory, label: str) -> tuple[Any, Memory]:
    """Return what a part with memory answered and what it remembers now, which must be shaped as before."""
    found, after = pair(answer, label)
    return found, memory(after, before, label)


def pair(answer: Any, label: str) -> tuple[Any, Any]:
    """Return what a part with memory answered, (answer, memory)."""
    if not isinstance(answer, tuple) or len(answer) != 2:
        many = f"{len(answer)} values" if isinstance(answer, tuple) else f"a {type(answer).__name__}"
        raise TrainingError(
            f"{label} returned {many}: a part with memory returns (answer, memory), the memory a mapping of names to arrays"
        )
    return answer[0], answer[1]


def memory(answer: Any, before: Memory, label: str) -> Memory:
    """Return memory as arrays of our own; raise unless names, shapes and types are those it began with."""
    after = memory_arrays(answer, label)
    for name in sorted({*before, *after}):
        if name not in after or name not in before:
            wrong = "is gone" if name not in after else "is new"
            raise TrainingError(
                f"{label}: memory[{name!r}] {wrong}; memory keeps the names that init gave it "
                f"({', '.join(sorted(before)) or 'none'})"
            )
        old, new = before[name], after[name]
        if old.shape != new.shape or old.dtype != new.dtype:
            raise TrainingError(
                f"{label}: memory[{name!r}] was {old.dtype}{list(old.shape)} and is {new.dtype}{list(new.shape)}; memory "
                "keeps the shapes and types that init gave it, so that it cannot grow"
            )
    return after


def memory_arrays(answer: Any, label: str) -> Memory:
    """Return a mapping of names to arrays as copies of our own."""
    if not isinstance(answer, Mapping):
        raise TrainingError(f"{label} gave a {type(answer).__name__} for memory: give a mapping of names to arrays")
    made: Memory = {}
    size = 0
    for name, value in dict(answer).items():
        if not isinstance(name, str) or not (name.isidentifier() and name.isascii() and len(name) <= _LONGEST_NAME):
            raise TrainingError(
                f"{label} gave memory the name {short_answer(name)}: names are words, such as 'momentum'"
            )
        array = as_array(value)
        size += array.nbytes
        if size > MOST_MEMORY:
            raise TrainingError(
                f"{label}: memory of {size / 1e9:,.3g} GB is more than {MOST_MEMORY / 1e9:g} GB, and is saved with every "
                "checkpoint; keep less"
            )
        if array.dtype.kind not in "biuf":
            raise TrainingError(
                f"{label}: memory[{name!r}] is {short_answer(value)}, which is no array of numbers; memory is saved as arrays"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            bad = array[~np.isfinite(array)][0] if array.ndim else array
            raise TrainingError(f"{label}: memory[{name!r}] holds {bad}; it must hold finite numbers")
        made[name] = np.array(array)  # a copy: whoever made it may write to it again
    return made


def copied_memory(held: Memory) -> Memory:
    """Return a copy for a part to write to: what was saved stays as it is if the part fails."""
    return {name: value.copy() for name, value in held.items()}


# The border between a user's parts of the world and ours: what they answer is checked here, and nowhere else.
#
# Each wrapper calls a part with arrays of its own and returns what it answers in our types, or raises one line that begins
# with the label under which the user knows the part. Our own parts run bare, under the contract tests.


_SLACK = 1 + 1e-9  # what rounding may add
_NOTHING = 1e-9  # bits; products of links too faint to matter round to 0


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
        found = _column(
            self.part(seed, readonly_copy(device), readonly_copy(job)),
            len(device),
            self.label,
            "durations",
            FedtideError,
        )
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
        found = _column(
            self.part(seed, readonly_copy(device), readonly_copy(time)), len(device), self.label, "times", FedtideError
        )
        for at in np.flatnonzero(~(found >= time))[:1]:
            raise FedtideError(
                f"{self.label} returned {found[at]} for device {device[at]} at time {time[at]}: "
                "it must give when the device is next there, at that time or later"
            )
        return found


@dataclass(frozen=True)
class CheckedChannel:
    """A user's channel whose answers are SNRs or links, one per device."""

    part: Channel
    label: str

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Floats | Link:
        """Return what the part answers [m]."""
        answer, m = self.part(seed, tick, time, readonly_copy(device)), len(device)
        if not isinstance(answer, Link):
            return _amounts(answer, m, self.label, "SNRs, not in dB")
        found = _amounts(answer.capacity, m, self.label, "capacities in bit/symbol")
        return Link(found, _amounts(answer.estimated_capacity, m, self.label, "estimated capacities in bit/symbol"))


@dataclass(frozen=True)
class CheckedCoverage:
    """A user's coverage whose answers are finite numbers >= 0, one per device."""

    part: Coverage
    label: str

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return what the part answers [m]."""
        return _amounts(
            self.part(seed, readonly_copy(device), readonly_copy(time)), len(device), self.label, "average SNRs"
        )


@dataclass(frozen=True)
class CheckedCsi:
    """A user's csi whose answers are signals, one per device."""

    part: Csi
    label: str

    @property
    def exact(self) -> bool:
        """Whether the server knows what the channel says it knows."""
        return is_perfect(self.part)

    def __call__(self, seed: int, tick: int, time: float, device: Ints, snr: Floats) -> Signal:
        """Return what the part answers [m]."""
        answer = self.part(seed, tick, time, readonly_copy(device), readonly_copy(snr))
        if not isinstance(answer, Signal):
            answer = Signal(snr, answer)
        found = _amounts(answer.snr, len(device), self.label, "SNRs, not in dB")
        return Signal(found, _amounts(answer.estimated_snr, len(device), self.label, "estimated SNRs, not in dB"))


@dataclass(frozen=True)
class CheckedModem:
    """A user's modem whose answers are finite numbers >= 0, one per link."""

    part: Modem
    label: str

    def __call__(self, snr: Floats) -> Floats:
        """Return what the part answers [m]."""
        return _amounts(self.part(readonly_copy(snr)), len(snr), self.label, "capacities in bit/symbol")


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
        return is_shared(self.part)

    def __call__(self, seed: int, device: Ints, time: Floats, bits: float) -> Floats:
        """Return what the part answers [m]."""
        answer = self.part(seed, readonly_copy(device), readonly_copy(time), bits)
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
        answer = self.part(seed, readonly_copy(device), readonly_copy(samples), readonly_copy(symbols))
        return _amounts(answer, len(device), self.label, "energies in J")


@dataclass(frozen=True)
class CheckedAllocation:
    """A user's allocation whose answers are shares that fit into the symbols there are."""

    part: Allocation
    label: str

    def __call__(self, capacity: Floats, num_symbols: float) -> Shares:
        """Return what the part answers [r]."""
        return checked_shares(self.part(readonly_copy(capacity), num_symbols), capacity, num_symbols, self.label)


CHECKS: Final[dict[str, Any]] = {
    "duration": CheckedDuration,
    "availability": CheckedAvailability,
    "channel": CheckedChannel,
    "coverage": CheckedCoverage,
    "csi": CheckedCsi,
    "modem": CheckedModem,
    "downlink": CheckedDownlink,
    "energy": CheckedEnergy,
    "allocation": CheckedAllocation,
}
CHECKED: Final = tuple(CHECKS.values())


def checked_shares(answer: Any, capacity: Floats, num_symbols: float, label: str) -> Shares:
    """Return what an allocation answered as shares [r]; if it gave the symbols alone, all of them are filled."""
    given = answer.symbols if isinstance(answer, Shares) else answer
    symbols = _amounts(given, len(capacity), label, "numbers of symbols")
    with np.errstate(over="ignore"):
        total, carried = float(symbols.sum()), symbols * capacity
    if total > num_symbols * _SLACK:
        raise TrainingError(
            f"{label} returned {total:.12g} symbols in all, {short_answer(symbols)}: there are {num_symbols:.12g} to share"
        )
    wanted = answer.bits if isinstance(answer, Shares) else carried
    bits = _amounts(wanted, len(capacity), label, "numbers of bits")
    for at in np.flatnonzero(bits > carried * _SLACK + _NOTHING)[:1]:
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
        seen = (
            f"an array of shape {found.shape} and type {found.dtype}" if found.dtype != object else short_answer(answer)
        )
        raise failure(f"{label} returned {seen}: it must give an array of {count} {what}, one per device")
    return np.array(found, np.float64)  # a copy: whoever made it may write to it again
