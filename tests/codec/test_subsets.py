from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.codec.base import PacketError, index_bits, rank_positions, unrank_positions
from twins.subsets import bound

RNG = np.random.default_rng


@pytest.mark.parametrize("d", [1, 2, 5, 9])
def test_every_subset_of_a_block_has_its_own_number_below_the_binomial(d: int) -> None:
    for r in range(d + 1):
        numbers = sorted(rank_positions(np.array(each, np.int64), d) for each in combinations(range(d), r))
        assert numbers == list(range(math.comb(d, r)))


def test_every_subset_across_blocks_has_its_own_number_below_the_binomial() -> None:
    numbers = sorted(rank_positions(np.array(each, np.int64), 130) for each in combinations(range(130), 2))
    assert numbers == list(range(math.comb(130, 2)))


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 50_000), st.floats(0, 1), st.integers(0, 2**32))
def test_round_trip_in_the_fewest_bits(d: int, share: float, seed: int) -> None:
    r = round(share * d)
    kept = np.sort(RNG(seed).permutation(d)[:r])
    number = rank_positions(kept, d)
    assert 0 <= number < 1 << index_bits(d, r)
    assert np.array_equal(unrank_positions(number, r, d), kept)


@pytest.mark.parametrize("layout", [np.arange(900), np.arange(21840 - 900, 21840), np.arange(0, 21840, 24)])
def test_unlikely_sets(layout: np.ndarray) -> None:
    number = rank_positions(layout, 21840)
    assert number.bit_length() <= index_bits(21840, len(layout))
    assert np.array_equal(unrank_positions(number, len(layout), 21840), layout)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6000), st.data())
def test_the_bound_is_the_binomial_but_for_one_part_in_a_trillion(d: int, data: st.DataObject) -> None:
    r = data.draw(st.integers(0, d))
    m, e = bound(d, r)
    exact = math.comb(d, r)
    assert exact <= m << e
    assert ((m << e) - exact) << 40 <= exact
    assert index_bits(d, r) == (exact - 1).bit_length()


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3000), st.floats(0, 1), st.floats(0, 1, exclude_max=True))
def test_any_number_is_a_set_or_refused(d: int, share: float, where: float) -> None:
    r = round(share * d)
    number = int(where * 2**53) << index_bits(d, r) >> 53
    try:
        kept = unrank_positions(number, r, d)
    except PacketError:
        return
    assert len(kept) == r
    assert np.all(np.diff(kept) > 0)
    assert rank_positions(kept, d) == number
