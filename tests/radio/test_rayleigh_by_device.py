"""Rayleigh fading drawn device by device: the law of `rayleigh`, anew at every tick, about any coverage."""

from __future__ import annotations

import numpy as np
from scipy import stats

from fedtide.radio.cell import Equal
from fedtide.radio.channel import RayleighByDevice
from fedtide.types import Floats

MANY = np.arange(20_000)


def gains(seed: int, tick: int) -> Floats:
    """Return |h|^2 [m]."""
    return RayleighByDevice(Equal(snr_db=10.0))(seed, tick, 0.0, MANY) / 10


def test_gains_are_exponential() -> None:
    for seed, tick in ((0, 1), (0, 2), (7, 1)):
        assert stats.kstest(gains(seed, tick), "expon").pvalue > 1e-4


def test_ticks_and_seeds_are_independent() -> None:
    found = np.corrcoef([gains(0, 1), gains(0, 2), gains(7, 1)]) - np.eye(3)
    assert np.abs(found).max() < 0.03


def test_coverage_scales_it() -> None:
    near = RayleighByDevice(Equal(10.0, [1.0, 4.0]))(3, 5, 0.0, np.array([0, 1]))
    alike = RayleighByDevice(Equal(10.0))(3, 5, 0.0, np.array([0, 1]))
    assert np.allclose(near / alike, [1, 4])
