from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedtide.schedule import label_variance
from fedtide.schedule.label_variance import minimise_label_variance


def omega(rows: np.ndarray) -> Fraction:
    total = [int(each) for each in rows.sum(axis=0)]
    mean = Fraction(sum(total), len(total))
    return sum(((each - mean) ** 2 for each in total), Fraction(0))


@st.composite
def problems(draw: st.DrawFn, most_rows: int = 9) -> tuple[np.ndarray, int]:
    shape = draw(st.tuples(st.integers(1, most_rows), st.integers(1, 5)))
    counts = draw(hnp.arrays(np.int64, shape, elements=st.integers(0, draw(st.sampled_from([1, 3, 600])))))
    return counts, draw(st.integers(1, shape[0]))


@settings(max_examples=200)
@given(problems())
def test_exact_and_first_among_equals(problem: tuple[np.ndarray, int]) -> None:
    counts, size = problem
    best = min(itertools.combinations(range(len(counts)), size), key=lambda rows: omega(counts[list(rows)]))
    picked, proved = minimise_label_variance(counts, size, np.random.default_rng(0))
    assert picked.tolist() == list(best)
    assert proved


@pytest.mark.parametrize(("num_rows", "size"), [(50, 2), (50, 49), (200, 2), (200, 198), (70, 3)])
def test_few_subsets_of_a_large_fleet_are_enumerated(num_rows: int, size: int) -> None:
    counts = np.random.default_rng(num_rows).integers(0, 9, (num_rows, 4))
    picked, proved = minimise_label_variance(counts, size, np.random.default_rng(0))
    assert proved
    totals = counts.sum(axis=0)
    left_out = min(size, num_rows - size)
    sets = itertools.combinations(range(num_rows), left_out)
    sums = (
        counts[list(rows)].sum(axis=0) if left_out == size else totals - counts[list(rows)].sum(axis=0) for rows in sets
    )
    least = min(4 * int((each**2).sum()) - int(each.sum()) ** 2 for each in sums)  # 4 Omega
    assert 4 * omega(counts[picked]) == least
    assert len(set(picked.tolist())) == size


def test_a_tie_everywhere_takes_the_first_rows() -> None:
    assert minimise_label_variance(np.ones((12, 10), np.int64), 5, np.random.default_rng(0))[0].tolist() == [
        0,
        1,
        2,
        3,
        4,
    ]


@settings(max_examples=40)
@given(problems(most_rows=9), st.integers(0, 2**32))
def test_descent_is_valid_never_worse_than_greedy_and_proves_only_what_is_true(
    problem: tuple[np.ndarray, int], seed: int
) -> None:
    counts, size = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_variance, "ENUMERATION_LIMIT", 0)
        picked, proved = minimise_label_variance(counts, size, np.random.default_rng(seed))
    assert len(picked) == size
    assert np.all(np.diff(picked) > 0)
    assert picked.min() >= 0
    assert picked.max() < len(counts)
    reached = omega(counts[picked])
    greedy: list[int] = []
    for _ in range(size):
        rest = [row for row in range(len(counts)) if row not in greedy]
        greedy.append(min(rest, key=lambda row: omega(counts[[*greedy, row]])))
    assert reached <= omega(counts[greedy])
    for out in picked.tolist():  # no swap makes it better
        for into in set(range(len(counts))) - set(picked.tolist()):
            assert reached <= omega(counts[[*(row for row in picked.tolist() if row != out), into]])
    if proved:
        least = min(omega(counts[list(rows)]) for rows in itertools.combinations(range(len(counts)), size))
        assert reached == least


def test_nothing_is_proved_where_devices_hold_different_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """[1, 0] alone reaches the least that a total of 1 allows, but [1, 1] is better."""
    monkeypatch.setattr(label_variance, "ENUMERATION_LIMIT", 0)
    monkeypatch.setattr(label_variance, "_search", lambda *_: (np.array([0]), 2))
    assert minimise_label_variance(np.array([[1, 0], [1, 1]]), 1, np.random.default_rng(0))[1] is False
    assert minimise_label_variance(np.array([[1, 0], [0, 1]]), 1, np.random.default_rng(0))[1] is True


def test_descent_repeats_with_the_same_stream_and_does_well_where_all_cannot_be_tried() -> None:
    rng = np.random.default_rng(3)
    counts = rng.integers(0, 300, (50, 10))  # nothing comes out even, so the descent has work to do
    one, proved = minimise_label_variance(counts, 30, np.random.default_rng(1))
    other, _ = minimise_label_variance(counts, 30, np.random.default_rng(1))
    assert one.tolist() == other.tolist()
    assert proved == (omega(counts[one]) == 0)
    for out in one.tolist():  # no swap makes it better
        kept = counts[one].sum(axis=0) - counts[out]
        assert all(omega((kept + counts[into])[None]) >= omega(counts[one]) for into in range(50) if into not in one)
    random = min(omega(counts[rng.permutation(50)[:30]]) for _ in range(300))
    assert omega(counts[one]) < random


def test_label_variance_is_omega() -> None:
    counts = np.array([[3, 0, 1], [0, 5, 2]])
    assert label_variance.label_variance(counts) == pytest.approx(float(omega(counts)))
    assert label_variance.label_variance(counts[:0]) == 0


def test_thousands_of_candidates_fit_in_memory():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 50, (1500, 10))
    picked, _ = minimise_label_variance(counts, 700, rng)
    assert len(np.unique(picked)) == 700
    assert label_variance.label_variance(counts[picked]) < label_variance.label_variance(counts[:700])
