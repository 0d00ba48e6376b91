from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.codec.base import PacketError
from fedtide.codec.baselines import TopK
from fedtide.errors import FedtideError
from fedtide.parts import registry

RNG = np.random.default_rng
Width = Literal[16, 32]


def by_hand(update: list[float], k: int) -> list[float]:
    """Top-k as its papers write it: one largest element after the other, of equal ones the first."""
    left, kept = list(range(len(update))), [0.0] * len(update)
    for _ in range(k):
        best = left[0]
        for i in left:
            if abs(update[i]) > abs(update[best]):
                best = i
        kept[best] = update[best]
        left.remove(best)
    return kept


def most_by_hand(d: int, budget: float, width: int) -> int:
    octave = 8 if width == 16 else 0
    fitting = [k for k in range(1, d + 1) if (math.comb(d, k) - 1).bit_length() + octave + k * width <= budget]
    return max(fitting, default=0)


@given(st.integers(1, 60), st.floats(0, 2500), st.integers(0, 2**32), st.sampled_from([16, 32]), st.booleans())
def test_it_is_the_papers_loop(d: int, budget: float, seed: int, width: Width, ties: bool) -> None:
    rng, codec = RNG(seed), TopK(width)
    update = (rng.integers(-3, 4, d) if ties else rng.standard_normal(d)).astype(np.float32)
    packet = codec.encode(update, budget, rng)
    assert packet.num_kept == most_by_hand(d, budget, width)
    assert packet.bits == codec.planned_bits(d, budget) <= budget
    wanted = np.array(by_hand(update.tolist(), packet.num_kept), np.float32)
    np.testing.assert_allclose(codec.decode(packet), wanted, rtol=0 if width == 32 else 2**-11)


@pytest.mark.parametrize("scale", [1e-44, 1e-38, 1e-8, 1.0, 7e4, 1e30, 3.4028e38])
def test_halves_have_the_range_of_the_update(scale: float) -> None:
    update = np.float32(scale) * np.array([1, -0.5, 2**-10], np.float32)
    codec = TopK()
    received = codec.decode(codec.encode(update, 100.0, RNG(0)))
    np.testing.assert_allclose(received, update, rtol=2**-11, atol=1e-45)


def test_halves_lose_at_most_two_to_the_minus_eleven() -> None:
    """Down to 2^-13 of the largest value; the bound is tight: more than half of it does occur."""
    largest = np.float32(0.5)  # at the bottom of its octave, where small values come closest to the subnormals
    values = np.concatenate([np.geomspace(largest / 2**13, largest, 5000), [largest * (1 + 2.0**-11) / 2]])
    update, codec = values.astype(np.float32), TopK()
    received = codec.decode(codec.encode(update, 1e6, RNG(0))).astype(np.float64)
    lost = np.abs(received - update) / update
    assert 2**-12 < lost.max() <= 2**-11
    assert "2^-11" in str(TopK.__doc__)


def test_a_smaller_budget_keeps_the_larger_ones() -> None:
    update, codec = np.array([1, -4, 2, 3], np.float32), TopK(32)
    kept = [np.flatnonzero(codec.decode(codec.encode(update, budget, RNG(0)))).tolist() for budget in (33, 34, 67, 128)]
    assert kept == [[], [1], [1, 3], [0, 1, 2, 3]]


def test_readers_of_other_widths_refuse() -> None:
    packet = TopK(16).encode(np.ones(4, np.float32), 100.0, RNG(0))
    with pytest.raises(PacketError, match=r"settings 0x10 .* settings 0x20"):
        TopK(32).decode(packet)


def test_only_two_widths() -> None:
    with pytest.raises(FedtideError, match="value_bits=8"):
        registry.part("codec", "top_k", {"value_bits": 8})
