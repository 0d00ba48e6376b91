"""Link capacities of the fleet [N] in bit/symbol: seeded fading, measured on uploads, or as reported."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedtide.system import System
from fedtide.types import Floats
from fedtide.world.channel import capacity

MEMORY = 0.5  # weight of the newest measurement
LEAST = 1e-6  # bit/symbol; a link that was seen to work is never taken for dead


def measured(system: System, rate: Mapping[int, float], window: float, most: float) -> Floats:
    """Return the capacities that fit the rates (bit/s) seen on recent uploads [N].

    The symbols of a tick are sent within `window` seconds, so one bit/symbol is num_symbols / window bit/s. A link that has
    not been used yet counts as one at the average SNR.
    """
    experiment = system.experiment
    scale = np.asarray(experiment.radio.large_scale, np.float64)
    found = np.broadcast_to(capacity(np.ones(1), experiment.radio.snr_db, scale), experiment.fleet.num_devices).copy()
    for device, bits_per_second in rate.items():
        found[device] = np.clip(bits_per_second * window / system.num_symbols, LEAST, most)
    return found


def updated(rate: Mapping[int, float], device: int, bits: int, seconds: float) -> dict[int, float]:
    """Return the rates with one more upload of so many bits on the wire, in so many seconds, taken in."""
    seen = bits / max(seconds, 1e-3)
    before = rate.get(device, seen)
    return {**rate, device: before + MEMORY * (seen - before)}
