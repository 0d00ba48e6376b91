"""The certified search: against all subsets, its bounds, its limits, the same answer always, and what is recorded of it."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedtide
from fedtide.engine.step import Policy, plan_step
from fedtide.errors import FedtideError, TrainingError
from fedtide.extension import native
from fedtide.schedule import label_variance
from fedtide.schedule.label_variance import Certified, _centred, _rounding, _separation, certify_label_variance
from fedtide.schedule.schedulers import Proposed
from fedtide.types import Candidates, Selection
from twins import dense_descent


def scaled(counts: np.ndarray, rows: Any) -> int:
    """Return c^2 Omega in Python's whole numbers."""
    total = [int(each) for each in counts[list(rows)].sum(axis=0)]
    return len(total) * (len(total) * sum(each**2 for each in total) - sum(total) ** 2)


def least_of_all(counts: np.ndarray, size: int) -> int:
    return min(scaled(counts, rows) for rows in itertools.combinations(range(len(counts)), size))


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Few rows, of all kinds: ties, equal totals, labels that are rare, counts with a common divisor."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    num_rows, num_labels = draw(st.integers(3, 12)), draw(st.integers(1, 6))
    kind = draw(st.sampled_from(["any", "ties", "equal", "rare", "common", "huge", "shards"]))
    most = {"ties": 2, "huge": 3_000_000}.get(kind, 60)
    counts = rng.integers(0, most, (num_rows, num_labels))
    if kind == "equal":
        counts = rng.multinomial(60, rng.dirichlet([0.4] * num_labels, num_rows))
    if kind == "rare":
        counts[1:, 0] = 0
    if kind == "common":
        counts *= 7
    if kind == "shards":  # two each, of which one or two straddle two labels
        counts = 30 * rng.multinomial(2, [1 / num_labels] * num_labels, num_rows)
        for row in rng.integers(0, num_rows, 2) if num_labels > 1 else []:
            counts[row] = np.bincount([int(counts[row].argmax())] * 57 + [0, 1, 1], minlength=num_labels)
    return counts, draw(st.integers(1, num_rows - 1))


@settings(max_examples=250, deadline=None)
@given(problems(), st.integers(0, 2**32), st.sampled_from([0, 10, 200, 10**6]))
def test_the_bound_is_one_and_with_steps_enough_the_set_is_the_best(
    problem: tuple[np.ndarray, int], seed: int, steps: int
) -> None:
    counts, size = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_variance, "ENUMERATION_LIMIT", 0)
        found = certify_label_variance(counts, size, np.random.default_rng(seed), steps)
    least = least_of_all(counts, size)
    labels = counts.shape[1]
    assert len(found.picked) == size
    assert np.all(np.diff(found.picked) > 0)
    assert found.reached == scaled(counts, found.picked) / labels**2
    assert found.bound <= least / labels**2 <= found.reached
    assert found.gap == math.sqrt(found.reached / labels) - math.sqrt(found.bound / labels) >= 0
    assert found.proved == (found.bound == found.reached)
    if steps == 10**6:
        assert found.reached == least / labels**2
        # of millions of samples the bound is rounded down by more than the last digits that tell it from the best set
        assert found.proved or (counts.max() > 10**5 and found.bound > (1 - 1e-6) * found.reached)


def tree(
    counts: np.ndarray, size: int, reached: int, enough: int = 0, steps: int = 10**7
) -> tuple[list[int], int, int]:
    picked, least, bound, taken = native.branch(_centred(counts), size, reached, enough, steps)
    assert 0 <= taken <= steps
    return picked.tolist(), least, bound


@settings(max_examples=250, deadline=None)
@given(problems())
def test_the_tree_finds_the_least_by_itself(problem: tuple[np.ndarray, int]) -> None:
    counts, size = problem
    worst = max(scaled(counts, rows) for rows in itertools.combinations(range(len(counts)), size))
    least = least_of_all(counts, size)
    picked, reached, bound = tree(counts, size, worst + 1)
    assert (reached, bound) == (least, least)
    assert scaled(counts, picked) == least
    assert tree(counts, size, least) == ([], least, least)  # nothing is below, and that is proved


def test_the_tree_with_few_steps_proves_a_part() -> None:
    """Rising limits: what is proved grows with the steps, and is never too much."""
    counts = np.random.default_rng(0).multinomial(600, np.random.default_rng(1).dirichlet([0.1] * 10, 26))
    least = least_of_all(counts[:18], 9)
    bounds = [tree(counts[:18], 9, least, 0, steps)[2] for steps in (1, 30, 300, 1000, 3000, 10**6)]
    assert bounds[0] < bounds[-1] == least
    assert all(bound <= least for bound in bounds)
    assert any(0 < bound < least for bound in bounds)


@pytest.mark.parametrize(("num_rows", "size", "alpha"), [(50, 30, 0.5), (40, 8, 5.0), (60, 50, 0.2), (90, 40, 0.5)])
def test_never_worse_than_two_hundred_descents(num_rows: int, size: int, alpha: float) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        counts = rng.multinomial(600, rng.dirichlet([alpha] * 10, num_rows))
        rows = _centred(counts).astype(float)
        for restarts in (96, 200):
            _, value = dense_descent.descend(rows, size, np.random.default_rng(seed), restarts)
            assert certify_label_variance(counts, size, np.random.default_rng(seed)).reached <= value / 100


def test_label_shards_are_proved_by_rounding_alone() -> None:
    rng = np.random.default_rng(0)
    counts = np.zeros((50, 10), np.int64)
    for column in rng.permutation(np.repeat(np.arange(10), 10)).reshape(2, 50):
        counts[np.arange(50), column] += 300
    found = certify_label_variance(counts, 30, rng, 0)
    assert (found.proved, found.reached, found.bound) == (True, 0, 0)
    straddling = counts.copy()
    straddling[7] = [0, 0, 0, 290, 10, 300, 0, 0, 0, 0]
    straddling[9] = [0, 0, 0, 0, 0, 0, 0, 4, 296, 300]
    assert _rounding(straddling, 30) == 0  # without these two
    odd = certify_label_variance(counts, 27, rng, 0)  # 54 shards on 10 labels: four labels have one more
    assert odd.proved
    assert odd.reached == odd.bound == 300**2 * 4 * 6 / 10


@settings(max_examples=200, deadline=None)
@given(problems())
def test_rounding_and_separation_are_below_every_set(problem: tuple[np.ndarray, int]) -> None:
    counts, size = problem
    least = least_of_all(counts, size)
    assert 0 <= _rounding(counts, size) <= least
    assert 0 <= _separation(_centred(counts), size) <= least


def test_rounding_with_unequal_totals() -> None:
    """Totals of 0 or 5 modulo 10: three rows have 0 or 5, so the least is that of 0, but not where 5 is all there is."""
    both = np.array([[4, 1, *[0] * 8]] * 4 + [[7, 3, *[0] * 8]] * 4)
    assert _rounding(both, 3) == 0
    assert _rounding(both[:5], 4) == 0
    assert _rounding(both[[0, 5, 6, 7]], 4) == 10 * 5 * 5
    five = np.array([[5 + 1, *[0] * 8, 9], [4, 1, *[0] * 8], [3, 2, *[0] * 7, 10], [25, *[0] * 9]])
    assert [int(each) % 10 for each in five.sum(axis=1)] == [5, 5, 5, 5]
    assert _rounding(five, 3) == 10 * 5 * 5
    assert _rounding(five, 2) == 0
    few = np.array([[1, 0], [1, 1], [3, 0], [0, 5]])  # one even total: two rows of the odd ones make an even total
    assert _rounding(few, 2) == 0
    assert _rounding(few[[0, 2, 3]], 1) == 2
    assert _rounding(np.zeros((5, 3), np.int64), 2) == 0


def test_a_rare_label_is_told_by_separation() -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(20, 40, (50, 10))
    counts[:, 3] = 0
    found = certify_label_variance(counts, 30, rng)
    assert found.bound > 0.99 * found.reached
    assert found.gap < 1


def test_the_same_answer_on_every_machine_and_with_other_draws_another() -> None:
    """Whole numbers, and IEEE arithmetic that no compiler contracts: the steps run out at the same node everywhere."""
    counts = np.random.default_rng(3).integers(0, 300, (50, 10))
    counts[:, 0] = 3 * counts[:, 0] // 4

    def answer(seed: int) -> tuple[str, float, float]:
        found = certify_label_variance(counts, 30, np.random.default_rng(seed), 3000)
        return " ".join(map(str, found.picked.tolist())), found.reached, found.bound

    assert answer(1) == answer(1) == (PICKED, REACHED, BOUND)
    even = np.random.default_rng(3).integers(0, 300, (50, 10))
    assert len({certify_label_variance(even, 30, np.random.default_rng(seed), 0).reached for seed in range(4)}) > 1


PICKED = "0 1 2 3 4 5 6 7 9 10 14 15 17 19 20 22 25 26 27 28 29 30 35 36 40 42 43 44 47 48"
REACHED, BOUND = 134422.4, 117673.3


def test_more_steps_are_never_worse() -> None:
    counts = np.random.default_rng(4).integers(0, 300, (40, 10))
    found = [
        certify_label_variance(counts, 12, np.random.default_rng(0), steps)
        for steps in (0, 10_000, 400_000, 30_000_000)
    ]
    reached = [each.reached for each in found]
    assert reached == sorted(reached, reverse=True)
    assert [each.proved for each in found] == [False, False, False, True]


def test_what_would_overflow_has_no_bound() -> None:
    counts = np.random.default_rng(0).integers(0, 300, (50, 10)) * 10**12
    found = certify_label_variance(counts, 30, np.random.default_rng(0))
    assert (found.bound, found.proved) == (0, False)
    assert found.reached == pytest.approx(scaled(counts, found.picked) / 100)


def test_many_candidates() -> None:
    counts = np.random.default_rng(0).multinomial(60, [0.1] * 10, 60_000)
    found = certify_label_variance(counts, 500, np.random.default_rng(0))
    assert found.proved
    assert found.reached == 0
    rare = counts.copy()
    rare[:, 0] = 0
    found = certify_label_variance(rare, 500, np.random.default_rng(0))
    assert 0.9 * found.reached < found.bound <= found.reached


# --- the scheduler and the record ------------------------------------------------------------------------------------


def candidates(counts: np.ndarray) -> Candidates:
    m = len(counts)
    zeros = np.zeros(m, np.int64)
    return Candidates(m, np.arange(m), counts.sum(axis=1), counts, zeros, zeros, np.arange(1.0, m + 1))


def test_the_scheduler_says_gap_and_bound_only_if_it_is_asked_to() -> None:
    rows = candidates(np.random.default_rng(0).integers(0, 300, (50, 10)))
    plain = Proposed(pool_share=1.0)(rows, 30, np.random.default_rng(0))
    assert plain.metrics == {}
    asked = Proposed(1.0, "certified", 1000)(rows, 30, np.random.default_rng(0))
    found: Certified = certify_label_variance(rows.label_counts, 30, np.random.default_rng(0), 1000)
    assert asked.metrics == {"label_variance_bound": found.bound, "label_gap": found.gap}
    assert asked.proved_minimal is False
    assert asked.picked.tolist() == found.picked.tolist()
    assert label_variance.label_variance(rows.label_counts[asked.picked]) <= label_variance.label_variance(
        rows.label_counts[plain.picked]
    )


@pytest.mark.parametrize("metrics", [None, 3, {"gap": math.nan}, {"gap": "much"}, {"gap": True}, {3: 1.0}])
def test_metrics_of_a_scheduler_are_checked(metrics: Any) -> None:
    rows = candidates(np.ones((4, 2), np.int64))
    policy: Any = Policy(lambda *_: Selection(np.array([0]), None, metrics), 2, None, None)
    with pytest.raises(TrainingError, match=r"said metrics.*finite numbers by name"):
        plan_step(policy, rows, 10.0, np.random.default_rng(0))


SMALL = {
    "data": {"name": "synthetic", "num_train": 400, "num_test": 20, "partition": "iid"},
    "fleet": {"num_devices": 60},
    "policy": {"limit": 12, "scheduler": {"pool_share": 1.0}},
    "timeline": {"horizon": 1.0},
    "learning": {"local_epochs": 1, "model": "softmax"},
}


def rounds(folder: Path, scheduler_args: dict[str, Any]) -> list[dict[str, Any]]:
    experiment = fedtide.experiment({**SMALL, "policy": {"limit": 12, "scheduler": scheduler_args}})
    fedtide.simulate(experiment, folder)
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def test_the_record_has_them(tmp_path: Path) -> None:
    plain = rounds(tmp_path / "swaps", {"pool_share": 1.0})
    sure = rounds(tmp_path / "certified", {"pool_share": 1.0, "search": "certified", "time_limit": 1000})
    assert all(each["metrics"] == {} for each in plain)
    picked = [each for each in sure if each["picked"]]
    assert picked
    for each in picked:
        assert set(each["metrics"]) == {"label_variance_bound", "label_gap"}
        assert each["metrics"]["label_variance_bound"] <= each["label_variance"] * (1 + 1e-12)
        assert each["proved_minimal"] == (each["metrics"]["label_gap"] == 0)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"search": "best"}, "search='best'"),
        ({"time_limit": -1}, "time_limit=-1"),
        ({"time_limit": 0.5}, "time_limit=0.5"),
    ],
)
def test_bad_arguments(args: dict[str, Any], says: str) -> None:
    with pytest.raises(FedtideError, match=says):
        fedtide.plan(fedtide.experiment({**SMALL, "policy": {"scheduler": args}}))


def test_the_default_search() -> None:
    assert label_variance.CERTIFIED_RESTARTS >= label_variance.SWAP_RESTARTS
    assert Proposed() == Proposed(0.5, "swaps", label_variance.STEPS)
