"""Rayleigh block fading and the capacity of a link (eq:cpct)."""

from __future__ import annotations

import math

import numpy as np

from fedtide.rng import stream
from fedtide.types import Floats

FAINT = 1e-6  # SNR


def power_gain(seed: int, tick: int, num_devices: int) -> Floats:
    """Draw |h_k(t)|^2 of all N devices for one tick, h ~ CN(0, 1) i.i.d., so the gain is Exp(1) [N].

    Drawn for every device whether ready or not, so that all policies meet the same channel.
    """
    real, imaginary = stream(seed, "fading", tick).standard_normal((2, num_devices)) / np.sqrt(2)
    return np.asarray(real**2 + imaginary**2)


def capacity(gain: Floats, snr_db: float, large_scale: float | Floats = 1.0) -> Floats:
    """Return C_k = log2(1 + SNR beta_k |h_k|^2) in bit/symbol (eq:cpct) [N]; snr_db is the average SNR at beta = 1."""
    snr = np.asarray(10 ** (snr_db / 10) * np.asarray(large_scale) * gain)
    # log1p only where 1 + SNR loses digits of the SNR: elsewhere log2 has always been used, and runs keep their bits
    return np.asarray(np.where(snr < FAINT, np.log1p(snr) / math.log(2), np.log2(1 + snr)))
