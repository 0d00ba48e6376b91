"""Several cells against closed forms: who is served by which, antennas, power control, interference, shadowing, handover."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedtide.parts import registry
from fedtide.radio import sites
from fedtide.radio.cell import LogDistance
from fedtide.radio.sites import hexagonal_layout, nearest_image, sector_attenuation

MANY = 20_000
EVERYONE, NOW = np.arange(MANY), np.zeros(MANY)


def made(name: str = "hex_grid", count: int = MANY, /, **args: Any) -> Any:
    return registry.resolve("coverage", name, args, lambda key: {"fleet.num_devices": count}[key])


def plain(**args: Any) -> dict[str, Any]:
    """A path loss without shadowing."""
    return {"name": "log_distance", "sigma_db": 0.0, **args}


def spots(folder: Path, places: list[tuple[float, float]]) -> str:
    file = folder / "spots.csv"
    file.write_text("device,x,y\n" + "".join(f"{k},{x},{y}\n" for k, (x, y) in enumerate(places)))
    return str(file)


# Where sites and devices are.


@pytest.mark.parametrize("rings", [0, 1, 2, 3])
def test_a_grid_has_its_sites_and_repeats_itself(rings: int) -> None:
    layout = hexagonal_layout(rings, 500.0, True)
    places = np.array(layout.sites)
    assert len(places) == 1 + 3 * rings * (rings + 1)
    assert layout.period is not None
    gaps = places[:, None] - places
    shortest = np.stack(nearest_image(gaps[..., 0], gaps[..., 1], layout.period))
    lengths = np.hypot(*shortest)
    # Round every site there are as many others at each distance: the middle is like the rim.
    assert all(np.allclose(np.sort(row), np.sort(lengths[0])) for row in lengths)
    if rings:
        assert np.isclose(lengths, 500).sum(axis=1).tolist() == [6] * len(places)
    assert np.hypot(*layout.period[0]) ** 2 == pytest.approx(len(places) * 500**2)


@given(st.floats(-5e3, 5e3), st.floats(-5e3, 5e3), st.integers(0, 3))
def test_the_nearest_image_is_the_shortest_of_many(x: float, y: float, rings: int) -> None:
    layout = hexagonal_layout(rings, 500.0, True)
    assert layout.period is not None
    (ax, ay), (bx, by) = layout.period
    found = np.hypot(*nearest_image(np.array([x]), np.array([y]), layout.period))[0]
    span = range(-25, 26)
    least = min(math.hypot(x + q * ax + r * bx, y + q * ay + r * by) for q in span for r in span)
    assert found == pytest.approx(least, abs=1e-6)


def test_devices_are_uniform_over_the_hexagons() -> None:
    grid = made(rings=0, wrap=False, path_loss=plain(min_distance=1))
    x, y = grid.position(1, EVERYONE, NOW)
    edge = 500 / 2
    for angle in np.radians([30, 90, 150]):  # within three pairs of sides,
        assert np.abs(x * np.cos(angle) + y * np.sin(angle)).max() <= edge * (1 + 1e-9)
    inside = np.hypot(x, y) < edge  # of the disc within, as of anything, the share of its area
    assert inside.mean() == pytest.approx(math.pi * edge**2 / (math.sqrt(3) / 2 * 500**2), abs=0.006)
    distance = np.hypot(x, y)[inside]
    assert stats.kstest(distance, lambda d: d**2 / edge**2).pvalue > 0.01


def test_who_walks_off_a_grid_comes_in_at_the_other_side_and_all_stay_uniform() -> None:
    grid = made(path_loss=plain(speed=1.0))
    for time in (0.0, 123.0, 1e5):
        cell = grid.cell(3, EVERYONE, NOW + time)
        counts = np.bincount(cell, minlength=7)
        assert stats.chisquare(counts).pvalue > 1e-3, time
    x, y = grid.position(3, EVERYONE, NOW + 1e5)
    assert np.hypot(x, y).max() <= math.sqrt(7) * 500 / math.sqrt(3) * (1 + 1e-9)


# Who is served by which cell.


@settings(max_examples=20)
@given(
    st.sampled_from(["log_distance", "uma", "umi"]),
    st.sampled_from([1, 3]),
    st.integers(0, 2),
    st.booleans(),
    st.integers(0, 99),
)
def test_the_serving_cell_is_that_of_the_smallest_loss(
    link: str, sectors: int, rings: int, wrap: bool, seed: int
) -> None:
    grid = made("hex_grid", 100, path_loss=link, sectors=sectors, rings=rings, wrap=wrap)
    device, now = np.arange(100), np.zeros(100)
    losses = grid.losses(seed, device, *grid.position(seed, device, now))
    assert losses.shape == (grid.num_cells, 100)
    assert np.array_equal(grid.cell(seed, device, now), losses.argmin(axis=0))
    full = grid.link.power_dbm - losses.min(axis=0) - (-174 + 70 + 5)
    np.testing.assert_allclose(10 * np.log10(grid(seed, device, now)), full)


def test_without_shadowing_the_nearest_site_serves() -> None:
    grid = made(path_loss=plain(), rings=2, wrap=False)
    x, y = grid.position(1, EVERYONE, NOW)
    places = np.array(grid.layout.sites)
    nearest = np.hypot(x[:, None] - places[:, 0], y[:, None] - places[:, 1]).argmin(axis=1)
    assert np.mean(nearest == grid.cell(1, EVERYONE, NOW)) == 1


def test_around_every_cell_of_a_grid_that_wraps_the_world_looks_the_same() -> None:
    grid, open_grid = (made(path_loss=plain(), wrap=wrap) for wrap in (True, False))

    def heard(of: Any) -> list[float]:
        some = EVERYONE
        cell = of.cell(5, some, NOW)
        share = 1 / np.bincount(cell, minlength=7)[cell]
        return [float(each) for each in of.interference(5, some, 0.0, share)]

    snr = 10 * np.log10(grid(5, EVERYONE, NOW))
    cell = grid.cell(5, EVERYONE, NOW)
    assert all(stats.ks_2samp(snr[cell == 0], snr[cell == each]).pvalue > 1e-3 for each in range(1, 7))
    assert max(heard(grid)) / min(heard(grid)) < 1.15
    rim = heard(open_grid)
    assert rim[0] > 1.5 * max(rim[1:])  # without wrapping the middle hears more than the rim


def test_one_site_is_a_single_cell(tmp_path: Path) -> None:
    places = [(100.0 + k, 3.0 * k) for k in range(50)]
    file = spots(tmp_path, places)
    device, time = np.arange(50), np.linspace(0, 900, 50)
    for more in ({}, {"power_dbm": 20.0, "antenna_db": 3.0, "bandwidth_hz": 1e6}):
        one = LogDistance(50, sigma_db=0.0, positions=Path(file), **more)
        lone = made("sites", 50, path_loss=plain(**more), positions=file)
        np.testing.assert_allclose(lone(1, device, time), one(1, device, time), rtol=1e-12)
    # Drawn positions, walks and the field of shadowing are the same, too;
    np.testing.assert_allclose(
        made("sites", path_loss={"name": "uma", "speed": 1.5})(7, EVERYONE, NOW + 321),
        registry.resolve("coverage", "uma", {"speed": 1.5}, lambda key: MANY)(7, EVERYONE, NOW + 321),
        rtol=1e-12,
    )
    # of devices that stand, shadowing is that field where a single cell has independent draws: one law.
    draws = [
        10
        * np.log10(np.concatenate([made(name, 200, **args)(seed, np.arange(200), np.zeros(200)) for seed in range(50)]))
        for name, args in (("sites", {}), ("log_distance", {}))
    ]
    assert abs(draws[0].mean() - draws[1].mean()) < 0.6
    assert draws[0].std() == pytest.approx(draws[1].std(), rel=0.05)


def test_a_device_that_crosses_the_border_is_handed_over(tmp_path: Path) -> None:
    file = spots(tmp_path, [(100.0, 0.0)] * 40)
    args = {"sites": [[0, 0], [1000, 0]], "path_loss": plain(speed=1.0, radius=600.0), "positions": file}
    pair = made("sites", 40, **args)
    device = np.arange(40)
    changes = 0
    for time in np.arange(0.0, 2000, 10):
        x, _ = pair.position(2, device, np.full(40, time))
        cell = pair.cell(2, device, np.full(40, time))
        assert np.array_equal(cell, x > 500), time
        changes += int(cell.sum() > 0)
    assert changes
    assert pair.cell(2, device, np.zeros(40)).tolist() == [0] * 40


# Antennas.


def test_the_pattern_of_a_sector() -> None:
    degrees = np.array([0, 32.5, -32.5, 65, 180, -180, 360 - 32.5])
    found = sector_attenuation(np.radians(degrees), 65.0, 30.0)
    np.testing.assert_allclose(found, [0, 3, 3, 12, 30, 30, 3], atol=1e-9)


def test_sectors_look_in_three_directions() -> None:
    grid = made(sectors=3, rings=0, wrap=False, path_loss=plain())
    x, y = grid.position(1, EVERYONE, NOW)
    angle = np.degrees(np.arctan2(y, x))
    for sector, boresight in enumerate((30, 150, 270)):
        off = (angle - boresight + 180) % 360 - 180
        assert np.array_equal(np.abs(off) < 60, grid.cell(1, EVERYONE, NOW) == sector)
    # at its boresight a sector is as strong as an antenna in all directions
    at = np.hypot(x, y)
    alone = made(rings=0, wrap=False, path_loss=plain())
    loss = alone.losses(1, EVERYONE, x, y)[0]
    best = grid.losses(1, EVERYONE, x, y).min(axis=0) - loss
    off = np.abs((angle - 30 + 60) % 120 - 60)
    np.testing.assert_allclose(best, 12 * (off / 65) ** 2, atol=1e-9)
    assert at.min() > 0


# Power control.


def test_power_that_makes_up_for_all_loss_is_received_equally() -> None:
    grid = made(p0_dbm=-100.0, path_loss={"name": "log_distance", "power_dbm": 100.0})
    wanted = -100 + 10 * math.log10(10e6 / 180e3) - (-174 + 70 + 5)
    np.testing.assert_allclose(10 * np.log10(grid(1, EVERYONE, NOW)), wanted, atol=1e-9)


def test_power_that_makes_up_for_nothing_is_constant_and_at_most_full() -> None:
    low, high = (made(p0_dbm=p0, alpha=0.0) for p0 in (0.0, 50.0))
    np.testing.assert_allclose(low.power(1, EVERYONE, NOW), 10 ** ((10 * math.log10(10e6 / 180e3) - 23) / 10))
    assert np.all(high.power(1, EVERYONE, NOW) == 1)
    assert np.all(made().power(1, EVERYONE, NOW) == 1)


@settings(max_examples=20)
@given(st.floats(-120, -40), st.floats(0, 1))
def test_fractional_power_control_by_hand(p0: float, alpha: float) -> None:
    grid = made("hex_grid", 50, p0_dbm=p0, alpha=alpha)
    device, now = np.arange(50), np.zeros(50)
    loss = grid.losses(3, device, *grid.position(3, device, now)).min(axis=0)
    power = np.minimum(23.0, p0 + 10 * math.log10(10e6 / 180e3) + alpha * loss)
    np.testing.assert_allclose(grid.power(3, device, now), 10 ** ((power - 23) / 10))
    np.testing.assert_allclose(10 * np.log10(grid(3, device, now)), power - loss + 174 - 70 - 5, atol=1e-9)


# Interference.


def test_interference_of_two_cells_by_hand(tmp_path: Path) -> None:
    file = spots(tmp_path, [(100.0, 0.0), (900.0, 0.0), (700.0, 0.0)])
    args: dict[str, Any] = {"sites": [[0, 0], [1000, 0]], "path_loss": plain(), "positions": file}
    pair = made("sites", 3, **args)
    device, share = np.arange(3), np.array([1.0, 0.25, 0.5])
    assert pair.cell(0, device, np.zeros(3)).tolist() == [0, 1, 1]

    def received(distance: float) -> float:
        return float(10 ** ((23 - 128.1 - 37.6 * math.log10(distance / 1000) + 174 - 70 - 5) / 10))

    found = pair.interference(0, device, 0.0, share)
    np.testing.assert_allclose(found, [0.25 * received(900) + 0.5 * received(700), received(900)])
    # what the server plans with: the mean device of the other cell, all the time
    expected = pair.expected_interference(0, device, np.zeros(3))
    mean = (received(900) + received(700)) / 2
    np.testing.assert_allclose(expected, [mean, received(900), received(900)])
    more = made("sites", 3, **args, margin_db=3.0).expected_interference(0, device, np.zeros(3))
    np.testing.assert_allclose(more, expected * 10**0.3)
    assert not made("sites", 3, **args, expected="none").expected_interference(0, device, np.zeros(3)).any()
    quiet = made("sites", 3, **args, interferes=False)
    assert not quiet.interference(0, device, 0.0, share).any()
    assert not quiet.expected_interference(0, device, np.zeros(3)).any()


def test_cells_that_are_alone_hear_nothing() -> None:
    lone = made(rings=0)
    assert lone.interference(1, np.arange(9), 0.0, np.ones(9)).tolist() == [0.0]


# Shadowing.


def test_shadowing_over_space_and_between_sites() -> None:
    lags = np.array([0.0, 10.0, 50.0, 100.0])
    found = []
    for seed in range(2500):
        grid = made("sites", 4, sites=[[0, 0], [1e5, 0]], path_loss={"name": "log_distance", "slope_db": 0.0})
        found.append(grid.losses(seed, np.arange(4), lags, np.zeros(4)) - 128.1)
    table = np.array(found)  # [seeds cells lags]
    assert table.std(axis=0).ravel() == pytest.approx(np.full(8, 8.0), rel=0.06)
    for cell in range(2):
        correlation = [np.corrcoef(table[:, cell, 0], table[:, cell, at])[0, 1] for at in range(4)]
        np.testing.assert_allclose(correlation, np.exp(-lags / 50), atol=0.05)
    assert np.corrcoef(table[:, 0, 0], table[:, 1, 0])[0, 1] == pytest.approx(0.5, abs=0.05)


def test_large_fleets_are_not_kept_and_have_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    some, time = np.array([7, 3, 1999]), np.array([1.0, 2.0, 300.0])
    grids = [made("hex_grid", 2000, sectors=3), made("hex_grid", 2000, path_loss={"name": "uma", "speed": 1.5})]

    def answers() -> list[Any]:
        return [
            [
                each(1, some, time).tolist(),
                each.cell(1, some, time).tolist(),
                each.power(1, some, time).tolist(),
                *each.interference(1, some, 5.0, np.array([0.5, 0.7, 0.1])).tolist(),
            ]
            for each in grids
        ]

    kept = answers()
    monkeypatch.setattr(sites, "MOST_POSITIONS_KEPT", 10)
    monkeypatch.setattr(sites, "_MOST_HEARD_KEPT", 10)
    monkeypatch.setattr(sites, "_AT_ONCE", 2)
    sites._moving.cache_clear()
    assert answers() == kept
    with pytest.raises(ValueError, match="read-only"):
        grids[1].cell(1, some, time)[0] = 5  # it is kept for who asks next


def test_sites_from_a_file_are_those_of_a_list(tmp_path: Path) -> None:
    file = tmp_path / "sites.csv"
    file.write_text("site,x,y\n1,700,0\n0,0,0\n2,0,700\n")
    listed = made("sites", 50, sites=[[0, 0], [700, 0], [0, 700]])
    read = made("sites", 50, sites=str(file))
    device, now = np.arange(50), np.zeros(50)
    assert np.array_equal(read(1, device, now), listed(1, device, now))
    assert np.array_equal(read.cell(1, device, now), listed.cell(1, device, now))
