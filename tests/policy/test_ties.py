"""Equal scores: schedulers whose scores are often equal draw lots; the paper's keep to the lower device number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedtide.rng import stream
from fedtide.schedule.baselines import DriftPlusPenalty, WhittleAge
from fedtide.schedule.schedulers import AgeBased, BestChannel, schedule_largest_by_lot
from helpers import make_candidates

N, R, TICKS = 40, 8, 140


def uploads_of(scheduler: Any, seed: int) -> np.ndarray:
    """Return how often each device is picked [N]; all hold equally much, a device is ready every few ticks."""
    every = np.random.default_rng(seed).integers(1, 5, N)
    memory, uploads = scheduler.init(N), np.zeros(N, np.int64)
    for tick in range(1, TICKS + 1):
        ready = np.flatnonzero(tick % every == 0)
        rows = make_candidates(np.full(len(ready), 3.0), num_devices=N)
        rows = rows._replace(device=ready, tick=tick, missed=tick - uploads[ready])
        picked, memory = scheduler(memory, rows, R, stream(seed, "schedule", tick))
        uploads[ready[picked]] += 1
    return uploads - np.array([uploads[every == each].mean() for each in every])  # beyond those that are ready as often


@pytest.mark.parametrize("scheduler", [WhittleAge(), DriftPlusPenalty(budget=1e9)])
def test_low_device_numbers_are_no_advantage(scheduler: Any) -> None:
    found = [np.corrcoef(np.arange(N), uploads_of(scheduler, seed))[0, 1] for seed in range(20)]
    assert (
        abs(np.mean(found)) < 0.15
    )  # one seed's is off by 1/sqrt(N) = 0.16; with ties to low numbers it is -0.5 to -0.8


def test_a_lot_depends_on_seed_tick_and_device_alone() -> None:
    def order(device: Any, seed: int = 3, tick: int = 7) -> list[int]:
        device = np.asarray(device)
        drawn = schedule_largest_by_lot(np.ones(len(device)), len(device), device, stream(seed, "schedule", tick))
        return [int(each) for each in device[drawn]]

    everyone = order(range(N))
    assert order([1, 5, 9, 20]) == [each for each in everyone if each in (1, 5, 9, 20)]
    assert order(range(N)) == everyone
    assert order(range(N), seed=4) != everyone != order(range(N), tick=8)


def test_lots_only_decide_between_equals() -> None:
    value = np.array([1.0, 3.0, 2.0, 3.0, 2.0, 2.0])
    picked = [
        schedule_largest_by_lot(value, 3, np.arange(6), stream(0, "schedule", tick)).tolist() for tick in range(1, 60)
    ]
    assert all(sorted(each[:2]) == [1, 3] for each in picked)
    assert {each[2] for each in picked} == {2, 4, 5}


@pytest.mark.parametrize("scheduler", [BestChannel(), AgeBased()])
def test_the_papers_schedulers_keep_to_the_lower_number(scheduler: Any) -> None:
    assert scheduler(make_candidates(np.ones(9)), 3, stream(0, "schedule", 1)).tolist() == [0, 1, 2]
