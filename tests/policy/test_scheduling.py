from __future__ import annotations

import numpy as np
import pytest

from fedtide.schedule import schedulers
from fedtide.schedule.schedulers import (
    SCHEDULERS,
    AgeBased,
    BestChannel,
    BestChannelBestNorm,
    BestOfRandomSubsets,
    Proposed,
    Random,
    _best_channels,
    scheduler_looks_back,
)
from fedtide.types import Selection
from helpers import make_candidates

RNG = np.random.default_rng


def picks(scheduler: object, candidates: object, limit: int) -> list[int]:
    answer = scheduler(candidates, limit, RNG(0))
    return sorted((answer.picked if isinstance(answer, Selection) else answer).tolist())


def test_best_channel_breaks_ties_by_device_number() -> None:
    assert picks(BestChannel(), make_candidates([1, 3, 2, 3, 3]), 2) == [1, 3]


def test_pool_is_half_of_the_fleet_not_of_the_ready() -> None:
    rows = make_candidates([5, 4, 3, 2, 1], num_devices=8)
    assert _best_channels(rows, 0.5, 1).tolist() == [0, 1, 2, 3]


def test_no_channel_selection_when_at_most_half_is_ready() -> None:
    rows = make_candidates([5, 4, 3, 2, 1], num_devices=10)
    assert _best_channels(rows, 0.5, 2).tolist() == [0, 1, 2, 3, 4]


def test_half_of_an_odd_fleet_is_rounded_down() -> None:
    assert _best_channels(make_candidates([5, 4, 3, 2, 1], num_devices=7), 0.5, 1).tolist() == [0, 1, 2]


def test_limit_above_half_of_the_fleet_widens_the_pool() -> None:
    counts = np.eye(6, dtype=np.int64)
    rows = make_candidates([6, 5, 4, 3, 2, 1], label_counts=counts, update_sq_norm=[1, 2, 3, 4, 5, 6], missed=range(6))
    for scheduler in (Proposed(), AgeBased(), BestChannelBestNorm(), BestOfRandomSubsets()):
        assert picks(scheduler, rows, 5) == [0, 1, 2, 3, 4]


def test_bcbn2_takes_the_largest_norms_of_the_best_channels() -> None:
    rows = make_candidates([9, 8, 7, 6, 1, 1], num_devices=8, update_sq_norm=[1, 4, 2, 4, 99, 99])
    assert picks(BestChannelBestNorm(), rows, 2) == [1, 3]
    assert picks(BestChannelBestNorm(), rows, 1) == [1]
    assert BestChannelBestNorm.needs == ("update_sq_norm",)


def test_age_based_takes_the_least_often_scheduled_of_the_best_channels() -> None:
    rows = make_candidates([9, 8, 7, 6, 1, 1], num_devices=8, missed=[3, 5, 5, 5, 9, 9])
    assert picks(AgeBased(), rows, 2) == [1, 2]


def test_data_importance_balances_labels_among_the_best_channels() -> None:
    counts = [[4, 0], [4, 0], [0, 4], [4, 0], [0, 4], [2, 2]]
    rows = make_candidates([9, 8, 7, 6, 1, 1], num_devices=8, label_counts=counts)
    answer = Proposed()(rows, 2, RNG(0))
    assert sorted(answer.picked.tolist()) == [0, 2]
    assert answer.proved_minimal is True


def test_random_takes_every_set_alike() -> None:
    rows = make_candidates([1] * 4)
    rng = RNG(0)
    seen: dict[tuple[int, ...], int] = {}
    for _ in range(3000):
        chosen = tuple(sorted(Random()(rows, 2, rng).tolist()))
        seen[chosen] = seen.get(chosen, 0) + 1
    assert len(seen) == 6
    assert all(count == pytest.approx(500, abs=100) for count in seen.values())


def test_best_of_random_subsets_is_not_better_than_the_minimum() -> None:
    counts = RNG(1).integers(0, 20, (12, 5))
    rows = make_candidates(np.arange(12) + 1, label_counts=counts)
    from fedtide.schedule.label_variance import label_variance

    exact = label_variance(counts[picks(Proposed(), rows, 4)])
    released = BestOfRandomSubsets()(rows, 4, RNG(0))
    assert exact <= label_variance(counts[released.picked])
    assert released.proved_minimal is False


@pytest.mark.parametrize(("name", "looks"), [("random", False), ("proposed", False), ("age_based", True)])
def test_who_looks_back_says_so(name: str, looks: bool) -> None:
    assert scheduler_looks_back(SCHEDULERS[name]()) is looks


def test_one_with_memory_looks_back() -> None:
    class Remembers:
        def init(self, num_devices: int) -> dict[str, np.ndarray]:
            return {"seen": np.zeros(num_devices)}

    assert scheduler_looks_back(Remembers())  # type: ignore[arg-type]


@pytest.mark.parametrize("small", [0, 1000])
def test_the_largest_are_those_of_a_stable_sort(monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    monkeypatch.setattr(schedulers, "SMALL", small)
    rng = np.random.default_rng(0)
    for number in range(500):
        value = rng.integers(-3, 3, int(rng.integers(0, 30)))
        if number % 2:
            value = np.where(rng.random(len(value)) < 0.2, rng.choice([np.nan, np.inf, -0.0]), value.astype(float))
        for count in range(len(value) + 2):
            wanted = np.argsort(-value, kind="stable")[:count]
            assert schedulers.schedule_largest(value, count).tolist() == wanted.tolist()
            assert schedulers._top(value, count).tolist() == sorted(wanted.tolist())
