from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.codec.baselines import Qsgd

RNG = np.random.default_rng
ROOMY = 1e5


@given(st.integers(1, 40), st.integers(1, 50), st.integers(0, 2**32))
def test_it_is_the_papers_quantiser(d: int, s: int, seed: int) -> None:
    """Alistarh et al. 2017, section 3.1, with the same uniform numbers: up if u > 1 - p, which floor(x + u) is."""
    update = RNG(seed).standard_normal(d).astype(np.float32)
    received = Qsgd(s).decode(Qsgd(s).encode(update, ROOMY, RNG(seed + 1)))
    drawn = RNG(seed + 1).random(d)
    norm = math.sqrt(sum(float(each) ** 2 for each in update))
    for value, uniform, found in zip(update.tolist(), drawn.tolist(), received.tolist(), strict=True):
        share = abs(value) / norm * s
        lower = int(share)
        if abs(uniform - (1 - (share - lower))) < 1e-5:
            continue  # the step is sent as float32: too close to say
        xi = (lower + 1 if uniform > 1 - (share - lower) else lower) / s
        assert found == pytest.approx(norm * math.copysign(xi, value), rel=1e-5, abs=1e-12)


@pytest.mark.parametrize(("d", "budget"), [(8, 48.0), (8, 60.0), (8, 120.0), (60, 100.0), (60, 400.0)])
def test_unbiased_whatever_the_budget(d: int, budget: float) -> None:
    """The mean over many draws is the update, within five standard errors of every element."""
    update, rng, codec = RNG(3).standard_normal(d).astype(np.float32), RNG(4), Qsgd()
    draws = np.stack([codec.decode(codec.encode(update, budget, rng)) for _ in range(4000)]).astype(np.float64)
    error = draws.std(axis=0) / math.sqrt(len(draws))
    assert draws.any(axis=0).all()
    assert (np.abs(draws.mean(axis=0) - update) < 5 * error + 1e-6).all()


@given(st.integers(1, 300), st.floats(0, 6000), st.integers(0, 2**32), st.sampled_from([None, 1, 7]))
def test_never_more_than_the_budget(d: int, budget: float, seed: int, levels: int | None) -> None:
    rng = RNG(seed)
    update = (rng.standard_normal(d) * 10.0 ** rng.integers(-45, 38, d)).astype(np.float32)
    packet = Qsgd(levels).encode(update, budget, rng)
    assert packet.bits <= budget
    received = Qsgd(levels).decode(packet)
    assert np.isfinite(received).all()
    assert (np.sign(received) * np.sign(update) >= 0).all()  # no sign is turned round


@pytest.mark.parametrize("budget", [60.0, 100.0, 1000.0])
def test_the_largest_floats_end(budget: float) -> None:
    update = np.full(200, np.finfo(np.float32).max)
    packet = Qsgd().encode(update, budget, RNG(0))
    assert packet.bits <= budget
    assert np.isfinite(Qsgd().decode(packet)).all()


def test_more_bits_are_finer_levels_and_a_given_s_is_the_most() -> None:
    update = RNG(0).standard_normal(500).astype(np.float32)
    sent = [Qsgd().encode(update, budget, RNG(1)) for budget in (500.0, 1000.0, 2000.0, 4000.0)]
    errors = [float(np.square(Qsgd().decode(each) - update).sum()) for each in sent]
    assert errors == sorted(errors, reverse=True)
    assert all(each.bits > 0.8 * budget for each, budget in zip(sent[1:], (1000, 2000, 4000), strict=True))
    assert Qsgd(4).encode(update, 4000.0, RNG(1)) == Qsgd(4).encode(update, ROOMY, RNG(1))


def test_too_small_for_one_element() -> None:
    d = 64  # 31 bits of the step, 7 of the number, 6 of a place, a sign, a level
    update = np.ones(d, np.float32)
    assert Qsgd().encode(update, 45.9, RNG(0)).bits == 0
    assert Qsgd().num_kept(d, 45.9) == 0
    assert Qsgd().num_kept(d, 46) == d
