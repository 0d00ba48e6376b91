from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.codec.sparse_quantized import Ideal, SparseQuantized, _bit_count

RNG = np.random.default_rng


def update_of(d: int, seed: int = 0) -> np.ndarray:
    return RNG(seed).standard_normal(d).astype(np.float32)


def test_sparsification_is_not_rescaled() -> None:
    """E[u_hat] = (r/d) u."""
    d, codec = 20, SparseQuantized(4)
    budget = float(_bit_count(d, 5, 4))
    update, rng = update_of(d), RNG(1)
    draws = np.stack([codec.decode(codec.encode(update, budget, rng)) for _ in range(2000)])
    assert codec.num_kept(d, budget) == 5
    np.testing.assert_allclose(draws.mean(axis=0), 5 / 20 * update, atol=0.12)
    kept = (draws != 0).mean()
    assert kept < 5 / 20


def test_every_element_is_reserved_alike() -> None:
    d, codec, rng = 12, SparseQuantized(1000), RNG(2)
    budget = float(_bit_count(d, 4, 11))
    seen = sum(codec.decode(codec.encode(np.ones(d, np.float32), budget, rng)) != 0 for _ in range(1500))
    np.testing.assert_allclose(seen / 1500, 1 / 3, atol=0.06)


@given(st.integers(1, 300), st.floats(0, 2000), st.integers(1, 40))
def test_never_more_than_the_budget(d: int, budget: float, nu: int) -> None:
    codec = SparseQuantized(nu)
    packet = codec.encode(update_of(d), budget, RNG(0))
    assert packet.bits <= budget
    assert packet.num_kept == codec.num_kept(d, budget)
    received = codec.decode(packet)
    assert received.shape == (d,)
    assert np.count_nonzero(received) <= packet.num_kept


@pytest.mark.parametrize("budget", [0.0, 31.99])
def test_nothing_is_sent_below_the_norm(budget: float) -> None:
    packet = SparseQuantized().encode(update_of(50), budget, RNG(0))
    assert (packet.num_kept, packet.bits) == (0, 0)
    assert not SparseQuantized().decode(packet).any()


@pytest.mark.parametrize("budget", [32.0, 60.0, 1e6])
def test_zero_update_and_empty_set_give_zero_not_nan(budget: float) -> None:
    codec = SparseQuantized()
    received = codec.decode(codec.encode(np.zeros(50, np.float32), budget, RNG(0)))
    assert received.tolist() == [0.0] * 50


def test_all_zero_on_the_kept_part_is_zero() -> None:
    update = np.zeros(1000, np.float32)
    update[3] = 1e9
    codec, budget = SparseQuantized(), 50.0
    for seed in range(20):
        received = codec.decode(codec.encode(update, budget, RNG(seed)))
        assert np.isfinite(received).all()


def test_all_elements_kept_without_index_bits() -> None:
    packet = SparseQuantized(4).encode(update_of(100), 432.0, RNG(0))
    assert packet.num_kept == 100
    assert packet.bits <= 432


def test_element_bits_of_the_released_code_carry_more() -> None:
    assert SparseQuantized(4, element_bits=3).num_kept(21840, 50_000) > SparseQuantized(4).num_kept(21840, 50_000)


def test_ideal_is_exact_and_keeps_its_own_copy() -> None:
    update = update_of(9)
    packet = Ideal().encode(update, 0.0, RNG(0))
    expected = update.copy()
    update[:] = 0
    np.testing.assert_array_equal(Ideal().decode(packet), expected)
    assert (packet.num_kept, packet.bits) == (9, 288)
