"""What the server knows of links, against closed forms of outage and loss."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedtide.radio.channel import of_snr
from fedtide.radio.csi import Noisy, PacketErrors, Pilots, snr_of

MANY = 100_000
EVERYONE = np.arange(MANY)


@pytest.mark.parametrize(("error", "margin_db"), [(0.01, 0.0), (0.05, 1.0), (0.3, 3.0), (1.0, 0.0)])
def test_error_in_proportion(error: float, margin_db: float) -> None:
    capacity = np.linspace(0.1, 8, MANY)
    link = Noisy(error, margin_db)(1, 2, 0.5, EVERYONE, capacity)
    assert link.capacity is capacity
    law = stats.ncx2(2, 2 / error, scale=error / 2)  # |1 + sqrt(v) w|^2
    ratio = snr_of(link.estimated_capacity) / snr_of(capacity) * 10 ** (margin_db / 10)
    assert stats.kstest(ratio, law.cdf).pvalue > 0.01
    outage = np.mean(link.estimated_capacity > link.capacity)
    assert outage == pytest.approx(law.sf(10 ** (margin_db / 10)), abs=0.005)


@pytest.mark.parametrize(("pilots", "margin_db"), [(1, 0.0), (8, 0.0), (8, 2.0)])
@pytest.mark.parametrize("snr_db", [0.0, 13.0])
def test_pilots(pilots: int, margin_db: float, snr_db: float) -> None:
    snr = 10 ** (snr_db / 10)
    link = Pilots(pilots, margin_db)(1, 2, 0.5, EVERYONE, np.full(MANY, np.log2(1 + snr)))
    law = stats.ncx2(2, 2 * snr * pilots, scale=1 / (2 * pilots))  # |sqrt(SNR) + w/sqrt(L)|^2
    assert stats.kstest(snr_of(link.estimated_capacity) * 10 ** (margin_db / 10), law.cdf).pvalue > 0.01
    assert np.mean(link.estimated_capacity > link.capacity) == pytest.approx(
        law.sf(snr * 10 ** (margin_db / 10)), abs=0.005
    )


def test_without_error_the_estimate_is_the_link() -> None:
    capacity = np.linspace(0, 20, 100)
    np.testing.assert_allclose(Noisy(0.0)(1, 2, 0.5, EVERYONE[:100], capacity).believed, capacity, rtol=1e-12)
    assert np.all(Noisy(0.0, 1.0)(1, 2, 0.5, EVERYONE[:100], capacity).believed[1:] < capacity[1:])


@pytest.mark.parametrize("waterfall_db", [0.023, -10.0, 3.0])
@pytest.mark.parametrize("interference", [0.0, 1.0])
@pytest.mark.parametrize("snr_db", [-10.0, 3.0, 13.0])
def test_lost_packets(waterfall_db: float, interference: float, snr_db: float) -> None:
    snr = 10 ** (snr_db / 10)
    capacity = of_snr(np.full(MANY, snr))
    link = PacketErrors(waterfall_db, interference)(1, 2, 0.5, EVERYONE, capacity)
    np.testing.assert_allclose(link.estimated_capacity, np.log2(1 + snr / (1 + interference)), rtol=1e-12)
    chance = 1 - np.exp(-(10 ** (waterfall_db / 10)) * (1 + interference) / snr)
    assert np.mean(link.capacity == 0) == pytest.approx(chance, abs=0.006)
    assert np.array_equal(link.capacity[link.capacity > 0], link.estimated_capacity[link.capacity > 0])


def test_over_rayleigh_fading_loss_is_that_of_the_average() -> None:
    """E[exp(-m/(g SNR))] over g ~ Exp(1) is 2 sqrt(m/SNR) K1(2 sqrt(m/SNR))."""
    from scipy.special import k1

    gain = np.random.default_rng(0).exponential(size=MANY)
    link = PacketErrors(0.0)(1, 2, 0.5, EVERYONE, of_snr(20 * gain))
    z = 2 * np.sqrt(1 / 20)
    assert np.mean(link.capacity > 0) == pytest.approx(z * k1(z), abs=0.006)


@pytest.mark.parametrize("csi", [Noisy(0.1), Pilots(), PacketErrors()])
def test_no_signal_and_far_too_much(csi: Noisy | Pilots | PacketErrors) -> None:
    link = csi(1, 2, 0.5, EVERYONE[:3], np.array([0.0, 1e-300, 5000.0]))
    assert np.all(np.isfinite(link.estimated_capacity) & (link.estimated_capacity >= 0))
    if isinstance(csi, PacketErrors):
        assert link.capacity[0] == 0
