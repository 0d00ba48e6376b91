"""Satellites on circular orbits: when ground stations see them, how strong they are received, and when the Sun shines on them.

Everything is a function of time. Satellite k of a Walker constellation i: t/p/f moves at argument of latitude
u_k(t) = u_k + u' t in a plane whose node W_k(t) = W_k + W' t drifts; Earth turns below. Ground stations stand on the
WGS 84 ellipsoid; one sees a satellite that is at least `min_elevation` above its horizon. The best station in sight, the
nearest, serves it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Annotated, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fedtide import columns
from fedtide.errors import FedtideError
from fedtide.parts.arguments import arg
from fedtide.types import Floats, Ints, read_only

EARTH_MU: Final = 398600.4418  # km^3/s^2; this and the next four: WGS 84
EARTH_RADIUS: Final = 6378.137  # at the equator, km
_FLATTENING: Final = 1 / 298.257223563
_EARTH_RATE: Final = 7.292115e-5  # rad/s
_J2: Final = 1.08262982e-3  # from C20 of WGS 84's gravity field, -4.84165372e-4 sqrt(5)
_LIGHT: Final = 299792.458  # km/s
_LOWEST: Final = 100.0  # km; below it there is no orbit
_IN_SIGHT: Final = 1e-6  # km by which a satellite may be below the mask; at km/s it is less than a microsecond
_LONGEST_WAIT: Final = 60 * 86400.0  # s; whoever is not in sight for so long never is
_TURN: Final = 2 * math.pi


class Orbits(NamedTuple):
    """Circular orbits of one altitude and inclination. Columns run over satellites [t]."""

    radius: float  # a, km
    inclination: float  # i, rad
    node: Floats  # W_k at time 0, rad from the vernal equinox
    argument: Floats  # u_k at time 0, rad from the node
    rate: float  # u', rad/s
    drift: float  # W', rad/s


class Stations(NamedTuple):
    """Ground stations, in km in a frame that turns with Earth. Rows run over stations [s 3]."""

    place: Floats
    up: Floats
    sine: float  # of the least elevation


def walker_orbits(
    inclination: float, count: int, planes: int, phasing: int, altitude: float, star: bool = False, j2: bool = True
) -> Orbits:
    """Return the orbits of the constellation inclination: count/planes/phasing, in degrees and km.

    Nodes are spread over 360 degrees, those of a star over 180. With j2 the flattened Earth turns the planes and speeds
    satellites up or down, by its secular first-order terms.
    """
    radius, tilt = EARTH_RADIUS + altitude, math.radians(inclination)
    plane, slot = np.divmod(np.arange(count), count // planes)
    node = plane * ((math.pi if star else _TURN) / planes)
    argument = slot * (_TURN * planes / count) + plane * (_TURN * phasing / count)
    motion, bulge = math.sqrt(EARTH_MU / radius**3), 1.5 * _J2 * (EARTH_RADIUS / radius) ** 2 * j2
    rate = motion * (1 + bulge * (3 - 4 * math.sin(tilt) ** 2))
    return Orbits(radius, tilt, node, argument, rate, -motion * bulge * math.cos(tilt))


def ground_stations(places: tuple[tuple[float, float], ...], min_elevation: float) -> Stations:
    """Return stations at these latitudes and longitudes, in degrees, on the ellipsoid."""
    latitude, longitude = np.radians(np.array(places, np.float64)).T
    up = np.stack(
        [np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)], axis=1
    )
    squash = (1 - _FLATTENING) ** 2
    curve = EARTH_RADIUS / np.sqrt(1 - (1 - squash) * np.sin(latitude) ** 2)
    place = up * (curve[:, None] * np.array([1.0, 1.0, squash]))
    return Stations(place, up, math.sin(math.radians(min_elevation)))


def orbit_positions(orbits: Orbits, satellite: Ints, time: Floats, greenwich: float) -> tuple[Floats, Floats]:
    """Return where satellites are in km, and how they move in km/s, in the frame that turns with Earth [3 m].

    time: in s. greenwich: the angle of the zero meridian from the vernal equinox at time 0, rad.
    """
    turning = orbits.drift - _EARTH_RATE
    east = orbits.node[satellite] - greenwich + turning * time
    argument = orbits.argument[satellite] + orbits.rate * time
    along, across = orbits.radius * np.cos(argument), orbits.radius * np.sin(argument)
    tilted, height = across * math.cos(orbits.inclination), across * math.sin(orbits.inclination)
    cosine, sine = np.cos(east), np.sin(east)
    x, y = along * cosine - tilted * sine, along * sine + tilted * cosine
    forth, ahead = -orbits.rate * across, orbits.rate * along * math.cos(orbits.inclination)
    speed_x = forth * cosine - ahead * sine - turning * y
    speed_y = forth * sine + ahead * cosine + turning * x
    speed_z = orbits.rate * along * math.sin(orbits.inclination)
    return np.stack([x, y, height]), np.stack([speed_x, speed_y, speed_z])


class _View(NamedTuple):
    """How satellites look from every station [s m]."""

    distance: Floats  # km
    margin: Floats  # height above the mask, km: distance (sin elevation - sin least elevation); in sight from 0 on
    slope: Floats  # by which the margin rises, km/s


def _viewed(stations: Stations, position: Floats, speed: Floats) -> _View:
    """Return how satellites look at these places and speeds [3 m]; summed term by term, so that rows do not depend on others."""
    dx, dy, dz = (position[axis] - stations.place[:, axis, None] for axis in range(3))
    up = [stations.up[:, axis, None] for axis in range(3)]
    distance = np.sqrt(dx * dx + dy * dy + dz * dz)
    margin = up[0] * dx + up[1] * dy + up[2] * dz - stations.sine * distance
    recedes = (dx * speed[0] + dy * speed[1] + dz * speed[2]) / distance
    slope = up[0] * speed[0] + up[1] * speed[1] + up[2] * speed[2] - stations.sine * recedes
    return _View(distance, margin, slope)


@dataclass(frozen=True, eq=False)
class Sky:
    """A constellation over ground stations. Times are in s."""

    orbits: Orbits
    stations: Stations
    greenwich: float  # the angle of the zero meridian from the vernal equinox at time 0, rad
    sun: Floats  # its direction in equatorial coordinates, a unit vector [3]

    def view(self, satellite: Ints, time: Floats) -> _View:
        """Return how satellites look from every station [s m]."""
        return _viewed(self.stations, *orbit_positions(self.orbits, satellite, time, self.greenwich))

    def slant_range(self, satellite: Ints, time: Floats) -> Floats:
        """Return how far the nearest station is that sees each satellite, in km; infinity if none does [m]."""
        view = self.view(satellite, time)
        return np.asarray(np.where(view.margin >= -_IN_SIGHT, view.distance, np.inf).min(axis=0))

    def next_sight(self, satellite: Ints, time: Floats, direction: int = 1) -> Floats:
        """Return when each is next in sight of a station, at that time or later; infinity if it never is [m].

        direction: -1 for when it was last in sight, at that time or before.

        The margin g of a station bends upwards by no more than A = (1 + sin e) a (u' + |W' - w|)^2: a satellite's
        acceleration, seen from the turning Earth, is at most a (u' + |W' - w|)^2, and distances are convex but for it. So
        g stays below 0 for the positive root h of g + g' h + A h^2/2, and h steps can miss no pass, however short. Where g
        rises they are Newton's from below.
        """
        bend = (1 + self.stations.sine) * self.orbits.radius
        bend *= (abs(self.orbits.rate) + abs(self.orbits.drift - _EARTH_RATE)) ** 2
        found, waiting, near = np.array(time, np.float64), np.arange(len(time)), -_IN_SIGHT
        while len(waiting):
            view = self.view(satellite[waiting], found[waiting])
            away = (view.margin < near).all(axis=0)
            waiting, margin, slope = waiting[away], view.margin[:, away], direction * view.slope[:, away]
            root = np.sqrt(np.maximum(slope**2 - 2 * bend * margin, 0.0))
            rising = -2 * margin / np.maximum(slope + root, 1e-300)
            step = np.where(slope > 0, rising, (root - slope) / bend).min(axis=0)
            found[waiting] += direction * np.maximum(step, 4 * np.spacing(np.abs(found[waiting])))
            late = np.abs(found[waiting] - time[waiting]) > _LONGEST_WAIT
            found[waiting[late]] = direction * np.inf
            waiting, near = waiting[~late], -_IN_SIGHT / 2  # times are rounded again where they are in other units
        return found

    # Eclipses: Earth's shadow is a cylinder, and Sun and planes stand where they are at time 0. A satellite is in it while its
    # argument is within h of that opposite to the Sun, cos h = sqrt(1 - (R/a)^2) / cos b, b the angle of Sun and plane.

    def _shadow(self, satellite: Ints) -> tuple[Floats, Floats]:
        """Return the argument at which each leaves the shadow, and the width of it, rad [m]."""
        node, tilt, sun = self.orbits.node[satellite], self.orbits.inclination, self.sun
        along = sun[0] * np.cos(node) + sun[1] * np.sin(node)
        across = (sun[1] * np.cos(node) - sun[0] * np.sin(node)) * math.cos(tilt) + sun[2] * math.sin(tilt)
        cosine = math.sqrt(1 - (EARTH_RADIUS / self.orbits.radius) ** 2)
        half = np.arccos(np.minimum(cosine / np.maximum(np.hypot(along, across), cosine), 1.0))
        return np.arctan2(across, along) + math.pi + half, 2 * half

    def _since_shadow(self, satellite: Ints, time: Floats) -> tuple[Floats, Floats]:
        """Return how far each has come since it last left the shadow before time 0, and how much of a turn is lit, rad [m]."""
        leaves, width = self._shadow(satellite)
        begun = np.mod(self.orbits.argument[satellite] - leaves, _TURN)
        return begun + self.orbits.rate * time, _TURN - width

    def sunlit(self, satellite: Ints, time: Floats) -> npt.NDArray[np.bool_]:
        """Say on which satellites the Sun shines [m]."""
        come, lit = self._since_shadow(satellite, time)
        return np.asarray(np.mod(come, _TURN) < lit)

    def sunlit_time(self, satellite: Ints, begin: Floats, end: Floats) -> Floats:
        """Return for how long the Sun shines on each between two times, in s [m]."""

        def until(time: Floats) -> Floats:
            come, lit = self._since_shadow(satellite, time)
            return np.asarray(np.floor(come / _TURN) * lit + np.minimum(np.mod(come, _TURN), lit))

        return np.clip((until(end) - until(begin)) / self.orbits.rate, 0.0, end - begin)

    def sunlit_until(self, satellite: Ints, begin: Floats, needed: Floats) -> Floats:
        """Return when the Sun has shone on each for so long since a time, in s [m]."""
        come, lit = self._since_shadow(satellite, begin)
        turns, ever = np.floor(come / _TURN), np.isfinite(needed)
        wanted = np.minimum(come - turns * _TURN, lit) + self.orbits.rate * np.where(ever, needed, 0.0)
        whole = np.maximum(np.ceil(wanted / lit) - 1, 0.0)  # at the end of a lit stretch, not of the shadow after it
        ahead = (turns + whole) * _TURN + (wanted - whole * lit) - come
        return np.where(ever, begin + np.maximum(ahead, 0.0) / self.orbits.rate, np.inf)


def sun_and_greenwich(day: float) -> tuple[Floats, float]:
    """Return the Sun's direction [3], and the angle of the zero meridian in rad, at midnight UT of a day (1: 1 January).

    Both count from the vernal equinox, in the year 2000; the Astronomical Almanac's low-precision formulas.
    """
    days = day - 1.5  # since noon of 1 January
    anomaly = math.radians(357.528 + 0.9856003 * days)
    longitude = math.radians(280.460 + 0.9856474 * days + 1.915 * math.sin(anomaly) + 0.020 * math.sin(2 * anomaly))
    tilt = math.radians(23.439)
    sun = np.array([math.cos(longitude), math.cos(tilt) * math.sin(longitude), math.sin(tilt) * math.sin(longitude)])
    return sun, math.radians((280.46062 + 360.98564737 * days) % 360)


_BREMEN = (53.08, 8.80)


@dataclass(frozen=True)
class Leo:
    """Satellites over ground stations: SNR = P + G - 20 log10(4 pi d f_c / c) - (N0 + 10 log10 B + NF) dB in sight, else 0.

    d is the distance to the nearest station in sight.
    """

    num_devices: Annotated[int, arg("N, number of devices", ge=1, le=10**8, key="fleet.num_devices")]
    walker: Annotated[str, arg("i: t/p/f, inclination in degrees, satellites, planes and phasing")] = "80: 40/5/1"
    star: Annotated[bool, arg("spread the ascending nodes over 180 degrees instead of 360")] = False
    altitude_km: Annotated[float, arg("altitude of the orbits", unit="km", le=50000)] = 2000.0
    stations: Annotated[
        tuple[tuple[float, float], ...], arg("latitude and longitude of each ground station", unit="degrees")
    ] = (_BREMEN,)
    min_elevation: Annotated[
        float, arg("elevation from which a satellite is in sight", unit="degrees", ge=0, lt=90)
    ] = 10.0
    unit_seconds: Annotated[float, arg("length of a unit of time", unit="s", gt=0, le=1e9)] = 1.0
    day: Annotated[float, arg("day of the year at time 0; 1 is 1 January", unit="days", ge=1, lt=367)] = 80.0
    j2: Annotated[bool, arg("include the drift of the orbital planes caused by the flattened Earth")] = True
    random_start: Annotated[bool, arg("draw the time of day at time 0 from the seed; false: midnight UT")] = False
    hold: Annotated[
        bool, arg("links out of sight keep the value of the last pass, for servers that use updates later")
    ] = False
    power_dbm: Annotated[float, arg("transmit power of a satellite", unit="dBm", ge=-100, le=100)] = 40.0
    antenna_db: Annotated[float, arg("total gain of both antennas", unit="dB", ge=-100, le=200)] = 13.96
    carrier_ghz: Annotated[float, arg("f_c, carrier frequency", unit="GHz", gt=0, le=1000)] = 2.4
    noise_dbm_per_hz: Annotated[float, arg("N0, noise power density k T", unit="dBm/Hz", ge=-250, le=0)] = -173.1
    noise_figure_db: Annotated[float, arg("NF, noise figure of the station", unit="dB", ge=0, le=50)] = 0.0
    bandwidth_hz: Annotated[float, arg("B, bandwidth of a satellite", unit="Hz", gt=0, le=1e12)] = 1e6
    sky: Sky = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        inclination, count, planes, phasing = _walker(self.walker)
        problem = ""
        if self.altitude_km < _LOWEST:
            where = "below the surface" if self.altitude_km < 0 else "in the air"
            problem = f"altitude_km={self.altitude_km:g} is {where}: orbits begin at {_LOWEST:g} km; raise it"
        elif self.num_devices > count:
            problem = (
                f"walker={self.walker!r} has {count} satellites for fleet.num_devices={self.num_devices}: a device is a "
                f"satellite; set fleet.num_devices={count}, or add satellites"
            )
        elif not self.stations:
            problem = "stations=[] sees no satellite; give [[latitude, longitude], ...] in degrees"
        for latitude, longitude in self.stations:
            if not (abs(latitude) <= 90 and -180 <= longitude <= 360):
                problem = (
                    f"station [{latitude:g}, {longitude:g}] is not on Earth: give latitudes from -90 to 90 and longitudes from "
                    "-180 to 360 degrees, in this order"
                )
        if problem:
            raise FedtideError(f"coverage=leo: {problem}")
        sun, greenwich = sun_and_greenwich(self.day)
        orbits = walker_orbits(inclination, count, planes, phasing, self.altitude_km, self.star, self.j2)
        sky = Sky(orbits, ground_stations(self.stations, self.min_elevation), greenwich, read_only(sun))
        object.__setattr__(self, "sky", sky)

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return the average SNR, 0 out of sight [m]."""
        seconds = self._seconds(seed, time)
        distance = self.sky.slant_range(device, seconds)
        hidden = np.flatnonzero(np.isinf(distance)) if self.hold else np.zeros(0, np.int64)
        last = self.sky.next_sight(device[hidden], seconds[hidden], direction=-1)
        seen = np.isfinite(last)
        distance[hidden[seen]] = self.sky.slant_range(device[hidden[seen]], last[seen])
        noise = self.noise_dbm_per_hz + 10 * math.log10(self.bandwidth_hz) + self.noise_figure_db
        loss = 20 * np.log10(4 * math.pi * distance * (self.carrier_ghz * 1e9 / _LIGHT))
        return np.asarray(10 ** ((self.power_dbm + self.antenna_db - loss - noise) / 10))

    def next_sight(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return when each is next in sight of a station; infinity if it never is [m]."""
        seconds = self._seconds(seed, time)
        found = self.sky.next_sight(device, seconds)
        return np.where(found == seconds, time, np.maximum((found - self._start(seed)) / self.unit_seconds, time))

    def delay(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return how long light takes from the nearest station in sight, in units of time; infinity if there is none [m]."""
        return self.sky.slant_range(device, self._seconds(seed, time)) / (_LIGHT * self.unit_seconds)

    def sunlit(self, seed: int, device: Ints, time: Floats) -> npt.NDArray[np.bool_]:
        """Say on which satellites the Sun shines [m]."""
        return self.sky.sunlit(device, self._seconds(seed, time))

    def sunlit_time(self, seed: int, device: Ints, begin: Floats, end: Floats) -> Floats:
        """Return for how much of the time from begin to end the Sun shines on each [m]."""
        return self.sky.sunlit_time(device, self._seconds(seed, begin), self._seconds(seed, end)) / self.unit_seconds

    def sunlit_until(self, seed: int, device: Ints, begin: Floats, needed: Floats) -> Floats:
        """Return when the Sun has shone on each for so long [m]."""
        found = self.sky.sunlit_until(device, self._seconds(seed, begin), needed * self.unit_seconds)
        return (found - self._start(seed)) / self.unit_seconds

    def _seconds(self, seed: int, time: Floats) -> Floats:
        return self._start(seed) + time * self.unit_seconds

    def _start(self, seed: int) -> float:
        return 86400.0 * float(columns.uniform(seed, "orbit", np.zeros(1, np.int64))[0]) if self.random_start else 0.0


def _walker(text: str) -> tuple[float, int, int, int]:
    """Read i: t/p/f."""
    found = re.fullmatch(r"\s*(\d+\.?\d*)\s*:\s*(\d{1,6})\s*/\s*(\d{1,6})\s*/\s*(\d{1,6})\s*", text)
    if found is None:
        raise FedtideError(
            f"coverage=leo: walker={text!r} is not a constellation; write i: t/p/f as in '80: 40/5/1', inclination in degrees, "
            "satellites, planes and phasing"
        )
    inclination, count, planes, phasing = float(found[1]), int(found[2]), int(found[3]), int(found[4])
    problem = ""
    if inclination > 180:
        problem = f"inclination {inclination:g} is not from 0 to 180 degrees"
    elif not (0 < planes <= count) or count % planes:
        problem = f"{count} satellites do not fill {planes} planes evenly; let t be a multiple of p"
    elif phasing >= planes:
        problem = f"phasing f={phasing} is not below the {planes} planes; give 0 to {planes - 1}"
    if problem:
        raise FedtideError(f"coverage=leo: walker={text!r}: {problem}")
    return inclination, count, planes, phasing
