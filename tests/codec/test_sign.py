from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.aggregate.robust import MajorityVote
from fedtide.codec.base import PacketError
from fedtide.codec.baselines import Sign

RNG = np.random.default_rng


def test_one_bit_per_element() -> None:
    update = RNG(0).standard_normal(77).astype(np.float32)
    plain = Sign(scaled=False).encode(update, 77, RNG(1))
    assert (plain.bits, plain.num_kept) == (77, 77)
    np.testing.assert_array_equal(Sign(scaled=False).decode(plain), np.sign(update))
    scaled = Sign().encode(update, 77 + 31, RNG(1))
    assert (scaled.bits, scaled.num_kept) == (108, 77)
    mean = sum(abs(each) for each in update.tolist()) / 77  # |p|_1 / d, Karimireddy et al. 2019
    np.testing.assert_allclose(Sign().decode(scaled), mean * np.sign(update), rtol=1e-6)


@given(st.integers(1, 300), st.floats(0, 400), st.booleans(), st.integers(0, 2**32))
def test_a_small_budget_carries_a_run(d: int, budget: float, scaled: bool, seed: int) -> None:
    codec, update = Sign(scaled), RNG(seed).standard_normal(d).astype(np.float32)
    packet = codec.encode(update, budget, RNG(seed))
    assert packet.bits == codec.planned_bits(d, budget) <= budget
    received = codec.decode(packet)
    sent = received != 0
    assert sent.sum() == packet.num_kept
    assert (np.sign(received) == np.sign(update))[sent].all()
    assert np.count_nonzero(sent != np.roll(sent, 1)) <= 2  # one run, around the end
    if 0 < packet.num_kept < d:
        assert packet.bits == packet.num_kept + (d - 1).bit_length() + 31 * scaled == int(budget)


def test_every_element_has_its_turn_alike() -> None:
    codec, rng, update = Sign(scaled=False), RNG(0), np.ones(10, np.float32)
    seen = sum(codec.decode(codec.encode(update, 8.0, rng)) for _ in range(2000))
    np.testing.assert_allclose(seen / 2000, 0.4, atol=0.06)


def test_the_sign_of_zero_is_drawn() -> None:
    codec, rng = Sign(scaled=False), RNG(0)
    update = np.array([1, 0, -0.0, -1], np.float32)
    draws = np.stack([codec.decode(codec.encode(update, 4.0, rng)) for _ in range(1000)])
    assert draws.mean(axis=0)[[0, 3]].tolist() == [1, -1]
    assert (np.abs(draws.mean(axis=0)[1:3]) < 0.15).all()
    assert codec.encode(np.zeros(4, np.float32), 4.0, rng).bits == 0  # nothing at all to vote for


def test_readers_of_the_other_kind_refuse() -> None:
    packet = Sign(scaled=False).encode(np.ones(40, np.float32), 40.0, RNG(0))
    with pytest.raises(PacketError, match=r"settings 0x0 .* settings 0x1"):
        Sign().decode(packet)


def vote_by_hand(model: list[float], signs: list[list[float]], rate: float) -> list[float]:
    """Bernstein et al. 2018, algorithm 1: count the votes for and against."""
    new = []
    for i, value in enumerate(model):
        votes = sum(1 if each[i] > 0 else -1 if each[i] < 0 else 0 for each in signs)
        new.append(value + rate * (1 if votes > 0 else -1 if votes < 0 else 0))
    return new


@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 2**32))
def test_majority_vote_is_the_papers_loop(r: int, d: int, seed: int) -> None:
    rng = RNG(seed)
    model, updates = rng.standard_normal(d).astype(np.float32), rng.standard_normal((r, d)).astype(np.float32)
    codec = Sign(scaled=False)
    arrived = np.stack([codec.decode(codec.encode(each, rng.uniform(d / 2, d), rng)) for each in updates])
    nothing = np.zeros(r, np.int64)
    new = MajorityVote(0.25)(model, np.stack([model] * r), arrived, np.full(r, 1 / r), nothing)
    np.testing.assert_allclose(new, vote_by_hand(model.tolist(), arrived.tolist(), 0.25), atol=1e-6)


def test_a_heavier_vote_wins_and_an_even_one_moves_nothing() -> None:
    updates = np.array([[5, 5], [-1, -1], [-1, 0]], np.float32)
    vote, model = MajorityVote(0.5), np.zeros(2, np.float32)
    starts, age = np.zeros((3, 2), np.float32), np.zeros(3, np.int64)
    assert vote(model, starts, updates, np.array([0.3, 0.1, 0.2]), age).tolist() == [0, 0.5]  # 0.3 - 0.1 - 0.2
    assert vote(model, starts, updates, np.array([0.2, 0.4, 0.4]), age).tolist() == [-0.5, -0.5]
