"""Schedulers that take turns, by number, by rate and by age: against loops written from the papers, and in their limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedtide.schedule.baselines import ProportionalFair, RoundRobin, WhittleAge, _whittle_index
from fedtide.types import Candidates
from helpers import make_candidates

RNG = np.random.default_rng
N, R, TICKS = 9, 3, 80


def at(tick: int, device: Any, capacity: Any, uploads: Any = None, num_samples: Any = None) -> Candidates:
    """Return the rows of some devices; uploads so far and samples are [N]."""
    device = np.asarray(device)
    rows = make_candidates(np.asarray(capacity, float), num_devices=N)
    missed = tick - (np.zeros(N, np.int64) if uploads is None else uploads)[device]
    samples = rows.num_samples if num_samples is None else np.asarray(num_samples)[device]
    return rows._replace(device=device, tick=tick, missed=missed, num_samples=samples)


def ready_at(tick: int) -> np.ndarray:
    """Some devices, at least one; nobody at every seventh tick."""
    draws = RNG(tick).random(N)
    return np.flatnonzero(draws <= max(0.6, draws.min())) if tick % 7 else np.zeros(0, np.int64)


def test_round_robin_goes_around_and_passes_over_who_is_not_ready() -> None:
    scheduler = RoundRobin()
    memory, turn = scheduler.init(N), 0
    for tick in range(1, TICKS):
        ready = ready_at(tick)
        if not len(ready):
            continue
        wanted: list[int] = []
        for _ in range(N):  # once around the table
            if turn in ready and len(wanted) < R:
                wanted.append(turn)
                after = (turn + 1) % N
            turn = (turn + 1) % N
        turn = after
        picked, memory = scheduler(memory, at(tick, ready, np.ones(len(ready))), min(R, len(ready)), RNG(0))
        assert ready[picked].tolist() == wanted


def test_proportional_fair_as_in_the_paper() -> None:
    scheduler = ProportionalFair(window=5.0)
    memory, average = scheduler.init(N), [1.0] * N
    for tick in range(1, TICKS):
        ready, picked = ready_at(tick).tolist(), []
        capacity = dict(zip(ready, RNG(100 + tick).exponential(3, len(ready)).tolist(), strict=True))
        if ready:
            picked = sorted(ready, key=lambda k: -capacity[k] / average[k])[:R]
            found, memory = scheduler(memory, at(tick, ready, list(capacity.values())), min(R, len(ready)), RNG(0))
            assert [ready[each] for each in found] == picked
        for k in range(N):
            average[k] = (1 - 1 / 5) * average[k] + 1 / 5 * (capacity[k] if k in picked else 0)
        if ready:
            assert memory["rate"] == pytest.approx(average, rel=1e-12)


# Whittle's index knows ages alone: if R does not divide N, some are equally old that were not served equally often.
@pytest.mark.parametrize(
    ("scheduler", "limit"),
    [(each, limit) for each in (ProportionalFair(), RoundRobin(), WhittleAge()) for limit in (1, 3, 4)][:-1],
)
def test_with_equal_devices_all_of_them_are_round_robin(scheduler: Any, limit: int) -> None:
    memory, uploads = scheduler.init(N), np.zeros(N, np.int64)
    for tick in range(1, 200):
        picked, memory = scheduler(memory, at(tick, range(N), np.full(N, 2.0), uploads), limit, RNG(0))
        uploads[picked] += 1
        assert np.ptp(uploads) <= 1


def test_proportional_fair_gives_equal_shares_to_unequal_links() -> None:
    """Where best_channel would serve the strongest alone: with one law of fading, scaled, everyone has the same turns."""
    scheduler, uploads, scale = ProportionalFair(window=100.0), np.zeros(N), np.arange(1, N + 1)
    memory, rng = scheduler.init(N), RNG(0)
    for tick in range(1, 4001):
        picked, memory = scheduler(memory, at(tick, range(N), scale * rng.exponential(size=N)), 1, rng)
        uploads[picked] += 1
    assert uploads == pytest.approx(np.full(N, 4000 / N), rel=0.15)


def test_whoever_waits_for_ever_is_not_forgotten() -> None:
    scheduler = ProportionalFair(window=1.01)
    _, memory = scheduler(scheduler.init(N), at(1, [0], [1.0]), 1, RNG(0))
    picked, memory = scheduler(memory, at(10**6, [0, 1], [0.0, 1.0]), 1, RNG(0))
    assert picked.tolist() == [1]
    assert np.isfinite(memory["rate"]).all()


@pytest.mark.parametrize("success", [1.0, 0.7, 0.25])
@pytest.mark.parametrize("age", [1, 2, 5, 12])
def test_at_the_price_of_the_index_waiting_and_sending_are_equally_good(age: int, success: float) -> None:
    """Whittle's definition, by relative value iteration of one device: cost w h per tick, and the price if it sends."""
    weight, most = 3.0, 400
    price = float(_whittle_index(np.array([age]), np.array([weight]), np.array([success]))[0])
    ages = np.arange(1, most + 1)
    older = np.minimum(ages, most - 1)  # position of age h + 1
    value = np.zeros(most)
    for _ in range(6000):
        wait = weight * ages + value[older]
        send = weight * ages + price + success * value[0] + (1 - success) * value[older]
        best = np.minimum(wait, send)
        value = 0.5 * (best - best[0]) + 0.5 * value  # damped: without, it may go around in circles
    gap = send - wait
    assert gap[age - 1] == pytest.approx(0, abs=1e-6 * price)
    assert np.all(gap[: age - 1] > 0)  # younger: waits
    assert np.all(gap[age : most // 2] < 0)  # older: sends


def test_whittle_sees_which_uploads_arrived() -> None:
    """A loop with ages and counts of its own; every upload of device 0 and some others are lost."""
    samples = np.array([9, 1, 2, 3, 4, 5, 5, 5, 8])
    scheduler, uploads, granted = WhittleAge(), np.zeros(N, np.int64), [0] * N
    memory, heard = scheduler.init(N), [0] * N
    losses = 0
    for tick in range(1, TICKS):
        ready = ready_at(tick).tolist()
        if not ready:
            continue
        score = {}
        for k in ready:
            p, h = (1 + int(uploads[k])) / (1 + granted[k]), tick - heard[k]
            score[k] = samples[k] * p * h * (h + 2 / p - 1) / 2
        wanted = sorted(ready, key=lambda k: -round(score[k], 9))[:R]
        found, memory = scheduler(memory, at(tick, ready, [1.0] * len(ready), uploads, samples), len(wanted), RNG(0))
        assert sorted(score[ready[each]] for each in found) == pytest.approx(sorted(score[k] for k in wanted))
        for k in (ready[each] for each in found):
            granted[k] += 1
            if k == 0 or (k + tick) % 4 == 0:
                losses += 1
                continue
            uploads[k] += 1
            heard[k] = tick
    assert losses > 10
    assert memory["granted"].tolist() == granted
