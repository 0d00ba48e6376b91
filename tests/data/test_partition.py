from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from fedtide.data import partition
from fedtide.data.holdings import holding_label_counts
from fedtide.data.partition import (
    _dirichlet,
    _normal_scores,
    dirichlet,
    iid,
    shards,
    slow_labels,
    speed_sizes,
)
from fedtide.devices.duration import UniformDuration, first_duration
from fedtide.errors import FedtideError

MNIST_LIKE = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 6000)).astype(np.uint8)


@st.composite
def systems(draw):
    """Draw labels [n], N <= n, a seed, a spread, and the number of shards (from N to n)."""
    size = draw(st.integers(1, 120))
    labels = np.array(draw(st.lists(st.integers(0, 9), min_size=size, max_size=size)), np.uint8)
    num_devices = draw(st.integers(1, size))
    spread = draw(st.sampled_from([0.0, 0.3, 1.0, 4.0, 1000.0]))
    return labels, num_devices, draw(st.integers(0, 2**40)), spread, draw(st.integers(num_devices, size))


def check_is_partition(parts, num_devices, num_samples):
    assert len(parts) == num_devices
    for part in parts:
        assert part.dtype == np.int64
        assert len(part) >= 1
        assert (np.diff(part) > 0).all()
    every = np.concatenate(parts)
    assert len(np.unique(every)) == len(every)
    assert every.min() >= 0
    assert every.max() < num_samples


def sizes_of(parts):
    return [len(part) for part in parts]


@given(systems())
@settings(deadline=None)
def test_iid(system):
    labels, num_devices, seed, spread, _ = system
    parts = iid(labels, num_devices, seed, spread)
    check_is_partition(parts, num_devices, len(labels))
    each = len(labels) // num_devices
    assert sum(sizes_of(parts)) == num_devices * each
    if spread == 0:
        assert set(sizes_of(parts)) == {each}


@given(systems())
@settings(deadline=None)
def test_shards(system):
    labels, num_devices, seed, spread, num_shards = system
    parts = shards(labels, num_devices, seed, num_shards, spread)
    check_is_partition(parts, num_devices, len(labels))
    per_shard, per_device = len(labels) // num_shards, num_shards // num_devices
    rank = np.empty(len(labels), int)  # place in the stable order by label, found without argsort
    rank[[sample for label in range(10) for sample in range(len(labels)) if labels[sample] == label]] = np.arange(
        len(labels)
    )
    assert sum(sizes_of(parts)) == num_devices * per_device * per_shard
    for part in parts:
        used, times = np.unique(rank[part] // per_shard, return_counts=True)
        assert (times == per_shard).all(), "a device holds whole shards"
        assert used.max() < num_shards
        if spread == 0:
            assert len(used) == per_device


@given(systems(), st.sampled_from([1e-300, 1e-6, 0.1, 1.0, 100.0, 1e12]))
@settings(deadline=None)
def test_dirichlet(system, concentration):
    labels, num_devices, seed, spread, _ = system
    parts = dirichlet(labels, num_devices, seed, concentration, spread)
    check_is_partition(parts, num_devices, len(labels))
    assert sizes_of(parts) == sizes_of(iid(labels, num_devices, seed, spread))


@given(systems(), st.sampled_from(["dirichlet", "iid", "shards"]))
@settings(max_examples=50, deadline=None)
def test_the_seed_decides(system, name):
    labels, num_devices, seed, spread, num_shards = system
    more = {"iid": {}, "shards": {"num_shards": num_shards}, "dirichlet": {"concentration": 0.5}}[name]
    first, again = (getattr(partition, name)(labels, num_devices, seed, size_spread=spread, **more) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize(("name", "more"), [("iid", {}), ("shards", {}), ("dirichlet", {"concentration": 0.5})])
def test_different_seeds_differ(name, more):
    one, two = (getattr(partition, name)(MNIST_LIKE, 40, seed, **more) for seed in (1, 2))
    assert not any(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_labels_are_not_changed():
    labels = np.arange(100, dtype=np.uint8) % 10
    labels.flags.writeable = False
    for part, more in (iid, {}), (shards, {"num_shards": 20}), (dirichlet, {"concentration": 1.0}):
        part(labels, 5, 0, **more)


# --- labels of the slow


def the_slow(duration):
    """Return the slowest quarter of the devices, rounded up, found without argsort."""
    ranked = sorted(range(len(duration)), key=lambda device: (-duration[device], device))
    return ranked[: -(-len(duration) // 4)]


@given(
    st.integers(2, 60),
    st.lists(st.integers(1, 200), min_size=2, max_size=12),
    st.integers(0, 2**40),
    st.booleans(),
)
@settings(deadline=None)
def test_slow_labels(num_devices, label_sizes, seed, alike):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(label_sizes)) * 3, label_sizes))
    duration = np.ones(num_devices) if alike else first_duration(UniformDuration(0.0, 1.0), seed, num_devices)
    try:
        parts = slow_labels(labels, num_devices, seed, duration)
    except FedtideError:  # one of the groups has more devices than samples
        reject()
    check_is_partition(parts, num_devices, len(labels))
    assert len(set(sizes_of(parts))) == 1
    held = [set(labels[part].tolist()) for part in parts]
    slow = the_slow(duration)
    theirs = set().union(*(held[device] for device in slow))
    others = set().union(*(held[device] for device in range(num_devices) if device not in slow))
    assert not theirs & others
    assert len(theirs) <= -(-len(label_sizes) // 4)
    again = slow_labels(labels, num_devices, seed, duration)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


@pytest.mark.parametrize("seed", range(5))
def test_slow_labels_of_forty_devices(seed):
    duration = first_duration(UniformDuration(0.0, 1.0), seed, 40)
    parts = slow_labels(MNIST_LIKE, 40, seed, duration)
    assert set(sizes_of(parts)) == {1400}  # 7 labels of 6000 among 30
    has = holding_label_counts(MNIST_LIKE, parts, 10) > 0
    slow = np.zeros(40, bool)
    slow[the_slow(duration)] = True
    assert slow.sum() == 10
    assert duration[slow].min() > duration[~slow].max()
    assert has[slow].any(axis=0).sum() == 3
    assert has[~slow].any(axis=0).sum() == 7
    assert set(has.sum(axis=1)) <= {1, 2}
    kept = holding_label_counts(MNIST_LIKE, parts, 10).sum(axis=0)
    assert sorted(set(kept)) in (
        [4666, 4667, 6000],
        [4666, 4667, 4668, 6000],
    )  # what is left out, evenly over the labels


def test_slow_labels_depend_on_the_seed():
    duration = first_duration(UniformDuration(0.0, 1.0), 0, 40)
    unique = set()
    for seed in range(8):
        parts = slow_labels(MNIST_LIKE, 40, seed, duration)
        held = holding_label_counts(MNIST_LIKE, parts, 10)[the_slow(duration)].any(axis=0)
        unique.add(tuple(held))
    assert len(unique) > 4


def test_an_experiment_ties_labels_to_its_own_slow_devices():
    import fedtide
    from fedtide.engine.system import build

    sizes = {"data": {"name": "synthetic", "num_train": 2000, "num_test": 100, "partition": "slow_labels"}, "seed": 3}
    fleet = build(fedtide.experiment(sizes)).fleet
    slow = the_slow(fleet.duration)
    held = fleet.label_counts > 0
    fast = [device for device in range(40) if device not in slow]
    assert not (held[slow].any(axis=0) & held[fast].any(axis=0)).any()


# --- numbers of the paper


@pytest.mark.parametrize(("num_devices", "per_device"), [(40, 5), (100, 2), (200, 1), (30, 6)])
def test_the_paper_deals_out_shards_of_300(num_devices, per_device):
    parts = shards(MNIST_LIKE, num_devices, 7)
    assert set(sizes_of(parts)) == {per_device * 300}
    counts = holding_label_counts(MNIST_LIKE, parts, 10)
    assert ((counts > 0).sum(axis=1) <= per_device).all()  # 6000 is a multiple of 300: no shard straddles here
    assert (counts % 300 == 0).all()


def test_a_shard_that_straddles_two_labels_is_counted_from_the_labels():
    labels = np.array([1, 0, 1, 0, 1, 0, 1, 1], np.uint8)  # sorted: 0 0 0 1 | 1 1 1 1
    counts = holding_label_counts(labels, shards(labels, 2, 0, num_shards=2), 3)
    assert sorted(counts.tolist()) == [[0, 4, 0], [3, 1, 0]]


def test_what_does_not_come_out_even_belongs_to_nobody():
    labels = np.zeros(103, np.uint8)
    assert sizes_of(iid(labels, 10, 0)) == [10] * 10
    assert sizes_of(shards(labels, 3, 0, num_shards=10)) == [30] * 3


# --- shares and sizes


def test_concentration_goes_from_one_label_to_all():
    largest = []
    for concentration in (0.01, 0.5, 10.0, 1e6):
        counts = holding_label_counts(MNIST_LIKE, dirichlet(MNIST_LIKE, 40, 3, concentration), 10)
        largest.append((counts.max(axis=1) / counts.sum(axis=1)).mean())
    assert largest == sorted(largest, reverse=True)
    assert largest[0] > 0.8
    assert largest[-1] < 0.15


@pytest.mark.parametrize("concentration", [0.05, 0.7, 20.0])
def test_proportions_have_the_moments_of_a_dirichlet(concentration):
    shares = _dirichlet(np.random.default_rng(1), concentration, (20_000, 4))
    assert shares.sum(axis=1) == pytest.approx(1)
    assert shares.mean(axis=0) == pytest.approx(1 / 4, rel=0.03)
    assert shares.var(axis=0) == pytest.approx(3 / (16 * (4 * concentration + 1)), rel=0.05)


def test_samples_follow_the_proportions():
    """All labels are used up, so the last devices take what is left: somewhat more uneven than the Dirichlet law."""
    labels = np.repeat(np.arange(4), 5000).astype(np.uint8)
    counts = np.concatenate([holding_label_counts(labels, dirichlet(labels, 20, seed, 0.7), 4) for seed in range(50)])
    assert 1 < (counts / 1000).var() / (3 / (16 * (4 * 0.7 + 1))) < 1.3


def test_spread_is_the_deviation_of_the_log_size():
    sizes = np.concatenate([sizes_of(iid(MNIST_LIKE, 50, seed, 0.5)) for seed in range(20)])
    assert np.log(sizes).std() == pytest.approx(0.5, rel=0.1)
    assert sizes.mean() == 1200


def test_relative_sizes_are_those_of_the_seed_under_every_partition():
    a = sizes_of(iid(MNIST_LIKE, 20, 9, 0.4))
    b = sizes_of(dirichlet(MNIST_LIKE, 20, 9, 0.5, 0.4))
    c = np.array(sizes_of(shards(MNIST_LIKE, 20, 9, 200, 0.4)))
    assert a == b
    assert (np.abs(c - a) <= 300).all()
    assert len(set(c)) > 1


# --- by speed


@pytest.mark.parametrize(
    ("slow_share", "label_share", "num_slow", "num_labels"), [(0.25, 0.25, 8, 3), (0.1, 0.5, 3, 5), (0.9, 0.01, 27, 1)]
)
def test_shares_of_slow_devices_and_of_their_labels(slow_share, label_share, num_slow, num_labels):
    duration = np.linspace(0.1, 1, 30)
    parts = slow_labels(MNIST_LIKE, 30, 4, duration, slow_share=slow_share, label_share=label_share)
    check_is_partition(parts, 30, len(MNIST_LIKE))
    held = holding_label_counts(MNIST_LIKE, parts, 10) > 0
    theirs, others = held[30 - num_slow :].any(axis=0), held[: 30 - num_slow].any(axis=0)
    assert theirs.sum() == num_labels
    assert not (theirs & others).any()
    assert (theirs | others).all()


def test_a_share_is_never_all_or_nobody():
    for share in (1e-9, 0.999):
        parts = slow_labels(MNIST_LIKE, 3, 4, np.arange(3.0), slow_share=share, label_share=share)
        check_is_partition(parts, 3, len(MNIST_LIKE))


@given(systems(), st.floats(-1, 1), st.sampled_from([None, 1e-6, 0.5, 100.0]), st.booleans())
@settings(deadline=None)
def test_speed_sizes(system, correlation, concentration, alike):
    labels, num_devices, seed, spread, _ = system
    spread = spread or 0.1
    duration = np.full(num_devices, 0.5) if alike else np.random.default_rng(seed).random(num_devices)
    parts = speed_sizes(labels, num_devices, seed, duration, spread, correlation, concentration)
    check_is_partition(parts, num_devices, len(labels))
    assert sum(sizes_of(parts)) == num_devices * (len(labels) // num_devices)
    again = speed_sizes(labels, num_devices, seed, duration**3, spread, correlation, concentration)
    assert all(np.array_equal(one, two) for one, two in zip(parts, again, strict=True))  # only the order of T_k counts


@pytest.mark.parametrize("seed", range(3))
def test_sizes_that_are_not_tied_are_those_of_the_other_partitions(seed):
    duration = np.random.default_rng(seed).random(30)
    for tied, other in (
        (speed_sizes(MNIST_LIKE, 30, seed, duration, 0.6, 0.0), iid(MNIST_LIKE, 30, seed, 0.6)),
        (speed_sizes(MNIST_LIKE, 30, seed, duration, 0.6, 0.0, 0.3), dirichlet(MNIST_LIKE, 30, seed, 0.3, 0.6)),
    ):
        assert all(np.array_equal(one, two) for one, two in zip(tied, other, strict=True))


def test_fully_tied_sizes_are_the_quantiles_of_a_log_normal_law():
    duration = np.array([0.3, 0.9, 0.1, 0.5, 0.7])
    score = np.array([-0.5244005, 1.2815516, -1.2815516, 0.0, 0.5244005])  # of (rank - 1/2)/5, from a table
    for sign in (1, -1):
        weights = np.exp(0.8 * sign * score)
        sizes = sizes_of(speed_sizes(MNIST_LIKE, 5, 3, duration, 0.8, float(sign)))
        np.testing.assert_allclose(sizes, 60_000 * weights / weights.sum(), atol=1)


@pytest.mark.parametrize("correlation", [-0.9, -0.4, 0.3, 0.8])
def test_the_correlation_is_that_of_a_gaussian_copula(correlation):
    """Pearson's between log size and normal score is rho; Spearman's is (6/pi) asin(rho/2)."""
    num, spread = 4000, 0.4
    labels = np.zeros(num * 300, np.uint8)
    duration = np.random.default_rng(7).exponential(size=num)  # whatever their law
    sizes = np.array(sizes_of(speed_sizes(labels, num, 7, duration, spread, correlation)))
    rank = [np.argsort(np.argsort(each)) for each in (sizes, duration)]
    assert np.corrcoef(np.log(sizes), _normal_scores(duration))[0, 1] == pytest.approx(correlation, abs=0.04)
    assert np.corrcoef(*rank)[0, 1] == pytest.approx(6 / np.pi * np.arcsin(correlation / 2), abs=0.04)  # type: ignore[call-overload]
    assert np.log(sizes).std() == pytest.approx(spread, rel=0.04)
    assert np.corrcoef(sizes, duration)[0, 1] * correlation > 0  # positive: slow devices hold more


def test_devices_that_are_equally_slow_share_a_score():
    np.testing.assert_allclose(_normal_scores(np.array([2.0, 1.0, 2.0, 1.0])), [0.6744898, -0.6744898] * 2)
    np.testing.assert_array_equal(_normal_scores(np.ones(7)), 0)


def test_an_experiment_ties_sizes_to_its_own_slow_devices():
    import fedtide
    from fedtide.engine import making

    wanted = fedtide.experiment(
        data={
            "name": "synthetic",
            "partition": {"name": "speed_sizes", "correlation": 1},
            "size_spread": 0.5,
            "num_train": 500,
        },
        fleet={"num_devices": 20},
    )
    fleet = making.make_fleet(wanted, making.load_dataset(wanted))
    assert (np.diff(fleet.num_samples[np.argsort(fleet.duration)]) >= 0).all()
    assert fleet.num_samples.max() > 3 * fleet.num_samples.min()


# --- bad input


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda y: iid(y, 0, 1), "num_devices = 0"),
        (lambda y: iid(y, -3, 1), "num_devices = -3"),
        (lambda y: iid(y, 31, 1), r"more devices than samples \(30\)"),
        (lambda y: shards(y, 11, 1, num_shards=10), r"more devices than shards \(10\)"),
        (lambda y: shards(y, 1, 1, num_shards=31), "num_shards = 31"),
        (lambda y: shards(y, 1, 1, num_shards=0), "num_shards = 0"),
        (lambda y: dirichlet(y, 3, 1, 0.0), "concentration = 0.0"),
        (lambda y: dirichlet(y, 3, 1, -1.0), "concentration = -1.0"),
        (lambda y: dirichlet(y, 3, 1, float("nan")), "concentration = nan"),
        (lambda y: dirichlet(y, 3, 1, float("inf")), "concentration = inf"),
        (lambda y: dirichlet(y, 31, 1, 1.0), "more devices than samples"),
        (lambda y: iid(y, 3, 1, -0.1), "size_spread = -0.1"),
        (lambda y: iid(y, 3, 1, float("nan")), "size_spread = nan"),
        (lambda y: slow_labels(y, 1, 1, np.ones(1)), "with 1 devices and 10 labels: needs two of each"),
        (lambda y: slow_labels(y * 0, 4, 1, np.ones(4)), "with 4 devices and 1 labels: needs two of each"),
        (lambda y: slow_labels(y, 31, 1, np.ones(31)), "more devices than samples"),
        (
            lambda y: slow_labels(y, 4, 1, np.ones(4), size_spread=0.5),
            "size_spread = 0.5: under data.partition=slow_labels",
        ),
        (lambda y: slow_labels(y, 4, 1, np.ones(4), slow_share=1.0), "slow_share = 1.0: must be from 1e-09 to 0.999"),
        (lambda y: slow_labels(y, 4, 1, np.ones(4), label_share=0.0), "label_share = 0.0: must be from 1e-09 to 0.999"),
        (lambda y: speed_sizes(y, 4, 1, np.ones(4)), "size_spread = 0: .*sizes must differ; set data.size_spread"),
        (lambda y: speed_sizes(y, 4, 1, np.ones(4), 0.5, 1.5), "correlation = 1.5: must be from -1"),
        (lambda y: speed_sizes(y, 4, 1, np.ones(4), 0.5, float("nan")), "correlation = nan"),
        (lambda y: speed_sizes(y, 4, 1, np.ones(4), 0.5, 0.5, -1.0), "concentration = -1.0"),
        (lambda y: speed_sizes(y, 31, 1, np.ones(31), 0.5), "more devices than samples"),
        (lambda y: holding_label_counts(y, [np.arange(3)], 2), "labels run from 0 to 9, expected 0 to 1"),
    ],
)
def test_bad_input(call, reason):
    with pytest.raises(FedtideError, match=reason):
        call(np.arange(30, dtype=np.uint8) % 10)


def test_label_counts_of_nobody():
    assert holding_label_counts(np.zeros(3, np.uint8), [], 4).shape == (0, 4)
