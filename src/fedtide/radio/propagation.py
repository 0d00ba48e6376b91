"""Path loss, shadowing and where devices are."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide import columns
from fedtide.devices.traces import read_trace_columns
from fedtide.types import Floats, Ints, read_only

Singles: TypeAlias = npt.NDArray[np.float32]
_Columns: TypeAlias = tuple[npt.NDArray[Any], ...]


def propagation_per_device(
    draw: Callable[..., _Columns], seed: int, device: Ints, kept: int | None, *args: Any
) -> _Columns:
    """Return what draw(seed, device, *args) gives of each device [... m]: a function of its arguments, asked at every tick.

    kept: N, if that of all N devices is kept between ticks; None: the fleet is too large, and it is drawn anew.
    """
    if kept is None:
        return draw(seed, device, *args)
    return tuple(np.take(each, device, axis=-1) for each in _of_everyone(draw, seed, kept, *args))


@functools.lru_cache(maxsize=8)
def _of_everyone(draw: Callable[..., _Columns], seed: int, num_devices: int, *args: Any) -> _Columns:
    return tuple(map(read_only, draw(seed, np.arange(num_devices), *args)))


# Many cosines at once, in single precision where it is enough: sums of sinusoids are asked for at every tick.


def propagation_cosine(cycles: Floats) -> Singles:
    """Return cos(2 pi cycles), exact to single precision for any number of cycles; what it is given is written over."""
    cycles -= np.floor(cycles)  # in double precision: what is left of a turn is exact enough in single
    cycles *= 2 * np.pi
    return np.asarray(np.cos(cycles.astype(np.float32)))


def propagation_sum(rows: Singles) -> Floats:
    """Return the sum of the rows [m], one row after the other: NumPy's own order depends on how many columns there are."""
    total: Floats = rows[0].astype(np.float64)
    for row in rows[1:]:
        total += row
    return total


# What distance costs: formulas of 3GPP in dB, of horizontal distances in metres and a carrier in GHz.
#
# `uma` and `umi` are TR 38.901, tables 7.4.1-1 (path loss) and 7.4.2-1 (chance of a line of sight), for devices up to 13 m
# high, where the effective height of the environment is 1 m.


_LIGHT = 3.0e8  # m/s, as TR 38.901 has it
_ENVIRONMENT = 1.0  # effective height in m


class Street(NamedTuple):
    """The constants of one scenario of TR 38.901."""

    height: float  # of the base station, in m
    constant: float  # of the line of sight, in dB
    slope: float  # before the breakpoint, in dB per decade
    breaking: float  # what the breakpoint takes off, in dB per decade
    hidden: tuple[float, float, float, float]  # out of sight: constant, per decade of m, of GHz, per m of height
    reach: float  # over which lines of sight are lost, in m


UMA = Street(25.0, 28.0, 22.0, 9.0, (13.54, 39.08, 20.0, 0.6), 63.0)
UMI = Street(10.0, 32.4, 21.0, 9.5, (22.4, 35.3, 21.3, 0.3), 36.0)


def line_of_sight_chance(street: Street, distance: Floats) -> Floats:
    """Return the chance of a line of sight [m]."""
    near = np.minimum(18 / distance, 1.0)
    return np.asarray(near + np.exp(-distance / street.reach) * (1 - near))


def both_path_losses(street: Street, distance: Floats, carrier: float, height: float) -> tuple[Floats, Floats]:
    """Return the path loss with a line of sight, and without one [m]. height: of the device, in m."""
    above = street.height - height
    decades = np.log10(distance**2 + above**2) / 2  # of the slant distance
    breakpoint_ = 4 * (street.height - _ENVIRONMENT) * (height - _ENVIRONMENT) * carrier * 1e9 / _LIGHT
    of_carrier = 20 * math.log10(carrier)
    broken = street.breaking * math.log10(breakpoint_**2 + above**2)
    before, after = street.constant + of_carrier + street.slope * decades, street.constant + of_carrier + 40 * decades
    direct = np.where(distance <= breakpoint_, before, after - broken)
    constant, slope, per_carrier, per_height = street.hidden
    hidden = constant + per_carrier * math.log10(carrier) - per_height * (height - 1.5) + slope * decades
    return direct, np.maximum(direct, hidden)


# Shadowing in dB about its mean, of standard deviation 1, as a field over the plane.
#
# The field is a sum of plane waves whose numbers are drawn from the spectrum of exp(-d/d_corr), which in the plane is
# proportional to (1 + (k d_corr)^2)^(-3/2): one in each of W parts of equal power. Over seeds its correlation is
# exp(-d/d_corr) exactly. It is a function of the position, so that a device that comes back finds what it left.


_WAVES = 32
_AT_ONCE = 4


def shadowing_field(seed: int, x: Floats, y: Floats, correlation: float, field: int = 0) -> Floats:
    """Return the field at these positions, nearly standard normal [m]. correlation: d_corr, in m as the positions.

    field: the number of one of many that are independent.
    """
    number, phase = _waves(seed, correlation, field)
    total = np.zeros(len(x))
    for begin in range(0, _WAVES, _AT_ONCE):  # so few that they stay in the processor's cache
        some = slice(begin, begin + _AT_ONCE)
        waves = number[0, some, None] * x
        waves += number[1, some, None] * y
        waves += phase[some, None]
        total += propagation_sum(propagation_cosine(waves))
    return total * math.sqrt(2 / _WAVES)


@functools.lru_cache(maxsize=256)
def _waves(seed: int, correlation: float, field: int) -> tuple[Floats, Floats]:
    """Return the waves of a field: cycles per m in both directions [2 W], and their phases in cycles [W]."""
    which, index = np.arange(_WAVES), (field,) if field else ()
    part = (which + columns.uniform(seed, "shadowing waves", which, *index)) / _WAVES
    number = np.sqrt((1 - part) ** -2 - 1) / (2 * np.pi * correlation)
    angle = 2 * np.pi * columns.uniform(seed, "shadowing waves", which, *index, draw=1)
    phase = columns.uniform(seed, "shadowing waves", which, *index, draw=2)
    return read_only(number * np.stack([np.cos(angle), np.sin(angle)])), read_only(phase)


# Where devices are: on a disc about the base station, standing or walking straight on and turned back at its rim.
#
# A path on a disc that is reflected at its rim is a row of chords of one length, each turned by the same angle against the
# last: where a device is after any time has a formula. Devices spread uniformly over the disc stay so.


class Walk(NamedTuple):
    """How devices walk, one entry each."""

    along: Floats  # where on its first chord a device begins, from the middle, in m [m]
    across: Floats  # how far its chords pass to the right of the centre, in m [m]
    half: Floats  # length of half a chord, in m [m]
    heading: Floats  # of the first chord, in radians [m]
    turn: Floats  # between two chords, in radians [m]


def spread_positions(seed: int, device: Ints, radius: float, least: float) -> tuple[Floats, Floats]:
    """Return positions drawn uniformly over the ring from `least` to `radius` [m], as x and y in m."""
    distance = np.sqrt(columns.uniform(seed, "position", device) * (radius**2 - least**2) + least**2)
    angle = 2 * np.pi * columns.uniform(seed, "position", device, draw=1)
    return distance * np.cos(angle), distance * np.sin(angle)


def walk_positions(seed: int, device: Ints, x: Floats, y: Floats, radius: float) -> Walk:
    """Return how devices walk from these positions [m], each in a direction drawn uniformly."""
    heading = 2 * np.pi * columns.uniform(seed, "heading", device)
    along = x * np.cos(heading) + y * np.sin(heading)
    across = y * np.cos(heading) - x * np.sin(heading)
    half = np.sqrt(np.maximum(radius**2 - across**2, (1e-6 * radius) ** 2))  # along the very rim, chords have no length
    return Walk(along, across, half, heading, np.arctan2(across, half) - np.arctan2(across, -half))


def positions_after(walk: Walk, way: Floats) -> tuple[Floats, Floats]:
    """Return x and y of devices that have come so far, in m [m]."""
    gone = walk.along + walk.half + way
    chords = np.floor(gone / (2 * walk.half))
    along = gone - (2 * chords + 1) * walk.half
    heading = walk.heading + chords * walk.turn
    cos, sin = np.cos(heading), np.sin(heading)
    return along * cos - walk.across * sin, along * sin + walk.across * cos


def given_positions(
    path: Path,
    num_devices: int,
    radius: float,
    least: float,
    away: Callable[[Floats, Floats], Floats] = np.hypot,
    from_where: str = "the base station",
) -> tuple[Floats, Floats]:
    """Return the positions that a file gives of all devices (columns device,x,y) [N], as x and y in m.

    away: how far a position is from where these distances count [m].
    """
    trace = read_trace_columns(path, ("device", "x", "y"))
    device, distance = trace.devices(num_devices), away(trace["x"], trace["y"])
    problem = (
        f"device {{device:g}} is {{distance:g}} m from {from_where}, min_distance={least:g} and radius={radius:g}; "
        "move it or change them"
    )
    trace.refuse((distance < least) | (distance > radius), problem, distance=distance)
    trace = trace.ordered(np.argsort(device, kind="stable"))
    trace.refuse(np.diff(trace["device"], prepend=-1) == 0, "device {device:g} has a row already; keep one of each")
    return trace["x"], trace["y"]
