"""Channels: the SNR of every uplink at a tick, by block fading or correlated fading.

A channel is a callable (seed, tick, time, device [m]) -> SNR [m], a number and not in dB; one that knows rates rather than
SNRs returns Link(capacity [m], estimated_capacity [m]) in bit/symbol. It depends on its arguments alone, whoever else is
asked, so that all policies meet the same channel. What a modem makes of an SNR is in `modem.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

import numpy as np

from fedtide import columns
from fedtide.devices.traces import Trace, TraceRows, read_trace_columns
from fedtide.errors import DataError, FedtideError
from fedtide.parts.arguments import arg
from fedtide.radio.cell import EQUAL, Coverage, Equal, LinkCoverage
from fedtide.radio.propagation import Singles, propagation_cosine, propagation_per_device, propagation_sum
from fedtide.rng import stream
from fedtide.types import Floats, Ints, Link, read_only

Channel: TypeAlias = Callable[[int, int, float, Ints], Floats | Link]


def _power_gain(seed: int, tick: int, num_devices: int) -> Floats:
    """Draw |h_k(t)|^2 of all N devices for one tick, h ~ CN(0, 1) i.i.d., so the gain is Exp(1) [N].

    Drawn for every device whether ready or not, so that all policies meet the same channel.
    """
    real, imaginary = stream(seed, "fading", tick).standard_normal((2, num_devices)) / np.sqrt(2)
    return np.asarray(real**2 + imaginary**2)


def _faded(coverage: Coverage, seed: int, time: float, device: Ints, gain: Floats) -> Floats:
    """Return the SNR of devices whose average SNR is multiplied by these gains of mean 1 [m]."""
    return coverage(seed, device, np.full(len(device), time)) * gain


@dataclass(frozen=True)
class Rayleigh:
    """Rayleigh block fading: a new gain for every device and tick, |h_k|^2 ~ Exp(1).

    SNR and beta_k given here are those of coverage=equal; other coverages have their own.
    """

    num_devices: Annotated[int, arg("N, number of devices", ge=1, le=10**8, key="fleet.num_devices")]
    snr_db: Annotated[float, arg("average received SNR", unit="dB", key="radio.snr_db")] = 13.0
    large_scale: Annotated[
        float | list[float], arg("beta_k: one number, or one per device", key="radio.large_scale")
    ] = 1.0
    coverage: LinkCoverage = EQUAL

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Floats:
        """Return SNR_k [m]. The gains come out of one stream, so they are drawn for all N, whoever is asked."""
        gain = _power_gain(seed, tick, self.num_devices)[device]
        coverage = Equal(self.snr_db, self.large_scale) if isinstance(self.coverage, Equal) else self.coverage
        return _faded(coverage, seed, time, device, gain)


@dataclass(frozen=True)
class RayleighByDevice:
    """Rayleigh block fading drawn per link, so a few devices of a million cost a few draws.

    In distribution the same as `rayleigh`, whose gains come out of one stream and cost N draws a tick.
    """

    coverage: LinkCoverage = EQUAL

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Floats:
        """Return SNR_k [m]."""
        return _faded(self.coverage, seed, time, device, columns.exponential(seed, "rayleigh", device, tick))


# Block fading with a direct path, or milder and harsher than Rayleigh's: a new gain of mean 1 for every device and tick.


@dataclass(frozen=True)
class Rician:
    """Rician block fading, a direct path among many: |h|^2 = |sqrt(K/(K+1)) + CN(0,1)/sqrt(K+1)|^2, independent in every tick."""

    k_factor: Annotated[
        float, arg("K, power of the direct path over that of all others (linear); 0: Rayleigh", ge=0)
    ] = 3.0
    coverage: LinkCoverage = EQUAL

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Floats:
        """Return SNR_k [m]."""
        return _faded(self.coverage, seed, time, device, _rician_gain(seed, tick, device, self.k_factor))


def _rician_gain(seed: int, tick: int, device: Ints, k_factor: float) -> Floats:
    """Return |h|^2 of these devices at this tick [m], of mean 1.

    The direct path's phase is left out: the others' are uniform, so that it changes nothing of |h|.
    """
    scattered = columns.complex_normal(seed, "rician", device, tick)
    direct = math.sqrt(k_factor / (k_factor + 1))
    return np.asarray((direct + scattered.real / math.sqrt(k_factor + 1)) ** 2 + scattered.imag**2 / (k_factor + 1))


@dataclass(frozen=True)
class Nakagami:
    """Nakagami-m block fading: |h|^2 ~ Gamma(m, 1/m), independent in every tick; m = 1 is Rayleigh, above it fades less."""

    m: Annotated[float, arg("shape: 1/m is the variance of the gain", ge=0.5, le=1e6)] = 2.0
    coverage: LinkCoverage = EQUAL

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Floats:
        """Return SNR_k [m]."""
        return _faded(self.coverage, seed, time, device, _nakagami_gain(seed, tick, device, self.m))


def _nakagami_gain(seed: int, tick: int, device: Ints, m: float) -> Floats:
    """Return |h|^2 of these devices at this tick [m], of mean 1 and variance 1/m: the quantiles of uniform draws."""
    from scipy.special import gammaincinv

    return np.asarray(gammaincinv(m, columns.uniform(seed, "nakagami", device, tick)) / m)


# Fading that goes on from tick to tick: a sum of sinusoids, which is a function of time and needs no state.
#
# The model is that of Zheng and Xiao ("Simulation models with correct statistical properties for Rayleigh fading channels",
# IEEE Trans. Commun. 2003): h(t) = 1/sqrt(M) sum_n cos(2 pi f_D t cos a_n + p_n) + j cos(2 pi f_D t sin a_n + q_n) with a_n
# = (2 pi n - pi + theta)/(4 M), n = 1..M, and theta, p_n, q_n uniform, drawn once per device. So E[h(t) h*(t + s)] = J0(2
# pi f_D s) exactly, the mean of |h|^2 over time is 1 for every device, and its variance over devices is 1 - 3/(4 M), where
# Rayleigh has 1.


MOST_WAVES_KEPT = 2**22  # sinusoids of a fleet that are kept between ticks, at 8 bytes; of more they are drawn again


@dataclass(frozen=True)
class Jakes:
    """Rayleigh fading with Jakes' spectrum, E[h(t) h*(t+s)] = J0(2 pi f_D s), f_D = v f_c / c; with K > 0 Rician."""

    by_time: ClassVar[bool] = True  # not by aggregation

    num_devices: Annotated[int, arg("N, number of devices", ge=1, le=10**8, key="fleet.num_devices")]
    doppler: Annotated[
        float, arg("f_D = v f_c / c, 10 Hz for 1.5 m/s at 2 GHz", unit="cycles per unit of time", ge=0, le=1e9)
    ] = 10.0
    k_factor: Annotated[float, arg("K, power of the direct path over that of all others (linear)", ge=0)] = 0.0
    paths: Annotated[int, arg("M, number of sinusoids per quadrature", ge=4, le=256)] = 8
    coverage: LinkCoverage = EQUAL

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Floats:
        """Return SNR_k at this time [m]; the tick's number does not matter."""
        kept = self.num_devices if 2 * (self.paths + 1) * self.num_devices <= MOST_WAVES_KEPT else None
        speed, phase = propagation_per_device(_drawn, seed, device, kept, self.paths, self.k_factor > 0)
        gain = _jakes_gain(self.doppler * time, speed, phase, self.paths, self.k_factor)
        return _faded(self.coverage, seed, time, device, gain)


def _jakes_gain(cycles: float, speed: Singles, phase: Singles, paths: int, k_factor: float = 0.0) -> Floats:
    """Return |h|^2 of mean 1 after so many cycles at full Doppler shift [m], of sinusoids as `_drawn` gives them."""
    turned = np.multiply(speed, cycles, dtype=np.float64)
    turned += phase
    waves = propagation_cosine(turned)
    real, imaginary = (propagation_sum(each) / math.sqrt(paths) for each in (waves[:paths], waves[paths : 2 * paths]))
    if k_factor > 0:
        direct, others = math.sqrt(k_factor / (k_factor + 1)), 1 / math.sqrt(k_factor + 1)
        real, imaginary = direct * waves[-2] + others * real, direct * waves[-1] + others * imaginary
    return np.asarray(real**2 + imaginary**2)


def _drawn(seed: int, device: Ints, paths: int, direct: bool) -> tuple[Singles, Singles]:
    """Return how fast the sinusoids of these devices turn, in f_D, and their phases at time 0, in cycles [2M m].

    direct: two more for a direct path, its cosine and its sine [2M+2 m].
    """
    theta = np.pi * (2 * columns.uniform(seed, "jakes angle", device) - 1)
    angle = (2 * np.pi * np.arange(1, paths + 1)[:, None] - np.pi + theta) / (4 * paths)
    speed = [np.cos(angle), np.sin(angle)]
    phase = [columns.uniform(seed, "jakes phase", device, np.arange(2 * paths)[:, None])]
    if direct:  # from a direction of each device's own
        speed += [np.cos(2 * np.pi * columns.uniform(seed, "jakes direct", device))[None]] * 2
        begun = columns.uniform(seed, "jakes direct", device, draw=1)
        phase += [begun[None], begun[None] - 0.25]  # a sine is a cosine a quarter of a turn later
    return np.concatenate(speed).astype(np.float32), np.concatenate(phase).astype(np.float32)


@dataclass(frozen=True)
class GilbertElliott:
    """Links that turn bad and good again: an independent two-state Markov chain per device.

    A link is bad for a share to_bad / (to_bad + to_good) of the time, and states s steps apart are correlated with
    (1 - to_bad - to_good)^s. Gilbert, Capacity of a burst-noise channel (1960); Elliott (1963).
    """

    to_bad: Annotated[float, arg("probability that a good link turns bad in a step", gt=0, lt=1)] = 0.1
    to_good: Annotated[float, arg("probability that a bad link turns good in a step", gt=0, lt=1)] = 0.3
    bad_db: Annotated[float, arg("attenuation of a bad link", unit="dB", ge=0, le=300)] = 20.0
    step: Annotated[float | None, arg("length of a step in units of time; default: one tick", gt=0)] = None
    fading: Annotated[bool, arg("Rayleigh block fading on top")] = False
    coverage: LinkCoverage = EQUAL

    @property
    def by_time(self) -> bool:
        """Say whether nothing goes by aggregation."""
        return self.step is not None and not self.fading

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Floats:
        """Return SNR_k [m]."""
        at = tick if self.step is None else int(time / self.step)
        table = ((1 - self.to_bad, self.to_bad), (self.to_good, 1 - self.to_good))
        gain = np.where(columns.markov(seed, "gilbert elliott", device, at, table) == 1, 10 ** (-self.bad_db / 10), 1.0)
        if self.fading:
            gain = gain * columns.exponential(seed, "gilbert elliott fading", device, tick)
        return _faded(self.coverage, seed, time, device, gain)


# Uplinks from a file: what was measured, or what another simulator says.


SymbolRate: TypeAlias = Annotated[
    float, arg("symbols per unit of time, to convert Mbit/s", ge=0, key="radio.symbol_rate")
]
UnitSeconds: TypeAlias = Annotated[float, arg("length of a unit of time", unit="s", gt=0)]
FileSource: TypeAlias = Annotated[str, arg("source of the files, cited in a run's versions.json")]
FileLicense: TypeAlias = Annotated[str, arg("licence of the files, cited in the same place")]


def rate_as_capacity(mbit_per_s: Floats, symbol_rate: float, unit_seconds: float, part: str) -> Floats:
    """Return rates as bit/symbol [m]. symbol_rate: symbols per unit of time."""
    if not symbol_rate > 0:
        raise FedtideError(
            f"{part}: radio.symbol_rate={symbol_rate:g} does not say how many symbols carry a Mbit; set it to the bandwidth, "
            "in symbols per unit of time"
        )
    return mbit_per_s * (1e6 * unit_seconds / symbol_rate)


# more is a slip of units
_LARGEST_VALUE = {"capacity": 1000.0, "snr_db": 300.0, "gain": 1e30, "mbit_per_s": 1e6}


@dataclass(frozen=True)
class TraceChannel:
    """Uplinks from a .csv or .parquet file with columns device,time,value: the value of the last row not after t."""

    by_time: ClassVar[bool] = True  # not by aggregation

    path: Annotated[Path, arg("the file, with devices 0, 1, ... and, for each, rows ordered by time from 0")]
    num_devices: Annotated[
        int, arg("N, number of devices, each of which needs rows", ge=1, le=10**8, key="fleet.num_devices")
    ]
    horizon: Annotated[float, arg("time that the rows must cover, unless they wrap", ge=0, key="timeline.horizon")] = (
        0.0
    )
    quantity: Annotated[
        Literal["capacity", "snr_db", "gain", "mbit_per_s"],
        arg("unit of the values: bit/symbol, SNR in dB, |h|^2 relative to the coverage's average, or Mbit/s"),
    ] = "capacity"
    max_gap: Annotated[float, arg("longest gap between two rows of a device; 0: any", ge=0)] = 0.0
    wrap: Annotated[bool, arg("repeat the trace when it ends")] = False
    symbol_rate: SymbolRate = 0.0
    unit_seconds: UnitSeconds = 1.0
    source: FileSource = ""
    license: FileLicense = ""
    coverage: LinkCoverage = EQUAL
    rows: TraceRows = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        trace = read_trace_columns(self.path, ("device", "time", "value"))
        trace = trace.ordered(np.argsort(trace.devices(self.num_devices), kind="stable"))
        most = _LARGEST_VALUE[self.quantity]
        trace.refuse(np.abs(trace["value"]) > most, f"value={{value:g}} is no {self.quantity}; give at most {most:g}")
        if self.quantity != "snr_db":
            trace.refuse(trace["value"] < 0, f"value={{value:g}} is negative; a {self.quantity} is 0 or more")
        rows = _trace_rows(trace, self.num_devices, self.max_gap)
        if self.quantity == "mbit_per_s":
            made = rate_as_capacity(rows.value, self.symbol_rate, self.unit_seconds, "channel=trace")
            rows = rows._replace(value=read_only(made))
        object.__setattr__(self, "rows", rows)
        self._check_reach(np.arange(self.num_devices), self.horizon, "timeline.horizon")

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Floats | Link:
        """Return SNR_k or C_k at this time [m]; seed and tick do not matter. Raise if nothing is known of that time."""
        self._check_reach(device, time, "what is asked for, time")
        value = self.rows.value[self.rows.row_at(device, np.full(len(device), time), self.wrap)]
        if self.quantity == "gain":
            return _faded(self.coverage, seed, time, device, value)
        return 10 ** (value / 10) if self.quantity == "snr_db" else Link(value, value)

    def _check_reach(self, device: Ints, time: float, what: str) -> None:
        """Raise if what is known of one of these devices ends before this time. what: the name of that time."""
        end = np.full(len(device), np.inf) if self.wrap else self.rows.end(device)
        for at in np.flatnonzero(end < time * (1 - 1e-9))[:1]:
            raise DataError(
                f"the trace {self.path} ends at {end[at]:g} for device {device[at]}, before {what}={time:g}; add rows, shorten "
                "the horizon or set wrap: true"
            )


def _trace_rows(trace: Trace, num_devices: int, max_gap: float) -> TraceRows:
    """Return the rows of a trace that is in the order of devices, if their times are in order."""
    time, first = trace["time"], np.searchsorted(trace["device"], np.arange(num_devices + 1))
    gap = np.diff(time, prepend=0.0)
    gap[first[:-1]] = np.nan  # before a device's first row there is none
    late = np.isnan(gap) & (time != 0)
    trace.refuse(late, "device {device:g} begins at time={time:g}; let its times begin at 0")
    unsorted = (
        "time={time:g} of device {device:g} comes after time={last:g}; sort its rows by time and keep one of each"
    )
    trace.refuse(gap <= 0, unsorted, last=np.roll(time, 1))
    if max_gap > 0:
        unknown = "nothing is known of device {device:g} for {gap:g} before time={time:g}, "
        trace.refuse(gap > max_gap, f"{unknown}max_gap={max_gap:g}; fill the gap or raise max_gap", gap=gap)
    lasts = np.fmax.reduceat(gap, first[:-1])
    lasts = np.where(np.isnan(lasts), np.inf, lasts)  # a single row is a link that never changes
    return TraceRows(read_only(time), read_only(trace["value"]), first, lasts)


CHANNELS: Final[dict[str, Any]] = {
    "rayleigh": Rayleigh,
    "rayleigh_by_device": RayleighByDevice,
    "rician": Rician,
    "nakagami": Nakagami,
    "jakes": Jakes,
    "gilbert_elliott": GilbertElliott,
    "trace": TraceChannel,
    "drive_test": "fedtide.radio.measured:DriveTest",
    "drive_twin": "fedtide.radio.drive_twin:DriveTwin",
    "mahimahi": "fedtide.radio.measured:Mahimahi",
}
