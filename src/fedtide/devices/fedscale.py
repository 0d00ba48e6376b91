"""FedScale's traces of phones: how fast they compute, and when they are there (Lai et al., "FedScale", ICML 2022).

Both files, `client_device_capacity` and `client_behave_trace`, are pickles of a mapping from clients to records. They are read
without being trusted (`data/unpickle.py`). Which client a device is, is drawn by the seed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedtide import columns
from fedtide.core.memory_budget import require_memory
from fedtide.data.unpickle import read_pickle
from fedtide.devices.fleet import JobSamples, samples_of_jobs
from fedtide.devices.traces import Intervals, trace_bytes
from fedtide.errors import DataError
from fedtide.parts.arguments import arg
from fedtide.types import Floats, Ints, read_only

_OBJECTS: Final = 12.0  # times the bytes of the file, which its objects take
_Skip = Annotated[bool, arg("skip clients with faulty records instead of refusing the file")]
_UnitSeconds = Annotated[float, arg("length of a unit of time", unit="s", gt=0)]


@dataclass(frozen=True)
class FedScaleCapacity:
    """T_k = factor n_k t_k: t_k, a phone's time for inference of one sample, from FedScale's client_device_capacity.

    Training takes `factor` times as long, 3 in FedScale. T_k may exceed fleet.max_duration: set that to the slowest, as rounds
    and symbols per tick go by it.
    """

    path: Annotated[Path, arg("FedScale's client_device_capacity")]
    samples_per_job: JobSamples
    factor: Annotated[float, arg("ratio of training time to inference time", gt=0)] = 3.0
    unit_seconds: _UnitSeconds = 1.0
    skip: _Skip = False
    per_sample: Floats = field(init=False, repr=False, compare=False)  # in s [clients]

    @property
    def redraws(self) -> bool:
        """Do the jobs of a device differ in samples?"""
        return callable(self.samples_per_job)

    def __post_init__(self) -> None:
        object.__setattr__(self, "per_sample", _seconds_per_sample(self.path, self.skip, _stamp(self.path)))

    def __call__(self, seed: int, device: Ints, job: Ints) -> Floats:
        """Return T_k [m]."""
        client = _drawn_clients(seed, "fedscale capacity", device, len(self.per_sample))
        samples = samples_of_jobs(self.samples_per_job, device, job)
        return self.factor * self.per_sample[client] * samples / self.unit_seconds


@dataclass(frozen=True)
class FedScaleAvailability:
    """Available between active[i] and inactive[i] of a client in FedScale's client_behave_trace, repeated.

    As in FedScale, a client's trace starts again after its finish_time.
    """

    path: Annotated[Path, arg("FedScale's client_behave_trace")]
    unit_seconds: _UnitSeconds = 1.0
    skip: _Skip = False
    intervals: Intervals = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = _behaviour(self.path, self.skip, _stamp(self.path))
        object.__setattr__(self, "intervals", found.scaled(1 / self.unit_seconds))

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return when each is next there [m]."""
        client = _drawn_clients(seed, "fedscale availability", device, len(self.intervals.period))
        return self.intervals.next_there(client, time)


def _drawn_clients(seed: int, purpose: str, device: Ints, count: int) -> Ints:
    """Return which of so many clients each device is, all as likely [m]."""
    return (columns.uniform(seed, purpose, device) * count).astype(np.int64)


_Record = TypeVar("_Record", bound=BaseModel)


class _Capacity(BaseModel):
    """A client's record in client_device_capacity."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)
    computation: Annotated[float, Field(gt=0)]  # of one sample, in ms


class _Behaviour(BaseModel):
    """A client's record in client_behave_trace: it comes at active[i] and leaves at inactive[i], in s."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)
    finish_time: Annotated[float, Field(gt=0)]
    active: list[Annotated[float, Field(ge=0)]]
    inactive: list[float]

    @model_validator(mode="after")
    def _in_order(self) -> _Behaviour:
        if len(self.active) != len(self.inactive):
            raise ValueError(f"it comes {len(self.active)} times and leaves {len(self.inactive)} times")
        changes = np.ravel([self.active, self.inactive], order="F")
        for at in np.flatnonzero(np.diff(changes) < 0)[:1]:
            raise ValueError(f"its times are not in order: {changes[at]:g} before {changes[at + 1]:g}")
        if not len(self.stays[0]):
            raise ValueError("it is never there")
        return self

    @property
    def stays(self) -> tuple[Floats, Floats]:
        """When it comes and when it leaves, up to finish_time, where FedScale starts it again."""
        come, leave = np.array(self.active), np.minimum(self.inactive, self.finish_time)
        return come[come < leave], leave[come < leave]


_Stamp = tuple[int, ...] | None  # of a file: the same stamp, the same content


def _stamp(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None  # whoever reads it says why it cannot be read
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


@functools.lru_cache(maxsize=2)  # the files are big, and every run of a study names them
def _seconds_per_sample(path: Path, skip: bool, stamp: _Stamp) -> Floats:
    """Return how long each client takes for one sample, in s [clients]."""
    return read_only(np.array([each.computation / 1000 for each in _clients(_Capacity, path, skip)]))


@functools.lru_cache(maxsize=2)
def _behaviour(path: Path, skip: bool, stamp: _Stamp) -> Intervals:
    """Return when each client is there, in s."""
    found = [(*each.stays, each.finish_time) for each in _clients(_Behaviour, path, skip)]
    start, end, period = zip(*found, strict=True)
    offset = np.cumsum([0, *map(len, start)])
    return Intervals(*map(read_only, (np.concatenate(start), np.concatenate(end), offset, np.array(period))))


def _clients(kind: type[_Record], path: Path, skip: bool) -> Iterator[_Record]:
    """Give the records of all clients; faulty ones are left out or refused."""
    content = trace_bytes(path)
    require_memory(_OBJECTS * len(content), f"the trace {path}", "use a smaller one")
    try:
        found = read_pickle(content)
    except DataError as error:
        raise DataError(f"the trace {path}: {error}") from error
    if not isinstance(found, dict) or not found:
        what = f"{'a' if found else 'an empty'} {type(found).__name__}"
        raise DataError(f"the trace {path} holds {what}, not a mapping from clients to records; name FedScale's file")
    usable = 0
    for client, record in found.items():
        try:
            made = kind.model_validate(record)
        except ValidationError as error:
            if skip:
                continue
            remedy = "correct it, or add skip: true to leave such clients out"
            raise DataError(f"the trace {path}, client {client!r:.40}: {_problem(error)}; {remedy}") from error
        usable += 1
        yield made
    if not usable:
        raise DataError(f"the trace {path} has no client that could be used; name FedScale's file")


def _problem(error: ValidationError) -> str:
    """Say what is wrong with a record: the field, its value and the reason."""
    found = error.errors()[0]
    place = ".".join(map(str, found["loc"]))
    reason = found["msg"].removeprefix("Value error, ")
    value = f"{place}={found['input']!r:.40}: " if place else ""
    return f"{value}{reason[0].lower()}{reason[1:]}"
