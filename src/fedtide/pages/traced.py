"""A deployment as a page shows it: its trace knows when real devices were ready, over which links, with which labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedtide.flower import trace
from fedtide.pages.seen import Jobs, Seen, recorded
from fedtide.records import Kept


def traced(folder: Path, kept: Kept) -> Seen:
    """Return a run of real devices. Seconds on the wall are moved to the clock of the records, period by period."""
    plain = recorded(kept.experiment, kept.rounds, kept.complete, "")._replace(kind="deployed", unit="s")
    if not (folder / trace.NAME).exists():
        return plain._replace(why=f"Trainings and labels are not shown: there is no {trace.NAME} beside the records")
    periods = trace.read(folder).periods[: len(kept.rounds)]
    count = kept.experiment.fleet.num_devices
    born = np.array([0.0, 0.0, *(each.time for each in kept.rounds)])
    capacity = plain.capacity.copy()
    labels = np.zeros((count, max((len(row) for each in periods for row in each.label_counts), default=1)), np.int64)
    rows: list[tuple[int, int, float, float, float]] = []
    newest = np.ones(count, np.int64)
    for at, (period, each) in enumerate(zip(periods, kept.rounds, strict=True)):
        capacity[at, period.ready] = period.capacity
        for device, start, told, counts in zip(
            period.ready, period.start, period.ready_at, period.label_counts, strict=True
        ):
            done = min(max(each.time - (period.wall - told), born[start]), each.time)
            rows.append((device, each.index - start, born[start], done, each.time))
            labels[device] = counts
            newest[device] = each.index + 1
    last = len(kept.rounds) + 1
    rows += [(device, last - start, born[start], np.nan, np.inf) for device, start in enumerate(newest.tolist())]
    device, age, received, done, ready = np.array(rows, np.float64).T
    jobs = Jobs(device.astype(np.int64), age.astype(np.int64), received, received, done, done, ready)
    refused = sum(len(each.refused) for each in periods)
    why = f"{refused} replies of devices were not believed; the trace says why" if refused else ""
    return plain._replace(jobs=jobs, capacity=capacity, label_counts=labels, why=why)
