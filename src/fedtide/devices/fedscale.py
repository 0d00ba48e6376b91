"""FedScale's traces of phones: how fast they compute, and when they are there (Lai et al., "FedScale", ICML 2022).

Both files, `client_device_capacity` and `client_behave_trace`, are pickles of a mapping from clients to records. They are read
without being trusted (`data/unpickle.py`). Which client a device is, is drawn by the seed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import numpy as np

from fedtide import columns
from fedtide.core.memory_budget import require
from fedtide.data.unpickle import read_pickle
from fedtide.devices.traces import Intervals, make_intervals, trace_bytes
from fedtide.errors import DataError
from fedtide.parts.arguments import arg
from fedtide.types import Floats, Ints, read_only

_SKIP: Final = "correct it, or add skip: true to leave such clients out"
_OBJECTS: Final = 12.0  # times the bytes of the file, which its objects take


@dataclass(frozen=True)
class FedScaleCapacity:
    """T_k = factor n_k t_k: t_k, a phone's time for inference of one sample, from FedScale's client_device_capacity.

    Training takes `factor` times as long, 3 in FedScale. T_k may exceed fleet.max_duration: set that to the slowest, as rounds
    and symbols per tick go by it.
    """

    path: Annotated[Path, arg("FedScale's client_device_capacity")]
    samples_per_job: Annotated[Ints, arg("n_k, samples that one local training visits", key="fleet.samples_per_job")]
    factor: Annotated[float, arg("training over inference", gt=0)] = 3.0
    unit_seconds: Annotated[float, arg("how long a unit of time is", unit="s", gt=0)] = 1.0
    skip: Annotated[bool, arg("leave out clients whose record is faulty, instead of refusing the file")] = False
    redraws: ClassVar[bool] = False
    per_sample: Floats = field(init=False, repr=False, compare=False)  # in s [clients]

    def __post_init__(self) -> None:
        object.__setattr__(self, "per_sample", read_capacity(self.path, self.skip))

    def __call__(self, seed: int, device: Ints, job: Ints) -> Floats:
        """Return T_k [m]."""
        client = drawn_clients(seed, "fedscale capacity", device, len(self.per_sample))
        samples = np.asarray(self.samples_per_job)[device]
        return self.factor * self.per_sample[client] * samples / self.unit_seconds


@dataclass(frozen=True)
class FedScaleAvailability:
    """There between active[i] and inactive[i] of a client in FedScale's client_behave_trace, over and over.

    As in FedScale, a client's trace starts again after its finish_time.
    """

    path: Annotated[Path, arg("FedScale's client_behave_trace")]
    unit_seconds: Annotated[float, arg("how long a unit of time is", unit="s", gt=0)] = 1.0
    skip: Annotated[bool, arg("leave out clients whose record is faulty, instead of refusing the file")] = False
    intervals: Intervals = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = read_behaviour(self.path, self.skip)
        object.__setattr__(self, "intervals", found.scaled(1 / self.unit_seconds))

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return when each is next there [m]."""
        client = drawn_clients(seed, "fedscale availability", device, len(self.intervals.period))
        return self.intervals.next_there(client, time)


def drawn_clients(seed: int, purpose: str, device: Ints, count: int) -> Ints:
    """Return which of so many clients each device is, all as likely [m]."""
    return (columns.uniform(seed, purpose, device) * count).astype(np.int64)


def read_capacity(path: Path, skip: bool) -> Floats:
    """Return how long each client takes for one sample, in s [clients]."""
    found: Floats = _cached(path, _capacity, skip)
    return found


def read_behaviour(path: Path, skip: bool) -> Intervals:
    """Return when each client is there, in s."""
    found: Intervals = _cached(path, _behaviour, skip)
    return found


class _Stamp(NamedTuple):
    """What a file looks like from outside: the same stamp, the same content."""

    path: Path
    changed: int
    size: int


def _cached(path: Path, reader: Callable[[Path, bool], Any], skip: bool) -> Any:
    """Read a file once: they are big, and every run of a study names them."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return reader(path, skip)  # which says why it cannot be read
    return _read(_Stamp(path.resolve(), found.st_mtime_ns, found.st_size), path, reader, skip)


@functools.lru_cache(maxsize=4)
def _read(stamp: _Stamp, path: Path, reader: Callable[[Path, bool], Any], skip: bool) -> Any:
    return reader(path, skip)


def _clients(path: Path) -> Iterator[tuple[Any, dict[Any, Any]]]:
    """Give every client of a file with its record."""
    content = trace_bytes(path)
    require(_OBJECTS * len(content), f"the trace {path}", "use a smaller one")
    try:
        found = read_pickle(content)
    except DataError as error:
        raise DataError(f"the trace {path}: {error}") from error
    if not isinstance(found, dict) or not found:
        raise DataError(
            f"the trace {path} holds {_kind(found)}, not a mapping from clients to records; name FedScale's file"
        )
    for client, record in found.items():
        if not isinstance(record, dict):
            raise DataError(
                f"the trace {path}, client {_name(client)}: its record is {_kind(record)}; name FedScale's file"
            )
        yield client, record


def _kind(value: object) -> str:
    return f"an empty {type(value).__name__}" if value in ({}, [], ()) else f"a {type(value).__name__}"


def _name(client: object) -> str:
    return repr(client)[:40]


def _collect(path: Path, skip: bool, one: Callable[[dict[Any, Any]], Any]) -> list[Any]:
    """Return what is made of every client's record; a faulty one is left out or refused, by its name."""
    found = []
    for client, record in _clients(path):
        try:
            found.append(one(record))
        except DataError as error:
            if not skip:
                raise DataError(f"the trace {path}, client {_name(client)}: {error}; {_SKIP}") from error
    if not found:
        raise DataError(f"the trace {path} has no client that could be used; name FedScale's file")
    return found


def _capacity(path: Path, skip: bool) -> Floats:
    def one(record: dict[Any, Any]) -> float:
        taken = _number(record, "computation")
        if not taken > 0:
            raise DataError(f"computation={taken:g} ms per sample is not more than 0")
        return taken / 1000

    return read_only(np.array(_collect(path, skip, one)))


def _behaviour(path: Path, skip: bool) -> Intervals:
    def one(record: dict[Any, Any]) -> tuple[Floats, Floats, float]:
        finish = _number(record, "finish_time")
        if not finish > 0:
            raise DataError(f"finish_time={finish:g} is not more than 0")
        active, inactive = _numbers(record, "active"), _numbers(record, "inactive")
        if len(active) != len(inactive):
            raise DataError(f"it comes {len(active)} times and leaves {len(inactive)} times")
        for at in np.flatnonzero((active > inactive) | (active < 0))[:1]:
            raise DataError(f"it comes at {active[at]:g} and leaves at {inactive[at]:g}: these are not times in order")
        for at in np.flatnonzero(active[1:] < inactive[:-1])[:1]:
            raise DataError(f"it comes at {active[at + 1]:g} before it leaves at {inactive[at]:g}")
        inactive = np.minimum(inactive, finish)  # where FedScale starts it again, too
        stays = active < inactive
        if not stays.any():
            raise DataError("it is never there")
        return active[stays], inactive[stays], finish

    start, end, period = zip(*_collect(path, skip, one), strict=True)
    return make_intervals(start, end, np.array(period))


def _number(record: dict[Any, Any], name: str) -> float:
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise DataError(f"{name}={_name(value)} is no finite number")
    return float(value)


def _numbers(record: dict[Any, Any], name: str) -> Floats:
    value = record.get(name)
    if not isinstance(value, list | tuple) or not all(type(each) in (int, float) for each in value):
        raise DataError(f"{name}={_name(value)} is no list of numbers")
    found = np.array(value, np.float64)
    if not np.isfinite(found).all():
        raise DataError(f"{name} has a number that is not finite")
    return found
