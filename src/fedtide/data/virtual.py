"""Partitions whose devices share samples: what a device holds is computed from its number, for any number of devices.

How many samples a device holds, and of which labels, is drawn at the address (seed, device) by `fedtide.columns`; which samples
of a label they are, only when the device trains. A device's samples are distinct; two devices may hold the same one. Where a
device would hold more of a label than there are, what is too many goes to the labels with most samples.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, TypeAlias

import numpy as np

from fedtide import columns
from fedtide.core.memory_budget import require_memory
from fedtide.data.dataset import check_data_range
from fedtide.data.holdings import Flat, flat_holdings
from fedtide.extension import native
from fedtide.parts.arguments import arg
from fedtide.types import Dataset, Floats, Ints

SizeSpread = Annotated[
    float, arg("sigma of log-normal sizes; 0: all devices hold the same amount", key="data.size_spread")
]
Each = Annotated[int, arg("samples per device (the mean, if size_spread > 0)", ge=1, le=10**8)]

# (seed, device [m], size [m]) -> how many samples of each label that there is each device holds [m p]; rows sum to size
Drawn: TypeAlias = Callable[[int, Ints, Ints], Ints]


def check_virtual_sizes(num_devices: int, size_spread: float) -> None:
    """Raise if there are no such devices, or sizes cannot spread like this."""
    check_data_range("num_devices", num_devices, 1)
    check_data_range("size_spread", size_spread, 0)


@dataclass(frozen=True, eq=False)
class Shared:
    """Devices that share the samples of a data set."""

    seed: int
    num_devices: int
    samples_per_device: int
    size_spread: float
    drawn: Drawn = field(repr=False)
    num_labels: int
    present: Ints = field(repr=False)  # labels that there are, ascending [p]
    pools: Flat = field(repr=False)  # the samples of each of them

    def __len__(self) -> int:
        return self.num_devices

    def num_samples(self, device: Ints) -> Ints:
        """Return |S_k| [m], at most as many as there are."""
        if self.size_spread == 0:
            return np.full(len(device), self.samples_per_device, np.int64)
        normal = columns.normal(self.seed, "virtual sizes", device)
        relative = np.exp(self.size_spread * normal - self.size_spread**2 / 2)  # of mean 1
        most = float(len(self.pools.samples))
        return np.asarray(np.rint(np.clip(self.samples_per_device * relative, 1.0, most)), np.int64)

    def label_counts(self, device: Ints) -> Ints:
        """Return b_k [m c]."""
        counts = self._of_present(device)
        if len(self.present) == self.num_labels:
            return counts
        whole = np.zeros((len(device), self.num_labels), np.int64)
        whole[:, self.present] = counts
        return whole

    def __getitem__(self, device: int) -> Ints:
        number = np.array([range(len(self))[device]])
        counts, offsets = self._of_present(number)[0].tolist(), self.pools.offsets.tolist()
        units = columns.uniform(self.seed, "virtual samples", number, np.arange(sum(counts))).tolist()
        found: list[int] = []
        for count, (first, end) in zip(counts, itertools.pairwise(offsets), strict=True):
            if count:
                places = _distinct(units[len(found) : len(found) + count], end - first)
                found += [first + place for place in places]
        return np.sort(self.pools.samples[np.array(found, np.int64)])

    def _of_present(self, device: Ints) -> Ints:
        size, room = self.num_samples(device), np.diff(self.pools.offsets)
        counts = self.drawn(self.seed, device, size)
        if np.max(size, initial=0) > room.min():
            over = np.flatnonzero((counts > room).any(axis=1))
            counts[over] = _fitted(counts[over], room)
        return counts


def _labels_from_urn(mass: float, ends: Floats, seed: int, device: Ints, size: Ints) -> Ints:
    """Draw labels one after the other from an urn that holds `mass` of the labels' weights and every label drawn before.

    With weights 1 and mass a p (p labels) these are the labels of samples from proportions ~ Dir(a, ..., a) (Polya's urn); with
    infinite mass they are independent. ends: cumulated weights [p].
    """
    key = int(columns.column_address(seed, "virtual labels")[0])
    return native.draw_labels(key, np.ascontiguousarray(device).view(np.uint64), size, mass, ends)


def _few_labels(labels_per_device: int, num_labels: int, seed: int, device: Ints, size: Ints) -> Ints:
    """Draw so many different of p labels for each device, any equally likely, with equally many samples (or one more)."""
    chosen = np.zeros((len(device), num_labels), bool)
    counts = np.zeros((len(device), num_labels), np.int64)
    everyone, (each, more) = np.arange(len(device)), np.divmod(size, labels_per_device)
    for at in range(labels_per_device):  # as `_distinct`, for all devices at once
        if at % 2 == 0:
            two = columns.uniform_pair(seed, "virtual labels", device, draw=at // 2)
        last = num_labels - labels_per_device + at
        label = np.minimum((two[at % 2] * (last + 1)).astype(np.int64), last)
        label[chosen[everyone, label]] = last
        chosen[everyone, label] = True
        counts[everyone, label] = each + (at < more)
    return counts


def _distinct(units: list[float], count: int) -> list[int]:
    """Return len(units) different numbers below count, every set of them equally likely (Floyd)."""
    found: dict[int, None] = {}
    for last, unit in enumerate(units, count - len(units)):
        number = min(int(unit * (last + 1)), last)
        found[last if number in found else number] = None
    return list(found)


def _fitted(counts: Ints, room: Ints) -> Ints:
    """Return counts [m p] of which none exceeds its label's room [p]: what is too many goes to the labels with most room."""
    least = np.minimum(counts, room)
    missing = (counts - least).sum(axis=1, keepdims=True)
    order = np.argsort(-room, kind="stable")
    free = (room - least)[:, order]
    before = np.cumsum(free, axis=1) - free
    least[:, order] += np.clip(missing - before, 0, free)
    return least


def virtual_iid(
    dataset: Dataset, num_devices: int, seed: int, samples_per_device: Each = 20, size_spread: SizeSpread = 0.0
) -> Shared:
    """Give each device random samples, which others may hold too; computed on demand for any number of devices."""
    _, weights = np.unique(dataset.train.labels, return_counts=True)
    drawn = partial(_labels_from_urn, math.inf, np.cumsum(weights, dtype=np.float64))
    return _shared(dataset, num_devices, seed, samples_per_device, size_spread, drawn)


def virtual_labels(
    dataset: Dataset,
    num_devices: int,
    seed: int,
    labels_per_device: Annotated[int, arg("number of different labels per device", ge=1, le=256)] = 2,
    samples_per_device: Each = 20,
    size_spread: SizeSpread = 0.0,
) -> Shared:
    """Give each device samples of a few labels, which others may hold too; computed on demand for any number of devices."""
    count = len(np.unique(dataset.train.labels))
    check_data_range("labels_per_device", labels_per_device, 1, count)
    drawn = partial(_few_labels, labels_per_device, count)
    return _shared(dataset, num_devices, seed, samples_per_device, size_spread, drawn)


def virtual_dirichlet(
    dataset: Dataset,
    num_devices: int,
    seed: int,
    concentration: Annotated[
        float,
        arg("concentration of the Dirichlet distribution: smaller is more skewed", gt=0, key="data.concentration"),
    ],
    samples_per_device: Each = 20,
    size_spread: SizeSpread = 0.0,
) -> Shared:
    """Give each device label proportions ~ Dir(concentration, ...); others may hold its samples too: any number of devices.

    The labels of a device are drawn one after the other, each with probability proportional to concentration plus how often the
    device has it already (Polya's urn), which is the same in distribution.
    """
    check_data_range("concentration", concentration, 1e-300)
    count = len(np.unique(dataset.train.labels))
    drawn = partial(_labels_from_urn, concentration * count, np.arange(1.0, count + 1))
    return _shared(dataset, num_devices, seed, samples_per_device, size_spread, drawn)


def _shared(
    dataset: Dataset, num_devices: int, seed: int, samples_per_device: int, size_spread: float, drawn: Drawn
) -> Shared:
    labels = dataset.train.labels
    check_virtual_sizes(num_devices, size_spread)
    check_data_range("samples_per_device", samples_per_device, 1, len(labels))
    require_memory(8.0 * num_devices, f"what {num_devices:,} devices hold", "lower fleet.num_devices")
    present, inverse = np.unique(labels, return_inverse=True)
    pools = flat_holdings(inverse, np.arange(len(labels)), len(present))
    given = (seed, num_devices, samples_per_device, size_spread, drawn, dataset.num_labels)
    return Shared(*given, present.astype(np.int64), pools)
