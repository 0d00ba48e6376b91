"""How long a local training takes.

A duration is a callable (seed, device [m], job [m]) -> time [m] > 0: how long each of these devices takes for its job of that
number (1, 2, ...), infinity if it never finishes. It depends on its arguments alone, whoever else is asked. If its attribute
`redraws` is False, every job of a device takes as long as its first; without the attribute, every job is asked for.

Times are in the unit of fleet.max_duration, by which the radio's symbols per tick and the synchronous timeline's rounds go.
Where a part gives longer ones, whoever takes longer than a round is ready at the end of the round in which it finishes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, TypeAlias

import numpy as np

from fedtide import columns
from fedtide.core.memory_budget import require_memory
from fedtide.devices.fedscale import FedScaleCapacity
from fedtide.devices.fleet import JobSamples, samples_of_jobs
from fedtide.devices.traces import check_trace_device_count, read_trace_columns
from fedtide.errors import DataError, FedtideError
from fedtide.parts.arguments import arg
from fedtide.rng import stream
from fedtide.types import Floats, Ints

Duration: TypeAlias = Callable[[int, Ints, Ints], Floats]
_Spread = Annotated[float, arg("sigma of the log-normal s_k; 0: all devices are equal", ge=0, le=10)]
MinFrequency: TypeAlias = Annotated[float, arg("smallest f_k", unit="cycles/s", gt=0, key="fleet.min_frequency")]
MaxFrequency: TypeAlias = Annotated[float, arg("largest f_k", unit="cycles/s", gt=0, key="fleet.max_frequency")]
_LEAST = np.finfo(np.float64).tiny  # no device takes no time, whatever rounds to 0


def durations_vary(duration: Duration) -> bool:
    """Say whether a device's jobs may differ in length."""
    return bool(getattr(duration, "redraws", True))


def first_duration(duration: Duration, seed: int, num_devices: int) -> Floats:
    """Return how long the first job of every device takes [N]."""
    return duration(seed, np.arange(num_devices), np.ones(num_devices, np.int64))


@dataclass(frozen=True)
class UniformDuration:
    """T_k ~ U(T_min, T_max], drawn once per device. The lower end is left out, so that no device takes no time."""

    min_duration: Annotated[float, arg("T_min", ge=0, key="fleet.min_duration")] = 0.0
    max_duration: Annotated[float, arg("T_max", gt=0, key="fleet.max_duration")] = 1.0
    redraws: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.min_duration > self.max_duration:
            raise FedtideError(
                f"duration=uniform: min_duration={self.min_duration} exceeds max_duration={self.max_duration}; swap them or "
                "lower it"
            )

    def __call__(self, seed: int, device: Ints, job: Ints) -> Floats:
        """Return T_k [m]; the draws come one after the other, so those before the last device are made too."""
        count = int(np.max(device, initial=-1)) + 1
        require_memory(24.0 * count, f"a fleet of {count:,} devices", "lower fleet.num_devices")
        drawn = self.max_duration - stream(seed, "duration").random(count) * (self.max_duration - self.min_duration)
        return drawn[device]


# Laws whose tails have no end.


@dataclass(frozen=True)
class ShiftedExponential:
    """T = s_k (a + b X), X ~ Exp(1) for every job: at least the shift a, b more on average (Lee et al., 2018).

    s_k = exp(spread Z_k), Z_k ~ N(0, 1) once per device. Jobs may take longer than fleet.max_duration.
    """

    shift: Annotated[float, arg("a, shortest time of a job", unit="units of time", ge=0)] = 0.2
    mean: Annotated[float, arg("b, mean additional time", unit="units of time", gt=0)] = 0.3
    spread: _Spread = 0.0
    redraws: ClassVar[bool] = True

    def __call__(self, seed: int, device: Ints, job: Ints) -> Floats:
        """Return T [m]."""
        drawn = self.shift + self.mean * columns.exponential(seed, "shifted exponential", device, job)
        scale = np.exp(self.spread * columns.normal(seed, "duration spread", device)) if self.spread else 1.0
        return np.maximum(scale * drawn, _LEAST)


@dataclass(frozen=True)
class ShiftedExponentialBySize:
    """T = s_k n_k (a + b X), X ~ Exp(1) for every job, n_k samples visited per job (Shi et al., IEEE TWC 2021).

    s_k = exp(spread Z_k), Z_k ~ N(0, 1) once per device. Jobs may take longer than fleet.max_duration.
    """

    samples_per_job: JobSamples
    shift: Annotated[float, arg("a, shortest time per sample", unit="units of time", ge=0)] = 4e-5
    mean: Annotated[float, arg("b, mean additional time", unit="units of time", gt=0)] = 6e-5
    spread: _Spread = 0.0
    redraws: ClassVar[bool] = True

    def __call__(self, seed: int, device: Ints, job: Ints) -> Floats:
        """Return T [m]."""
        drawn = ShiftedExponential(self.shift, self.mean, self.spread)(seed, device, job)
        return np.maximum(samples_of_jobs(self.samples_per_job, device, job) * drawn, _LEAST)


@dataclass(frozen=True)
class LogNormal:
    """T = median exp(sigma Z), Z ~ N(0, 1), once per device or for every job: a few devices are far slower than most.

    Its mean is median exp(sigma^2 / 2). Jobs may take longer than fleet.max_duration.
    """

    median: Annotated[float, arg("median duration", unit="units of time", gt=0)] = 0.5
    sigma: Annotated[float, arg("standard deviation of log T", ge=0, le=10)] = 0.5
    per_job: Annotated[bool, arg("draw for every job instead of once per device")] = False

    @property
    def redraws(self) -> bool:
        """Do the jobs of a device differ in length?"""
        return self.per_job

    def __call__(self, seed: int, device: Ints, job: Ints) -> Floats:
        """Return T [m]."""
        index = (job,) if self.per_job else ()
        return np.maximum(self.median * np.exp(self.sigma * columns.normal(seed, "log-normal", device, *index)), _LEAST)


# By what there is to compute and how fast the CPU is: the same speed for how long it computes and what that costs.


def duration_frequencies(seed: int, device: Ints, low: float, high: float) -> Floats:
    """Return f_k ~ U(low, high) in cycles/s, once per device [m]."""
    return low + (high - low) * columns.uniform(seed, "frequency", device)


def check_duration_frequencies(part: str, low: float, high: float) -> None:
    """Raise if the bounds of the frequencies are in the wrong order."""
    if low > high:
        raise FedtideError(f"{part}: min_frequency={low:g} exceeds max_frequency={high:g}; swap them")


@dataclass(frozen=True)
class Cycles:
    """T_k = c n_k / f_k: cycles per sample times samples per job over the CPU's frequency, drawn once (Tran et al., 2019).

    f_k ~ U(min_frequency, max_frequency), the same as energy=cmos has. T_k may exceed fleet.max_duration: set that to the
    slowest, as rounds and symbols per tick go by it.
    """

    samples_per_job: JobSamples
    cycles_per_sample: Annotated[
        float, arg("c, CPU cycles per sample", unit="cycles", ge=0, key="fleet.cycles_per_sample")
    ] = 1e7
    min_frequency: MinFrequency = 1e9
    max_frequency: MaxFrequency = 1e9
    unit_seconds: Annotated[float, arg("length of a unit of time", unit="s", gt=0)] = 1.0

    @property
    def redraws(self) -> bool:
        """Do the jobs of a device differ in samples?"""
        return callable(self.samples_per_job)

    def __post_init__(self) -> None:
        check_duration_frequencies("duration=cycles", self.min_frequency, self.max_frequency)
        if not self.cycles_per_sample > 0:
            raise FedtideError(
                f"duration=cycles: fleet.cycles_per_sample={self.cycles_per_sample:g} means that devices take no time; "
                "give the cycles of visiting one sample, say 1e7"
            )

    def __call__(self, seed: int, device: Ints, job: Ints) -> Floats:
        """Return T_k [m]."""
        speed = duration_frequencies(seed, device, self.min_frequency, self.max_frequency) * self.unit_seconds
        return float(self.cycles_per_sample) * samples_of_jobs(self.samples_per_job, device, job) / speed


@dataclass(frozen=True)
class TraceDuration:
    """T_k of a CSV or Parquet file with columns device (0, 1, ...), duration and, if jobs differ, job (1, 2, ...).

    One row per device, or one per device and job. Jobs may take longer than fleet.max_duration, which rounds and symbols per
    tick go by.
    """

    path: Annotated[Path, arg("the file, .csv or .parquet")]
    wrap: Annotated[bool, arg("repeat the trace if it has too few devices or jobs; otherwise that is an error")] = False
    scale: Annotated[float, arg("factor applied to its durations", gt=0)] = 1.0
    redraws: bool = field(init=False, default=False)  # it has a column of jobs
    begin: Ints = field(init=False, repr=False, compare=False)  # where the jobs of each device begin [devices + 1]
    taken: Floats = field(init=False, repr=False, compare=False)  # by device and job [rows]

    def __post_init__(self) -> None:
        trace = read_trace_columns(self.path, ("device", "duration"), ("job",))
        too_short = ~(trace["duration"] * self.scale > 0)
        trace.refuse(too_short, "duration={duration:g}: a job takes some time; give more than 0")
        device = trace.devices()
        job = trace.whole("job", 1) if "job" in trace.columns else np.ones_like(device)
        order = np.lexsort((job, device))
        trace, device, job = trace.ordered(order), device[order], job[order]
        begin = np.searchsorted(device, np.arange(device[-1] + 2))
        wanted = np.arange(len(device)) - begin[device] + 1
        twice = (
            "device {device:g}: there is a row for its job {job} already; remove one, or number them in a column job"
        )
        trace.refuse(job < wanted, twice, job=job)
        gap = "device {device:g}: there is a job {job} but no job {wanted}; number its jobs 1, 2, ... without gaps"
        trace.refuse(job > wanted, gap, job=job, wanted=wanted)
        object.__setattr__(self, "redraws", "job" in trace.columns)
        object.__setattr__(self, "begin", begin)
        object.__setattr__(self, "taken", trace["duration"] * self.scale)

    def __call__(self, seed: int, device: Ints, job: Ints) -> Floats:
        """Return what the file says [m]."""
        count = len(self.begin) - 1
        if not self.wrap:
            check_trace_device_count(self.path, device, count)
        row = device % count
        first, jobs = self.begin[row], self.begin[row + 1] - self.begin[row]
        if self.redraws and not self.wrap:
            for at in np.flatnonzero(job > jobs)[:1]:
                raise DataError(
                    f"the trace {self.path} has {jobs[at]} jobs of device {device[at]} and job {job[at]} was asked for; "
                    "lower timeline.horizon, or add wrap: true"
                )
        return self.taken[first + (job - 1) % jobs if self.redraws else first]


DURATIONS: dict[str, Callable[..., Duration]] = {
    "uniform": UniformDuration,
    "shifted_exponential": ShiftedExponential,
    "shifted_exponential_by_size": ShiftedExponentialBySize,
    "log_normal": LogNormal,
    "trace": TraceDuration,
    "fedscale_capacity": FedScaleCapacity,
    "cycles": Cycles,
}
