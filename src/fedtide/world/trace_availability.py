"""When devices are there, from a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np

from fedtide.core.arguments import arg
from fedtide.errors import DataError
from fedtide.types import Floats, Ints
from fedtide.world.intervals import Intervals, make_intervals
from fedtide.world.traces import numbered, read_columns, refused


@dataclass(frozen=True)
class TraceAvailability:
    """There in the intervals [start, end) of a CSV or Parquet file with columns device (0, 1, ...), start and end.

    The trace is as long as `period` says, or ends when the last device leaves for the last time.
    """

    path: Annotated[Path, arg("the file, .csv or .parquet")]
    wrap: Annotated[bool, arg("start over where it ends, in devices and time; else a trace too short is an error")] = (
        False
    )
    period: Annotated[float | None, arg("how long the trace is", unit="units of time", gt=0)] = None
    scale: Annotated[float, arg("what its times are multiplied by", gt=0)] = 1.0
    horizon: Annotated[float, arg("how long it must be", unit="units of time", gt=0, key="timeline.horizon")] = 35.0
    intervals: Intervals = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = read_columns(self.path, ("device", "start", "end"))
        device, start, end = numbered(self.path, found["device"]), found["start"], found["end"]
        for at in np.flatnonzero(start < 0)[:1]:
            raise refused(self.path, int(at), f"start={start[at]:g} lies before time 0; cut it off there")
        for at in np.flatnonzero(end <= start)[:1]:
            raise refused(
                self.path, int(at), f"end={end[at]:g} does not come after start={start[at]:g}; swap or remove them"
            )
        order = np.lexsort((start, device))
        device, start, end = device[order], start[order], end[order]
        for at in np.flatnonzero((device[1:] == device[:-1]) & (start[1:] < end[:-1]))[:1]:
            raise refused(
                self.path,
                int(order[at + 1]),
                f"device {device[at]} comes at {start[at + 1]:g} before it leaves at {end[at]:g} (another row); join the two",
            )
        start, end = start * self.scale, end * self.scale
        length = float(end.max()) if self.period is None else self.period
        for at in np.flatnonzero(end > length)[:1]:
            raise refused(self.path, int(order[at]), f"its end {end[at]:g} lies beyond period={length:g}; raise period")
        if not self.wrap and length < self.horizon:
            raise DataError(
                f"the trace {self.path} ends at {length:g}, before timeline.horizon={self.horizon:g}; add wrap: true to start "
                "it over, give its period if it is longer, or lower timeline.horizon"
            )
        cuts = np.flatnonzero(np.diff(device)) + 1
        period = np.full(len(cuts) + 1, length if self.wrap else np.inf)
        object.__setattr__(self, "intervals", make_intervals(np.split(start, cuts), np.split(end, cuts), period))

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return when each is next there [m]."""
        count = len(self.intervals.period)
        if not self.wrap:
            for each in device[device >= count][:1]:
                raise DataError(
                    f"the trace {self.path} has {count} devices and device {each} was asked for; "
                    f"lower fleet.num_devices to {count}, or add wrap: true"
                )
        return self.intervals.next_there(device % count, time)
