"""Durations from a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np

from fedtide.core.arguments import arg
from fedtide.errors import DataError
from fedtide.types import Floats, Ints
from fedtide.world.traces import numbered, read_columns, refused, whole


@dataclass(frozen=True)
class TraceDuration:
    """T_k of a CSV or Parquet file with columns device (0, 1, ...), duration and, if jobs differ, job (1, 2, ...).

    One row per device, or one per device and job. Jobs may take longer than fleet.max_duration, which rounds and symbols per
    tick go by.
    """

    path: Annotated[Path, arg("the file, .csv or .parquet")]
    wrap: Annotated[bool, arg("start over where it ends, in devices and jobs; else that is an error")] = False
    scale: Annotated[float, arg("what its durations are multiplied by", gt=0)] = 1.0
    redraws: bool = field(init=False, default=False)  # it has a column of jobs
    begin: Ints = field(init=False, repr=False, compare=False)  # where the jobs of each device begin [devices + 1]
    taken: Floats = field(init=False, repr=False, compare=False)  # by device and job [rows]

    def __post_init__(self) -> None:
        found = read_columns(self.path, ("device", "duration"), ("job",))
        taken = found["duration"] * self.scale
        for at in np.flatnonzero(~(taken > 0))[:1]:
            raise refused(
                self.path, int(at), f"duration={found['duration'][at]:g}: a job takes some time; give more than 0"
            )
        device = numbered(self.path, found["device"])
        job = whole(self.path, "job", found["job"], 1) if "job" in found else np.ones_like(device)
        order = np.lexsort((job, device))
        begin = np.searchsorted(device[order], np.arange(device.max() + 2))
        wanted = np.arange(len(device)) - begin[device[order]] + 1
        for at in np.flatnonzero(job[order] != wanted)[:1]:
            row, missing = int(order[at]), int(wanted[at])
            problem = f"there is a job {job[row]} but no job {missing}; number its jobs 1, 2, ... without gaps"
            if job[row] < missing:
                problem = f"there is a row for its job {job[row]} already; remove one, or number them in a column job"
            raise refused(self.path, row, f"device {device[row]}: {problem}")
        object.__setattr__(self, "redraws", "job" in found)
        object.__setattr__(self, "begin", begin)
        object.__setattr__(self, "taken", taken[order])

    def __call__(self, seed: int, device: Ints, job: Ints) -> Floats:
        """Return what the file says [m]."""
        count = len(self.begin) - 1
        if not self.wrap:
            for each in device[device >= count][:1]:
                raise DataError(
                    f"the trace {self.path} has {count} devices and device {each} was asked for; "
                    f"lower fleet.num_devices to {count}, or add wrap: true"
                )
        row = device % count
        first, jobs = self.begin[row], self.begin[row + 1] - self.begin[row]
        if self.redraws and not self.wrap:
            for at in np.flatnonzero(job > jobs)[:1]:
                raise DataError(
                    f"the trace {self.path} has {jobs[at]} jobs of device {device[at]} and job {job[at]} was asked for; "
                    "lower timeline.horizon, or add wrap: true"
                )
        return self.taken[first + (job - 1) % jobs if self.redraws else first]
