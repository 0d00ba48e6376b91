"""Cells against closed forms: where devices are, what distance and shadowing cost, and how they walk."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedtide.radio import cell, propagation
from fedtide.radio.cell import LogDistance, Uma, Umi

MANY = 20_000
EVERYONE = np.arange(MANY)
NOW = np.zeros(MANY)


def in_db(coverage: Any, seed: int = 1, time: float = 0.0) -> np.ndarray:
    return np.asarray(10 * np.log10(coverage(seed, EVERYONE, NOW + time)))


@pytest.mark.parametrize(("radius", "least"), [(500.0, 35.0), (100.0, 10.0), (1.0, 0.999)])
def test_distances_of_a_uniform_ring(radius: float, least: float) -> None:
    x, y = propagation.spread_positions(3, EVERYONE, radius, least)
    distance = np.hypot(x, y)
    assert stats.kstest(distance, lambda d: (d**2 - least**2) / (radius**2 - least**2)).pvalue > 0.01
    assert stats.kstest(np.arctan2(y, x), stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 0.01
    assert distance.min() >= least * (1 - 1e-12)
    assert distance.max() <= radius


def test_a_link_budget_by_hand(tmp_path: Path) -> None:
    (tmp_path / "spots.csv").write_text("device,x,y\n1,0,-100\n0,300,400\n")
    made = LogDistance(2, 20.0, 3.0, -170.0, 7.0, 1e6, radius=500.0, sigma_db=0.0, positions=tmp_path / "spots.csv")
    found = 10 * np.log10(made(0, np.array([0, 1]), np.zeros(2)))
    noise = -170 + 60 + 7
    np.testing.assert_allclose(found, [20 + 3 - (128.1 + 37.6 * math.log10(0.5)) - noise, 20 + 3 - 90.5 - noise])


def test_log_normal_shadowing() -> None:
    shadow = in_db(LogDistance(MANY, sigma_db=0.0)) - in_db(LogDistance(MANY, sigma_db=8.0))
    assert stats.kstest(shadow, stats.norm(0, 8).cdf).pvalue > 0.01
    assert shadow.std() == pytest.approx(8, rel=0.02)


@pytest.mark.parametrize(("made", "street"), [(Uma, propagation.UMA), (Umi, propagation.UMI)])
def test_lines_of_sight_are_as_frequent_as_they_should_be(made: Any, street: propagation.Street) -> None:
    distance = np.hypot(*propagation.spread_positions(1, EVERYONE, 200.0, 10.0))
    plain = made(MANY, radius=200.0, min_distance=10.0, sigma_los_db=0.0, sigma_nlos_db=0.0)
    budget = 23 + 174 - 70 - 5
    loss = budget - in_db(plain)
    there, behind = propagation.both_path_losses(street, distance, 3.5, 1.5)
    sees = np.isclose(loss, there)
    np.testing.assert_allclose(np.where(sees, there, behind), loss)
    for nearest, farthest in ((10, 18), (18, 50), (50, 100), (100, 200)):
        ring = (distance >= nearest) & (distance < farthest)
        assert sees[ring].mean() == pytest.approx(
            propagation.line_of_sight_chance(street, distance[ring]).mean(), abs=0.03
        )
    shadow = in_db(plain) - in_db(made(MANY, radius=200.0, min_distance=10.0))
    sigma = made(MANY)
    assert shadow[sees].std() == pytest.approx(sigma.sigma_los_db, rel=0.04)
    assert shadow[~sees].std() == pytest.approx(sigma.sigma_nlos_db, rel=0.04)


@pytest.mark.parametrize("street", [propagation.UMA, propagation.UMI])
def test_path_loss_does_not_jump_at_the_breakpoint_and_grows(street: propagation.Street) -> None:
    distance = np.linspace(10, 5000, 20_000)
    direct, hidden = propagation.both_path_losses(street, distance, 3.5, 1.5)
    for loss in (direct, hidden):
        assert np.all(
            np.diff(loss) > -0.05
        )  # TR 38.901's breakpoint term uses d'_BP, not its slant: it may miss by a little
        assert np.abs(np.diff(loss)).max() < 0.5
    assert np.all(hidden >= direct)


def test_walks_are_straight_and_reflected() -> None:
    x, y = propagation.spread_positions(2, EVERYONE[:200], 100.0, 1.0)
    walk = propagation.walk_positions(2, EVERYONE[:200], x, y, 100.0)
    np.testing.assert_allclose(propagation.positions_after(walk, np.zeros(200)), (x, y), atol=1e-9)
    step = 0.01
    way = np.arange(0, 600, step)
    for k in range(0, 200, 20):
        one = propagation.Walk(*(np.full(len(way), each[k]) for each in walk))
        px, py = propagation.positions_after(one, way)
        assert np.hypot(px, py).max() <= 100.0 + 1e-6
        went = np.hypot(np.diff(px), np.diff(py))
        assert np.all(went <= step * (1 + 1e-6))  # it never jumps,
        bends = went < step * (1 - 1e-6)  # and bends only
        assert np.all(np.hypot(px, py)[1:][bends] > 99.9)  # at the rim,
        assert 600 / 200 - 1 <= bends.sum() <= 600 / (2 * walk.half[k]) + 1
        heading = np.unwrap(np.arctan2(np.diff(py), np.diff(px)))
        straight = ~(bends[1:] | bends[:-1])
        np.testing.assert_allclose(np.diff(heading)[straight], 0, atol=1e-5)  # straight on in between.


def test_reflection_is_a_mirror() -> None:
    """Step by step with the textbook's rule v - 2 (v.n) n, beside the formula."""
    x, y, radius = np.array([30.0]), np.array([-20.0]), 50.0
    walk = propagation.walk_positions(9, np.array([4]), x, y, radius)
    place = np.array([30.0, -20.0])
    ahead = np.array([math.cos(walk.heading[0]), math.sin(walk.heading[0])])
    left = 500.0
    while True:
        b = place @ ahead
        free = -b + math.sqrt(b * b + radius**2 - place @ place)
        if free >= left:
            break
        place, left = place + free * ahead, left - free
        ahead = ahead - 2 * (ahead @ place) * place / radius**2
    np.testing.assert_allclose(
        np.ravel(propagation.positions_after(walk, np.array([500.0]))), place + left * ahead, atol=1e-6
    )


RING, DISC = (
    (60**2 - 35**2) / (500**2 - 35**2),
    60**2 / 500**2,
)  # how many are within 60 m; after whole chords of 1000 m nearly so again


@pytest.mark.parametrize(("time", "near"), [(0.0, RING), (10_180.0, DISC), (1_000_180.0, DISC)])
def test_walking_devices_stay_uniform_and_never_come_too_near(time: float, near: float) -> None:
    made = LogDistance(MANY, sigma_db=0.0, speed=1.4, min_distance=35.0)
    loss = 23 + 174 - 70 - 5 - in_db(made, time=time)
    distance = 1000 * 10 ** ((loss - 128.1) / 37.6)
    assert distance.min() >= 35 * (1 - 1e-9)
    away = distance[distance > 60]  # walking through the middle counts as min_distance
    assert stats.kstest(away, lambda d: (d**2 - 60**2) / (500**2 - 60**2)).pvalue > 0.01
    assert np.mean(distance < 60) == pytest.approx(near, abs=0.002)


def test_shadowing_in_space() -> None:
    at, correlation = np.zeros(1), 50.0
    lags = np.array([5.0, 25.0, 50.0, 100.0])
    here, there = [], []
    for seed in range(3000):
        found = propagation.shadowing_field(seed, np.concatenate([at, lags]), np.zeros(5), correlation)
        here.append(found[0])
        there.append(found[1:])
    assert np.std(here) == pytest.approx(1, rel=0.04)
    assert np.mean(here) == pytest.approx(0, abs=0.06)
    assert stats.kstest(here, "norm").pvalue > 0.01
    found = [np.corrcoef(here, each)[0, 1] for each in np.array(there).T]
    np.testing.assert_allclose(found, np.exp(-lags / correlation), atol=0.05)


def test_one_field_looks_normal_over_a_wide_plane() -> None:
    x, y = np.random.default_rng(0).uniform(-5e4, 5e4, (2, 20_000))
    found = propagation.shadowing_field(3, x, y, 50.0)
    assert found.std() == pytest.approx(1, rel=0.02)
    assert stats.kstest(found, "norm").statistic < 0.02


def test_a_walking_device_is_shadowed_smoothly() -> None:
    made = LogDistance(50, speed=1.0, sigma_db=8.0)
    track = np.array([made(1, np.arange(50), np.full(50, time)) for time in np.arange(0, 100, 0.5)])
    assert np.abs(np.diff(10 * np.log10(track), axis=0)).max() < 4.0  # dB in half a metre
    assert not np.array_equal(track[0], track[-1])


def test_large_fleets_are_not_kept_and_have_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    some, time = np.array([7, 3, 1999]), np.array([1.0, 2.0, 300.0])
    made = [LogDistance(2000), Uma(2000, speed=1.5)]
    kept = [each(1, some, time).tolist() for each in made]
    monkeypatch.setattr(cell, "MOST_POSITIONS_KEPT", 10)
    assert [each(1, some, time).tolist() for each in made] == kept


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    file, found = tmp_path / "spots.csv", []
    for distance in (100, 200):
        file.write_text(f"device,x,y\n0,{distance},0\n")
        found.append(LogDistance(1, sigma_db=0.0, positions=file)(0, np.array([0]), np.zeros(1))[0])
    assert found[0] / found[1] == pytest.approx(2**3.76)
