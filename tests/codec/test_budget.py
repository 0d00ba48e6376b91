from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedtide.codec.sparse_quantized import SparseQuantized, _bit_count, _level_bits, max_kept
from fedtide.config import experiment
from fedtide.engine.making import make_codec


@settings(max_examples=200)
@given(st.integers(1, 80), st.floats(0, 500), st.integers(1, 9))
def test_max_kept_is_the_linear_scan(d: int, budget: float, element_bits: int) -> None:
    counts = [math.log2(math.comb(d, r)) + 32 + r * element_bits for r in range(d + 1)]
    assume(min(abs(count - budget) for count in counts) > 1e-6)  # not on the edge, where a rounding decides
    assert max_kept(d, budget, element_bits) == max((r for r in range(d + 1) if counts[r] < budget), default=-1)


@pytest.mark.parametrize(("d", "budget", "kept"), [(64, 40.0, 1), (64, 39.999999, 0), (2**14, 48.0, 1), (3, 35.0, 0)])
def test_a_budget_that_is_met_exactly(d: int, budget: float, kept: int) -> None:
    assert max_kept(d, budget, 2) == kept


@pytest.mark.parametrize("d", [1, 2, 4, 1024])
def test_whole_bit_counts_are_exact(d: int) -> None:
    for r in {0, 1, d - 1, d}:
        assert _bit_count(d, r, 3) == math.log2(math.comb(d, r)) + 32 + 3 * r


@settings(max_examples=60)
@given(st.integers(1, 3000), st.data())
def test_max_kept_is_the_inverse_of_the_bit_count(d: int, data: st.DataObject) -> None:
    r = data.draw(st.integers(0, d))
    found = max_kept(d, float(_bit_count(d, r, 4)), 4)
    assert found >= r
    assert _bit_count(d, found, 4) <= _bit_count(d, r, 4)
    above = np.arange(found + 1, d + 1, dtype=float)
    assert np.all(_bit_count(d, above, 4) > _bit_count(d, r, 4))


def test_more_bits_never_carry_less() -> None:
    kept = [max_kept(500, budget, 4) for budget in np.linspace(0, 2300, 5000)]
    assert np.all(np.diff(kept) >= 0)
    assert kept[0] == -1
    assert kept[-1] == 500


@pytest.mark.parametrize(("nu", "bits"), [(1, 2), (2, 3), (3, 3), (4, 4), (7, 4), (8, 5), (255, 9)])
def test_level_bits(nu: int, bits: int) -> None:
    assert _level_bits(nu) == bits


def test_bit_count_of_one_and_of_many() -> None:
    assert _bit_count(10, 3, 4) == pytest.approx(math.log2(120) + 32 + 12)
    np.testing.assert_allclose(_bit_count(10, np.array([0.0, 10.0]), 4), [32, 72], rtol=0)


@pytest.mark.parametrize(
    ("d", "budget"), [(21_840, 20_000), (21_840, 70_000), (21_840, 300), (50, 400), (50, 31), (1, 60)]
)
def test_whole_bits_are_the_table_of_the_released_code(d: int, budget: int) -> None:
    """Its table has the bits of 1..d elements, each entry the last one and what one element more takes, rounded up."""
    table, last = [], 0
    for r in range(1, d + 1):
        last = math.ceil(last + math.log2((d - r + 1) / r) + 3)
        table.append(last)
    fitting = [r for r, bits in enumerate(table, 1) if bits <= budget - 32]
    assert SparseQuantized(4, 3, whole_bits=True).num_kept(d, budget) == max(fitting, default=0)


def test_the_profile_of_the_released_code_counts_as_that_code_does() -> None:
    codec = make_codec(experiment(profile="released-code"))
    assert codec.num_kept(21_840, 20_000) == 2_487
    assert max_kept(21_840, 20_000, 3) == 2_715  # by eq:bitQuota
    update = np.random.default_rng(0).standard_normal(21_840).astype(np.float32)
    packet = codec.encode(update, 20_000, np.random.default_rng(1))
    assert packet.num_kept == 2_487
    assert packet.bits == codec.planned_bits(21_840, 20_000) <= 20_000  # type: ignore[attr-defined]
    assert experiment(profile="released-code", codec={"name": "dead_zone"}).part("codec").args == {}
