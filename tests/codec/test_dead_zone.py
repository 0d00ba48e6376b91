from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.codec.dead_zone import DeadZone
from odd_updates import KINDS, update_of

RNG = np.random.default_rng


def distortion(update: np.ndarray, decoded: np.ndarray) -> float:
    exact = update.astype(np.float64)
    return float(np.square(decoded - exact).sum() / np.square(exact).sum())


@settings(max_examples=120)
@given(
    st.one_of(st.integers(1, 400), st.integers(1, 50_000)), st.floats(0, 36), st.sampled_from(KINDS), st.integers(0, 99)
)
def test_never_more_than_the_budget_and_never_worse_than_silence(d: int, rate: float, kind: str, seed: int) -> None:
    codec, update = DeadZone(), update_of(kind, d, RNG(seed))
    packet = codec.encode(update, rate * d, RNG(seed))
    assert packet.bits <= rate * d
    decoded = codec.decode(packet)
    assert np.isfinite(decoded).all()
    if update.any():
        assert distortion(update, decoded) <= 1 + 1e-6
    if rate >= 32:
        np.testing.assert_array_equal(decoded, update)
    assert not (decoded * np.sign(update) < 0).any()


@pytest.mark.parametrize("kind", ["normal", "heavy", "layers", "huge", "tiny"])
@pytest.mark.parametrize("rate", [0.3, 0.9, 2.0, 8.0])
def test_uses_the_budget_and_stays_near_or_below_the_gaussian_line(kind: str, rate: float) -> None:
    """An ideal entropy coder loses 0.254 bits per element to the line; learning the tables loses 0.1 more."""
    d, codec = 21840, DeadZone()
    update = update_of(kind, d, RNG(3))
    packet = codec.encode(update, rate * d, RNG(0))
    assert packet.bits <= rate * d
    assert packet.bits >= 0.995 * rate * d - 8 or kind == "layers"  # there, 20 octaves of steps are not enough
    assert distortion(update, codec.decode(packet)) <= 2 ** (-2 * (rate - 0.254 - 0.11))


def test_more_bits_less_distortion() -> None:
    codec, update = DeadZone(), update_of("heavy", 5000, RNG(0))
    found = [
        distortion(update, codec.decode(codec.encode(update, rate * 5000, RNG(0)))) for rate in np.arange(0.1, 12, 0.5)
    ]
    assert np.all(np.diff(found) < 0)


def test_equal_sizes_that_do_not_fit_are_thinned_out() -> None:
    codec, update = DeadZone(), update_of("signs", 10_000, RNG(0))
    packet = codec.encode(update, 4000.0, RNG(0))
    assert 1000 < packet.bits <= 4000
    decoded = codec.decode(packet)
    sent = decoded != 0
    assert 100 < sent.sum() < 5000
    np.testing.assert_allclose(decoded[sent], update[sent], rtol=0.02)


def test_a_budget_just_short_of_a_whole_bit_does_not_hang() -> None:
    """The code may be over by 1e-12 bits then; once, the search went on in steps of that size."""
    update = np.random.default_rng(3).standard_t(3, 21_840).astype(np.float32)
    for budget in range(15_000, 15_060):
        length = DeadZone().encode(update, budget, np.random.default_rng(0)).bits
        short = DeadZone().encode(update, np.nextafter(length, 0), np.random.default_rng(0)).bits
        assert 0.99 * length < short < length


def test_quiet_layers_cost_little() -> None:
    """A tenth of the elements is large: what the neighbours say saves most of the cost of the others."""
    rng, d = RNG(0), 20_000
    blocks = np.where(np.arange(d) // 500 % 10 == 0, 1.0, 1e-4)
    shuffled = rng.permutation(blocks)
    noise = rng.standard_normal(d)
    ours = [
        DeadZone().decode(DeadZone().encode((noise * scale).astype(np.float32), 0.4 * d, rng))
        for scale in (blocks, shuffled)
    ]
    together, apart = (
        distortion((noise * scale).astype(np.float32), each)
        for scale, each in zip((blocks, shuffled), ours, strict=True)
    )
    assert together < 0.5 * apart


def test_an_upload_that_carries_nothing_says_so() -> None:
    d, codec, update = 21_840, DeadZone(), update_of("normal", 21_840, RNG(0))
    little = codec.encode(update, 100.0, RNG(0))
    assert (little.bits, little.num_kept, codec.num_kept(d, 100.0)) == (0, 0, 0)
    assert not codec.decode(little).any()
    enough = codec.encode(update, 19_000.0, RNG(0))
    assert enough.num_kept == codec.num_kept(d, 19_000.0) == d
