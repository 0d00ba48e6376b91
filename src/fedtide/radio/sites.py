"""Several cells: sites on a hexagonal grid or anywhere, who is served by which cell, power control and interference.

A coverage over several cells answers as any other, (seed, device [m], time [m]) -> average SNR [m] at the cell that serves
each device, and has besides

    num_cells, cell(seed, device [m], time [m]) -> number of the serving cell [m],
    power(seed, device [m], time [m]) -> transmit power relative to full power [m],
    interference(seed, device [r], time, share [r]) -> I/N at every cell [c] of devices that send for these shares of the time,
    expected_interference(seed, device [m], time [m]) -> I/N that the server plans with for each device [m].

The loss between device and cell is L = PL(d) + sigma S - G + A(phi) in dB, all of them large-scale: path loss and link budget
are those of a single cell (`radio/cell.py`), shadowing S is one field over the plane per site, A the antenna of a sector. A
device belongs to the cell of the smallest L, wherever it is now. SNR = P - L - N, P = min(P_max, P0 + 10 log10 M + alpha L).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np

from fedtide import columns
from fedtide.devices.traces import read_trace_columns
from fedtide.errors import FedtideError
from fedtide.parts import registry
from fedtide.parts.arguments import arg
from fedtide.radio import propagation
from fedtide.radio.cell import MOST_POSITIONS_KEPT, Places
from fedtide.types import Floats, Ints, read_only

Spot: TypeAlias = tuple[float, float]

MOST_SITES = 1000
_PATH_LOSSES = ("log_distance", "uma", "umi")
_BLOCK_HZ = 180e3  # of a resource block of 12 subcarriers of 15 kHz: M counts these, whatever the spacing (2^mu M_RB)
_SAMPLE = 10_000  # devices of which the expected interference is the mean; of a larger fleet, the first ones
_MOST_HEARD_KEPT = 2**20  # devices x cells of which that is kept between ticks; of more it is worked out again
_AT_ONCE = 2**16  # devices whose losses to all cells are held together


class Layout(NamedTuple):
    """Where sites and devices are."""

    sites: tuple[Spot, ...]  # in m
    radius: float  # of the ring about a site that devices are spread over, or of the hexagon, to its corners
    hexagons: bool
    period: tuple[Spot, Spot] | None  # the grid repeats itself after these; None: it does not
    wraps: bool = False  # for radio waves, too


# Hexagonal grids. Neighbours of a site are at 30, 90, ... degrees, so that corners of a hexagon are at 0, 60, ... degrees.


def hexagonal_layout(rings: int, spacing: float, wraps: bool) -> Layout:
    """Return the sites of a hexagonal grid, from the middle outwards: 1 + 3 rings (rings + 1) of them."""
    one, other = (spacing * math.sqrt(3) / 2, spacing / 2), (0.0, spacing)
    span = range(-rings, rings + 1)
    steps = [(q, r) for q in span for r in span if abs(q + r) <= rings]
    steps.sort(key=lambda at: (at[0] ** 2 + at[0] * at[1] + at[1] ** 2, math.atan2(at[1], at[0])))
    first, second = _step(one, other, rings + 1, rings), _step(one, other, -rings, 2 * rings + 1)  # 60 degrees apart
    places = tuple(_step(one, other, *step) for step in steps)
    return Layout(places, spacing / math.sqrt(3), True, (first, second), wraps)


def _step(one: Spot, other: Spot, q: int, r: int) -> Spot:
    return q * one[0] + r * other[0], q * one[1] + r * other[1]


def nearest_image(x: Floats, y: Floats, period: tuple[Spot, Spot]) -> tuple[Floats, Floats]:
    """Return the shortest of what differs from these vectors by whole periods, which are 60 degrees apart [...]."""
    (ax, ay), (bx, by) = period
    area = ax * by - ay * bx
    some, others = np.rint((x * by - y * bx) / area), np.rint((y * ax - x * ay) / area)
    x, y = x - some * ax - others * bx, y - some * ay - others * by
    near_x, near_y, shortest = x, y, x * x + y * y
    for dx, dy in ((ax, ay), (bx, by), (ax - bx, ay - by)):
        for sign in (-1, 1):
            other_x, other_y = x + sign * dx, y + sign * dy
            length = other_x * other_x + other_y * other_y
            nearer = length < shortest
            shortest = np.where(nearer, length, shortest)
            near_x, near_y = np.where(nearer, other_x, near_x), np.where(nearer, other_y, near_y)
    return near_x, near_y


def spread_over_sites(seed: int, device: Ints, layout: Layout, least: float) -> tuple[Floats, Floats]:
    """Return positions [m]: at each site equally many, uniform over its hexagon, or over the ring from `least` on."""
    count = len(layout.sites)
    home = (columns.uniform(seed, "position", device, draw=2) * count).astype(np.int64)
    site = np.array(layout.sites)[home]
    if not layout.hexagons:
        x, y = propagation.spread_positions(seed, device, layout.radius, least)
        return x + site[:, 0], y + site[:, 1]
    one, other = (columns.uniform(seed, "position", device, draw=draw) for draw in (0, 1))
    third = np.floor(3 * columns.uniform(seed, "position", device, draw=3)) * (2 * np.pi / 3)  # of three rhombi
    x = one * np.cos(third) + other * np.cos(third + 2 * np.pi / 3)
    y = one * np.sin(third) + other * np.sin(third + 2 * np.pi / 3)
    return layout.radius * x + site[:, 0], layout.radius * y + site[:, 1]


def sector_attenuation(angle: Floats, beamwidth: float, most: float) -> Floats:
    """Return -A(phi) = min(12 (phi/phi_3dB)^2, A_max) in dB [m]. angle: off the boresight, in radians."""
    off = np.abs(np.remainder(angle + np.pi, 2 * np.pi) - np.pi)
    return np.asarray(np.minimum(12 * (off / math.radians(beamwidth)) ** 2, most))


class Served(NamedTuple):
    """How devices are served, one entry each."""

    cell: Ints  # the number of the cell: site x sectors + sector
    loss: Floats  # L to it, in dB


@dataclass(frozen=True)
class _Sites:
    """What coverages over several cells have; each adds where its sites are."""

    num_devices: Annotated[int, arg("N, number of devices", ge=1, le=10**8, key="fleet.num_devices")]
    path_loss: Annotated[
        str,
        arg("link budget, path loss and shadowing: log_distance, uma or umi, as for one cell", part="coverage"),
    ] = "log_distance"
    sectors: Annotated[Literal[1, 3], arg("cells per site; 3: 120 degrees apart, the first at 30 degrees")] = 1
    beamwidth_deg: Annotated[float, arg("phi_3dB, beam width of a sector's antenna", unit="degrees", gt=0, le=360)] = (
        65.0
    )
    max_attenuation_db: Annotated[
        float, arg("A_max, largest attenuation of a sector's antenna", unit="dB", ge=0, le=100)
    ] = 30.0
    site_correlation: Annotated[float, arg("correlation of the shadowing of two sites", ge=0, le=1)] = 0.5
    p0_dbm: Annotated[
        float | None, arg("P0 of power control, per block of 180 kHz; default: full power", unit="dBm", ge=-250, le=100)
    ] = None
    alpha: Annotated[float, arg("share of the path loss that power control compensates", ge=0, le=1)] = 1.0
    interferes: Annotated[bool, arg("let cells interfere with each other")] = True
    expected: Annotated[
        Literal["mean", "none"],
        arg("interference that the server expects: as if the mean device of every other cell always sent, or none"),
    ] = "mean"
    margin_db: Annotated[float, arg("margin added to the expected interference", unit="dB", ge=0, le=100)] = 0.0
    positions: Annotated[
        Path | None, arg("a .csv or .parquet file with device,x,y in m; default: positions drawn per seed")
    ] = None
    link: Any = field(init=False)  # the part that path_loss names
    layout: Layout = field(init=False)
    places: Places | None = field(init=False, repr=False)
    name: ClassVar[str]
    unused: ClassVar[tuple[str, ...]] = ("positions",)  # of the part that path_loss names

    def __post_init__(self) -> None:
        object.__setattr__(self, "link", self._link())
        object.__setattr__(self, "layout", self.make_layout())
        cells, count = self.num_cells, self.num_devices
        if count < cells:
            raise FedtideError(
                f"coverage={self.name}: fleet.num_devices={count} leaves some of {cells} cells without devices; raise it, or "
                "have fewer cells"
            )
        places, least = None, self.link.min_distance
        if not least < self.layout.radius:
            raise FedtideError(
                f"coverage={self.name}: path_loss.min_distance={least:g} leaves no room in cells of {self.layout.radius:g} m; "
                "lower it, or make them larger"
            )
        if self.positions is not None:
            asked = self.positions, count, self.layout.radius, least
            places = Places(*propagation.given_positions(*asked, self._nearest, "the nearest site"))
        object.__setattr__(self, "places", places)

    def make_layout(self) -> Layout:
        """Return where the sites are."""
        raise NotImplementedError

    def _link(self) -> Any:
        """Return the part that path_loss names."""
        label = f"coverage={self.name}: path_loss={str(self.path_loss)!r}"
        if self.path_loss not in _PATH_LOSSES:
            raise FedtideError(f"{label} says nothing of distances; name log_distance, uma or umi")
        args, fill = registry.inner_arguments(self.path_loss, None)
        for each in self.unused:
            if each in args:
                raise FedtideError(f"{label} has {each}={args[each]}, which is not used here; leave it out")
        known = {"fleet.num_devices": self.num_devices}
        return registry.resolve("coverage", self.path_loss, args, lambda key: known[key] if key in known else fill(key))

    @property
    def num_cells(self) -> int:
        """How many cells there are."""
        return len(self.layout.sites) * self.sectors

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return the average SNR at the serving cell [m]."""
        loss = self._served(seed, device, time).loss
        return np.asarray(10 ** ((self._power_dbm(loss) - loss - self._noise_dbm) / 10))

    def cell(self, seed: int, device: Ints, time: Floats) -> Ints:
        """Return the number of the cell that serves each device [m]."""
        return self._served(seed, device, time).cell

    def power(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return the power at which each device sends, relative to full power [m]."""
        if self.p0_dbm is None:
            return np.ones(len(device))
        power = self._power_dbm(self._served(seed, device, time).loss)
        return np.asarray(10 ** ((power - self.link.power_dbm) / 10))

    def interference(self, seed: int, device: Ints, time: float, share: Floats) -> Floats:
        """Return I/N at every cell [c] if these devices [r] send for these shares of its time: sum_k share_k P_k g_kc / N."""
        if not self.interferes or not len(device):
            return np.zeros(self.num_cells)
        if self.link.speed or self.num_devices * self.num_cells > _MOST_HEARD_KEPT:
            heard = self.heard(seed, device, np.full(len(device), time))
        else:
            (heard,) = propagation.propagation_per_device(_heard_standing, seed, device, self.num_devices, self)
        return np.asarray((heard * share).sum(axis=1))

    def expected_interference(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return I/N that the server plans with at the cell of each device [m]."""
        if not self.interferes or self.expected == "none":
            return np.zeros(len(device))
        return _mean_interference(self, seed)[self.cell(seed, device, time)]

    def losses(self, seed: int, device: Ints, x: Floats, y: Floats) -> Floats:
        """Return L of devices at these positions to every cell, in dB [c m]."""
        link, several = self.link, len(self.layout.sites) > 1
        common = propagation.shadowing_field(seed, x, y, link.correlation)
        alike, apart = math.sqrt(self.site_correlation), math.sqrt(1 - self.site_correlation)
        found = np.empty((self.num_cells, len(device)))
        for site, (at_x, at_y) in enumerate(self.layout.sites):
            dx, dy = x - at_x, y - at_y
            if self.layout.wraps and self.layout.period is not None:
                dx, dy = nearest_image(dx, dy, self.layout.period)
            shadow = common
            if several:
                own = propagation.shadowing_field(seed, x, y, link.correlation, site + 1)
                shadow = alike * common + apart * own
            luck = columns.uniform(seed, "line of sight", device, *((site,) if site else ()))
            loss, sigma = link.loss(np.maximum(np.hypot(dx, dy), link.min_distance), luck)
            loss = loss + sigma * shadow - link.antenna_db
            for sector in range(self.sectors):
                extra: Floats | float = 0.0
                if self.sectors > 1:
                    angle = np.arctan2(dy, dx) - np.pi / 6 - 2 * np.pi / self.sectors * sector
                    extra = sector_attenuation(angle, self.beamwidth_deg, self.max_attenuation_db)
                found[site * self.sectors + sector] = loss + extra
        return found

    def position(self, seed: int, device: Ints, time: Floats) -> tuple[Floats, Floats]:
        """Return where devices are, as x and y in m [m]."""
        layout, speed = self.layout, self.link.speed
        if self.places is not None:
            x, y = self.places.x[device], self.places.y[device]
        else:
            x, y = spread_over_sites(seed, device, layout, self.link.min_distance)
        if not speed:
            return x, y
        if layout.period is not None:  # who leaves comes in at the other side
            heading = 2 * np.pi * columns.uniform(seed, "heading", device)
            way = speed * time
            return nearest_image(x + way * np.cos(heading), y + way * np.sin(heading), layout.period)
        middle = np.mean(layout.sites, axis=0)
        radius = float(np.hypot(*(np.array(layout.sites) - middle).T).max()) + layout.radius
        walk = propagation.walk_positions(seed, device, x - middle[0], y - middle[1], radius)
        x, y = propagation.positions_after(walk, speed * time)
        return x + middle[0], y + middle[1]

    @property
    def _noise_dbm(self) -> float:
        link = self.link
        return float(link.noise_dbm_per_hz + 10 * math.log10(link.bandwidth_hz) + link.noise_figure_db)

    def _power_dbm(self, loss: Floats) -> Floats | float:
        """Return the power at which devices send that have this loss to their cell, in dBm [m]."""
        most: float = self.link.power_dbm
        if self.p0_dbm is None:
            return most
        blocks = 10 * math.log10(self.link.bandwidth_hz / _BLOCK_HZ)
        return np.minimum(most, self.p0_dbm + blocks + self.alpha * loss)

    def _nearest(self, x: Floats, y: Floats) -> Floats:
        """Return how far the nearest site is [m]."""
        return np.asarray(np.min([np.hypot(x - at_x, y - at_y) for at_x, at_y in self.layout.sites], axis=0))

    def _served(self, seed: int, device: Ints, time: Floats) -> Served:
        if self.link.speed:
            return _moving(self, seed, np.asarray(device, np.int64).tobytes(), np.asarray(time, np.float64).tobytes())
        kept = self.num_devices if self.num_devices <= MOST_POSITIONS_KEPT else None
        return Served(*propagation.propagation_per_device(_standing, seed, device, kept, self))

    def heard(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return P_k g_kc / N of devices at every cell but their own [c m]."""
        losses = self.losses(seed, device, *self.position(seed, device, time))
        own, everyone = losses.argmin(axis=0), np.arange(len(device))
        heard = np.asarray(10 ** ((self._power_dbm(losses[own, everyone]) - losses - self._noise_dbm) / 10))
        heard[own, everyone] = 0.0
        return heard


def _standing(seed: int, device: Ints, sites: _Sites) -> tuple[Ints, Floats]:
    """Return how devices that stand are served [m]."""
    return _least_losses(sites, seed, device, np.zeros(len(device)))


def _heard_standing(seed: int, device: Ints, sites: _Sites) -> tuple[Floats]:
    """Return what cells hear of devices that stand [c m]."""
    return (sites.heard(seed, device, np.zeros(len(device))),)


@functools.lru_cache(maxsize=4)  # SNR, cell and expected interference of a tick are asked for one after the other
def _moving(sites: _Sites, seed: int, device: bytes, time: bytes) -> Served:
    """Return how devices that walk are served [m]."""
    who, when = np.frombuffer(device, np.int64), np.frombuffer(time)
    cell, loss = _least_losses(sites, seed, who, when)
    return Served(read_only(cell), read_only(loss))


def _least_losses(sites: _Sites, seed: int, device: Ints, time: Floats) -> tuple[Ints, Floats]:
    """Return which cell each device has the least loss to, and that loss [m]."""
    cell, loss = np.empty(len(device), np.int64), np.empty(len(device))
    for first in range(0, len(device), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        losses = sites.losses(seed, device[some], *sites.position(seed, device[some], time[some]))
        cell[some], loss[some] = losses.argmin(axis=0), losses.min(axis=0)
    return cell, loss


@functools.lru_cache(maxsize=16)
def _mean_interference(sites: _Sites, seed: int) -> Floats:
    """Return I/N at every cell if the mean device of every other one sends all the time [c]: as they are at time 0."""
    some = np.arange(min(sites.num_devices, _SAMPLE))
    cell = sites.cell(seed, some, np.zeros(len(some)))
    share = 1 / np.bincount(cell, minlength=sites.num_cells)[cell]
    return sites.interference(seed, some, 0.0, share) * 10 ** (sites.margin_db / 10)


@dataclass(frozen=True)
class HexGrid(_Sites):
    """Sites on a hexagonal grid: 1, 7, 19, ... of them. L = PL(d) + sigma S - G + A(phi), P = min(P_max, P0 + 10 log10 M + alpha L).

    Devices are spread uniformly over the hexagons. With wrap the grid repeats itself, so that every cell has six neighbours.
    """

    rings: Annotated[int, arg("rings around the central site: 0, 1 or 2 for 1, 7 or 19 sites", ge=0, le=17)] = 1
    spacing: Annotated[float, arg("distance between neighbouring sites", unit="m", gt=0, le=1e5)] = 500.0
    wrap: Annotated[bool, arg("repeat the grid beyond its edge (wrap-around)")] = True
    name: ClassVar[str] = "hex_grid"
    unused: ClassVar[tuple[str, ...]] = ("positions", "radius")

    def make_layout(self) -> Layout:
        """Return the grid."""
        return hexagonal_layout(self.rings, self.spacing, self.wrap)


@dataclass(frozen=True)
class SiteList(_Sites):
    """Sites at given places. L = PL(d) + sigma S - G + A(phi), P = min(P_max, P0 + 10 log10 M + alpha L).

    Devices are spread over rings about the sites, from path_loss.min_distance to path_loss.radius, equally many about each.
    """

    sites: Annotated[
        tuple[Spot, ...] | Path, arg("a list of [x, y], or a .csv or .parquet file with site,x,y", unit="m")
    ] = ((0.0, 0.0),)
    name: ClassVar[str] = "sites"

    def make_layout(self) -> Layout:
        """Return the sites."""
        places = _given_sites(self.sites) if isinstance(self.sites, Path) else self.sites
        if not 1 <= len(places) <= MOST_SITES:
            raise FedtideError(f"coverage=sites: sites has {len(places)} of them; give 1 to {MOST_SITES}")
        for at, place in enumerate(places):
            if place in places[:at]:
                raise FedtideError(
                    f"coverage=sites: sites {places.index(place)} and {at} are both at {place[0]:g}, {place[1]:g}; "
                    "leave one out, or set sectors: 3"
                )
        return Layout(tuple(places), self.link.radius, False, None)


def _given_sites(path: Path) -> tuple[Spot, ...]:
    """Return the sites of a file (columns site,x,y), by number."""
    trace = read_trace_columns(path, ("site", "x", "y"))
    number = trace.whole("site")
    trace = trace.ordered(np.argsort(number, kind="stable"))
    problem = "site {site:g} has a row already; keep one of each"
    trace.refuse(np.diff(trace["site"], prepend=-1) == 0, problem)
    problem = "site {site:g} is there, and site {missing:g} is not; number them 0, 1, ..."
    trace.refuse(trace["site"] != np.arange(len(number)), problem, missing=np.arange(len(number)))
    return tuple(zip(trace["x"].tolist(), trace["y"].tolist(), strict=True))
