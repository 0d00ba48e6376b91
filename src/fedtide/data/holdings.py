"""What devices hold, without an object for each of them: sample numbers in one array, or computed when they are asked for.

A partition answers with one array of sample numbers for each device. Ours lie one after the other (`Flat`). A virtual one
(`Virtual`) computes what a device holds from its number, so that there may be more devices than samples, which they then share.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt

from fedtide.errors import FedtideError
from fedtide.parts.arguments import arg
from fedtide.types import Ints

LabelArray = npt.NDArray[np.integer[Any]]
SizeSpread = Annotated[float, arg("sigma of log-normal sizes; 0: all hold equally much", key="data.size_spread")]


def check_size_spread(size_spread: float) -> None:
    """Raise if sizes cannot spread like this."""
    if not (size_spread >= 0 and math.isfinite(size_spread)):
        raise FedtideError(f"size_spread = {size_spread}: must be 0 (equal sizes) or a positive number, such as 0.5")


def check_concentration(concentration: float) -> None:
    """Raise if this is not a parameter of a Dirichlet distribution."""
    if not (concentration > 0 and math.isfinite(concentration)):
        raise FedtideError(f"concentration = {concentration}: must be a positive number, such as 0.5")


class Holdings(Protocol):
    """Which samples each of N devices holds."""

    def __len__(self) -> int:
        """Return N."""
        ...

    def __getitem__(self, device: int, /) -> Ints:
        """Return the sample numbers of one device, ascending."""
        ...


class Virtual(Holdings, Protocol):
    """The same, computed from the device's number."""

    def num_samples(self, device: Ints, /) -> Ints:
        """Return how many samples each of these devices holds [m]."""
        ...

    def label_counts(self, device: Ints, /) -> Ints:
        """Return how many samples of each label each of these devices holds [m c]."""
        ...


def is_virtual(given: Any) -> TypeGuard[Virtual]:
    """Say whether what devices hold is computed when it is asked for."""
    return callable(getattr(given, "num_samples", None)) and callable(getattr(given, "label_counts", None))


def number_of(device: int, num_devices: int) -> int:
    """Return the number of a device, which may be counted from the end; IndexError if there is none."""
    if not -num_devices <= device < num_devices:
        raise IndexError(f"device {device} of {num_devices}")
    return device % num_devices


@dataclass(frozen=True, eq=False)
class Flat:
    """Sample numbers, one device after the other."""

    samples: Ints  # ascending within a device [n]
    offsets: Ints  # where each device's begin, and where the last one's end [N+1]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, device: int) -> Ints:
        at = number_of(device, len(self))
        return self.samples[self.offsets[at] : self.offsets[at + 1]]

    def __iter__(self) -> Iterator[Ints]:
        bounds = itertools.pairwise(self.offsets.tolist())
        return (self.samples[start:end] for start, end in bounds)


def flat(owner: Ints, samples: Ints, num_devices: int) -> Flat:
    """Return who holds what, given the device that each of these samples belongs to [n]."""
    order = np.lexsort((samples, owner))
    sizes = np.bincount(owner, minlength=num_devices)
    return Flat(np.asarray(samples[order], np.int64), offsets_of(sizes))


def holding_rows(table: Ints) -> Flat:
    """Return devices that each hold one row [N s]."""
    return Flat(np.sort(table, axis=1).reshape(-1), np.arange(len(table) + 1) * table.shape[1])


def sizes_of(held: Holdings) -> Ints:
    """Return |S_k| [N]."""
    if is_virtual(held):
        return held.num_samples(np.arange(len(held)))
    if isinstance(held, Flat):
        return np.diff(held.offsets)
    return np.array([len(held[k]) for k in range(len(held))], np.int64)


def label_counts(labels: LabelArray, partition: Holdings, num_labels: int) -> Ints:
    """Return b_k: how many samples of each label each device holds [N c]."""
    if len(labels) and not 0 <= labels.min() <= labels.max() < num_labels:
        raise FedtideError(f"labels run from {labels.min()} to {labels.max()}, expected 0 to {num_labels - 1}")
    sizes = sizes_of(partition)
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


def offsets_of(sizes: Ints) -> Ints:
    """Return where parts of these sizes begin, and where the last one ends [N+1]."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
