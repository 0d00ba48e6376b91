"""Schedulers that look at the losses: power of choice and Oort, against the papers, and in their limits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fedtide.schedule.baselines import MaxLoss, Oort, Pisces
from fedtide.schedule.schedulers import schedule_by_weight
from fedtide.types import Candidates
from helpers import make_candidates

RNG = np.random.default_rng


def rows_of(
    loss: list[float], samples: list[int] | None = None, tick: int = 1, age: list[int] | None = None
) -> Candidates:
    rows = make_candidates([1.0] * len(loss), age=age)
    return rows._replace(num_samples=np.array(samples or [1] * len(loss)), loss=np.array(loss, float), tick=tick)


def in_order(weight: list[float], count: int) -> dict[frozenset[int], float]:
    """Return how likely each set is if it is drawn one by one, by weight."""
    found: dict[frozenset[int], float] = {}
    for order in itertools.permutations(range(len(weight)), count):
        left, likely = sum(weight), 1.0
        for each in order:
            likely *= weight[each] / left
            left -= weight[each]
        found[frozenset(order)] = found.get(frozenset(order), 0.0) + likely
    return found


@pytest.mark.parametrize("weight", [[1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 10.0]])
def test_drawn_by_weight_without_replacement(weight: list[float]) -> None:
    rng, seen, times = RNG(0), dict.fromkeys(in_order(weight, 2), 0), 20_000
    for _ in range(times):
        seen[frozenset(schedule_by_weight(np.array(weight), 2, rng).tolist())] += 1
    for chosen, likely in in_order(weight, 2).items():
        assert seen[chosen] / times == pytest.approx(likely, abs=4 * math.sqrt(likely / times))


def test_power_of_choice_as_in_the_paper() -> None:
    """How likely each set of R is: over all sets of d, the largest losses of each."""
    loss, samples, times = [0.4, 3.0, 1.0, 2.0, 0.1], [4, 1, 2, 3, 5], 20_000
    likely: dict[frozenset[int], float] = {}
    for drawn, share in in_order([float(each) for each in samples], 3).items():
        best = frozenset(sorted(drawn, key=lambda k: -loss[k])[:2])
        likely[best] = likely.get(best, 0.0) + share
    rng, scheduler, seen = RNG(1), MaxLoss(drawn=3), dict.fromkeys(likely, 0)
    for _ in range(times):
        seen[frozenset(scheduler(rows_of(loss, samples), 2, rng).tolist())] += 1
    for chosen, share in likely.items():
        assert seen[chosen] / times == pytest.approx(share, abs=4 * math.sqrt(share / times))


def test_power_of_choice_between_random_and_the_largest_losses() -> None:
    rng, loss, times = RNG(0), [5.0, 4.0, 3.0, 2.0, 1.0], 6000
    counts = sum(np.bincount(MaxLoss(drawn=2)(rows_of(loss), 2, rng), minlength=5) for _ in range(times))
    assert counts == pytest.approx(np.full(5, times * 2 / 5), rel=0.06)  # d = R: random,
    assert MaxLoss(drawn=5)(rows_of(loss), 2, rng).tolist() == [0, 1]  # d = m: the largest,
    assert len(MaxLoss(drawn=1)(rows_of(loss), 3, rng)) == 3  # d < R is R,
    ranks = [MaxLoss(drawn=d)(rows_of(loss), 2, RNG(s)).mean() for d in (2, 3, 4) for s in range(400)]
    assert np.all(np.diff(np.reshape(ranks, (3, 400)).mean(axis=1)) < 0)  # and in between, more bias with more choice.


def test_equal_losses_go_to_the_lower_number() -> None:
    assert MaxLoss(drawn=4)(rows_of([1, 2, 2, 2]), 2, RNG(0)).tolist() == [1, 2]


def test_oort_exploits_as_in_the_paper() -> None:
    """Without exploring and with a cut at the R-th best itself nothing is left to chance."""
    scheduler = Oort(explore=0.0, explore_least=0.0, cutoff=1.0, preferred=2.0, penalty=1.5)
    rng, last = RNG(3), list(range(1, 9))
    memory = {"last": np.array(last)}
    for tick in range(9, 60):
        loss, samples = rng.exponential(2, 8).tolist(), rng.integers(1, 30, 8).tolist()
        age = rng.integers(0, 5, 8).tolist()
        largest = max(n * f for n, f in zip(samples, loss, strict=True))
        util = []
        for k in range(8):
            value = samples[k] * loss[k] / largest + math.sqrt(0.1 * math.log(tick) / last[k])
            util.append(value * (2.0 / (age[k] + 1)) ** 1.5 if age[k] + 1 > 2.0 else value)
        wanted = sorted(sorted(range(8), key=lambda k: -util[k])[:3])
        picked, memory = scheduler(memory, rows_of(loss, samples, tick, age), 3, rng)
        assert sorted(picked.tolist()) == wanted
        for k in wanted:
            last[k] = tick
        assert memory["last"].tolist() == last


def test_oort_draws_by_utility_among_those_above_the_cut() -> None:
    loss, times, rng = [4.0, 3.0, 2.0, 1.0], 6000, RNG(0)
    scheduler = Oort(explore=0.0, explore_least=0.0, cutoff=0.5)  # at tick 1 the bonus is 0: U is 1, 3/4, 1/2, 1/4
    counts = np.zeros(4)
    for _ in range(times):
        picked, _ = scheduler({"last": np.ones(4, np.int64)}, rows_of(loss), 1, rng)
        counts[picked] += 1
    assert counts / times == pytest.approx([4 / 9, 3 / 9, 2 / 9, 0], abs=0.025)


def test_oort_explores_new_devices_the_fast_ones_first() -> None:
    rng, times, new = RNG(0), 4000, np.zeros(4)
    scheduler = Oort(explore=0.5, explore_least=0.1, decay=0.5)
    rows = rows_of([9.0, 9.0, 1.0, 1.0, 1.0, 1.0], age=[0, 0, 0, 0, 3, 3])
    for _ in range(times):
        picked, memory = scheduler({"last": np.array([1, 1, 0, 0, 0, 0])}, rows, 2, rng)
        assert np.count_nonzero(picked < 2) == 1  # half of R = 2
        new[picked[picked >= 2] - 2] += 1
        assert np.all(memory["last"][picked] == 1)
    assert new / times == pytest.approx([0.4, 0.4, 0.1, 0.1], abs=0.03)  # speeds 1, 1, 1/4, 1/4
    late = rows._replace(tick=50)  # the share has fallen to 0.1: 0.2 of R = 2
    picks = [scheduler({"last": np.array([1, 1, 0, 0, 0, 0])}, late, 2, rng)[0] for _ in range(times)]
    assert np.mean([np.count_nonzero(each >= 2) for each in picks]) == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize(("known", "limit"), [(0, 4), (1, 4), (6, 4), (6, 6), (3, 6)])
def test_oort_fills_what_it_may_whoever_is_new(known: int, limit: int) -> None:
    last = np.array([1] * known + [0] * (6 - known))
    for seed in range(20):
        picked, _ = Oort()({"last": last.copy()}, rows_of([0.0] * 6, tick=3), limit, RNG(seed))
        assert len(set(picked.tolist())) == limit


def test_pisces_exploits_as_in_the_paper() -> None:
    scheduler, rng = Pisces(staleness=0.7, explore=0.0, explore_least=0.0), RNG(4)
    memory = scheduler.init(8)
    memory["picked"][:] = True
    for tick in range(1, 30):
        loss, samples, age = rng.uniform(0, 3, 8), rng.integers(1, 9, 8), rng.integers(0, 6, 8)
        rows = rows_of(loss.tolist(), samples.tolist(), tick, age.tolist())
        picked, memory = scheduler(memory, rows, 3, rng)
        utility = [n * f / (a + 1) ** 0.7 for n, f, a in zip(samples, loss, age, strict=True)]
        assert picked.tolist() == sorted(range(8), key=lambda k: -utility[k])[:3]


def test_pisces_explores_by_a_share_that_falls() -> None:
    scheduler, rng, times = Pisces(explore=0.8, explore_least=0.2, decay=0.5), RNG(0), 4000
    rows = rows_of([1.0] * 8)
    known = np.arange(8) < 4
    for tick, share in ((1, 0.8), (2, 0.4), (9, 0.2)):
        fresh = 0
        for _ in range(times):
            memory = {**scheduler.init(8), "picked": known.copy()}
            picked, memory = scheduler(memory, rows._replace(tick=tick), 4, rng)
            assert len({*picked.tolist()}) == 4
            fresh += int((picked >= 4).sum())
        assert fresh / times == pytest.approx(4 * share, abs=0.08)
        assert memory["picked"].sum() == 4 + (picked >= 4).sum()


def test_pisces_excludes_a_device_after_its_losses_were_odd_so_many_times() -> None:
    scheduler, rng = Pisces(credit=2, radius=0.5, limit=4, explore=0.0, explore_least=0.0), RNG(0)
    memory = scheduler.init(6)
    memory["picked"][:] = True
    rows = rows_of([1.0, 1.3, 9.0, 1.6, 0.9, 2.0])  # 2.0 is near 1.6, which is near others
    chosen = []
    for _ in range(3):
        picked, memory = scheduler(memory, rows, 4, rng)
        chosen.append(2 in picked)
    assert chosen == [True, False, False]
    assert memory["outlying"].tolist() == [0, 0, 3, 0, 0, 0]
    everyone, _ = Pisces(explore=0.0, explore_least=0.0)(memory, rows, 4, rng)
    assert 2 in everyone
    few, after = scheduler(memory, rows_of([9.0, 1.0, 1.0]), 3, rng)  # the engine asks for 3 of 3; too few to judge
    assert sorted(few.tolist()) == [0, 1]
    assert after["outlying"].tolist() == [0, 0, 3, 0, 0, 0]


def test_a_cluster_of_losses_has_half_of_the_limit_or_more() -> None:
    scheduler = Pisces(credit=1, radius=0.5, limit=5)
    _, memory = scheduler(scheduler.init(5), rows_of([1.0, 1.0, 1.0, 5.0, 5.0]), 5, RNG(0))
    assert memory["outlying"].tolist() == [0, 0, 0, 1, 1]
