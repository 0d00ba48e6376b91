"""Where devices are: on a disc about the base station, standing or walking straight on and turned back at its rim.

A path on a disc that is reflected at its rim is a row of chords of one length, each turned by the same angle against the last:
where a device is after any time has a formula. Devices spread uniformly over the disc stay so.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedtide import columns
from fedtide.errors import DataError
from fedtide.types import Floats, Ints
from fedtide.world.traces import read_columns, refused, whole


class Walk(NamedTuple):
    """How devices walk, one entry each."""

    along: Floats  # where on its first chord a device begins, from the middle, in m [m]
    across: Floats  # how far its chords pass to the right of the centre, in m [m]
    half: Floats  # length of half a chord, in m [m]
    heading: Floats  # of the first chord, in radians [m]
    turn: Floats  # between two chords, in radians [m]


def spread(seed: int, device: Ints, radius: float, least: float) -> tuple[Floats, Floats]:
    """Return positions drawn uniformly over the ring from `least` to `radius` [m], as x and y in m."""
    distance = np.sqrt(columns.uniform(seed, "position", device) * (radius**2 - least**2) + least**2)
    angle = 2 * np.pi * columns.uniform(seed, "position", device, draw=1)
    return distance * np.cos(angle), distance * np.sin(angle)


def walk(seed: int, device: Ints, x: Floats, y: Floats, radius: float) -> Walk:
    """Return how devices walk from these positions [m], each in a direction drawn uniformly."""
    heading = 2 * np.pi * columns.uniform(seed, "heading", device)
    along = x * np.cos(heading) + y * np.sin(heading)
    across = y * np.cos(heading) - x * np.sin(heading)
    half = np.sqrt(np.maximum(radius**2 - across**2, (1e-6 * radius) ** 2))  # along the very rim, chords have no length
    return Walk(along, across, half, heading, np.arctan2(across, half) - np.arctan2(across, -half))


def after(walk: Walk, way: Floats) -> tuple[Floats, Floats]:
    """Return x and y of devices that have come so far, in m [m]."""
    gone = walk.along + walk.half + way
    chords = np.floor(gone / (2 * walk.half))
    along = gone - (2 * chords + 1) * walk.half
    heading = walk.heading + chords * walk.turn
    cos, sin = np.cos(heading), np.sin(heading)
    return along * cos - walk.across * sin, along * sin + walk.across * cos


def given(path: Path, num_devices: int, radius: float, least: float) -> tuple[Floats, Floats]:
    """Return the positions that a file gives of all devices (columns device,x,y) [N], as x and y in m."""
    found = read_columns(path, ("device", "x", "y"))
    device, distance = whole(path, "device", found["device"]), np.hypot(found["x"], found["y"])
    for at in np.flatnonzero(device >= num_devices)[:1]:
        raise refused(
            path,
            int(at),
            f"device={device[at]} is not known, fleet.num_devices={num_devices}; leave it out or add devices",
        )
    for at in np.flatnonzero((distance < least) | (distance > radius))[:1]:
        raise refused(
            path,
            int(at),
            f"device {device[at]} is {distance[at]:g} m from the base station, min_distance={least:g} and "
            f"radius={radius:g}; move it or change them",
        )
    counts = np.bincount(device, minlength=num_devices)
    for k in np.flatnonzero(counts != 1)[:1]:
        raise DataError(
            f"the trace {path} has {counts[k]} rows of device {k}; give each of fleet.num_devices={num_devices} one"
        )
    x, y = np.empty(num_devices), np.empty(num_devices)
    x[device], y[device] = found["x"], found["y"]
    return x, y
