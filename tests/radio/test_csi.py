"""What the server knows of links, against closed forms of outage and loss."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedtide.radio.csi import Noisy, PacketErrors, Pilots

MANY = 100_000
EVERYONE = np.arange(MANY)


@pytest.mark.parametrize(("error", "margin_db"), [(0.01, 0.0), (0.05, 1.0), (0.3, 3.0), (1.0, 0.0)])
def test_error_in_proportion(error: float, margin_db: float) -> None:
    snr = np.linspace(0.1, 250, MANY)
    signal = Noisy(error, margin_db)(1, 2, 0.5, EVERYONE, snr)
    assert signal.snr is snr
    law = stats.ncx2(2, 2 / error, scale=error / 2)  # |1 + sqrt(v) w|^2
    ratio = signal.estimated_snr / snr * 10 ** (margin_db / 10)
    assert stats.kstest(ratio, law.cdf).pvalue > 0.01
    outage = np.mean(signal.estimated_snr > signal.snr)
    assert outage == pytest.approx(law.sf(10 ** (margin_db / 10)), abs=0.005)


@pytest.mark.parametrize(("pilots", "margin_db"), [(1, 0.0), (8, 0.0), (8, 2.0)])
@pytest.mark.parametrize("snr_db", [0.0, 13.0])
def test_pilots(pilots: int, margin_db: float, snr_db: float) -> None:
    snr = 10 ** (snr_db / 10)
    signal = Pilots(pilots, margin_db)(1, 2, 0.5, EVERYONE, np.full(MANY, snr))
    law = stats.ncx2(2, 2 * snr * pilots, scale=1 / (2 * pilots))  # |sqrt(SNR) + w/sqrt(L)|^2
    assert stats.kstest(signal.estimated_snr * 10 ** (margin_db / 10), law.cdf).pvalue > 0.01
    assert np.mean(signal.estimated_snr > signal.snr) == pytest.approx(law.sf(snr * 10 ** (margin_db / 10)), abs=0.005)


def test_without_error_the_estimate_is_the_link() -> None:
    snr = np.linspace(0, 1e6, 100)
    np.testing.assert_allclose(Noisy(0.0)(1, 2, 0.5, EVERYONE[:100], snr).estimated_snr, snr, rtol=1e-12)
    assert np.all(Noisy(0.0, 1.0)(1, 2, 0.5, EVERYONE[:100], snr).estimated_snr[1:] < snr[1:])


@pytest.mark.parametrize("waterfall_db", [0.023, -10.0, 3.0])
@pytest.mark.parametrize("interference", [0.0, 1.0])
@pytest.mark.parametrize("snr_db", [-10.0, 3.0, 13.0])
def test_lost_packets(waterfall_db: float, interference: float, snr_db: float) -> None:
    snr = 10 ** (snr_db / 10)
    signal = PacketErrors(waterfall_db, interference)(1, 2, 0.5, EVERYONE, np.full(MANY, snr))
    np.testing.assert_allclose(signal.estimated_snr, snr / (1 + interference), rtol=1e-12)
    chance = 1 - np.exp(-(10 ** (waterfall_db / 10)) * (1 + interference) / snr)
    assert np.mean(signal.snr == 0) == pytest.approx(chance, abs=0.006)
    assert np.array_equal(signal.snr[signal.snr > 0], signal.estimated_snr[signal.snr > 0])


def test_over_rayleigh_fading_loss_is_that_of_the_average() -> None:
    """E[exp(-m/(g SNR))] over g ~ Exp(1) is 2 sqrt(m/SNR) K1(2 sqrt(m/SNR))."""
    from scipy.special import k1

    gain = np.random.default_rng(0).exponential(size=MANY)
    signal = PacketErrors(0.0)(1, 2, 0.5, EVERYONE, 20 * gain)
    z = 2 * np.sqrt(1 / 20)
    assert np.mean(signal.snr > 0) == pytest.approx(z * k1(z), abs=0.006)


@pytest.mark.parametrize("csi", [Noisy(0.1), Pilots(), PacketErrors()])
def test_no_signal_and_far_too_much(csi: Noisy | Pilots | PacketErrors) -> None:
    signal = csi(1, 2, 0.5, EVERYONE[:3], np.array([0.0, 1e-300, 1e300]))
    assert np.all(np.isfinite(signal.estimated_snr) & (signal.estimated_snr >= 0))
    if isinstance(csi, PacketErrors):
        assert signal.snr[0] == 0
