"""What distance costs: formulas of 3GPP in dB, of horizontal distances in metres and a carrier in GHz.

`uma` and `umi` are TR 38.901, tables 7.4.1-1 (path loss) and 7.4.2-1 (chance of a line of sight), for devices up to 13 m high,
where the effective height of the environment is 1 m.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedtide.types import Floats

LIGHT = 3.0e8  # m/s, as TR 38.901 has it
ENVIRONMENT = 1.0  # effective height in m


class Street(NamedTuple):
    """The constants of one scenario of TR 38.901."""

    height: float  # of the base station, in m
    constant: float  # of the line of sight, in dB
    slope: float  # before the breakpoint, in dB per decade
    breaking: float  # what the breakpoint takes off, in dB per decade
    hidden: tuple[
        float, float, float, float
    ]  # without a line of sight: constant, per decade of m, of GHz, per m of height
    reach: float  # over which lines of sight are lost, in m


UMA = Street(25.0, 28.0, 22.0, 9.0, (13.54, 39.08, 20.0, 0.6), 63.0)
UMI = Street(10.0, 32.4, 21.0, 9.5, (22.4, 35.3, 21.3, 0.3), 36.0)


def log_distance(distance: Floats, constant: float = 128.1, slope: float = 37.6) -> Floats:
    """Return 128.1 + 37.6 log10(d / km) (TR 36.814 and 36.942, macro cells at 2 GHz) [m]."""
    return np.asarray(constant + slope * np.log10(distance / 1000))


def in_sight(street: Street, distance: Floats) -> Floats:
    """Return the chance of a line of sight [m]."""
    near = np.minimum(18 / distance, 1.0)
    return np.asarray(near + np.exp(-distance / street.reach) * (1 - near))


def both(street: Street, distance: Floats, carrier: float, height: float) -> tuple[Floats, Floats]:
    """Return the path loss with a line of sight, and without one [m]. height: of the device, in m."""
    above = street.height - height
    decades = np.log10(distance**2 + above**2) / 2  # of the slant distance
    breakpoint_ = 4 * (street.height - ENVIRONMENT) * (height - ENVIRONMENT) * carrier * 1e9 / LIGHT
    of_carrier = 20 * math.log10(carrier)
    broken = street.breaking * math.log10(breakpoint_**2 + above**2)
    before, after = street.constant + of_carrier + street.slope * decades, street.constant + of_carrier + 40 * decades
    direct = np.where(distance <= breakpoint_, before, after - broken)
    constant, slope, per_carrier, per_height = street.hidden
    hidden = constant + per_carrier * math.log10(carrier) - per_height * (height - 1.5) + slope * decades
    return direct, np.maximum(direct, hidden)
