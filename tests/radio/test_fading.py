"""Gains of channels that fade, against the distributions they are named after. Seeds are fixed: these cannot flake."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from fedtide.radio import channel as radio_channel
from fedtide.radio.cell import Equal
from fedtide.radio.channel import Jakes, Nakagami, Rician, _nakagami_gain, _rician_gain

EVERYONE = np.arange(20_000)
UNIT = Equal(0.0)  # an average SNR of 1


def gains(channel: Any, tick: int = 1, time: float = 1.0, seed: int = 3) -> np.ndarray:
    """Return |h|^2 of everyone, at an average SNR of 1."""
    return np.asarray(channel(seed, tick, time, EVERYONE))


@pytest.mark.parametrize("k_factor", [0.0, 0.5, 3.0, 20.0])
def test_rician(k_factor: float) -> None:
    gain = gains(Rician(k_factor, UNIT))
    law = stats.ncx2(2, 2 * k_factor, scale=1 / (2 * (k_factor + 1)))
    assert law.mean() == pytest.approx(1)
    assert stats.kstest(gain, law.cdf).pvalue > 0.01
    assert gain.var() == pytest.approx((2 * k_factor + 1) / (k_factor + 1) ** 2, rel=0.05)
    assert not np.array_equal(gain, _rician_gain(3, 2, EVERYONE, k_factor))  # every tick anew


@pytest.mark.parametrize("m", [0.5, 1.0, 2.5, 50.0])
def test_nakagami(m: float) -> None:
    gain = gains(Nakagami(m, UNIT))
    assert stats.kstest(gain, stats.gamma(m, scale=1 / m).cdf).pvalue > 0.01
    assert gain.mean() == pytest.approx(1, rel=0.02)
    assert gain.var() == pytest.approx(1 / m, rel=0.05)
    assert not np.array_equal(gain, _nakagami_gain(3, 2, EVERYONE, m))


@pytest.mark.parametrize("paths", [8, 32])
def test_jakes_is_nearly_rayleigh_at_any_time(paths: int) -> None:
    for time in (0.0, 1.0, 12345.678):
        gain = gains(Jakes(len(EVERYONE), 10.0, paths=paths, coverage=UNIT), time=time)
        assert gain.mean() == pytest.approx(1, rel=0.02)
        assert gain.var() == pytest.approx(1 - 3 / (4 * paths), rel=0.05)
        assert stats.kstest(gain, "expon").statistic < 0.01 + 0.1 / paths


@pytest.mark.parametrize("k_factor", [1.0, 10.0])
def test_jakes_with_a_direct_path_is_nearly_rician(k_factor: float) -> None:
    gain = gains(Jakes(len(EVERYONE), 10.0, k_factor, coverage=UNIT))
    law = stats.ncx2(2, 2 * k_factor, scale=1 / (2 * (k_factor + 1)))
    assert stats.kstest(gain, law.cdf).statistic < 0.02
    assert gain.mean() == pytest.approx(1, rel=0.02)


def quadratures(cycles: float, paths: int = 8) -> np.ndarray:
    speed, phase = radio_channel._drawn(5, EVERYONE, paths, False)
    waves = np.cos(2 * np.pi * (np.asarray(speed, float) * cycles + phase))
    return np.asarray(waves[:paths].sum(0) + 1j * waves[paths:].sum(0)) / np.sqrt(paths)


def test_jakes_spectrum() -> None:
    begun = quadratures(7.3)
    for lag in (0.05, 0.2, 0.3827, 0.6, 1.0, 3.0):
        found = np.mean(begun * quadratures(7.3 + lag).conj())
        assert found == pytest.approx(special.j0(2 * np.pi * lag), abs=0.02)
    np.testing.assert_allclose(
        radio_channel._jakes_gain(7.3, *radio_channel._drawn(5, EVERYONE, 8, False), 8), np.abs(begun) ** 2, atol=1e-5
    )


def test_correlation_of_gains_is_the_square_of_that_of_amplitudes() -> None:
    channel = Jakes(len(EVERYONE), 2.0, coverage=UNIT)
    before, later = gains(channel, 1, 4.0), gains(channel, 2, 4.1)
    assert np.corrcoef(before, later)[0, 1] == pytest.approx(special.j0(2 * np.pi * 0.2) ** 2, abs=0.05)
    assert np.array_equal(before, gains(channel, 77, 4.0))  # of time alone
    assert not np.array_equal(before, gains(channel, 1, 4.0, seed=4))


def test_over_time_every_device_fades_alike() -> None:
    gain = np.array([gains(Jakes(20_000, 1.0, coverage=UNIT), time=time)[:50] for time in np.arange(0, 2000, 7.7)])
    np.testing.assert_allclose(gain.mean(0), 1, atol=0.35)  # 260 draws of deviation 1 each
    assert gain.mean() == pytest.approx(1, abs=0.03)


def test_large_fleets_are_not_kept_and_have_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    some = np.array([7, 3, 1999])
    channel = Jakes(2000, 5.0, 1.0)
    kept = channel(1, 1, 2.5, some)
    monkeypatch.setattr(radio_channel, "MOST_WAVES_KEPT", 10)
    assert channel(1, 1, 2.5, some).tolist() == kept.tolist()


@pytest.mark.parametrize("make", [Rician, Nakagami, lambda **more: Jakes(100, **more)])
def test_all_fade_about_the_coverage(make: Any) -> None:
    device = np.arange(100)
    near = make(coverage=Equal(30.0))(1, 2, 3.0, device)
    far = make(coverage=Equal(10.0))(1, 2, 3.0, device)
    np.testing.assert_allclose(near, 100 * far, rtol=1e-9)
