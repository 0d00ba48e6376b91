"""What devices spend in energy.

An energy is a callable (seed, device [m], samples [m], symbols [m]) -> J [m]: what each of these devices spends on visiting so
many samples in training and sending so many symbols. It depends on its arguments alone. If its attribute `counted` is False,
nothing is known of energy, and nothing is counted. It may have `of_bits(seed, device [m], bits [m]) -> J [m]`, what sending so
many bits takes besides, and `co2_grams(time, joules) -> g`, what making so many joules emits at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import numpy as np

from fedtide.core.yaml12 import shown
from fedtide.devices.duration import MaxFrequency, MinFrequency, check_duration_frequencies, duration_frequencies
from fedtide.devices.traces import TraceRows, read_trace_columns
from fedtide.errors import DataError, FedtideError, TrainingError
from fedtide.parts import checks, registry
from fedtide.parts.arguments import arg
from fedtide.types import Floats, Ints, read_only

Energy: TypeAlias = Callable[[int, Ints, Ints, Floats], Floats]


@dataclass(frozen=True)
class PerUnit:
    """A fixed energy per symbol and per sample, the same for every device."""

    joules_per_symbol: Annotated[
        float, arg("energy per symbol sent", unit="J", ge=0, key="radio.joules_per_symbol")
    ] = 0.0
    joules_per_sample: Annotated[
        float, arg("energy per sample visited", unit="J", ge=0, key="fleet.joules_per_sample")
    ] = 0.0

    @property
    def counted(self) -> bool:
        """Is any of them given?"""
        return self.joules_per_symbol > 0 or self.joules_per_sample > 0

    def __call__(self, seed: int, device: Ints, samples: Ints, symbols: Floats) -> Floats:
        """Return the sum of both in J [m]."""
        return np.asarray(self.joules_per_symbol * symbols + self.joules_per_sample * samples)


def energy_is_counted(energy: Energy) -> bool:
    """Say whether anything is known of energy."""
    return bool(getattr(energy, "counted", True))


def energy_of_bits(energy: Energy, seed: int, device: Ints, bits: Floats) -> Floats:
    """Return what sending so many bits takes besides the time that their symbols take, in J [m]."""
    of_bits = getattr(energy, "of_bits", None)
    if of_bits is None:
        return np.zeros(len(device))
    found = checks.answer_as_array(of_bits(seed, device, bits))
    if found.shape != device.shape or found.dtype.kind not in "fiu" or not np.all(np.isfinite(found) & (found >= 0)):
        label = checks.part_label("energy", energy)
        raise TrainingError(
            f"{label}.of_bits returned {shown(found, 200)}: it must give {len(device)} finite energies >= 0 in J, one per device"
        )
    return np.asarray(found, np.float64)


@dataclass(frozen=True)
class Cmos:
    """J = kappa c n f_k^2 + P m / B: n samples of c cycles each at kappa f_k^2 a cycle, m symbols at power P and rate B.

    Tran et al., "Federated Learning over Wireless Networks: Optimization Model Design and Analysis", INFOCOM 2019; Yang et
    al., "Energy Efficient Federated Learning over Wireless Communication Networks", IEEE TWC 2021. f_k is that of
    duration=cycles.
    """

    kappa: Annotated[float, arg("effective capacitance of the chip", unit="J s^2 per cycle^3", ge=0)] = 1e-28
    cycles_per_sample: Annotated[
        float, arg("c, CPU cycles per sample", unit="cycles", ge=0, key="fleet.cycles_per_sample")
    ] = 1e7
    min_frequency: MinFrequency = 1e9
    max_frequency: MaxFrequency = 1e9
    power_watts: Annotated[float, arg("P, transmit power; 0: not counted", unit="W", ge=0)] = 0.0
    symbol_rate: Annotated[float, arg("B, symbols per unit of time", ge=0, key="radio.symbol_rate")] = 0.0
    unit_seconds: Annotated[float, arg("length of a unit of time", unit="s", gt=0)] = 1.0

    def __post_init__(self) -> None:
        check_duration_frequencies("energy=cmos", self.min_frequency, self.max_frequency)
        if self.power_watts > 0 and not self.symbol_rate > 0:
            raise FedtideError(
                f"energy=cmos: power_watts={self.power_watts:g} for how long? radio.symbol_rate={self.symbol_rate:g} does not "
                "say what a symbol takes; set it to the bandwidth, in symbols per unit of time"
            )

    def __call__(self, seed: int, device: Ints, samples: Ints, symbols: Floats) -> Floats:
        """Return the sum of computing and sending in J [m]."""
        speed = duration_frequencies(seed, device, self.min_frequency, self.max_frequency)
        computed = self.kappa * self.cycles_per_sample * samples * speed**2
        if not self.power_watts:
            return computed
        return np.asarray(computed + self.power_watts * self.unit_seconds / self.symbol_rate * symbols)


# Measured phones. Power of sending against uplink throughput is a line, P = P_0 + s r.
#
# The lines are those of figure 11 (uplink) of Narayanan et al., "A Variegated Look at 5G in the Wild: Performance, Power, and
# QoE Implications", SIGCOMM 2021, measured at a phone on Verizon's network with a Monsoon power monitor: fitted once more to
# the released data (Data-Transfer-Power/MN-Transfer of github.com/SIGCOMM21-5G/artifact), as its script of that figure does.
# P_0 is that of the whole phone. What that takes without a transfer is in the same release (Power-SignalStrength: the median
# of hardware_power_full - hardware_power over 22,324 s), and is not counted.


_PHONE_LINES: Final = {  # network -> P_0 in W, s in nJ/bit (mW per Mbit/s)
    "mmwave": (5.624, 9.42),
    "low_band": (3.204, 29.15),
    "lte": (2.799, 80.21),
}
_PHONE_IDLE_WATTS: Final = 2.321


@dataclass(frozen=True)
class MeasuredPhone:
    """J = (P_0 - P_idle) m / B + s b: m symbols at rate B, b bits, power P_0 + s r measured against uplink throughput r.

    mmwave: 5.624 W and 9.42 mW per Mbit/s; low_band: 3.204 W and 29.15; lte: 2.799 W and 80.21. Narayanan et al., "A Variegated
    Look at 5G in the Wild", SIGCOMM 2021, figure 11 (uplink) and its released data.
    """

    network: Annotated[
        Literal["mmwave", "low_band", "lte"], arg("phone whose measured power-throughput line is used")
    ] = "low_band"
    idle_watts: Annotated[
        float,
        arg(
            "P_idle, power without a transfer, which is subtracted; the default is with a bright screen", unit="W", ge=0
        ),
    ] = _PHONE_IDLE_WATTS
    symbol_rate: Annotated[float, arg("B, symbols per unit of time", ge=0, key="radio.symbol_rate")] = 0.0
    unit_seconds: Annotated[float, arg("length of a unit of time", unit="s", gt=0)] = 1.0
    joules_per_sample: Annotated[
        float, arg("energy per sample visited", unit="J", ge=0, key="fleet.joules_per_sample")
    ] = 0.0

    def __post_init__(self) -> None:
        if not self.symbol_rate > 0:
            raise FedtideError(
                f"energy=measured_5g: radio.symbol_rate={self.symbol_rate:g} does not say how long a symbol takes; set it to the "
                "bandwidth, in symbols per unit of time"
            )
        if self.idle_watts > self.base_watts:
            raise FedtideError(
                f"energy=measured_5g: idle_watts={self.idle_watts:g} is more than the {self.base_watts:g} W of "
                f"network={self.network} with a transfer; lower it"
            )

    @property
    def base_watts(self) -> float:
        """P_0, of the whole phone."""
        return _PHONE_LINES[self.network][0]

    def __call__(self, seed: int, device: Ints, samples: Ints, symbols: Floats) -> Floats:
        """Return what computing takes, and the time on the air, in J [m]."""
        per_symbol = (self.base_watts - self.idle_watts) * self.unit_seconds / self.symbol_rate
        return np.asarray(self.joules_per_sample * samples + per_symbol * symbols)

    def of_bits(self, seed: int, device: Ints, bits: Floats) -> Floats:
        """Return s b in J [m]."""
        return np.asarray(_PHONE_LINES[self.network][1] * 1e-9 * bits)


# What the electricity emits: g CO2 of every kWh, hour by hour.


_JOULES_PER_KWH: Final = 3.6e6
_GRAMS_PER_KWH: Final = {"g_per_kwh": 1.0, "kg_per_mwh": 1.0, "lb_per_mwh": 0.45359237}
_MOST_GRAMS: Final = 5000.0  # per kWh; the worst coal plants emit some 1,300


@dataclass(frozen=True)
class Carbon:
    """The energy of another part, and g CO2 = J / 3.6e6 x the grid's g/kWh at the time of the aggregation.

    The table is a .csv or .parquet file with a column hour (from 0, evenly spaced) and one named g_per_kwh, kg_per_mwh or
    lb_per_mwh; at its end it begins again.
    """

    path: Annotated[Path, arg("the table: columns hour and g_per_kwh")]
    inner: Annotated[str, arg("the energy model that says what devices spend", part="energy")] = "per_unit"
    unit_seconds: Annotated[float, arg("length of a unit of time", unit="s", gt=0)] = 1.0
    start_hour: Annotated[float, arg("hour of the table at time 0", unit="h", ge=0)] = 0.0
    energy: Energy = field(init=False, repr=False, compare=False)
    rows: TraceRows = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        args, fill = registry.inner_arguments(self.inner, None)
        object.__setattr__(self, "energy", registry.part("energy", self.inner, args, fill))
        if not energy_is_counted(self.energy):
            raise FedtideError(
                f"energy=carbon: inner={self.inner} counts nothing; give fleet.joules_per_sample or radio.joules_per_symbol, or "
                "name another inner, such as measured_5g"
            )
        object.__setattr__(self, "rows", read_grid_intensity(self.path))

    def __call__(self, seed: int, device: Ints, samples: Ints, symbols: Floats) -> Floats:
        """Return what the inner one spends in J [m]."""
        return np.asarray(self.energy(seed, device, samples, symbols))

    def of_bits(self, seed: int, device: Ints, bits: Floats) -> Floats:
        """Return what the inner one spends on bits in J [m]."""
        return energy_of_bits(self.energy, seed, device, bits)

    def co2_grams(self, time: float, joules: float) -> float:
        """Return what making so many joules emits at a time, in g."""
        hour = np.array([self.start_hour + time * self.unit_seconds / 3600])
        return joules / _JOULES_PER_KWH * float(self.rows.value[self.rows.row_at(np.zeros(1, np.int64), hour, True)][0])


def read_grid_intensity(path: Path) -> TraceRows:
    """Read a table of grid intensity, in g/kWh by hour, as one series that repeats."""
    trace = read_trace_columns(path, ("hour",), tuple(_GRAMS_PER_KWH))
    units = [name for name in _GRAMS_PER_KWH if name in trace.columns]
    if len(units) != 1:
        found = " and ".join(units) or "none"
        raise DataError(
            f"the trace {path} needs one column of {', '.join(_GRAMS_PER_KWH)}, and has {found}; name its unit so"
        )
    value = trace[units[0]] * _GRAMS_PER_KWH[units[0]]
    bad = (value < 0) | (value > _MOST_GRAMS)
    trace.refuse(bad, f"{units[0]}={{{units[0]}:g}} is no intensity of a grid; give 0 to {_MOST_GRAMS:g} g/kWh")
    trace.refuse((np.arange(len(value)) == 0) & (trace["hour"] != 0), "hour={hour:g} comes first; begin at hour 0")
    step = np.diff(trace["hour"], append=np.nan)
    back = np.append(False, step[:-1] <= 0)
    trace.refuse(back, "hour={hour:g} comes after hour={last:g}; sort the rows by hour", last=np.roll(trace["hour"], 1))
    even = float(step[0]) if len(value) > 1 else 24.0
    hole = np.append(False, np.abs(step[:-1] - even) > 1e-6 * even)
    problem = f"hour={{hour:g}} comes {{gap:g}} h after the row before, and rows are {even:g} h apart; fill the hole"
    trace.refuse(hole, problem, gap=np.append(0.0, step[:-1]))
    return TraceRows(read_only(trace["hour"]), read_only(value), np.array([0, len(value)]), np.array([even]))


ENERGIES: dict[str, Callable[..., Energy]] = {
    "per_unit": PerUnit,
    "cmos": Cmos,
    "measured_5g": MeasuredPhone,
    "carbon": Carbon,
}
