"""How strong a device is received on average: equal for all, or a cell with distance, shadowing, power and noise.

A coverage is a callable (seed, device [m], time [m]) -> the average SNR of each device's link at that time [m], a number and
not in dB. It depends on its arguments alone, whoever else is asked. Channels that fade multiply it by a gain of mean 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeAlias

import numpy as np

from fedtide import columns
from fedtide.errors import FedtideError
from fedtide.parts.arguments import arg
from fedtide.radio import propagation
from fedtide.types import Floats, Ints

Coverage: TypeAlias = Callable[[int, Ints, Floats], Floats]
LinkCoverage: TypeAlias = Annotated[Coverage, arg("average SNR of each link", key="run.coverage")]


@dataclass(frozen=True)
class Equal:
    """The paper's: SNR beta_k, with beta_k = 1 by default."""

    snr_db: Annotated[float, arg("average received SNR", unit="dB", key="radio.snr_db")] = 13.0
    large_scale: Annotated[
        float | list[float], arg("beta_k: one number, or one per device", key="radio.large_scale")
    ] = 1.0

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return SNR beta_k [m]."""
        snr = np.asarray(10 ** (self.snr_db / 10) * np.asarray(self.large_scale, np.float64))
        return snr[device] if snr.ndim else np.full(len(device), snr)


EQUAL = Equal()

# A cell: devices about a base station, and what distance, shadowing, power and noise make of their uplinks.
#
# SNR = P + G - PL(d) - S - (N0 + 10 log10 B + NF) in dB. Positions are uniform over a ring about the base station, drawn
# per seed, or given by a file. With speed > 0 devices walk straight on and are turned back at the rim; one that comes
# nearer than min_distance counts as that far. Devices that stand are shadowed independently of each other; of those that
# walk, shadowing is one field over the cell with correlation exp(-d/d_corr). A device's luck with lines of sight is drawn
# once: it sees the base station wherever the chance to is above that draw, so that one that walks away loses sight at a
# distance of its own.


MOST_POSITIONS_KEPT = 2**20  # devices of which positions are kept between ticks; of larger fleets they are drawn again

_Near = Annotated[float, arg("smallest distance of a device from the base station", unit="m", ge=10)]
_Radius = Annotated[float, arg("radius of the cell", unit="m", gt=10, le=5000)]
_Correlation = Annotated[float, arg("d_corr, correlation distance of the shadowing of moving devices", unit="m", gt=0)]
_Hidden = Annotated[float, arg("standard deviation of shadowing without a line of sight", unit="dB", ge=0, le=30)]


@dataclass(frozen=True, eq=False)
class Places:
    """Positions of all devices that a file gave, in m [N]; equal to itself alone, so that what is kept of it is its own."""

    x: Floats
    y: Floats


@dataclass(frozen=True)
class _Cell:
    """What all cells have; each adds its path loss."""

    num_devices: Annotated[int, arg("N, number of devices", ge=1, le=10**8, key="fleet.num_devices")]
    power_dbm: Annotated[float, arg("transmit power of a device", unit="dBm", ge=-100, le=100)] = 23.0
    antenna_db: Annotated[float, arg("total gain of both antennas", unit="dB", ge=-100, le=100)] = 0.0
    noise_dbm_per_hz: Annotated[float, arg("N0, noise power density", unit="dBm/Hz", ge=-250, le=0)] = -174.0
    noise_figure_db: Annotated[float, arg("NF, noise figure of the base station", unit="dB", ge=0, le=50)] = 5.0
    bandwidth_hz: Annotated[float, arg("B, bandwidth of a device", unit="Hz", gt=0, le=1e12)] = 10e6
    radius: Annotated[float, arg("radius of the cell", unit="m", gt=0, le=1e5)] = 500.0
    min_distance: Annotated[float, arg("smallest distance of a device from the base station", unit="m", gt=0)] = 35.0
    speed: Annotated[
        float, arg("speed of the devices; 0: they do not move", unit="m per unit of time", ge=0, le=1e6)
    ] = 0.0
    correlation: _Correlation = 50.0
    positions: Annotated[
        Path | None, arg("a .csv or .parquet file with device,x,y in m; default: positions drawn per seed")
    ] = None
    places: Places | None = field(init=False, repr=False)
    name: ClassVar[str]

    def __post_init__(self) -> None:
        if not 0 < self.min_distance < self.radius:
            raise FedtideError(
                f"coverage={self.name}: min_distance={self.min_distance:g} and radius={self.radius:g} leave no room between "
                "them; choose 0 < min_distance < radius"
            )
        places = None
        if self.positions is not None:
            places = Places(
                *propagation.given_positions(self.positions, self.num_devices, self.radius, self.min_distance)
            )
        object.__setattr__(self, "places", places)

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return the average SNR [m]."""
        kept = self.num_devices if self.num_devices <= MOST_POSITIONS_KEPT else None
        if self.speed == 0:
            return propagation.propagation_per_device(_standing, seed, device, kept, self)[0]
        *walk, luck = propagation.propagation_per_device(_walking, seed, device, kept, self)
        x, y = propagation.positions_after(propagation.Walk(*walk), self.speed * time)
        return self.snr(np.hypot(x, y), luck, propagation.shadowing_field(seed, x, y, self.correlation))

    def begin(self, seed: int, device: Ints) -> tuple[Floats, Floats]:
        """Return where devices are at time 0, as x and y in m [m]."""
        if self.places is not None:
            return self.places.x[device], self.places.y[device]
        return propagation.spread_positions(seed, device, self.radius, self.min_distance)

    def snr(self, distance: Floats, luck: Floats, shadow: Floats) -> Floats:
        """Return 10^(SNR/10 dB) at these distances [m]. shadow: of standard deviation 1."""
        loss, sigma = self.loss(np.maximum(distance, self.min_distance), luck)
        noise = self.noise_dbm_per_hz + 10 * math.log10(self.bandwidth_hz) + self.noise_figure_db
        return np.asarray(10 ** ((self.power_dbm + self.antenna_db - loss - sigma * shadow - noise) / 10))

    def loss(self, distance: Floats, luck: Floats) -> tuple[Floats, Floats | float]:
        """Return path loss and standard deviation of shadowing in dB [m]. luck: a draw from [0, 1) for each device."""
        raise NotImplementedError


def _standing(seed: int, device: Ints, cell: _Cell) -> tuple[Floats, ...]:
    """Return the average SNR of devices that stand [m]."""
    x, y = cell.begin(seed, device)
    return (cell.snr(np.hypot(x, y), _luck(seed, device), columns.normal(seed, "shadowing", device)),)


def _walking(seed: int, device: Ints, cell: _Cell) -> tuple[Floats, ...]:
    """Return how devices walk, and their luck [m]."""
    x, y = cell.begin(seed, device)
    return (*propagation.walk_positions(seed, device, x, y, cell.radius), _luck(seed, device))


def _luck(seed: int, device: Ints) -> Floats:
    return columns.uniform(seed, "line of sight", device)


@dataclass(frozen=True)
class LogDistance(_Cell):
    """Macro cell of TR 36.814 and 36.942 at 2 GHz: PL = 128.1 + 37.6 log10(d/km) dB, with log-normal shadowing."""

    sigma_db: Annotated[float, arg("standard deviation of shadowing", unit="dB", ge=0, le=30)] = 8.0
    constant_db: Annotated[float, arg("path loss at 1 km", unit="dB", ge=0, le=300)] = 128.1
    slope_db: Annotated[
        float, arg("path loss per decade of distance, 10 times the exponent", unit="dB", ge=0, le=100)
    ] = 37.6
    name: ClassVar[str] = "log_distance"

    def loss(self, distance: Floats, luck: Floats) -> tuple[Floats, float]:
        """Return path loss and standard deviation of shadowing in dB [m]; nothing depends on luck."""
        return np.asarray(self.constant_db + self.slope_db * np.log10(distance / 1000)), self.sigma_db


@dataclass(frozen=True)
class Uma(_Cell):
    """Urban macro, UMa of 38.901: PL = 28 + 22 log10 d + 20 log10 f_c dB in sight, else 13.54 + 39.08 log10 d + 20 log10 f_c.

    Beyond the breakpoint 40 log10 d; the base station is 25 m high. Not in sight it is the larger of the two.
    """

    radius: _Radius = 250.0
    min_distance: _Near = 35.0
    carrier_ghz: Annotated[float, arg("f_c, carrier frequency", unit="GHz", ge=0.5, le=100)] = 3.5
    height: Annotated[float, arg("h_UT, height of the devices", unit="m", ge=1.5, le=13)] = 1.5
    sigma_los_db: Annotated[
        float, arg("standard deviation of shadowing with a line of sight", unit="dB", ge=0, le=30)
    ] = 4.0
    sigma_nlos_db: _Hidden = 6.0
    name: ClassVar[str] = "uma"
    street: ClassVar[propagation.Street] = propagation.UMA

    def loss(self, distance: Floats, luck: Floats) -> tuple[Floats, Floats]:
        """Return path loss and standard deviation of shadowing in dB [m]. luck: a draw from [0, 1) for each device."""
        sees = luck < propagation.line_of_sight_chance(self.street, distance)
        there, behind = propagation.both_path_losses(self.street, distance, self.carrier_ghz, self.height)
        return np.where(sees, there, behind), np.where(sees, self.sigma_los_db, self.sigma_nlos_db)


@dataclass(frozen=True)
class Umi(Uma):
    """Urban micro, UMi of 38.901: PL = 32.4 + 21 log10 d + 20 log10 f_c dB in sight, else 22.4 + 35.3 log10 d + 21.3 log10 f_c.

    Beyond the breakpoint 40 log10 d; the base station is 10 m high. Not in sight it is the larger of the two.
    """

    radius: _Radius = 100.0
    min_distance: _Near = 10.0
    sigma_nlos_db: _Hidden = 7.82
    correlation: _Correlation = 13.0
    name: ClassVar[str] = "umi"
    street: ClassVar[propagation.Street] = propagation.UMI


COVERAGES: Final[dict[str, Any]] = {
    "equal": Equal,
    "log_distance": LogDistance,
    "uma": Uma,
    "umi": Umi,
    "hex_grid": "fedtide.radio.sites:HexGrid",
    "sites": "fedtide.radio.sites:SiteList",
    "leo": "fedtide.radio.orbit:Leo",
}
