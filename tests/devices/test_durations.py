"""Durations against their closed forms; the seeds are fixed, so that nothing here can flake."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedtide.devices.duration import (
    Cycles,
    LogNormal,
    ShiftedExponential,
    ShiftedExponentialBySize,
    duration_frequencies,
    durations_vary,
    first_duration,
)
from fedtide.devices.energy import Cmos
from fedtide.errors import FedtideError
from fedtide.parts import registry
from fedtide.types import Floats

N = 20_000
EVERYONE = np.arange(N)
SIZES = 10 + EVERYONE % 7


def _jobs(part: Any, seed: int = 3) -> Floats:
    """Return job 1 of half of the devices and job 2 of the other half."""
    return part(seed, EVERYONE, 1 + EVERYONE % 2)  # type: ignore[no-any-return]


LAWS: list[tuple[Any, Callable[[Floats], Floats], Any]] = [
    (ShiftedExponential(0.5, 2.0), lambda t: t, stats.expon(0.5, 2.0)),
    (ShiftedExponential(0, 0.1), lambda t: t, stats.expon(0, 0.1)),
    (ShiftedExponentialBySize(SIZES, 0.1, 0.4), lambda t: t / SIZES, stats.expon(0.1, 0.4)),
    (LogNormal(0.5, 0.7), lambda t: t, stats.lognorm(0.7, scale=0.5)),
    (LogNormal(3, 1, per_job=True), lambda t: t, stats.lognorm(1, scale=3)),
    (Cycles(SIZES, 1e6, 5e8, 2e9), lambda t: 1e6 * SIZES / t / 1e9, stats.uniform(0.5, 1.5)),
    (Cycles(SIZES, 1e6, 5e8, 2e9, unit_seconds=60), lambda t: 1e6 * SIZES / (60 * t) / 1e9, stats.uniform(0.5, 1.5)),
]


@pytest.mark.parametrize(("part", "undo", "law"), LAWS, ids=lambda each: getattr(type(each), "__name__", ""))
def test_the_law(part: Any, undo: Callable[[Floats], Floats], law: Any) -> None:
    drawn = undo(_jobs(part))
    assert stats.kstest(drawn, law.cdf).pvalue > 0.01
    assert abs(drawn.mean() - law.mean()) < 5 * law.std() / math.sqrt(N)


def test_a_spread_is_drawn_once_per_device() -> None:
    """E exp(2 Z) = exp(sigma^2 / 2) and two jobs of a device share it."""
    part = ShiftedExponential(1.0, 1e-12, spread=0.5)
    one, two = (part(5, EVERYONE, np.full(N, job)) for job in (1, 2))
    np.testing.assert_allclose(one, two)
    assert stats.kstest(one, stats.lognorm(0.5).cdf).pvalue > 0.01


def test_jobs_of_a_device_are_independent_where_they_are_redrawn() -> None:
    for part in (ShiftedExponential(), LogNormal(per_job=True)):
        assert durations_vary(part)
        one, two = (part(5, EVERYONE, np.full(N, job)) for job in (1, 2))
        assert abs(stats.spearmanr(one, two).statistic) < 4 / math.sqrt(N)
    assert not durations_vary(LogNormal())


@given(st.floats(1e-300, 1e9), st.floats(0, 10), st.integers(0, 99))
def test_no_device_takes_no_time(median: float, sigma: float, seed: int) -> None:
    found = first_duration(LogNormal(median, sigma), seed, 50)
    assert np.all((found > 0) & np.isfinite(found))


def test_energy_has_the_frequencies_of_the_durations() -> None:
    """T_k f_k / (c n_k) = 1 and J_k = kappa c n_k f_k^2, so J_k T_k^2 = kappa (c n_k)^3."""
    duration, energy = Cycles(SIZES, 2e6, 5e8, 2e9), Cmos(1e-28, 2e6, 5e8, 2e9)
    joules = energy(4, EVERYONE, SIZES, np.zeros(N))
    np.testing.assert_allclose(joules * first_duration(duration, 4, N) ** 2, 1e-28 * (2e6 * SIZES) ** 3.0)
    assert np.ptp(duration_frequencies(4, EVERYONE, 5e8, 2e9)) > 1.49e9


def test_energy_by_hand() -> None:
    """1 GHz, 1e7 cycles a sample and 1e-28: 1e-3 J a sample; 0.2 W at 1e6 symbols/s: 2e-7 J a symbol."""
    energy = Cmos(power_watts=0.2, symbol_rate=1e6)
    found = energy(0, np.array([0, 1, 2]), np.array([1, 300, 0]), np.array([0.0, 1e6, 5e6]))
    np.testing.assert_allclose(found, [1e-3, 0.3 + 0.2, 1.0])
    per_minute = Cmos(power_watts=0.2, symbol_rate=60e6, unit_seconds=60)
    np.testing.assert_allclose(per_minute(0, np.array([0]), np.array([0]), np.array([5e6])), [1.0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Cmos(power_watts=0.1),
            r"power_watts=0\.1 for how long\? radio\.symbol_rate=0 .*set it to the bandwidth",
        ),
        (lambda: Cmos(min_frequency=2e9), r"min_frequency=2e\+09 exceeds max_frequency=1e\+09; swap them"),
        (lambda: Cycles(SIZES, min_frequency=2e9), r"min_frequency=2e\+09 exceeds max_frequency=1e\+09; swap them"),
        (lambda: Cycles(SIZES, 0.0), r"fleet\.cycles_per_sample=0 means that devices take no time; give"),
        (
            lambda: registry.part("duration", "log_normal", {"sigma": -1}),
            r"sigma=-1 cannot be: .*greater than or equal to 0",
        ),
        (lambda: registry.part("duration", "shifted_exponential", {"mean": 0}), r"mean=0 cannot be: .*greater than 0"),
    ],
)
def test_bad_arguments(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(FedtideError, match=message):
        make()
