"""Who holds which samples: a partition is a callable (dataset, num_devices, seed) -> one array of sample numbers each.

Ours are pure functions of the labels [n], but for the natural one and those whose devices share samples (virtual.py).

The arrays are disjoint, ascending sample numbers, never empty. When sizes do not come out even, what is left over
belongs to nobody. `size_spread` is the standard deviation of the logarithm of the relative sizes: with 0 all devices
hold equally much, with 0.5 two thirds of them lie within a factor of 1.65 of the median. Sizes and samples are drawn
from streams of their own, so the same seed gives the same relative sizes under every partition.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Annotated, Any, Final

import numpy as np

from fedtide.data.dataset import check_data_range
from fedtide.data.holdings import Flat, Holdings, LabelArray, flat_holdings
from fedtide.data.virtual import (
    SizeSpread,
    check_virtual_sizes,
    virtual_dirichlet,
    virtual_iid,
    virtual_labels,
)
from fedtide.errors import FedtideError
from fedtide.parts.arguments import arg
from fedtide.rng import stream
from fedtide.types import Dataset, Floats, Ints, Rng

Durations = Annotated[Floats, arg("T_k [N]", key="fleet.durations")]


def iid(labels: LabelArray, num_devices: int, seed: int, size_spread: SizeSpread = 0.0) -> Flat:
    """Deal out samples at random without replacement: floor(n/N) to each device, or that on average."""
    return _deal_out(labels, _sizes(len(labels), num_devices, seed, size_spread, "samples"), seed)


def shards(
    labels: LabelArray,
    num_devices: int,
    seed: int,
    num_shards: Annotated[int, arg("total number of label shards", le=10**8, key="data.num_shards")] = 200,
    size_spread: SizeSpread = 0.0,
) -> Flat:
    """Sort by label, cut into equal shards, deal out whole shards at random: floor(num_shards/N) to each device.

    The non-i.i.d. setting of the paper (section V): 200 shards of 300 samples. A shard may straddle two labels.
    With size_spread the number of shards differs, at least one each.
    """
    check_data_range("num_shards", num_shards, 1, len(labels))
    sizes = _sizes(num_shards, num_devices, seed, size_spread, "shards")
    per_shard = len(labels) // num_shards
    by_label = np.argsort(labels, kind="stable")[: num_shards * per_shard].reshape(num_shards, per_shard)
    order = by_label[stream(seed, "partition").permutation(num_shards)]
    return _cut(order.reshape(-1), sizes * per_shard)


def dirichlet(
    labels: LabelArray,
    num_devices: int,
    seed: int,
    concentration: Annotated[
        float, arg("concentration of the Dirichlet distribution: smaller is more skewed", key="data.concentration")
    ],
    size_spread: SizeSpread = 0.0,
) -> Flat:
    """Give each device its own label proportions p_k ~ Dir(concentration, ..., concentration), and floor(n/N) samples.

    One device after the other, in random order, draws its samples' labels from p_k; a label that has run out is drawn
    again (Hsu, Qi, Brown 2019), so the last devices take what the others left. A large concentration tends to i.i.d., a
    small one to one label per device.
    """
    sizes = _sizes(len(labels), num_devices, seed, size_spread, "samples")
    return _deal_by_label(labels, sizes, seed, concentration)


def slow_labels(
    labels: LabelArray,
    num_devices: int,
    seed: int,
    duration: Durations,
    size_spread: SizeSpread = 0.0,
    slow_share: Annotated[float, arg("share of the devices that are slow", gt=0, lt=1)] = 0.25,
    label_share: Annotated[float, arg("share of the labels that only they have", gt=0, lt=1)] = 0.25,
) -> Flat:
    """Give the slowest quarter of the devices a quarter of the labels, which no others have (shares are rounded up).

    duration: T_k [N]. Section III of the paper: highly non-i.i.d. data, unique data at slow devices. The labels are drawn
    by the seed. The slow devices' samples and the others' are each sorted by label and cut into equal parts, one per
    device, so that a device has one label or two where a label has at least as many samples as a device. All hold equally
    many, so that no device counts more for its size: what one of the two groups has too much, evenly over its labels,
    belongs to nobody.
    """
    present = np.unique(labels)
    if num_devices < 2 or len(present) < 2:
        raise FedtideError(
            f"data.partition=slow_labels with {num_devices} devices and {len(present)} labels: needs two of each at least"
        )
    if size_spread:
        raise FedtideError(
            f"size_spread = {size_spread}: under data.partition=slow_labels all hold equally much; use 0"
        )
    rng = stream(seed, "partition")
    place = rng.permutation(len(present))[np.searchsorted(present, labels)]  # of a sample's label, in random order [n]
    by_speed = np.argsort(-duration, kind="stable")
    num_slow = _share("slow_share", slow_share, num_devices)
    groups = by_speed[:num_slow], by_speed[num_slow:]
    theirs = place < _share("label_share", label_share, len(present))
    pools = np.flatnonzero(theirs), np.flatnonzero(~theirs)
    size = min(len(pool) // len(group) for pool, group in zip(pools, groups, strict=True))
    if size < 1:
        raise FedtideError(
            f"num_devices = {num_devices}: more devices than samples to go round ({len(labels)}); use fewer devices"
        )
    samples = np.empty((num_devices, size), np.int64)
    for pool, group in zip(pools, groups, strict=True):
        kept = _thin(rng.permutation(pool), place, size * len(group))
        samples[rng.permutation(group)] = kept.reshape(len(group), size)
    return flat_holdings(np.repeat(np.arange(num_devices), size), samples.reshape(-1), num_devices)


def speed_sizes(
    labels: LabelArray,
    num_devices: int,
    seed: int,
    duration: Durations,
    size_spread: SizeSpread = 0.0,
    correlation: Annotated[
        float, arg("correlation of size and duration; positive: slow devices hold more", ge=-1, le=1)
    ] = 0.8,
    concentration: Annotated[float | None, arg("concentration of Dirichlet labels; default: i.i.d.", gt=0)] = None,
) -> Flat:
    """Correlate the amount of data with the speed of a device by a Gaussian copula; labels i.i.d. or Dirichlet.

    duration: T_k [N]. log |S_k| is size_spread (correlation z_k + sqrt(1 - correlation^2) e_k) plus a constant, with z_k the
    normal score of T_k's rank (devices that are equally slow share one) and e_k the normal numbers of the seed, from which
    every other partition makes its sizes. So sizes are log-normal of that spread whatever the durations' law, their
    rank correlation with T_k tends to (6/pi) asin(correlation/2), and with 1 or -1 the size is a function of T_k's rank.
    """
    check_data_range("correlation", correlation, -1, 1)
    if size_spread == 0:
        raise FedtideError(
            "size_spread = 0: under data.partition=speed_sizes sizes must differ; set data.size_spread, such as to 0.5"
        )

    def tied(normal: Floats) -> Floats:
        return correlation * _normal_scores(duration) + math.sqrt(1 - correlation**2) * normal

    sizes = _sizes(len(labels), num_devices, seed, size_spread, "samples", tied)
    if concentration is None:
        return _deal_out(labels, sizes, seed)
    return _deal_by_label(labels, sizes, seed, concentration)


def natural(dataset: Dataset, num_devices: int, seed: int) -> Flat:
    """Give each device the samples of one owner of the data set; if there are more owners, the seed chooses."""
    if dataset.owners is None:
        raise FedtideError(
            f"data.partition=natural: the data set {dataset.name!r} does not say who its samples belong to; use iid or shards"
        )
    owners, owner = np.unique(dataset.owners, return_inverse=True)
    if num_devices > len(owners):
        raise FedtideError(
            f"fleet.num_devices={num_devices} and the data set has {len(owners)} owners: use at most as many devices"
        )
    chosen = np.sort(stream(seed, "partition").permutation(len(owners))[:num_devices])
    device_of = np.full(len(owners), -1)  # the device that holds an owner's samples
    device_of[chosen] = np.arange(num_devices)
    held = np.flatnonzero(device_of[owner] >= 0)
    return flat_holdings(device_of[owner][held], held, num_devices)


def _of_labels(partition: Callable[..., Flat]) -> Callable[..., Flat]:
    """Return a partition of a data set that looks at its training labels alone."""

    @functools.wraps(partition)
    def of_dataset(dataset: Dataset, num_devices: int, seed: int, **args: Any) -> Flat:
        return partition(dataset.train.labels, num_devices, seed, **args)

    return of_dataset


PARTITIONS: Final[dict[str, Callable[..., Holdings]]] = {
    **{part.__name__: _of_labels(part) for part in (iid, shards, dirichlet, slow_labels, speed_sizes)},
    "natural": natural,
    "virtual_iid": virtual_iid,
    "virtual_labels": virtual_labels,
    "virtual_dirichlet": virtual_dirichlet,
}


def _deal_out(labels: LabelArray, sizes: Ints, seed: int) -> Flat:
    """Deal out samples at random without replacement, so many to each device [N]."""
    return _cut(stream(seed, "partition").permutation(len(labels)), sizes)


def _cut(order: Ints, sizes: Ints) -> Flat:
    """Cut the front of order into parts of these sizes [N]."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return flat_holdings(owner, order[: len(owner)], len(sizes))


def _deal_by_label(labels: LabelArray, sizes: Ints, seed: int, concentration: float) -> Flat:
    """Deal out so many samples to each device [N], whose labels are drawn from proportions of its own."""
    check_data_range("concentration", concentration, 1e-300)
    rng = stream(seed, "partition")
    present, left = np.unique(labels, return_counts=True)
    proportions = _dirichlet(rng, concentration, (len(sizes), len(present)))
    counts = np.zeros((len(sizes), len(present)), np.int64)
    for device in rng.permutation(len(sizes)):
        counts[device] = _draw_labels(rng, proportions[device], left, int(sizes[device]))
        left = left - counts[device]
    owner = [np.repeat(np.arange(len(sizes)), column) for column in counts.T]
    pools = [rng.permutation(np.flatnonzero(labels == label)) for label in present]
    dealt = [pool[: len(devices)] for pool, devices in zip(pools, owner, strict=True)]
    return flat_holdings(np.concatenate(owner), np.concatenate(dealt), len(sizes))


def _thin(pool: Ints, place: Ints, count: int) -> Ints:
    """Return count samples of the pool, sorted by the place of their label [n], of each label its share."""
    by_label = pool[np.argsort(place[pool], kind="stable")]
    return by_label[np.arange(count) * len(pool) // count]  # evenly along the sorted pool


def _sizes(
    num_items: int,
    num_devices: int,
    seed: int,
    size_spread: float,
    what: str,
    tied: Callable[[Floats], Floats] = lambda normal: normal,
) -> Ints:
    """Return how many items each device gets [N]: at least one each, N floor(num_items/N) in all.

    tied: what becomes of the standard normal numbers [N] whose exponentials the sizes are.
    """
    check_virtual_sizes(num_devices, size_spread)
    if num_devices > num_items:
        raise FedtideError(
            f"num_devices = {num_devices}: more devices than {what} ({num_items}); use fewer devices, more {what} or "
            "data.partition=virtual_iid, virtual_labels or virtual_dirichlet, whose devices share samples"
        )
    each = num_items // num_devices
    if size_spread == 0:
        return np.full(num_devices, each, np.int64)
    exponents = size_spread * tied(stream(seed, "sizes").standard_normal(num_devices))
    return _apportion(np.exp(exponents - exponents.max()), num_devices * each)


def _share(name: str, share: float, count: int) -> int:
    """Return a share of so many, rounded up: at least one, and not all."""
    check_data_range(name, share, 1e-9, 1 - 1e-9)
    return min(max(math.ceil(share * count - 1e-9), 1), count - 1)  # 0.1 * 30 is a little more than 3


def _normal_scores(values: Floats) -> Floats:
    """Return the standard normal quantile of each value's place among all, (rank - 1/2)/N [N]; equal ones share a rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - counts / 2
    quantile = NormalDist().inv_cdf
    return np.array([quantile(rank / len(values)) for rank in middle])[inverse]


def _apportion(weights: Floats, total: int) -> Ints:
    """Split total in proportion to weights [N] into whole numbers, at least one each, by largest remainder."""
    small = np.zeros(len(weights), np.bool_)
    while True:  # those that would fall below one are given one; the others share the rest
        quota = np.where(small, 1.0, weights * ((total - small.sum()) / max(weights[~small].sum(), 1e-300)))
        below = ~small & (quota < 1)
        if not below.any():
            break
        small |= below
    sizes = np.maximum(np.floor(quota - 1e-9), 1).astype(np.int64)  # never too many, however the quotas are rounded
    missing = total - int(sizes.sum())
    order = np.argsort(np.where(small, np.inf, sizes - quota), kind="stable")
    np.add.at(sizes, order[:missing], 1)
    return sizes


def _dirichlet(rng: Rng, concentration: float, shape: tuple[int, int]) -> Floats:
    """Return rows of Dir(concentration) [N c], also where the concentration is so small that all gammas underflow."""
    # log Gamma(a) = log Gamma(a+1) + log(U)/a in distribution
    logs = np.log(rng.standard_gamma(concentration + 1, shape)) + np.log1p(-rng.random(shape)) / concentration
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=1, keepdims=True)
    return shares


def _draw_labels(rng: Rng, proportions: Floats, left: Ints, size: int) -> Ints:
    """Draw size labels from proportions [c], no label more often than left [c]; return how often each was drawn [c]."""
    counts = np.zeros_like(left)
    while (missing := size - int(counts.sum())) > 0:
        open_labels = counts < left
        share = np.where(open_labels, proportions, 0.0)
        if share.sum() <= 0:  # nothing is left of what the device wants: any sample that is left will do
            share = (left - counts).astype(np.float64)
        counts = np.minimum(counts + rng.multinomial(missing, share / share.sum()), left)
    return counts
