"""What a user's partition answers: one array for each device, or holdings that are computed when they are asked for."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedtide.core.faults import error_text
from fedtide.data.holdings import Flat, Holdings, LabelArray, is_virtual, number_of, offsets_of
from fedtide.errors import FedtideError, TrainingError
from fedtide.parts.checks import as_array, reported
from fedtide.types import Ints


def checked_partition(
    answer: Any, labels: LabelArray, num_labels: int, num_devices: int, dealer: Any, label: str
) -> Holdings:
    """Return what a user's partition dealt out as ascending sample numbers of our own; raise if that cannot be.

    dealer: the part, under guard: what is computed later is asked for under the same guard, and looked at then.
    """
    given = answer
    if is_virtual(answer):
        with reported("partition", dealer.name, dealer):
            count = len(answer)
    elif isinstance(answer, Flat):  # of ours, with arguments or from a user's function: right if it is of this data
        count = len(answer)
    else:
        try:
            given = list(itertools.islice(answer, num_devices + 1))  # it may not end by itself
        except Exception as error:  # whatever a generator of the user's raises as it is read
            why = "" if isinstance(error, TypeError) else f" that raised {error_text(error)}"
            raise FedtideError(
                f"{label} returned a {type(answer).__name__}{why}: return one array of sample numbers each"
            ) from error
        count = len(given)
    if count != num_devices:
        dealt = count if count < num_devices else f"more than {num_devices}"
        raise FedtideError(f"{label} dealt to {dealt} devices: there are fleet.num_devices={num_devices}")
    if is_virtual(answer):
        ours = type(answer).__module__.startswith("fedtide.")
        return answer if ours else _CheckedHoldings(answer, labels, num_labels, num_devices, dealer, label)
    if isinstance(answer, Flat):
        _refuse_range(answer.samples, len(labels), f"{label} gives device 0")
        return _disjoint(answer, dealer, label)
    parts = [_sample_numbers(part, len(labels), f"{label} gives device {device}") for device, part in enumerate(given)]
    return _disjoint(Flat(np.concatenate(parts), offsets_of(np.array([len(part) for part in parts]))), dealer, label)


def refuse_random_partition(held: Holdings, again: Any, label: str) -> None:
    """Raise if a user's partition deals otherwise when it is called again. Of many devices the first are looked at."""
    some = range(min(len(held), 1000))
    other = again if hasattr(again, "__getitem__") else [*itertools.islice(again, len(some))]
    if len(other) < len(some) or not all(np.array_equal(held[k], np.sort(other[k])) for k in some):
        raise TrainingError(
            f"{label} deals otherwise when it is called again with the same arguments: draw only by address, "
            "fedtide.rng.stream(seed, ...)"
        )


def _disjoint(held: Flat, dealer: Any, label: str) -> Flat:
    """Return what devices hold; raise if two of them hold the same sample, unless the partition says that they may."""
    if getattr(dealer, "shares_samples", False):
        return held
    device = np.repeat(np.arange(len(held)), np.diff(held.offsets))
    order = np.argsort(held.samples, kind="stable")
    for at in np.flatnonzero(np.diff(held.samples[order]) == 0)[:1]:
        one, two = device[order[at : at + 2]]
        raise FedtideError(
            f"{label} gives sample {held.samples[order[at]]} to the devices {one} and {two}: give each sample to one device, "
            "or declare shares_samples = True on the partition"
        )
    return held


def _sample_numbers(given: Any, num_samples: int, gives: str) -> Ints:
    """Return the sample numbers of one device, ascending; raise if they are none."""
    part = as_array(given)
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
    labels: LabelArray
    num_labels: int
    num_devices: int
    dealer: Any  # under guard
    label: str

    def __len__(self) -> int:
        return self.num_devices

    def __getitem__(self, device: int) -> Ints:
        device = number_of(device, self.num_devices)
        with reported("partition", self.dealer.name, self.dealer):
            given = self.held[device]
        gives = f"{self.label} gives device {device}"
        found = _sample_numbers(given, len(self.labels), gives)
        counts = np.bincount(self.labels[found], minlength=self.num_labels)
        told = self.label_counts(np.array([device]))[0]
        if not np.array_equal(counts, told):
            raise FedtideError(
                f"{gives} samples with labels {counts.tolist()}, and its label_counts are {told.tolist()}"
            )
        return found

    def num_samples(self, device: Ints) -> Ints:
        """Return |S_k| [m]."""
        found = self._whole("num_samples", self.held.num_samples, device, device.shape)
        if len(found) and not 1 <= found.min() <= found.max() <= len(self.labels):
            raise FedtideError(
                f"{self.label}: num_samples are from {found.min()} to {found.max()}; each device needs 1 to {len(self.labels)}"
            )
        return found

    def label_counts(self, device: Ints) -> Ints:
        """Return b_k [m c]."""
        found = self._whole("label_counts", self.held.label_counts, device, (len(device), self.num_labels))
        wrong = np.flatnonzero((found.min(axis=1, initial=0) < 0) | (found.sum(axis=1) != self.num_samples(device)))
        for at in wrong[:1]:
            raise FedtideError(
                f"{self.label} gives device {device[at]} label_counts {found[at].tolist()}: they must add up to its num_samples"
            )
        return found

    def _whole(self, name: str, ask: Callable[[Ints], Any], device: Ints, shape: tuple[int, ...]) -> Ints:
        with reported("partition", self.dealer.name, self.dealer):
            found = as_array(ask(device))
        if found.dtype.kind not in "iu" or found.shape != shape:
            raise FedtideError(
                f"{self.label}: {name} answered {found.dtype}{list(found.shape)}; it needs whole numbers {list(shape)}"
            )
        return np.asarray(found, np.int64)
