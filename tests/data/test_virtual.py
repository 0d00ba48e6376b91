"""Devices that share samples: the right distributions, any number of them, the same whoever is asked, and cheap."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedtide import columns, config
from fedtide.data import virtual
from fedtide.data.holdings import Flat, flat_holdings
from fedtide.data.virtual import _distinct, _fitted, virtual_dirichlet, virtual_iid, virtual_labels
from fedtide.engine.making import make_fleet
from fedtide.engine.system import build
from fedtide.errors import FedtideError
from fedtide.types import Dataset, Samples
from twins import columns as twin

MILLION = 1_000_000


def dataset(labels: Any, num_labels: int = 10) -> Dataset:
    train = Samples(np.zeros((len(labels), 1, 1, 1), np.float32), np.asarray(labels, np.uint8))
    return Dataset("made", train, train, num_labels, "test")


EVEN = dataset(np.random.default_rng(0).permutation(np.repeat(np.arange(10), 600)))
SKEWED = dataset(np.repeat([0, 2, 5], [900, 90, 10]), 7)  # labels without a sample, and one with few
MADE: dict[str, Any] = {
    "iid": virtual_iid,
    "labels": virtual_labels,
    "dirichlet": lambda *args, **more: virtual_dirichlet(*args, concentration=0.3, **more),
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("data", [EVEN, SKEWED])
@pytest.mark.parametrize("spread", [0.0, 1.5])
def test_counts_are_the_labels_of_the_samples(name: str, data: Dataset, spread: float) -> None:
    held = MADE[name](data, MILLION, 3, samples_per_device=25, size_spread=spread)
    device = np.array([0, 999_999, 17, 123_456, *range(5000, 5060)])
    counts, sizes = held.label_counts(device), held.num_samples(device)
    assert counts.shape == (len(device), data.num_labels)
    assert counts.dtype == sizes.dtype == np.int64
    for row, size, k in zip(counts, sizes, device.tolist(), strict=True):
        mine = held[k]
        assert len(mine) == size
        assert (np.diff(mine) > 0).all()
        assert np.array_equal(np.bincount(data.train.labels[mine], minlength=data.num_labels), row)
    assert len(set(sizes.tolist())) > 5 if spread else set(sizes.tolist()) == {25}


@pytest.mark.parametrize("name", MADE)
def test_any_devices_and_any_fleet_give_the_same(name: str) -> None:
    held = MADE[name](EVEN, 3000, 5, size_spread=0.5)
    everyone = held.label_counts(np.arange(3000))
    some = np.array([2999, 3, 3, 1500])
    assert np.array_equal(held.label_counts(some), everyone[some])
    assert np.array_equal(held.num_samples(some), everyone[some].sum(axis=1))
    assert held.label_counts(some[:0]).shape == (0, 10)
    larger = MADE[name](EVEN, MILLION, 5, size_spread=0.5)
    assert np.array_equal(larger.label_counts(some), everyone[some])
    assert np.array_equal(larger[1500], held[1500])
    other = MADE[name](EVEN, 3000, 6, size_spread=0.5)
    assert not np.array_equal(other.label_counts(np.arange(3000)), everyone)


@pytest.mark.parametrize("name", MADE)
@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**70), st.integers(1, 45), st.floats(0, 2), st.lists(st.integers(0, 6), min_size=60, max_size=90)
)
def test_the_extension_gives_what_numpy_does(name: str, seed: int, each: int, spread: float, labels: list[int]) -> None:
    data = dataset(labels, 7)
    more = {"labels_per_device": 1} if name == "labels" else {}
    held = MADE[name](data, 50, seed, samples_per_device=each, size_spread=spread, **more)
    device = np.random.default_rng(each).permutation(50)
    native = held.label_counts(device)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "native", twin)
        patch.setattr(virtual, "native", twin)
        assert np.array_equal(held.label_counts(device), native)
    assert np.array_equal(native.sum(axis=1), held.num_samples(device))


def test_many_labels_are_drawn_alike() -> None:
    """Beyond some number of labels the extension looks them up in another way."""
    data = dataset(np.arange(2000) % 100, 100)
    for held in (virtual_iid(data, 500, 1), virtual_dirichlet(data, 500, 1, concentration=0.1)):
        native = held.label_counts(np.arange(500))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(columns, "native", twin)
            patch.setattr(virtual, "native", twin)
            assert np.array_equal(held.label_counts(np.arange(500)), native)


def polya(rng: np.random.Generator, concentration: float, size: int, num_labels: int, count: int) -> Any:
    """Return label counts as the definition has them: proportions first, then samples [count c]."""
    return np.array([rng.multinomial(size, rng.dirichlet(np.full(num_labels, concentration))) for _ in range(count)])


@pytest.mark.parametrize("concentration", [0.05, 0.5, 5.0])
def test_dirichlet_proportions(concentration: float) -> None:
    held = virtual_dirichlet(EVEN, 20_000, 2, concentration=concentration)
    found = held.label_counts(np.arange(20_000))
    wanted = polya(np.random.default_rng(4), concentration, 20, 10, 20_000)
    for label in (0, 9):
        table = np.array([np.bincount(each[:, label], minlength=21) for each in (found, wanted)])
        table = table[:, table.sum(axis=0) > 10]
        assert stats.chi2_contingency(table).pvalue > 1e-4
    largest = [np.bincount(each.max(axis=1), minlength=21) for each in (found, wanted)]
    table = np.array(largest)[:, np.sum(largest, axis=0) > 10]
    assert stats.chi2_contingency(table).pvalue > 1e-4


def test_iid_labels_follow_their_shares() -> None:
    held = virtual_iid(SKEWED, 20_000, 2, samples_per_device=3)
    counts = held.label_counts(np.arange(20_000))
    rare = np.bincount(counts[:, 2], minlength=4)
    assert (
        stats.chisquare(
            rare[:2],
            stats.binom.pmf([0, 1], 3, 0.09) * rare.sum() * rare[:2].sum() / (stats.binom.cdf(1, 3, 0.09) * rare.sum()),
        ).pvalue
        > 1e-4
    )
    assert not counts[:, [1, 3, 4, 6]].any()


def test_few_labels() -> None:
    counts = virtual_labels(EVEN, 20_000, 2, labels_per_device=3).label_counts(np.arange(20_000))
    assert ((counts > 0).sum(axis=1) == 3).all()
    assert set(np.unique(counts)) == {0, 6, 7}
    sets, times = np.unique((counts > 0) @ (1 << np.arange(10)), return_counts=True)
    assert len(sets) == 120  # every set of three
    assert stats.chisquare(times).pvalue > 1e-4


def test_samples_of_a_label_are_drawn_evenly() -> None:
    held = virtual_iid(EVEN, MILLION, 2)
    drawn = np.concatenate([held[k] for k in range(0, MILLION, 500)])
    times = np.bincount(drawn // 60, minlength=100)
    assert stats.chisquare(times).pvalue > 1e-4


@given(st.lists(st.floats(0, 1, exclude_max=True), max_size=12), st.integers(0, 20))
def test_distinct(units: list[float], more: int) -> None:
    count = len(units) + more
    found = _distinct(units, count)
    assert len(set(found)) == len(units) == len(found)
    assert all(0 <= each < count for each in found)


def test_distinct_is_fair() -> None:
    rng = np.random.default_rng(1)
    drawn = [tuple(sorted(_distinct(rng.random(2).tolist(), 4))) for _ in range(6000)]
    assert stats.chisquare(np.unique(drawn, axis=0, return_counts=True)[1]).pvalue > 1e-4


@given(st.lists(st.integers(0, 9), min_size=3, max_size=3), st.lists(st.integers(0, 12), min_size=3, max_size=3))
def test_fitted(row: list[int], room: list[int]) -> None:
    counts, limit = np.array([row]), np.array(room)
    found = _fitted(counts, limit)
    assert (found <= limit).all()
    assert found.sum() == min(counts.sum(), limit.sum())
    if (counts <= limit).all():
        assert np.array_equal(found, counts)


def test_a_label_that_runs_out_is_filled_up() -> None:
    held = virtual_dirichlet(SKEWED, 200, 1, concentration=0.1, samples_per_device=300)
    counts = held.label_counts(np.arange(200))
    assert (counts.sum(axis=1) == 300).all()
    assert (counts[:, 5] <= 10).all()
    assert (counts[:, 5] == 10).any()
    assert len(held[7]) == 300


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: virtual_iid(EVEN, 5, 0, samples_per_device=6001),
            "samples_per_device = 6001: must be from 1 to 6000",
        ),
        (lambda: virtual_iid(EVEN, 0, 0), "num_devices = 0: must be at least 1"),
        (lambda: virtual_labels(EVEN, 5, 0, labels_per_device=11), "labels_per_device = 11: must be from 1 to 10"),
        (lambda: virtual_dirichlet(EVEN, 5, 0, concentration=0.0), "concentration = 0.0: must be at least"),
        (lambda: virtual_iid(EVEN, 5, 0, size_spread=-1.0), "size_spread = -1"),
    ],
)
def test_what_cannot_be(make: Any, says: str) -> None:
    with pytest.raises(FedtideError, match=says):
        make()


def test_numbers_outside_the_fleet() -> None:
    held: Any
    for held in (virtual_iid(EVEN, 5, 0), flat_holdings(np.array([0, 1]), np.array([4, 3]), 2)):
        assert np.array_equal(held[-1], held[len(held) - 1])
        assert len(list(held)) == len(held)
        with pytest.raises(IndexError, match="out of range"):
            held[len(held)]


def test_flat() -> None:
    held = flat_holdings(np.array([2, 0, 2, 0]), np.array([5, 9, 1, 3]), 4)
    assert isinstance(held, Flat)
    assert [each.tolist() for each in held] == [[3, 9], [], [1, 5], []]


def experiment(num_devices: int, partition: str = "virtual_dirichlet") -> Any:
    return config.experiment(
        {
            "data": {"name": "synthetic", "num_train": 500, "num_test": 50, "partition": partition},
            "fleet": {"num_devices": num_devices},
            "policy": {"limit": 5, "scheduler": "random"},
            "radio": {"channel": "rayleigh_by_device"},
            "learning": {"model": "softmax"},
            "timeline": {"horizon": 1.0},
        }
    )


def peak(call: Any) -> int:
    tracemalloc.start()
    call()
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return used


def test_what_is_asked_of_a_few_does_not_grow_with_the_fleet() -> None:
    """Bytes, not times: links and labels of 50 devices cost the same among a thousand and among a million."""
    used = []
    for count in (1000, MILLION):
        system = build(experiment(count))
        device = np.arange(0, 1000, 20)
        columns.uniform(0, "warm up", device)

        def ask(system: Any = system, device: Any = device) -> None:
            system.channel(1, 2, 0.5, device)
            system.fleet.label_counts[device]
            for k in range(20):
                system.fleet.partition[k]

        ask()
        used.append(peak(ask))
    assert abs(used[1] - used[0]) < 2000
    assert used[0] < 200_000


def test_a_fleet_has_no_object_for_each_device() -> None:
    """Building takes some columns of eight bytes each."""
    data = build(experiment(10)).dataset
    make_fleet(experiment(10), data)
    small, large = (peak(lambda count=count: make_fleet(experiment(count), data)) for count in (1000, 101_000))
    assert (large - small) / 100_000 < 80


def test_more_devices_than_samples_names_the_remedy() -> None:
    with pytest.raises(FedtideError, match=r"more devices than samples \(500\).*data\.partition=virtual_iid"):
        build(experiment(501, "iid"))


def test_a_fleet_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtide.core.memory_budget._available_bytes", lambda: 10**9)
    with pytest.raises(
        FedtideError, match=r"a fleet of 9,000,000 devices would need 1.8 GB of memory, and 1 GB are free"
    ):
        build(experiment(9_000_000))
