"""Markov chains by address, and the channel of two states: laws in closed form, and no dependence on who was asked when."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide import columns
from fedtide.errors import FedtideError
from fedtide.radio.cell import Equal
from fedtide.radio.channel import GilbertElliott

THREE = np.array([[0.8, 0.15, 0.05], [0.1, 0.6, 0.3], [0.02, 0.28, 0.7]])


@given(
    st.lists(st.integers(0, 2**45), min_size=1, max_size=12),
    st.lists(st.integers(0, 99), min_size=1, max_size=5),
    st.floats(0.001, 0.999),
    st.floats(0.001, 0.999),
)
@settings(max_examples=60)
def test_a_state_depends_on_its_address_alone(times: list[int], device: list[int], p: float, q: float) -> None:
    table, who = [[1 - p, p], [q, 1 - q]], np.array(device)
    whole = np.array([columns.markov(3, "x", who, time, table) for time in times])  # [times m]
    assert np.isin(whole, (0, 1)).all()
    assert np.array_equal(columns.markov(3, "x", who, np.array(times)[:, None], table), whole)  # all at once
    for column, k in enumerate(device):  # and one by one, in another order
        alone = [int(columns.markov(3, "x", np.array([k]), time, table)[0]) for time in times[::-1]]
        assert alone[::-1] == whole[:, column].tolist()


@pytest.mark.parametrize("table", [THREE, np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([[0.05, 0.95], [0.9, 0.1]])])
@pytest.mark.parametrize("begin", [0, 61, 2**40 + 13])
def test_steps_and_shares_are_those_of_the_table(table: np.ndarray, begin: int) -> None:
    """30,000 devices over 12 steps: every transition, also over borders of what is drawn together, and over several steps."""
    count, steps = len(table), 12
    path = np.array([columns.markov(1, "walk", np.arange(30_000), begin + s, table) for s in range(steps)])
    values, vectors = np.linalg.eig(table.T)
    stationary = np.real(vectors[:, np.argmax(np.real(values))])
    stationary = stationary / stationary.sum()
    for states in path:
        np.testing.assert_allclose(np.bincount(states, minlength=count) / 30_000, stationary, atol=0.015)
    for gap in (1, 2, 5):
        pairs = np.zeros((count, count))
        np.add.at(pairs, (path[:-gap].ravel(), path[gap:].ravel()), 1)
        found = pairs / pairs.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(found, np.linalg.matrix_power(table, gap), atol=0.015)
    # the future does not depend on the past, given the present: P(x2 | x0, x1) = P(x2 | x1)
    triples = np.zeros((count, count, count))
    np.add.at(triples, (path[:-2].ravel(), path[1:-1].ravel(), path[2:].ravel()), 1)
    given_both = triples / np.maximum(triples.sum(axis=2, keepdims=True), 1)
    for first in range(count):
        often = triples[first].sum(axis=1) > 3000
        np.testing.assert_allclose(given_both[first][often], table[often], atol=0.03)


def test_a_chain_that_is_none_is_one_line() -> None:
    for table, says in (
        ([[0.5, 0.6], [0.5, 0.5]], "every row sums to 1"),
        ([[0.5, 0.5]], "square table"),
        ([[0.0, 1.0], [1.0, 0.0]], "does not forget"),
        ([[1.0, 0.0], [0.0, 1.0]], "does not forget"),
    ):
        with pytest.raises(FedtideError, match=says):
            columns.markov(1, "x", np.arange(3), 5, table)


@pytest.mark.parametrize(("to_bad", "to_good"), [(0.1, 0.3), (0.02, 0.05), (0.6, 0.7)])
def test_the_share_of_bad_links_and_their_correlation_are_closed_forms(to_bad: float, to_good: float) -> None:
    channel, device = GilbertElliott(to_bad, to_good, bad_db=10.0, coverage=Equal(0.0, 1.0)), np.arange(20_000)
    bad = np.array([channel(5, tick, tick / 4, device) < 0.5 for tick in range(100, 121)], float)
    share = to_bad / (to_bad + to_good)
    assert bad.mean() == pytest.approx(share, abs=0.01)
    for gap in (1, 3, 10, 20):
        covariance = np.mean(bad[:-gap] * bad[gap:]) - bad[:-gap].mean() * bad[gap:].mean()
        assert covariance / (share * (1 - share)) == pytest.approx((1 - to_bad - to_good) ** gap, abs=0.03)
    assert {*np.unique(channel(5, 100, 25.0, device).round(9))} == {0.1, 1.0}


def test_by_time_a_step_is_the_same_whatever_the_tick() -> None:
    channel, device = GilbertElliott(step=0.5), np.arange(500)
    one = channel(1, 7, 10.2, device)
    assert np.array_equal(channel(1, 900, 10.4, device), one)
    assert not np.array_equal(channel(1, 7, 12.6, device), one)


def test_asked_late_it_costs_no_more_than_asked_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    usual = columns.uniform
    monkeypatch.setattr(columns, "uniform", lambda *args, **more: drawn.append(1) or usual(*args, **more))
    for tick in (1, 10**9):
        drawn.clear()
        columns.markov(1, "x", np.arange(3), tick, [[0.9, 0.1], [0.3, 0.7]])
        assert len(drawn) <= 9
