from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.radio.allocation import EqualBits, equal_bits, symbols_per_tick
from fedtide.timeline.clock import clock_span
from fedtide.timeline.timelines import Buffered, PerArrival, Periodic, Synchronous
from helpers import ticks_of


@given(st.lists(st.floats(1e-6, 30), min_size=1, max_size=40), st.floats(1, 1e9))
def test_equal_bits_and_all_symbols_spent(capacity: list[float], num_symbols: float) -> None:
    symbols, bits = equal_bits(np.array(capacity), num_symbols)
    np.testing.assert_allclose(symbols * capacity, bits, rtol=1e-12)  # eq:nc
    assert len(set(bits.tolist())) == 1
    assert bits[0] == pytest.approx(num_symbols / sum(1 / each for each in capacity), rel=1e-12)
    assert symbols.sum() == pytest.approx(num_symbols, rel=1e-9)


def test_better_channels_get_fewer_symbols_and_one_fade_starves_everyone() -> None:
    symbols, bits = equal_bits(np.array([1.0, 4.0]), 1000)
    np.testing.assert_allclose(symbols, [800, 200])
    assert equal_bits(np.array([1e-6, 4.0, 4.0]), 1000)[1][2] < 0.01 * bits[0]


@pytest.mark.parametrize("worst", [5e-324, 1e-310, 1e-300, 1e-280])
def test_links_so_faint_that_their_inverse_overflows(worst: float) -> None:
    symbols, bits = equal_bits(np.array([worst, 3.0, worst]), 100)
    np.testing.assert_allclose(symbols, [50, 0, 50], atol=1e-9)
    np.testing.assert_allclose(bits, [50 * worst] * 3, rtol=1e-12)


def test_dead_links_get_nothing_and_the_others_share() -> None:
    symbols, bits = equal_bits(np.array([0.0, 3.0, 0.0, 1.0]), 100)
    assert symbols.tolist() == [0, 25, 0, 75]
    assert bits.tolist() == [0, 75, 0, 75]
    assert [each.tolist() for each in equal_bits(np.zeros(2), 100)] == [[0, 0], [0, 0]]


def test_nobody_scheduled() -> None:
    symbols, bits = equal_bits(np.zeros(0), 100)
    assert len(symbols) == len(bits) == 0


def test_the_part_gives_the_same() -> None:
    capacity = np.random.default_rng(1).exponential(3, 9)
    shares = EqualBits()(capacity, 1e5)
    assert [each.tolist() for each in shares] == [each.tolist() for each in equal_bits(capacity, 1e5)]


DURATION = np.random.default_rng(0).uniform(0, 2, 20)  # T_max = 2


@pytest.mark.parametrize("parts", [1, 2, 4, 8, 5])
def test_fair_symbols_of_the_periodic_design(parts: int) -> None:
    ticks = ticks_of(Periodic(2 / parts), DURATION, 30.0)
    assert symbols_per_tick(*clock_span(ticks), 1000, 2.0) == pytest.approx(1000 * 4 * (2 / parts) / 2.0)


def test_fedavg_gets_four_times_n() -> None:
    assert symbols_per_tick(*clock_span(ticks_of(Synchronous(2.0), DURATION, 30.0)), 1000, 2.0) == pytest.approx(4000)


@pytest.mark.parametrize("timeline", [PerArrival(), Buffered(5)])
def test_event_driven_frameworks_share_the_same_symbols(timeline: Buffered) -> None:
    ticks = ticks_of(timeline, DURATION, 30.0)
    share = symbols_per_tick(*clock_span(ticks), 1000, 2.0)
    assert share == pytest.approx(4 * 1000 * ticks[-1].time / (2.0 * len(ticks)))  # 4 n T' / (T_max N_FA)
    assert share * len(ticks) / ticks[-1].time == pytest.approx(4 * 1000 / 2.0)  # the same rate as everyone's


def test_no_ticks() -> None:
    assert symbols_per_tick(*clock_span([]), 1000, 1.0) == 0
