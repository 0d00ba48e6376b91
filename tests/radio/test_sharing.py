"""Ways to share symbols, against closed forms and brute force."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.radio.allocation import (
    BLOCK_RULES,
    AlphaFair,
    EqualBits,
    EqualSymbols,
    LatencyMinimal,
    MaxSumRate,
    ResourceBlocks,
    _max_min,
)

capacities = st.lists(st.floats(0.01, 20), min_size=1, max_size=8).map(np.array)
ALL = [
    EqualSymbols(),
    MaxSumRate(),
    MaxSumRate(0.3),
    AlphaFair(0.5),
    AlphaFair(3.0),
    LatencyMinimal(),
    LatencyMinimal(7000.0),
    *(ResourceBlocks(50.0, rule) for rule in BLOCK_RULES),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("allocation", ALL)
@settings(max_examples=40)
@given(capacities, st.floats(1, 1e6))
def test_no_more_than_there_is_and_bits_are_what_it_carries(
    allocation: Any, capacity: np.ndarray, num_symbols: float
) -> None:
    symbols, bits = allocation(capacity, num_symbols)
    assert np.all(symbols >= 0)
    assert symbols.sum() <= num_symbols * (1 + 1e-9)
    np.testing.assert_allclose(bits, symbols * capacity, rtol=1e-12)
    assert all(len(each) == 0 for each in allocation(np.zeros(0), num_symbols))


@pytest.mark.parametrize("allocation", [each for each in ALL if each != LatencyMinimal(7000.0)])
@settings(max_examples=40)
@given(capacities, st.integers(0, 400), st.sampled_from([0.25, 4.0]))
def test_better_radios_for_all_change_no_share(
    allocation: Any, capacity: np.ndarray, num_blocks: int, factor: float
) -> None:
    one, other = (allocation(capacity * scale, 50.0 * num_blocks) for scale in (1.0, factor))
    np.testing.assert_allclose(one.symbols, other.symbols, rtol=1e-9)


LINKS = np.array([1.0, 4.0, 2.0, 4.0])


@pytest.mark.parametrize(
    ("allocation", "symbols"),
    [
        (EqualSymbols(), [250, 250, 250, 250]),
        (MaxSumRate(), [0, 500, 0, 500]),
        (MaxSumRate(0.4), [100, 400, 100, 400]),
        (MaxSumRate(1.0), [250, 250, 250, 250]),
        (AlphaFair(1.0), [250, 250, 250, 250]),
        (AlphaFair(0.5), [1000 / 11, 4000 / 11, 2000 / 11, 4000 / 11]),
        (AlphaFair(1e9), [500, 125, 250, 125]),
        (AlphaFair(1e-3), [0, 500, 0, 500]),
        (LatencyMinimal(), [500, 125, 250, 125]),
        (LatencyMinimal(500.0), [500, 125, 250, 125]),
        (LatencyMinimal(400.0), [400, 100, 200, 100]),
        (ResourceBlocks(100.0), [400, 200, 200, 200]),  # 4, 8, 4, 8 hundred bits
        (ResourceBlocks(300.0), [0, 300, 300, 300]),  # fewer blocks than devices: the best links have them
        (ResourceBlocks(500.1), [0, 500.1, 0, 0]),  # of equal ones the first
        (ResourceBlocks(300.0, "max_sum"), [0, 900, 0, 0]),
        (ResourceBlocks(300.0, "round_robin"), [0, 300, 300, 300]),
        (ResourceBlocks(150.0, "round_robin"), [150, 300, 150, 300]),
        (ResourceBlocks(1001.0), [0, 0, 0, 0]),
    ],
)
def test_by_hand(allocation: Any, symbols: list[float]) -> None:
    np.testing.assert_allclose(allocation(LINKS, 1000.0).symbols, symbols, rtol=1e-6, atol=1e-9)


def divisions(count: int, devices: int) -> Iterator[tuple[int, ...]]:
    """Return every way to give `count` blocks to so many devices."""
    for bars in itertools.combinations(range(count + devices - 1), devices - 1):
        yield tuple(b - a - 1 for a, b in itertools.pairwise((-1, *bars, count + devices - 1)))


@settings(max_examples=60)
@given(st.lists(st.sampled_from([0.5, 0.7, 1.0, 2.0, 3.1]), min_size=1, max_size=4).map(np.array), st.integers(0, 9))
def test_no_division_of_blocks_is_better(capacity: np.ndarray, count: int) -> None:
    every = np.array(list(divisions(count, len(capacity)))) * capacity
    for rule, worth in (("max_min", every.min(axis=1)), ("max_sum", every.sum(axis=1))):
        blocks = BLOCK_RULES[rule](capacity, count)
        assert blocks.sum() == count
        assert (getattr(blocks * capacity, {"max_min": "min", "max_sum": "sum"}[rule])()) == pytest.approx(worth.max())


@settings(max_examples=60)
@given(st.lists(st.sampled_from([0.5, 0.7, 1.0, 2.0, 3.1]), min_size=1, max_size=6).map(np.array), st.integers(0, 300))
def test_counting_blocks_is_giving_them_one_by_one(capacity: np.ndarray, count: int) -> None:
    slow = np.zeros(len(capacity), int)
    for _ in range(count):
        slow[min(range(len(capacity)), key=lambda k: (slow[k] * capacity[k], -capacity[k], k))] += 1
    assert _max_min(capacity, count).tolist() == slow.tolist()


def test_millions_of_blocks_are_counted() -> None:
    capacity = np.random.default_rng(0).exponential(3, 100)
    shares = ResourceBlocks()(capacity, 1e12)
    np.testing.assert_allclose(shares.symbols, EqualBits()(capacity, 1e12).symbols, atol=2 * 168)


@settings(max_examples=30)
@given(capacities, st.sampled_from([0.3, 0.5, 2.0, 5.0]), st.integers(0, 1000))
def test_no_shares_have_more_utility(capacity: np.ndarray, alpha: float, seed: int) -> None:
    def utility(symbols: np.ndarray) -> float:
        return float(((symbols * capacity) ** (1 - alpha) / (1 - alpha)).sum())

    best = utility(AlphaFair(alpha)(capacity, 1.0).symbols)
    for other in np.random.default_rng(seed).dirichlet(np.full(len(capacity), 5.0), 50):
        assert utility(other) <= best + 1e-9 * abs(best)


@settings(max_examples=30)
@given(capacities, st.integers(0, 1000))
def test_nobody_is_in_later_than_need_be(capacity: np.ndarray, seed: int) -> None:
    def latest(bandwidth: np.ndarray) -> float:
        return float((1 / (bandwidth * capacity)).max())

    soonest = latest(LatencyMinimal()(capacity, 1.0).symbols)
    assert soonest == pytest.approx(math.fsum(1 / capacity))
    for other in np.random.default_rng(seed).dirichlet(np.full(len(capacity), 5.0), 50):
        assert latest(other) >= soonest * (1 - 1e-9)


@pytest.mark.parametrize("allocation", [AlphaFair(1.0), LatencyMinimal(), LatencyMinimal(10.0), ResourceBlocks(10.0)])
def test_dead_links_get_nothing_and_cost_nobody_else(allocation: Any) -> None:
    with_dead, without = allocation(np.array([0.0, 2.0, 3.0]), 1000.0), allocation(np.array([2.0, 3.0]), 1000.0)
    assert with_dead.symbols.tolist() == [0.0, *without.symbols]
    assert with_dead.bits.tolist() == [0.0, *without.bits]
    assert not any(each.any() for each in allocation(np.zeros(2), 1000.0))
