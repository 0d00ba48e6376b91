"""The oracle's search, where the best set is known by looking at all of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.schedule.oracle import Oracle
from fedtide.types import Candidates, Selection
from helpers import make_candidates

# Three devices' updates on a line. From 0 the best model is at 1: nobody alone leads there, 0 and 2 together do.
MOVES, TARGET = np.array([4.0, 0.6, -2.0]), 1.0


def asked(loss: Any, count: int) -> tuple[Candidates, list[tuple[int, ...]]]:
    """Return candidates whose outcomes are loss(set), and the list of the sets that were asked for."""
    seen: list[tuple[int, ...]] = []

    def outcome(answers: Sequence[Any]) -> Any:
        seen.extend(tuple(each.tolist()) for each in answers)
        return np.array([loss(tuple(each.tolist())) for each in answers], np.float64)

    return make_candidates(np.ones(count))._replace(outcome=outcome), seen


def on_a_line(subset: tuple[int, ...]) -> float:
    return float((MOVES[list(subset)].mean() - TARGET) ** 2) if subset else TARGET**2


def search(rows: Candidates, limit: int, **args: Any) -> Selection:
    return Oracle(**args)(rows, limit, np.random.default_rng(0))


def every_set(count: int, sizes: range) -> list[tuple[int, ...]]:
    return [each for size in sizes for each in itertools.combinations(range(count), size)]


def test_one_by_one_stops_where_two_would_be_better() -> None:
    rows, _ = asked(on_a_line, 3)
    assert search(rows, 2, search="greedy").picked.tolist() == [1]
    found = search(rows, 2, search="exchange", passes=3)
    assert on_a_line(tuple(found.picked.tolist())) <= on_a_line((1,))
    assert search(rows, 2, search="beam", width=3).picked.tolist() == [0, 2]
    assert search(rows, 2, search="beam", width=3).metrics["held_out_loss"] == 0.0


def test_an_exchange_undoes_what_was_best_at_first() -> None:
    worth = {(0,): 3.0, (1,): 4.0, (2,): 4.0, (0, 1): 2.0, (0, 2): 2.5, (1, 2): 0.0}
    rows, _ = asked(worth.__getitem__, 3)
    assert search(rows, 2, search="greedy").picked.tolist() == [0, 1]
    assert search(rows, 2, search="exchange").picked.tolist() == [1, 2]


def test_nobody_uploads_only_if_that_is_allowed() -> None:
    rows, _ = asked(len, 4)
    assert search(rows, 3).picked.tolist() == [0]  # of equals the lower device
    assert search(rows, 3, fewest=0).picked.tolist() == []
    assert len(search(rows, 3, fewest=3).picked) == 3
    assert len(search(rows, 3, fewest=9).picked) == 3


@pytest.mark.parametrize("method", ["greedy", "exchange", "beam"])
def test_no_set_is_asked_for_twice(method: str) -> None:
    rows, seen = asked(lambda subset: (hash(subset) % 97) / 97, 7)
    found = search(rows, 4, search=method, passes=9)
    assert len(seen) == len(set(seen)) == found.metrics["sets_tried"]


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 6), st.integers(0, 3))
def test_a_beam_of_full_width_finds_the_best_of_all(seed: int, count: int, limit: int, fewest: int) -> None:
    sizes = range(min(fewest, limit, count), min(limit, count) + 1)
    sets = every_set(count, range(min(limit, count) + 1))
    coarse = np.random.default_rng(seed).integers(0, 9, len(sets))  # with ties
    worth = dict(zip(sets, coarse.tolist(), strict=True))
    rows, _ = asked(worth.__getitem__, count)
    args = {"width": 1000, "fewest": fewest}
    best = min(worth[each] for each in every_set(count, sizes))
    found = {name: search(rows, limit, search=name, **args) for name in ("greedy", "exchange", "beam")}
    losses = {name: each.metrics["held_out_loss"] for name, each in found.items()}
    assert losses["beam"] == best
    assert best <= losses["exchange"] <= losses["greedy"]
    for each in found.values():
        assert worth[tuple(each.picked.tolist())] == each.metrics["held_out_loss"]
        assert len(each.picked) in sizes


def test_an_infinite_loss_is_chosen_last() -> None:
    rows, _ = asked(lambda subset: np.inf if 0 in subset else 1.0, 3)
    assert search(rows, 2).picked.tolist() == [1]
