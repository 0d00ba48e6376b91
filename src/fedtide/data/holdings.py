"""What devices hold, without an object for each of them: sample numbers in one array, or computed when they are asked for.

A partition answers with one array of sample numbers for each device. Ours lie one after the other (`Flat`). A virtual one
(`Virtual`) computes what a device holds from its number, so that there may be more devices than samples, which they then share.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt

from fedtide.errors import FedtideError, TrainingError
from fedtide.parts.checks import answer_as_array, part_errors_reported
from fedtide.types import Ints

_COMPARED_DEVICES = 1000  # of a user's partition, that are looked at twice
LabelArray = npt.NDArray[np.integer[Any]]


class Holdings(Protocol):
    """Which samples each of N devices holds."""

    def __len__(self) -> int:
        """Return N."""

    def __getitem__(self, device: int, /) -> Ints:
        """Return the sample numbers of one device, ascending."""


class Virtual(Holdings, Protocol):
    """The same, computed from the device's number."""

    def num_samples(self, device: Ints, /) -> Ints:
        """Return how many samples each of these devices holds [m]."""

    def label_counts(self, device: Ints, /) -> Ints:
        """Return how many samples of each label each of these devices holds [m c]."""


def has_virtual_holdings(given: Any) -> TypeGuard[Virtual]:
    """Say whether what devices hold is computed when it is asked for."""
    return callable(getattr(given, "num_samples", None)) and callable(getattr(given, "label_counts", None))


@dataclass(frozen=True, eq=False)
class Flat:
    """Sample numbers, one device after the other."""

    samples: Ints  # ascending within a device [n]
    offsets: Ints  # where each device's begin, and where the last one's end [N+1]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, device: int) -> Ints:
        at = range(len(self))[device]  # from the end if it is negative; IndexError if there is none
        return self.samples[self.offsets[at] : self.offsets[at + 1]]

    def __iter__(self) -> Iterator[Ints]:
        bounds = itertools.pairwise(self.offsets.tolist())
        return (self.samples[start:end] for start, end in bounds)


def flat_holdings(owner: Ints, samples: Ints, num_devices: int) -> Flat:
    """Return who holds what, given the device that each of these samples belongs to [n]."""
    order = np.lexsort((samples, owner))
    sizes = np.bincount(owner, minlength=num_devices)
    return Flat(np.asarray(samples[order], np.int64), np.concatenate([[0], np.cumsum(sizes)]))


def holding_sizes(held: Holdings) -> Ints:
    """Return |S_k| [N]."""
    if has_virtual_holdings(held):
        return held.num_samples(np.arange(len(held)))
    if isinstance(held, Flat):
        return np.diff(held.offsets)
    return np.array([len(held[k]) for k in range(len(held))], np.int64)


def holding_label_counts(labels: LabelArray, partition: Holdings, num_labels: int) -> Ints:
    """Return b_k: how many samples of each label each device holds [N c]."""
    if len(labels) and not 0 <= labels.min() <= labels.max() < num_labels:
        raise FedtideError(f"labels run from {labels.min()} to {labels.max()}, expected 0 to {num_labels - 1}")
    sizes = holding_sizes(partition)
    each = [] if isinstance(partition, Flat) else [partition[k] for k in range(len(partition))]
    samples = partition.samples if isinstance(partition, Flat) else np.concatenate([np.zeros(0, np.int64), *each])
    place = np.repeat(np.arange(len(sizes)) * num_labels, sizes) + labels[samples]
    return np.bincount(place, minlength=len(sizes) * num_labels).reshape(len(sizes), num_labels)


@dataclass(frozen=True, eq=False)
class Counted:
    """b_k of virtual holdings, a table [N c] whose rows are computed when they are asked for."""

    held: Virtual
    num_labels: int

    @property
    def shape(self) -> tuple[int, int]:
        """N and c."""
        return len(self.held), self.num_labels

    def __len__(self) -> int:
        return len(self.held)

    def __getitem__(self, device: Any) -> Ints:
        which = np.arange(*device.indices(len(self))) if isinstance(device, slice) else np.asarray(device, np.int64)
        return self.held.label_counts(which) if which.ndim else self.held.label_counts(which[None])[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self[:], dtype)


# What a user's partition answers.


def checked_partition(
    answer: Any, labels: LabelArray, num_labels: int, num_devices: int, dealer: Any, label: str
) -> Holdings:
    """Return what a user's partition dealt out as ascending sample numbers of our own; raise if that cannot be.

    dealer: the part, under guard: what is computed later is asked for under the same guard, and looked at then.
    """
    with part_errors_reported("partition", dealer.name, dealer):
        if not has_virtual_holdings(answer) and not isinstance(answer, Flat):
            if not isinstance(answer, Iterable):
                raise FedtideError(
                    f"{label} returned a {type(answer).__name__}: return one array of sample numbers each"
                )
            answer = list(itertools.islice(answer, num_devices + 1))  # it may not end by itself
        count = len(answer)
    if count != num_devices:
        dealt = count if count < num_devices else f"more than {num_devices}"
        raise FedtideError(f"{label} dealt to {dealt} devices: there are fleet.num_devices={num_devices}")
    if has_virtual_holdings(answer):
        if type(answer).__module__.startswith("fedtide."):
            return answer
        held = _CheckedHoldings(answer, num_devices, len(labels), num_labels, dealer, label)
        some = np.arange(min(num_devices, _COMPARED_DEVICES))
        counts = holding_label_counts(labels, [held[k] for k in some.tolist()], num_labels)
        told = held.label_counts(some)
        if not np.array_equal(told, counts) or not np.array_equal(held.num_samples(some), counts.sum(axis=1)):
            raise FedtideError(
                f"{label}: num_samples and label_counts are not those of the samples that it gives devices"
            )
        return held
    if isinstance(answer, Flat):  # of ours, with arguments or from a user's function: right if it is of this data
        _refuse_range(answer.samples, len(labels), f"{label} gives device 0")
    else:
        gives = f"{label} gives device"
        parts = [_sample_numbers(part, len(labels), f"{gives} {device}") for device, part in enumerate(answer)]
        owner = np.repeat(np.arange(num_devices), [len(part) for part in parts])
        answer = flat_holdings(owner, np.concatenate(parts), num_devices)
    if not getattr(dealer, "shares_samples", False):
        _refuse_shared(answer, label)
    dealt_out: Flat = answer
    return dealt_out


def refuse_random_partition(held: Holdings, again: Any, label: str) -> None:
    """Raise if a user's partition deals otherwise when it is called again. Of many devices the first are looked at."""
    some = range(min(len(held), _COMPARED_DEVICES))
    other = again if hasattr(again, "__getitem__") else [*itertools.islice(again, len(some))]
    if len(other) < len(some) or not all(np.array_equal(held[k], np.sort(other[k])) for k in some):
        raise TrainingError(
            f"{label} gives another result when it is called again with the same arguments: draw only by address, "
            "fedtide.rng.stream(seed, ...)"
        )


def _refuse_shared(held: Flat, label: str) -> None:
    """Raise if two devices hold the same sample."""
    device = np.repeat(np.arange(len(held)), np.diff(held.offsets))
    order = np.argsort(held.samples, kind="stable")
    for at in np.flatnonzero(np.diff(held.samples[order]) == 0)[:1]:
        one, two = device[order[at : at + 2]]
        raise FedtideError(
            f"{label} gives sample {held.samples[order[at]]} to the devices {one} and {two}: give each sample to one device, "
            "or declare shares_samples = True on the partition"
        )


def _sample_numbers(given: Any, num_samples: int, gives: str) -> Ints:
    """Return the sample numbers of one device, ascending; raise if they are none."""
    part = answer_as_array(given)
    if part.ndim != 1 or part.dtype.kind not in "iu" or not len(part):
        raise FedtideError(f"{gives} {part.dtype}{list(part.shape)}; it needs a vector of at least one sample number")
    _refuse_range(part, num_samples, gives)
    if len(np.unique(part)) != len(part):
        raise FedtideError(f"{gives} some samples twice")
    return np.sort(part).astype(np.int64)


def _refuse_range(part: Any, num_samples: int, gives: str) -> None:
    if len(part) and not 0 <= part.min() <= part.max() < num_samples:
        raise FedtideError(f"{gives} sample numbers from {part.min()} to {part.max()}; there are {num_samples} samples")


@dataclass(frozen=True, eq=False)
class _CheckedHoldings:
    """A user's virtual holdings: whatever they answer is looked at before it is used."""

    held: Any
    num_devices: int
    num_train: int  # samples in all
    num_labels: int
    dealer: Any  # under guard
    label: str

    def __len__(self) -> int:
        return self.num_devices

    def __getitem__(self, device: int) -> Ints:
        device = range(self.num_devices)[device]
        with part_errors_reported("partition", self.dealer.name, self.dealer):
            given = self.held[device]
        return _sample_numbers(given, self.num_train, f"{self.label} gives device {device}")

    def num_samples(self, device: Ints) -> Ints:
        """Return |S_k| [m]."""
        return self._numbers("num_samples", device, device.shape, 1)

    def label_counts(self, device: Ints) -> Ints:
        """Return b_k [m c]."""
        return self._numbers("label_counts", device, (len(device), self.num_labels), 0)

    def _numbers(self, name: str, device: Ints, shape: tuple[int, ...], least: int) -> Ints:
        with part_errors_reported("partition", self.dealer.name, self.dealer):
            found = answer_as_array(getattr(self.held, name)(device))
        if found.dtype.kind not in "iu" or found.shape != shape or found.min(initial=least) < least:
            raise FedtideError(
                f"{self.label}: {name} answered {found.dtype}{list(found.shape)}; it needs whole numbers {list(shape)} of at "
                f"least {least}"
            )
        return np.asarray(found, np.int64)
