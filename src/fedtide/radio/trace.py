"""Uplinks from a file: what was measured, or what another simulator says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np

from fedtide.devices.traces import read_columns, refused, whole
from fedtide.errors import DataError
from fedtide.parts.arguments import arg
from fedtide.radio.cell import Coverage, Equal
from fedtide.radio.channel import faded
from fedtide.types import Floats, Ints, Link, read_only

_MOST = {"capacity": 1000.0, "snr_db": 300.0, "gain": 1e30}  # more is a slip of units


class _TraceRows(NamedTuple):
    """A trace, device by device and in the order of time within each."""

    time: Floats  # [rows]
    value: Floats  # [rows]
    first: Ints  # where the rows of each device begin, and the number of rows at the end [N + 1]
    lasts: Floats  # how long the last value of each device holds: as long as any before it did [N]


@dataclass(frozen=True)
class TraceChannel:
    """Uplinks from a .csv or .parquet file with columns device,time,value: the value of the last row not after t."""

    path: Annotated[Path, arg("the file: devices 0, 1, ..., each with rows in the order of time, from time 0 on")]
    num_devices: Annotated[int, arg("N, devices that need rows", ge=1, le=10**8, key="fleet.num_devices")]
    horizon: Annotated[float, arg("time that the rows must reach, unless they wrap", ge=0, key="timeline.horizon")] = (
        0.0
    )
    quantity: Annotated[
        Literal["capacity", "snr_db", "gain"],
        arg("what the values are: bit/symbol, SNR in dB, or |h|^2 about the coverage's average"),
    ] = "capacity"
    max_gap: Annotated[float, arg("longest time between two rows of a device; 0: any", ge=0)] = 0.0
    wrap: Annotated[bool, arg("begin again at the end")] = False
    coverage: Annotated[Coverage, arg("average SNR of each link, for gains", key="run.coverage")] = Equal()  # noqa: RUF009 - a frozen value
    rows: _TraceRows = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", _read(self.path, self.num_devices, self.quantity, self.max_gap))
        if not self.wrap:
            _check_reach(self.path, self.rows, np.arange(self.num_devices), self.horizon, "timeline.horizon")

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Floats | Link:
        """Return SNR_k or C_k at this time [m]; seed and tick do not matter. Raise if nothing is known of that time."""
        if not self.wrap:
            _check_reach(self.path, self.rows, device, time, "what is asked for, time")
        value = self.rows.value[_row_at(self.rows, device, time, self.wrap)]
        if self.quantity == "gain":
            return faded(self.coverage, seed, time, device, value)
        return 10 ** (value / 10) if self.quantity == "snr_db" else Link(value, value)


def _read(path: Path, num_devices: int, quantity: str, max_gap: float) -> _TraceRows:
    found = read_columns(path, ("device", "time", "value"))
    device, time, value = whole(path, "device", found["device"]), found["time"], found["value"]
    for at in np.flatnonzero(device >= num_devices)[:1]:
        raise refused(
            path,
            int(at),
            f"device={device[at]} is not known, fleet.num_devices={num_devices}; leave it out or add devices",
        )
    counts = np.bincount(device, minlength=num_devices)
    for k in np.flatnonzero(counts == 0)[:1]:
        raise DataError(
            f"the trace {path} has no row of device {k}; give every device of fleet.num_devices={num_devices} one"
        )
    for at in np.flatnonzero(np.abs(value) > _MOST[quantity])[:1]:
        raise refused(path, int(at), f"value={value[at]:g} is no {quantity}; give at most {_MOST[quantity]:g}")
    for at in np.flatnonzero(value < 0)[: int(quantity != "snr_db")]:
        raise refused(path, int(at), f"value={value[at]:g} is negative; a {quantity} is 0 or more")
    order = np.argsort(device, kind="stable")
    first = np.concatenate([[0], np.cumsum(counts)])
    time, value = time[order], value[order]
    for at in np.flatnonzero(time[first[:-1]] != 0)[:1]:
        raise refused(
            path, int(order[first[at]]), f"device {at} begins at time={time[first[at]]:g}; let its times begin at 0"
        )
    gap = np.diff(time, prepend=0.0)
    gap[first[:-1]] = np.nan  # before a device's first row there is none
    for at in np.flatnonzero(gap <= 0)[:1]:
        raise refused(
            path, int(order[at]), f"time={time[at]:g} of device {device[order[at]]} comes after time={time[at - 1]:g}; "
            "sort its rows by time and keep one for each time"
        )  # fmt: skip
    for at in np.flatnonzero(gap > max_gap)[: int(max_gap > 0)]:
        raise refused(
            path, int(order[at]), f"nothing is known of device {device[order[at]]} for {gap[at]:g} before "
            f"time={time[at]:g}, max_gap={max_gap:g}; fill the gap or raise max_gap"
        )  # fmt: skip
    lasts = np.fmax.reduceat(gap, first[:-1])
    lasts = np.where(np.isnan(lasts), np.inf, lasts)  # a single row is a link that never changes
    return _TraceRows(read_only(time), read_only(value), first, lasts)


def _check_reach(path: Path, rows: _TraceRows, device: Ints, time: float, what: str) -> None:
    """Raise if what is known of one of these devices ends before this time. what: the name of that time."""
    end = rows.time[rows.first[device + 1] - 1] + rows.lasts[device]
    for at in np.flatnonzero(end < time * (1 - 1e-9))[:1]:
        raise DataError(
            f"the trace {path} ends at {end[at]:g} for device {device[at]}, before {what}={time:g}; add rows, shorten the "
            "horizon or say wrap: true"
        )


def _row_at(rows: _TraceRows, device: Ints, time: float, wrap: bool) -> Ints:
    """Return the last row of each device that is not after this time [m]."""
    low, high = rows.first[device], rows.first[device + 1]  # the row is at low or after it, and before high
    asked = np.full(len(device), time)
    if wrap:
        period = rows.time[high - 1] + rows.lasts[device]
        asked = np.where(np.isinf(period), 0.0, np.mod(asked, period))
    while np.any(high - low > 1):
        middle = (low + high) // 2
        after = rows.time[middle] > asked
        low, high = np.where(after, low, middle), np.where(after, middle, high)
    return low
