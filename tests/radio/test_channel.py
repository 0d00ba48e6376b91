from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedtide.radio.channel import Rayleigh, _power_gain
from fedtide.radio.modem import Shannon, shannon_capacity, shannon_snr


def test_gain_is_exponential_with_mean_one() -> None:
    gain = np.concatenate([_power_gain(0, tick, 100) for tick in range(200)])
    assert stats.kstest(gain, "expon").pvalue > 0.01
    assert gain.mean() == pytest.approx(1, abs=0.03)


def test_mean_capacity_at_13_db() -> None:
    gain = np.concatenate([_power_gain(1, tick, 1000) for tick in range(200)])
    assert Shannon()(10**1.3 * gain).mean() == pytest.approx(3.74, abs=0.01)


def test_every_policy_meets_the_same_channel() -> None:
    assert np.array_equal(_power_gain(5, 9, 40), _power_gain(5, 9, 40))
    assert not np.array_equal(_power_gain(5, 9, 40), _power_gain(5, 10, 40))


def test_capacity_formula_and_large_scale_fading() -> None:
    np.testing.assert_allclose(
        shannon_capacity(10 * np.array([1.0, 0.1, 1.0]) * np.array([0.5, 2.0, 0.0])), [np.log2(6), np.log2(3), 0.0]
    )


@pytest.mark.parametrize("gain", [1e-3, 1e-7, 1e-12, 1e-17, 1e-30])
def test_capacity_of_faint_links(gain: float) -> None:
    exact = gain / np.log(2) * (1 - gain / 2 + gain**2 / 3)  # log2(1 + x) to the third order
    assert shannon_capacity(np.array([gain]))[0] == pytest.approx(exact, rel=1e-9, abs=0)


@pytest.mark.parametrize("large_scale", [1.0, 0.3, [0.5 + k / 40 for k in range(40)]])
def test_rayleigh_keeps_the_bits_of_every_stored_result(large_scale: float | list[float]) -> None:
    everyone = 10 ** (13.0 / 10) * np.asarray(large_scale, np.float64) * _power_gain(5, 9, 40)
    some = np.array([39, 2, 17])
    assert Rayleigh(40, 13.0, large_scale)(5, 9, 2.25, some).tolist() == everyone[some].tolist()


def test_the_snr_of_a_capacity_is_the_inverse() -> None:
    snr = np.array([0.0, 1e-9, 0.3, 20.0, 1e6])
    np.testing.assert_allclose(shannon_snr(shannon_capacity(snr)), snr, rtol=1e-12)
