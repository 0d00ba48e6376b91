"""Columns and tables that are changed at the cost of the change, and stay as they were."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedtide
from fedtide.core import versioned
from fedtide.core.versioned import VersionedArray, VersionedDict, versioned_array, versioned_counts, versioned_dict
from helpers import FakeTrainer, small, small_dataset


@given(st.integers(1, 40), st.lists(st.integers(0, 2**32), max_size=12), st.data())
def test_every_column_is_what_a_copy_would_be(size: int, seeds: list[int], data: st.DataObject) -> None:
    slow, fast = [np.ones(size, np.int64)], [VersionedArray(np.ones(size, np.int64))]
    counted = data.draw(st.booleans())
    if counted:
        assert fast[0].tally == {1: size}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        at = data.draw(st.sampled_from([len(fast) - 1] * 3 + list(range(len(fast)))))  # the newest, or an earlier one
        index = rng.permutation(size)[: rng.integers(0, size + 1)]
        values = rng.integers(0, 5, len(index)) if seed % 2 else int(rng.integers(0, 5))
        copy = slow[at].copy()
        copy[index] = values
        slow.append(copy)
        fast.append(fast[at].put(index, values))
        if data.draw(st.booleans()):  # whoever looks changes nothing
            assert fast[at].tolist() == slow[at].tolist()
    for one, other in zip(fast, slow, strict=True):
        assert len(one) == size
        assert one.tally == Counter(other.tolist())
        assert one.tolist() == other.tolist()
        np.testing.assert_array_equal(np.asarray(one), other)
        np.testing.assert_array_equal(one[other > 1], other[other > 1])


@given(
    st.lists(
        st.tuples(st.dictionaries(st.integers(0, 9), st.integers()), st.sets(st.integers(0, 9)), st.integers(0, 99))
    )
)
def test_every_table_is_what_a_copy_would_be(steps: list[tuple[dict[int, int], set[int], int]]) -> None:
    slow: list[dict[int, int]] = [{1: 0}]
    fast = [VersionedDict({1: 0})]
    for put, drop, where in steps:
        at = len(fast) - 1 if where % 3 else where % len(fast)
        slow.append({key: value for key, value in (slow[at] | put).items() if key not in drop - {*put}})
        fast.append(fast[at].after(put, drop - {*put}))
    for one, other in zip(fast, slow, strict=True):
        assert dict(one) == {**one} == other
        assert len(one) == len(other)


def test_what_is_looked_at_is_not_what_is_kept() -> None:
    mine = VersionedArray(np.arange(5))
    for seen in (mine[:], mine[np.array([0, 1])], np.asarray(mine), np.array(mine)):
        seen[0] = 99
    assert mine.tolist() == [0, 1, 2, 3, 4]
    assert versioned_array(mine) is mine
    assert versioned_array(np.arange(3)).tolist() == [0, 1, 2]
    known = VersionedDict({1: 2})
    assert versioned_dict(known) is known


def test_an_interrupted_change_leaves_the_earlier_one_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = VersionedArray(np.array([1, 1, 2, 3]))
    assert mine.tally == {1: 2, 2: 1, 3: 1}

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(versioned, "_recount", stop)
    with pytest.raises(KeyboardInterrupt):
        mine.put(np.array([0, 2]), 7)
    monkeypatch.undo()
    assert mine.tolist() == [1, 1, 2, 3]
    assert mine.put(np.array([0, 2]), 7).tally == {7: 2, 1: 1, 3: 1}


@given(st.lists(st.integers(-3, 10**6), max_size=60), st.integers(1, 10**6))
def test_counts(values: list[int], modulus: int) -> None:
    values = [each % modulus for each in values]
    assert versioned_counts(np.array(values, np.int64)) == Counter(values)


def test_a_change_costs_nothing_that_grows_with_the_column() -> None:
    index, peaks = np.array([3, 5]), []
    for size in (1_000, 1_000_000):
        mine = VersionedArray(np.ones(size, np.int64))
        assert mine.tally == {1: size}
        mine = mine.put(index, 2)
        tracemalloc.start()
        for version in range(3, 8):
            mine = mine.put(index, version)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0] + 1_000


@pytest.mark.parametrize("timeline", [{}, {"name": "buffered", "buffer_size": 2}])
def test_a_run_holds_no_more_models_the_longer_it_is(timeline: dict[str, Any]) -> None:
    experiment, size, used = small(timeline={"horizon": 60.0} | timeline), 20_000, []
    tracemalloc.start()
    fedtide.simulate(
        experiment,
        dataset=small_dataset(),
        trainer=FakeTrainer(size),
        on_round=lambda *_: used.append(tracemalloc.get_traced_memory()[0]),
    )
    tracemalloc.stop()
    early, late = len(used) // 3, len(used) - 2
    assert late - early >= 20
    assert (
        used[late] - used[early] < 4 * size * (late - early) / 5
    )  # bytes; versions that somebody trains from are kept
