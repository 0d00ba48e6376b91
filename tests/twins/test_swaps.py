"""Swaps in the extension against their twins, in NumPy and with m x m matrices; memory, overflow, what is refused."""

from __future__ import annotations

import itertools
import resource
import subprocess
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.extension import native
from fedtide.schedule import label_variance
from fedtide.schedule.label_variance import _centred, _manageable, _search, minimise_label_variance
from twins import dense_descent, swaps


def drawn(number: int, most_rows: int = 40) -> tuple[np.ndarray, int]:
    """Return counts with many ties or few, and how many rows to pick."""
    rng = np.random.default_rng(number)
    num_rows = int(rng.integers(3, most_rows))
    most = int(rng.choice([2, 3, 10, 600, 10**5]))
    counts = rng.integers(0, most, (num_rows, int(rng.integers(1, 12))))
    if number % 3 == 0:  # rows that come twice, three times, ...
        counts = counts[rng.integers(0, num_rows, num_rows)]
    return counts, int(rng.integers(1, num_rows))


@pytest.fixture(params=["native", "numpy"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "numpy":
        monkeypatch.setattr(label_variance, "native", swaps)
    return str(request.param)


def test_the_same_sets_as_with_matrices(path: str) -> None:
    for number in range(400 if path == "native" else 120):
        counts, size = drawn(number)
        theirs, value = dense_descent.descend(_centred(counts).astype(float), size, np.random.default_rng(number))
        for enough in (-1, 0):
            ours, reached = _search(counts, size, np.random.default_rng(number), 96, enough)
            assert ours.tolist() == theirs.tolist(), number
            assert reached == value
            assert ours.dtype == np.int64


@pytest.mark.parametrize(("num_rows", "size"), [(50, 30), (200, 20), (500, 200)])
def test_the_same_sets_at_the_sizes_of_experiments(path: str, num_rows: int, size: int) -> None:
    counts = np.random.default_rng(size).integers(0, 60, (num_rows, 10))
    ours, _ = _search(counts, size, np.random.default_rng(1), 96, 0)
    theirs, _ = dense_descent.descend(_centred(counts).astype(float), size, np.random.default_rng(1))
    assert ours.tolist() == theirs.tolist()


def test_the_draws_are_those_of_always() -> None:
    """What comes after them is not shifted, and the first starts do not depend on how many there are."""
    counts = np.random.default_rng(0).integers(0, 99, (40, 10))
    ours, theirs = np.random.default_rng(5), np.random.default_rng(5)
    _search(counts, 20, ours, 96, 0)
    theirs.random((96, 40))
    assert ours.random() == theirs.random()


def test_large_numbers_are_whole_numbers(path: str) -> None:
    """Beyond 2^53 a double could not tell these sets apart."""
    rng = np.random.default_rng(2)
    small = rng.integers(0, 5, (14, 3))
    counts = 10**7 * small + rng.integers(0, 2, (14, 3))
    assert 9 * int(counts.max()) ** 2 > 2**53
    picked, reached = _search(counts, 5, np.random.default_rng(0), 96, 0)
    total = [int(each) for each in _centred(counts)[picked].sum(axis=0)]
    assert reached == sum(each**2 for each in total)
    for out, into in itertools.product(picked.tolist(), set(range(14)) - set(picked.tolist())):
        row = [int(each) for each in _centred(counts)[into] - _centred(counts)[out]]
        assert sum((a + b) ** 2 for a, b in zip(total, row, strict=True)) >= reached


def test_what_would_overflow_is_halved_and_nothing_is_proved_of_it() -> None:
    rng = np.random.default_rng(0)
    small = rng.integers(0, 50, (40, 10))
    for factor in (1, 10**6, 10**13):
        counts, coarse = _manageable(small * factor, 20)
        assert coarse == (factor > 1000)
        widest = int(counts.max())
        assert 4 * 10 * (22 * 10 * widest) ** 2 < 2**62
    balanced = np.array([[1, 0], [0, 1]] * 20) * 10**13
    picked, proved = minimise_label_variance(balanced, 20, np.random.default_rng(0))
    assert balanced[picked].sum(axis=0).tolist() == [10**14] * 2
    assert proved is False
    assert minimise_label_variance(balanced // 10**13, 20, np.random.default_rng(0))[1] is True


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"size": 0}, "size is 0"),
        ({"size": 5}, "size is 5, and there are 5 rows"),
        ({"starts": np.zeros((1, 4), bool)}, "another number of rows"),
        ({"starts": np.zeros((1, 5), bool)}, "start 0 does not hold size rows"),
        ({"centred": np.full((5, 2), 1 << 40)}, "leave the range of whole numbers"),
        ({"centred": np.full((5, 2), -(1 << 63))}, "leave the range of whole numbers"),
    ],
)
def test_the_extension_refuses(changes: dict[str, Any], says: str) -> None:
    given = {"centred": np.ones((5, 2), np.int64), "size": 2, "starts": np.zeros((0, 5), bool), "enough": 0}
    with pytest.raises(ValueError, match=says):
        native.descend(**{**given, **changes})


# --- many candidates -------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([8, 16]), st.integers(0, 200), st.integers(2, 20))
def test_sampled_swaps_are_the_same_compiled_and_in_numpy(seed: int, block: int, visits: int, kept: int) -> None:
    counts, size = drawn(seed, 90)
    rows = _centred(counts)
    ours, reached = native.sample(rows, size, 0, block, visits, kept)
    theirs, value = swaps.sample(rows, size, 0, block, visits, kept)
    assert (ours.tolist(), reached) == (theirs.tolist(), value)
    assert len(set(ours.tolist())) == size
    assert int((rows[ours].sum(axis=0) ** 2).sum()) == reached
    assert reached <= int((rows[:size].sum(axis=0) ** 2).sum())


def test_nobody_is_swapped_twice_in_a_pair() -> None:
    """With one member or two, nearly all swaps that are kept speak of the same ones."""
    for seed in range(300):
        rows = _centred(np.random.default_rng(seed).integers(0, 60, (30, 2)))
        for size in (1, 2, 28):
            ours, reached = native.sample(rows, size, 0, 8, 120, 9)
            theirs, value = swaps.sample(rows, size, 0, 8, 120, 9)
            assert (ours.tolist(), reached) == (theirs.tolist(), value)
            assert len(set(ours.tolist())) == size
            assert int((rows[ours].sum(axis=0) ** 2).sum()) == reached


def test_pairs_of_swaps_find_what_single_ones_do_not() -> None:
    better = 0
    for seed in range(20):
        rows = _centred(np.random.default_rng(seed).integers(0, 60, (40, 3)))
        alone = swaps.sample(rows, 9, 0, 8, 300, 10**6)[1]
        together = swaps.sample(rows, 9, 0, 8, 300, 30)[1]
        assert together <= alone
        better += together < alone
    assert better > 5


def many(num_rows: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    counts = np.zeros((num_rows, 10), np.int64)
    for column in rng.integers(0, 10, (2, num_rows)):
        counts[np.arange(num_rows), column] += 30
    return counts


def test_half_a_million_candidates(path: str) -> None:
    counts = many(500_000)
    tracemalloc.start()
    picked, proved = minimise_label_variance(counts, 1000, np.random.default_rng(1))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * counts.nbytes
    assert proved
    assert label_variance.label_variance(counts[picked]) == 0
    assert len(np.unique(picked)) == 1000
    assert np.all(np.diff(picked) > 0)
    again, _ = minimise_label_variance(counts, 1000, np.random.default_rng(1))
    assert again.tolist() == picked.tolist()


GROWTH = """
import resource, sys
import numpy as np
from fedtide.schedule.label_variance import minimise_label_variance
counts = np.random.default_rng(0).integers(0, 30, (int(sys.argv[1]), 10))
minimise_label_variance(counts[:100], 50, np.random.default_rng(0))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
minimise_label_variance(counts, int(sys.argv[2]), np.random.default_rng(0))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize(("num_rows", "size", "most"), [(8000, 40, 100), (23_170, 10, 150), (200_000, 500, 200)])
def test_no_matrix_of_all_pairs(num_rows: int, size: int, most: int) -> None:
    """8,000^2 doubles would be 512 MB, and 23,170^2 of them 4.3 GB. most: MB that it may take."""
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, str(num_rows), str(size)], capture_output=True, text=True, check=True
    )
    unit = 1 if sys.platform == "darwin" else 1024
    assert resource.RUSAGE_SELF == 0
    assert int(done.stdout) * unit < most * 10**6


def test_one_row_more_and_they_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = np.random.default_rng(0).integers(0, 9, (30, 4))
    before = _search(counts, 12, np.random.default_rng(0), 96, 0)[0]
    monkeypatch.setattr(label_variance, "MOST_ROWS", 29)
    asked = []
    monkeypatch.setattr(label_variance, "_sampled", lambda *given: asked.append(given[1]) or (before, 0))
    _search(counts, 12, np.random.default_rng(0), 96, 0)
    assert asked == [12]
