"""How strong a device is received on average: equal for all, or a cell with distance, shadowing, power and noise."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Protocol, TypeAlias

import numpy as np

from fedtide import columns
from fedtide.errors import FedtideError
from fedtide.parts.arguments import arg
from fedtide.radio import propagation
from fedtide.types import Floats, Ints, read_only

# How strong a device is received on average, before it fades: from distance, shadowing, power and noise.
#
# A coverage is a callable (seed, device [m], time [m]) -> the average SNR of each device's link at that time [m], a number
# and not in dB. It depends on its arguments alone, whoever else is asked. Channels that fade multiply it by a gain of mean
# 1.


class Coverage(Protocol):
    """How strong a device is received on average."""

    def __call__(self, seed: int, device: Ints, time: Floats, /) -> Floats:
        """Return the average SNR of each device's link at this time, a number [m]."""
        ...


@dataclass(frozen=True)
class Equal:
    """The paper's: SNR beta_k, where beta_k is 1 unless it is given."""

    snr_db: Annotated[float, arg("average received SNR", unit="dB", key="radio.snr_db")] = 13.0
    large_scale: Annotated[float | list[float], arg("beta_k: one, or one per device", key="radio.large_scale")] = 1.0

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return SNR beta_k [m]."""
        snr = np.asarray(10 ** (self.snr_db / 10) * np.asarray(self.large_scale, np.float64))
        return snr[device] if snr.ndim else np.full(len(device), snr)


COVERAGES = {
    "equal": Equal,
    "log_distance": "fedtide.radio.cell:LogDistance",
    "uma": "fedtide.radio.cell:Uma",
    "umi": "fedtide.radio.cell:Umi",
}


# A cell: devices about a base station, and what distance, shadowing, power and noise make of their uplinks.
#
# SNR = P + G - PL(d) - S - (N0 + 10 log10 B + NF) in dB. Positions are uniform over a ring about the base station, drawn
# per seed, or given by a file. With speed > 0 devices walk straight on and are turned back at the rim; one that comes
# nearer than min_distance counts as that far. Devices that stand are shadowed independently of each other; of those that
# walk, shadowing is one field over the cell with correlation exp(-d/d_corr). A device's luck with lines of sight is drawn
# once: it sees the base station wherever the chance to is above that draw, so that one that walks away loses sight at a
# distance of its own.


MOST_POSITIONS_KEPT = 2**20  # devices of which positions are kept between ticks; of larger fleets they are drawn again

CellDevices: TypeAlias = Annotated[int, arg("N", ge=1, le=10**8, key="fleet.num_devices")]
Power: TypeAlias = Annotated[float, arg("transmit power of a device", unit="dBm", ge=-100, le=100)]
Antenna: TypeAlias = Annotated[float, arg("gain of both antennas together", unit="dB", ge=-100, le=100)]
Noise: TypeAlias = Annotated[float, arg("N0, density of the noise", unit="dBm/Hz", ge=-250, le=0)]
NoiseFigure: TypeAlias = Annotated[float, arg("NF of the base station's receiver", unit="dB", ge=0, le=50)]
Bandwidth: TypeAlias = Annotated[float, arg("B, that a device sends in", unit="Hz", gt=0, le=1e12)]
Radius: TypeAlias = Annotated[float, arg("of the cell", unit="m", gt=0, le=1e5)]
Least: TypeAlias = Annotated[float, arg("of a device from the base station", unit="m", gt=0)]
Near: TypeAlias = Annotated[float, arg("of a device from the base station", unit="m", ge=10)]
Far: TypeAlias = Annotated[float, arg("of the cell", unit="m", gt=10, le=5000)]
Sigma: TypeAlias = Annotated[float, arg("standard deviation of shadowing", unit="dB", ge=0, le=30)]
SigmaInSight: TypeAlias = Annotated[
    float, arg("standard deviation of shadowing with a line of sight", unit="dB", ge=0, le=30)
]
SigmaHidden: TypeAlias = Annotated[float, arg("standard deviation of shadowing without one", unit="dB", ge=0, le=30)]
Speed: TypeAlias = Annotated[float, arg("of the devices; 0: they stand", unit="m per unit of time", ge=0, le=1e6)]
Correlation: TypeAlias = Annotated[float, arg("d_corr of shadowing, for devices that walk", unit="m", gt=0)]
Carrier: TypeAlias = Annotated[float, arg("f_c", unit="GHz", ge=0.5, le=100)]
Height: TypeAlias = Annotated[float, arg("h_UT of the devices", unit="m", ge=1.5, le=13)]
Positions: TypeAlias = Annotated[Path | None, arg("a .csv or .parquet file with device,x,y in m; none: drawn per seed")]


@dataclass(frozen=True, eq=False)
class Places:
    """Positions of all devices that a file gave, in m [N]; equal to itself alone, so that what is kept of it is its own."""

    x: Floats
    y: Floats


@dataclass(frozen=True)
class LogDistance:
    """Macro cell of TR 36.814: PL = 128.1 + 37.6 log10(d/km) dB, with log-normal shadowing."""

    num_devices: CellDevices
    power_dbm: Power = 23.0
    antenna_db: Antenna = 0.0
    noise_dbm_per_hz: Noise = -174.0
    noise_figure_db: NoiseFigure = 5.0
    bandwidth_hz: Bandwidth = 10e6
    radius: Radius = 500.0
    min_distance: Least = 35.0
    sigma_db: Sigma = 8.0
    constant_db: Annotated[float, arg("path loss at 1 km", unit="dB", ge=0, le=300)] = 128.1
    slope_db: Annotated[
        float, arg("path loss of ten times the distance; 10 times its exponent", unit="dB", ge=0, le=100)
    ] = 37.6
    speed: Speed = 0.0
    correlation: Correlation = 50.0
    positions: Positions = None
    places: Places | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _lay_out(self, "log_distance")

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return the average SNR [m]."""
        return average_snr(self, seed, device, time)

    def loss(self, distance: Floats, luck: Floats) -> tuple[Floats, float]:
        """Return path loss and standard deviation of shadowing in dB [m]; nothing depends on luck."""
        return propagation.log_distance(distance, self.constant_db, self.slope_db), self.sigma_db


@dataclass(frozen=True)
class Uma:
    """Urban macro, UMa of 38.901: PL = 28 + 22 log10 d + 20 log10 f_c dB in sight, else 13.54 + 39.08 log10 d + 20 log10 f_c.

    Beyond the breakpoint 40 log10 d; the base station is 25 m high. Not in sight it is the larger of the two.
    """

    num_devices: CellDevices
    carrier_ghz: Carrier = 3.5
    power_dbm: Power = 23.0
    antenna_db: Antenna = 0.0
    noise_dbm_per_hz: Noise = -174.0
    noise_figure_db: NoiseFigure = 5.0
    bandwidth_hz: Bandwidth = 10e6
    radius: Far = 250.0
    min_distance: Near = 35.0
    height: Height = 1.5
    sigma_los_db: SigmaInSight = 4.0
    sigma_nlos_db: SigmaHidden = 6.0
    speed: Speed = 0.0
    correlation: Correlation = 50.0
    positions: Positions = None
    places: Places | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _lay_out(self, "uma")

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return the average SNR [m]."""
        return average_snr(self, seed, device, time)

    def loss(self, distance: Floats, luck: Floats) -> tuple[Floats, Floats]:
        """Return path loss and standard deviation of shadowing in dB [m]. luck: a draw from [0, 1) for each device."""
        return _of_street(self, propagation.UMA, distance, luck)


@dataclass(frozen=True)
class Umi:
    """Urban micro, UMi of 38.901: PL = 32.4 + 21 log10 d + 20 log10 f_c dB in sight, else 22.4 + 35.3 log10 d + 21.3 log10 f_c.

    Beyond the breakpoint 40 log10 d; the base station is 10 m high. Not in sight it is the larger of the two.
    """

    num_devices: CellDevices
    carrier_ghz: Carrier = 3.5
    power_dbm: Power = 23.0
    antenna_db: Antenna = 0.0
    noise_dbm_per_hz: Noise = -174.0
    noise_figure_db: NoiseFigure = 5.0
    bandwidth_hz: Bandwidth = 10e6
    radius: Far = 100.0
    min_distance: Near = 10.0
    height: Height = 1.5
    sigma_los_db: SigmaInSight = 4.0
    sigma_nlos_db: SigmaHidden = 7.82
    speed: Speed = 0.0
    correlation: Correlation = 13.0
    positions: Positions = None
    places: Places | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _lay_out(self, "umi")

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return the average SNR [m]."""
        return average_snr(self, seed, device, time)

    def loss(self, distance: Floats, luck: Floats) -> tuple[Floats, Floats]:
        """Return path loss and standard deviation of shadowing in dB [m]. luck: a draw from [0, 1) for each device."""
        return _of_street(self, propagation.UMI, distance, luck)


Site: TypeAlias = LogDistance | Uma | Umi


def _of_street(site: Uma | Umi, street: propagation.Street, distance: Floats, luck: Floats) -> tuple[Floats, Floats]:
    sees = luck < propagation.in_sight(street, distance)
    there, behind = propagation.both(street, distance, site.carrier_ghz, site.height)
    return np.where(sees, there, behind), np.where(sees, site.sigma_los_db, site.sigma_nlos_db)


def _lay_out(site: Site, name: str) -> None:
    """Check that there is room for devices, and read where they are if a file says so."""
    least, radius = site.min_distance, site.radius
    if not 0 < least < radius:
        raise FedtideError(
            f"coverage={name}: min_distance={least:g} and radius={radius:g} leave no room between them; at distance 0 there "
            "is no path loss: choose 0 < min_distance < radius"
        )
    file = site.positions
    object.__setattr__(
        site, "places", None if file is None else Places(*propagation.given(file, site.num_devices, radius, least))
    )


def average_snr(site: Site, seed: int, device: Ints, time: Floats) -> Floats:
    """Return the average SNR of these devices at these times, a number [m]."""
    everyone = site.num_devices <= MOST_POSITIONS_KEPT
    if site.speed == 0:
        return _everyones_snr(site, seed)[device] if everyone else _standing(site, seed, device)
    walk, luck = _everyones_walk(site, seed) if everyone else _walk(site, seed, device)
    if everyone:
        walk, luck = propagation.Walk(*(np.take(each, device) for each in walk)), luck[device]
    x, y = propagation.after(walk, site.speed * time)
    return _snr(site, np.hypot(x, y), luck, propagation.field(seed, x, y, site.correlation))


@functools.lru_cache(maxsize=8)
def _everyones_snr(site: Site, seed: int) -> Floats:
    """Return the average SNR of all devices that stand [N]: a function of its arguments, kept since every tick asks."""
    return read_only(_standing(site, seed, np.arange(site.num_devices)))


@functools.lru_cache(maxsize=8)
def _everyones_walk(site: Site, seed: int) -> tuple[propagation.Walk, Floats]:
    """Return how all devices walk, and their luck [N]."""
    walk, luck = _walk(site, seed, np.arange(site.num_devices))
    return propagation.Walk(*map(read_only, walk)), read_only(luck)


def _standing(site: Site, seed: int, device: Ints) -> Floats:
    x, y = _begin(site, seed, device)
    return _snr(site, np.hypot(x, y), _luck(seed, device), propagation.independent(seed, device))


def _walk(site: Site, seed: int, device: Ints) -> tuple[propagation.Walk, Floats]:
    x, y = _begin(site, seed, device)
    return propagation.walk(seed, device, x, y, site.radius), _luck(seed, device)


def _begin(site: Site, seed: int, device: Ints) -> tuple[Floats, Floats]:
    """Return where devices are at time 0 [m], in m."""
    if site.places is not None:
        return site.places.x[device], site.places.y[device]
    return propagation.spread(seed, device, site.radius, site.min_distance)


def _luck(seed: int, device: Ints) -> Floats:
    return columns.uniform(seed, "line of sight", device)


def _snr(site: Site, distance: Floats, luck: Floats, shadow: Floats) -> Floats:
    """Return 10^(SNR/10 dB) at these distances [m]. shadow: of standard deviation 1."""
    loss, sigma = site.loss(np.maximum(distance, site.min_distance), luck)
    noise = site.noise_dbm_per_hz + 10 * math.log10(site.bandwidth_hz) + site.noise_figure_db
    return np.asarray(10 ** ((site.power_dbm + site.antenna_db - loss - sigma * shadow - noise) / 10))
