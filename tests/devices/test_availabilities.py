"""Availabilities against their closed forms; the seeds are fixed, so that nothing here can flake."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedtide.devices import availability
from fedtide.devices.availability import Battery, Daily, Markov, always_available
from fedtide.errors import FedtideError
from fedtide.parts import registry
from fedtide.types import Floats, Ints

N = 4000
EVERYONE = np.arange(N)


def _there(part: Any, time: float, seed: int = 3, device: Ints = EVERYONE) -> Any:
    asked = np.full(len(device), time)
    return part(seed, device, asked) == asked


def _stays(part: Any, device: int, until: float, step: float, seed: int = 3) -> tuple[Floats, Floats]:
    """Return when a device comes and leaves, looked at on a grid; comings are exact."""
    grid = np.arange(0, until, step)
    there = part(seed, np.full(len(grid), device), grid) == grid
    change = np.flatnonzero(there[1:] != there[:-1]) + 1
    came, left = change[there[change]], change[~there[change]]
    return part(seed, np.full(len(came), device), grid[came - 1]), grid[left]


# ---- on and off by chance


@pytest.mark.parametrize(("on", "off"), [(4, 2), (1.0, 1.0), (0.3, 5.0), (50.0, 0.5)])
@pytest.mark.parametrize("time", [0.0, 0.7, 1234.5, 1e6])
def test_the_share_of_time_on_is_the_same_at_any_time(on: float, off: float, time: float) -> None:
    share = on / (on + off)
    found = _there(Markov(on, off, N), time).mean()
    assert abs(found - share) < 4 * math.sqrt(share * (1 - share) / N)


@pytest.mark.parametrize(("on", "off"), [(4.0, 2.0), (0.5, 3.0), (3.0, 0.2)])
@pytest.mark.parametrize("time", [0.0, 77.7])
def test_whoever_is_away_is_back_after_an_exponential_time(on: float, off: float, time: float) -> None:
    """Memoryless: the rest of an absence is Exp(mean_off), whenever it is asked for."""
    asked = np.full(5 * N, time)
    back = Markov(on, off, N)(3, np.arange(5 * N), asked)
    wait = (back - asked)[back > asked]
    assert stats.kstest(wait, stats.expon(0, off).cdf).pvalue > 0.01


@pytest.mark.parametrize(("on", "off", "lag"), [(4.0, 2.0, 1.0), (1.0, 3.0, 2.5), (2.0, 2.0, 9.0)])
@pytest.mark.parametrize("time", [0.0, 11.0, 100.3])
def test_how_soon_a_state_is_forgotten(on: float, off: float, lag: float, time: float) -> None:
    """P(on at t + s | on at t) = p + (1 - p) exp(-(1/on + 1/off) s), within windows and across their borders."""
    share, device = on / (on + off), np.arange(5 * N)
    before, after = (_there(Markov(on, off, N), each, 5, device) for each in (time, time + lag))
    kept = math.exp(-(1 / on + 1 / off) * lag)
    for state, expected in ((True, share + (1 - share) * kept), (False, share - share * kept)):
        number = (before == state).sum()
        assert abs(after[before == state].mean() - expected) < 4 * math.sqrt(expected * (1 - expected) / number)


def test_mean_stays() -> None:
    came, left = _stays(Markov(3.0, 1.5, 8), 7, 3000, 0.02)
    first = 1 if left[0] < came[0] else 0
    pairs = min(len(came), len(left) - first)
    on, off = left[first : first + pairs] - came[:pairs], came[1:pairs] - left[first : first + pairs - 1]
    assert abs(on.mean() - 3.0) < 4 * 3.0 / math.sqrt(pairs) + 0.02
    assert abs(off.mean() - 1.5) < 4 * 1.5 / math.sqrt(pairs) + 0.02


def test_windows_without_a_call_hand_the_state_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows so short that a tenth are empty: the law must not change."""
    monkeypatch.setattr(availability, "TURNS", 0.5)
    availability._drawn.cache_clear()
    availability._begun.cache_clear()
    try:
        test_the_share_of_time_on_is_the_same_at_any_time(4, 2, 20.0)
        test_how_soon_a_state_is_forgotten(4.0, 2.0, 1.0, 11.0)
        test_whoever_is_away_is_back_after_an_exponential_time(4.0, 2.0, 7.7)
    finally:
        availability._drawn.cache_clear()
        availability._begun.cache_clear()


def test_what_is_drawn_does_not_depend_on_what_was_kept() -> None:
    part, times = Markov(1, 2, N), np.linspace(0, 60, N)
    found = part(3, EVERYONE, times)
    availability._drawn.cache_clear()
    availability._begun.cache_clear()
    backwards = part(3, EVERYONE[::-1], times[::-1])[::-1]
    assert np.array_equal(found, backwards)
    assert np.array_equal(found, Markov(1, 2, 700)(3, EVERYONE, times))  # nor on how many are drawn together


def test_a_mean_that_is_nothing_beside_the_time() -> None:
    with pytest.raises(
        FedtideError, match=r"mean_on=1e-20 and mean_off=1e-20 are too small for the time 1; raise them"
    ):
        Markov(1e-20, 1e-20)(0, np.array([0]), np.array([1.0]))


# ---- by the day


@pytest.mark.parametrize(
    ("part", "time", "back"),
    [
        (Daily(24, 22, 6, 0), 0.0, 0.0),
        (Daily(24, 22, 6, 0), 5.999, 5.999),
        (Daily(24, 22, 6, 0), 6.0, 22.0),
        (Daily(24, 22, 6, 0), 22.0, 22.0),
        (Daily(24, 22, 6, 0), 24 * 7 + 12.0, 24 * 7 + 22.0),
        (Daily(1, 0.25, 0.75, 0), 0.0, 0.25),
        (Daily(1, 0.25, 0.75, 0), 10.75, 11.25),
    ],
)
def test_hours_of_the_day(part: Daily, time: float, back: float) -> None:
    assert part(0, np.array([5]), np.array([time])).tolist() == [back]


def test_a_day_on_average() -> None:
    """Share of time: ((end - begin) mod day) / day, with jitter and time zones; the hours move by U(-jitter, jitter)."""
    part = Daily(24, 22, 6, 2, zones=12)
    share = np.mean([_there(part, time).mean() for time in np.arange(480, 504, 0.25)])
    assert abs(share - 8 / 24) < 4 * (2 * 2 / math.sqrt(6) / 24) / math.sqrt(N)
    came = Daily(24, 22, 6, 2)(3, EVERYONE, np.full(N, 12.0))
    assert stats.kstest(came, stats.uniform(20, 4).cdf).pvalue > 0.01
    zones = Daily(24, 22, 6, 0, zones=12)(3, EVERYONE, np.full(N, 480 + 21.999))
    later = zones[zones > 480 + 21.999] - 480 - 22
    assert stats.kstest(later, stats.uniform(0, 12).cdf).pvalue > 0.01


# ---- by battery


@pytest.mark.parametrize(("drain", "harvest", "restart"), [(10, 5, 1), (2.0, 0.5, 0.3), (1.0, 0.9, 1.0)])
def test_a_battery_is_on_for_harvest_over_drain_of_the_time(drain: float, harvest: float, restart: float) -> None:
    part = Battery(40, drain, harvest, restart)
    for time in (0.0, 3.3, 1e4):
        share = harvest / drain
        assert abs(_there(part, time).mean() - share) < 4 * math.sqrt(share * (1 - share) / N)
    came, left = _stays(part, 3, 4000, 0.01)
    first = 1 if left[0] < came[0] else 0
    np.testing.assert_allclose(np.diff(came), restart * 40 / (drain - harvest) + restart * 40 / harvest, rtol=1e-9)
    pairs = min(len(came), len(left) - first)
    on = left[first : first + pairs] - came[:pairs]
    np.testing.assert_allclose(on, restart * 40 / (drain - harvest), atol=0.011)


def test_a_battery_in_other_units() -> None:
    seconds, minutes = Battery(600, 10, 5), Battery(600, 10, 5, unit_seconds=60)
    times = np.linspace(0, 3000, N)
    np.testing.assert_allclose(minutes(3, EVERYONE, times / 60) * 60, seconds(3, EVERYONE, times))


def test_a_battery_that_is_never_charged_empties_for_good() -> None:
    part = Battery(40, 10, 0)
    for time in (0.0, 1.0, 3.0, 4.0, 1e6):
        back = part(3, EVERYONE, np.full(N, time))
        share = max(1 - time / 4, 0)
        assert set(back) <= {time, math.inf}
        assert abs((back == time).mean() - share) <= 4 * math.sqrt(share * (1 - share) / N)


def test_a_battery_that_is_charged_as_fast_as_it_is_drained() -> None:
    part = Battery(40, 5, 5)
    assert always_available(part)
    assert _there(part, 1e5).all()
    assert not always_available(Battery())


# ---- what they all promise


parts_of = st.one_of(
    st.builds(Markov, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)),
    st.builds(Battery, st.floats(1e-3, 1e6), st.floats(0.1, 9), st.floats(0, 9), st.floats(0.01, 1)),
    st.builds(Daily, st.just(24), st.floats(0, 10), st.floats(12, 23), st.floats(0, 0.45), st.floats(0, 50)),
)


@settings(deadline=None, max_examples=40)
@given(parts_of, st.lists(st.floats(0, 1e5), min_size=1, max_size=20), st.integers(0, 2**40))
def test_whoever_is_back_is_there(part: Any, times: list[float], seed: int) -> None:
    time, device = np.array(times), np.arange(len(times)) * 1001
    back = part(seed, device, time)
    assert np.all(back >= time)
    come = np.isfinite(back)
    assert np.array_equal(part(seed, device[come], back[come]), back[come])
    waits = come & (back > time)  # and not a moment sooner
    before = np.nextafter(back[waits], 0)
    assert np.array_equal(part(seed, device[waits], before), back[waits])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Daily(24, 25, 3), r"begin=25 or end=3 lies beyond day=24; give times of the day"),
        (lambda: Daily(24, 6, 6), r"from begin=6 to end=6 is all day or none of it; move one"),
        (lambda: Daily(24, 6, 7, 0.5), r"jitter=0\.5 could swallow the stay of 1 .*keep it below 0\.5"),
        (lambda: Battery(1e-320, 1e10, 9), r"capacity_joules=.* lasts .*; give numbers of one size"),
        (lambda: registry.part("availability", "markov", {"mean_on": 0}), r"mean_on=0 cannot be: .*greater than 0"),
        (
            lambda: registry.part("availability", "battery", {"restart": 1.5}),
            r"restart=1\.5 cannot be: .*less than or equal",
        ),
    ],
)
def test_bad_arguments(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(FedtideError, match=message):
        make()
