"""Shadowing in dB about its mean, of standard deviation 1: drawn for each device, or as a field over the plane.

The field is a sum of plane waves whose numbers are drawn from the spectrum of exp(-d/d_corr), which in the plane is
proportional to (1 + (k d_corr)^2)^(-3/2): one in each of W parts of equal power. Over seeds its correlation is exp(-d/d_corr)
exactly. It is a function of the position, so that a device that comes back finds what it left.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from fedtide import columns
from fedtide.types import Floats, Ints, read_only
from fedtide.world.waves import cosine, sum_of_rows

WAVES = 32
AT_ONCE = 4


def independent(seed: int, device: Ints) -> Floats:
    """Return a standard normal number for each device [m]."""
    return columns.normal(seed, "shadowing", device)


def field(seed: int, x: Floats, y: Floats, correlation: float) -> Floats:
    """Return the field at these positions, nearly standard normal [m]. correlation: d_corr, in m as the positions."""
    number, phase = _waves(seed, correlation)
    total = np.zeros(len(x))
    for begin in range(0, WAVES, AT_ONCE):  # so few that they stay in the processor's cache
        some = slice(begin, begin + AT_ONCE)
        waves = number[0, some, None] * x
        waves += number[1, some, None] * y
        waves += phase[some, None]
        total += sum_of_rows(cosine(waves))
    return total * math.sqrt(2 / WAVES)


@functools.lru_cache(maxsize=16)
def _waves(seed: int, correlation: float) -> tuple[Floats, Floats]:
    """Return the waves of a field: cycles per m in both directions [2 W], and their phases in cycles [W]."""
    which = np.arange(WAVES)
    part = (which + columns.uniform(seed, "shadowing waves", which)) / WAVES
    number = np.sqrt((1 - part) ** -2 - 1) / (2 * np.pi * correlation)
    angle = 2 * np.pi * columns.uniform(seed, "shadowing waves", which, draw=1)
    phase = columns.uniform(seed, "shadowing waves", which, draw=2)
    return read_only(number * np.stack([np.cos(angle), np.sin(angle)])), read_only(phase)
