"""Threshold, energy budget, and rate against labels: loops written from the definitions, limits, and time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from fedtide.radio.allocation import equal_bits
from fedtide.schedule.baselines import DriftPlusPenalty, SoftRateLabel, Threshold
from fedtide.schedule.label_variance import label_variance
from fedtide.schedule.schedulers import BestChannel
from fedtide.types import Candidates
from helpers import make_candidates

RNG = np.random.default_rng
N, R = 8, 3


def rows_of(tick: int, device: Any, capacity: Any, samples: Any) -> Candidates:
    rows = make_candidates(capacity, num_devices=N)
    return rows._replace(device=np.asarray(device), tick=tick, num_samples=np.asarray(samples))


@pytest.mark.parametrize(("least", "wanted"), [(0.0, [1, 4, 2]), (2.0, [1, 4, 2]), (2.5, [1, 4]), (5.0, [])])
def test_only_links_above_the_threshold(least: float, wanted: list[int]) -> None:
    assert Threshold(least)(make_candidates([1, 4, 2, 0, 3]), 3, RNG(0)).tolist() == wanted


def test_threshold_0_is_best_channel() -> None:
    for seed in range(20):
        rows = make_candidates(RNG(seed).integers(0, 4, 10))
        assert Threshold(0.0)(rows, 4, RNG(0)).tolist() == BestChannel()(rows, 4, RNG(0)).tolist()


@pytest.mark.parametrize("gain", ["samples", "capacity"])
def test_drift_plus_penalty_as_in_the_book(gain: Any) -> None:
    budget, value, cost = 0.02, 0.004, 0.1  # J per tick, J^2, J bit/symbol
    scheduler = DriftPlusPenalty(budget, value, payload_bits=1e4, joules_per_symbol=1e-5, gain=gain)
    memory, queue, rng, fewer = scheduler.init(N), [0.0] * N, RNG(0), 0
    for tick in range(1, 150):
        ready = np.flatnonzero(rng.random(N) < 0.7).tolist() if tick % 6 else []
        capacity, samples = rng.exponential(3, len(ready)) + 0.1, rng.integers(1, 50, len(ready))
        spent = [0.0] * N
        if ready:
            raw = samples if gain == "samples" else capacity
            score = {}
            for at, k in enumerate(ready):
                score[at] = value * raw[at] / np.mean(raw) - queue[k] * cost / capacity[at]
            wanted = [at for at in sorted(score, key=lambda at: -score[at])[:R] if score[at] > 0]
            rows = rows_of(tick, ready, capacity, samples)
            picked, memory = scheduler(memory, rows, min(R, len(ready)), rng)
            assert picked.tolist() == wanted
            fewer += len(wanted) < min(R, len(ready))
            for at in wanted:
                spent[ready[at]] = cost / capacity[at]
        queue = [max(z + e - budget, 0.0) for z, e in zip(queue, spent, strict=True)]
        if ready:
            assert memory["queue"] == pytest.approx(queue, abs=1e-12)
    assert fewer > 5


def test_with_a_huge_budget_it_is_the_order_of_the_gains() -> None:
    scheduler, rng = DriftPlusPenalty(budget=1e9), RNG(0)
    memory = scheduler.init(N)
    for tick in range(1, 50):
        samples = rng.permutation(N) + 1
        picked, memory = scheduler(memory, rows_of(tick, range(N), rng.exponential(3, N), samples), R, rng)
        assert picked.tolist() == np.argsort(-samples)[:R].tolist()


@pytest.mark.parametrize("value", [1e-4, 1e-2])
def test_the_average_energy_meets_the_budget_as_1_over_t(value: float) -> None:
    scheduler, rng, spent = DriftPlusPenalty(budget=0.004, value=value), RNG(0), np.zeros(N)
    memory, samples = scheduler.init(N), np.arange(1, N + 1)
    least, most = 0.1 / 6.0, 0.1 / 1.0  # J, of the capacities below
    bound = value * N / np.mean(samples) / least + most
    for tick in range(1, 4001):
        rows = rows_of(tick, range(N), rng.uniform(1, 6, N), samples)
        picked, memory = scheduler(memory, rows, R, rng)
        spent[picked] += scheduler.energy(rows.capacity[picked])
        assert np.all(spent <= tick * 0.004 + bound + 1e-9)
    assert spent.max() > 0.9 * 4000 * 0.004  # and it is used


def test_a_larger_value_gains_more_at_first() -> None:
    def uploads(value: float) -> int:
        scheduler, count = DriftPlusPenalty(budget=0.001, value=value), 0
        memory = scheduler.init(N)
        for tick in range(1, 40):
            picked, memory = scheduler(memory, rows_of(tick, range(N), np.full(N, 3.0), np.ones(N, int)), R, RNG(0))
            count += len(picked)
        return count

    assert uploads(1e-4) < uploads(1e-3) < uploads(1e-2)


@pytest.mark.parametrize("dead", [0.0, 1e-320])
def test_a_dead_link_is_no_harm(dead: float) -> None:
    rows = rows_of(1, range(3), [dead, 1.0, 2.0], [5, 1, 1])
    picked, memory = DriftPlusPenalty().__call__(DriftPlusPenalty().init(N), rows, 3, RNG(0))
    assert sorted(picked.tolist()) == [1, 2]
    assert np.isfinite(memory["queue"]).all()
    for weight in (0.0, 1.0):
        assert set(SoftRateLabel(weight)(rows, 2, RNG(0)).tolist()) == {1, 2}
    assert len(SoftRateLabel()(rows._replace(capacity=np.zeros(3)), 2, RNG(0))) == 2


def objective(rows: Candidates, members: list[int], weight: float) -> float:
    """Return F of a set: bits by `equal_bits`, label variance by its definition."""
    best_bits = equal_bits(np.sort(rows.capacity)[::-1][: len(members)], 1000.0)[1][0]
    bits = equal_bits(rows.capacity[members], 1000.0)[1][0]
    held = rows.label_counts[members]
    worst = held.sum() ** 2 * (1 - 1 / held.shape[1])
    return float(bits / best_bits - weight * label_variance(held) / worst)


def greedy_by_definition(rows: Candidates, limit: int, weight: float) -> list[int]:
    """Score every set anew."""
    chosen: list[int] = []
    for _ in range(limit):
        left = [k for k in range(len(rows.device)) if k not in chosen]
        chosen.append(max(left, key=lambda k: objective(rows, [*chosen, k], weight)))
    return chosen


def uneven(seed: int, m: int = 20, num_labels: int = 5, equal: bool = False) -> Candidates:
    rng = RNG(seed)
    shares = rng.dirichlet(np.full(num_labels, 0.3), m)
    size = np.full(m, 60) if equal else rng.integers(20, 200, m)
    counts = np.stack([rng.multinomial(n, p) for n, p in zip(size, shares, strict=True)])
    return make_candidates(rng.exponential(3, m) + 0.05, num_devices=m, label_counts=counts)


@pytest.mark.parametrize("weight", [0.0, 0.1, 1.0, 10.0, 1e4])
def test_soft_rate_label_by_definition(weight: float) -> None:
    for seed in range(6):
        rows = uneven(seed)
        assert SoftRateLabel(weight, passes=0)(rows, 6, RNG(0)).tolist() == greedy_by_definition(rows, 6, weight)


def test_exchanging_ends_where_no_exchange_of_one_is_better() -> None:
    gained = 0.0
    for seed in range(10):
        rows = uneven(seed)
        first, last = (SoftRateLabel(10.0, passes)(rows, 5, RNG(0)).tolist() for passes in (0, 50))
        reached = objective(rows, last, 10.0)
        gained += reached - objective(rows, first, 10.0)
        for at in range(5):
            for k in set(range(20)) - set(last):
                assert objective(rows, [*last[:at], k, *last[at + 1 :]], 10.0) <= reached + 1e-12
    assert gained > 0


def test_without_weight_the_best_channels_and_with_much_the_least_label_variance() -> None:
    for seed in range(20):
        rows = uneven(seed, equal=True)
        assert SoftRateLabel(0.0)(rows, 6, RNG(0)).tolist() == BestChannel()(rows, 6, RNG(0)).tolist()
        picked = SoftRateLabel(1e9, passes=0)(rows, 6, RNG(0)).tolist()
        for size in range(6):  # each that was added was the best to add
            omega = [
                label_variance(rows.label_counts[[*picked[:size], k]]) for k in range(20) if k not in picked[:size]
            ]
            assert label_variance(rows.label_counts[picked[: size + 1]]) == pytest.approx(min(omega))


def test_weight_trades_bits_for_labels() -> None:
    bits, labels = [], []
    for weight in (0.0, 0.3, 1.0, 3.0, 100.0):
        sets = [(rows, SoftRateLabel(weight)(rows, 5, RNG(0))) for rows in (uneven(s, 40, 10, True) for s in range(30))]
        bits.append(np.mean([equal_bits(rows.capacity[picked], 1000.0)[1][0] for rows, picked in sets]))
        labels.append(np.mean([label_variance(rows.label_counts[picked]) for rows, picked in sets]))
    assert np.all(np.diff(bits) < 0)
    assert np.all(np.diff(labels) < 0)


def test_one_label_alone_leaves_the_channels() -> None:
    rows = make_candidates([1, 3, 2], label_counts=[[4], [5], [0]])
    assert SoftRateLabel(5.0)(rows, 2, RNG(0)).tolist() == [1, 2]


def test_ten_thousand_ready_devices_in_no_time() -> None:
    rng = RNG(0)
    rows = make_candidates(rng.exponential(3, 10_000), label_counts=rng.integers(0, 400, (10_000, 10)))
    times = []
    for _ in range(5):
        began = time.perf_counter()
        SoftRateLabel()(rows, 50, rng)
        times.append(time.perf_counter() - began)
    assert min(times) < 0.1
