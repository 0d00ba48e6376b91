"""A run in the rows and columns that a page draws, thinned to keep the page small."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fedtide.errors import FedtideError
from fedtide.pages.run_view import Jobs, RunView
from fedtide.types import Floats, Ints

# Keeping a page small: fewer points or rows than were recorded, and saying so is the page's part.


PAGE_BYTES: Final = 2_000_000  # bytes of a page
_LEVELS: Final = 12
_NAMES: Final = {"uint8": "u1", "uint16": "u2", "uint32": "u4", "float32": "f4"}


def fitting(make: Callable[[int], str]) -> str:
    """Return the page of the lowest level that fits. make: level (0: everything, each further one about half) -> page."""
    for level in range(_LEVELS):
        made = make(level)
        if len(made.encode()) <= PAGE_BYTES:
            return made
    raise FedtideError(f"the page is larger than {PAGE_BYTES:,} bytes however it is thinned; show fewer runs in it")


def every(count: int, most: int) -> Ints:
    """Return at most `most` of the positions 0 ... count - 1, evenly, with the first and the last [m]."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, max(most, 2)).round().astype(np.int64))


def pack_numbers(values: npt.NDArray[Any]) -> dict[str, Any]:
    """Return an array of unsigned integers or float32 as base64 with its shape; `fedtide.unpack` in common.js reads it."""
    wire = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"), copy=False)
    data = base64.b64encode(wire.tobytes()).decode()
    return {"packed": data, "type": _NAMES[values.dtype.name], "shape": list(values.shape)}


def smallest(values: Ints) -> npt.NDArray[Any]:
    """Return numbers of 0 and more in the shortest type that holds them."""
    most = int(values.max(initial=0))
    return values.astype(np.uint8 if most < 2**8 else np.uint16 if most < 2**16 else np.uint32)


# A run in the rows and columns that a page draws: devices, or groups of them; aggregations, or every few of them.


_MOST_DEVICES: Final = 256  # beyond, rows are groups
_MOST_JOBS: Final = 40_000  # beyond, trainings are shares of time
_GROUPS, COLUMNS = 100, 1200  # at level 0
_MOST_AGES: Final = 12  # the last one is for all that are older
_MOST_PICKS: Final = 64  # of one aggregation, where devices are grouped


class RowGrid(NamedTuple):
    """What the cells of a page stand for."""

    row: Ints  # of each device [N]
    size: Ints  # devices in each row [G]
    keep: Ints  # positions of the aggregations that are columns [C]
    fine: bool  # a row is a device


def grid(seen: RunView, level: int) -> RowGrid:
    """Choose the rows and columns. level: 0 for all there is room for, each further one for about half."""
    count, total = seen.num_devices, len(seen.rounds)
    keep = every(total, COLUMNS >> level)
    fine = count <= _MOST_DEVICES >> level and len(seen.jobs.device) <= _MOST_JOBS >> level
    rows = count if fine else min(count, max(_GROUPS >> level, 4))
    rank = np.empty(count, np.int64)
    rank[by_speed(seen)] = np.arange(count)
    row = np.arange(count) if fine else rank * rows // count
    return RowGrid(row, np.bincount(row, minlength=rows), keep, fine)


def by_speed(seen: RunView) -> Ints:
    """Return the devices from those that take the shortest to those that take the longest, on average [N]."""
    jobs, count = seen.jobs, seen.num_devices
    # A training that is not finished counts as long as it has lasted: whoever never finishes comes last.
    end = np.where(np.isfinite(jobs.done), jobs.done, seen.time[-1])
    spent = np.bincount(jobs.device, np.maximum(end - jobs.begin, 0), count)
    ended = np.bincount(jobs.device[np.isfinite(jobs.ready)], minlength=count)
    return np.lexsort((np.arange(count), spent / np.maximum(ended, 0.5)))


def cells(seen: RunView, made: RowGrid) -> dict[str, Any]:
    """Return what every row did at every column: how many were ready, picked and lost, what their links carried."""
    shape = (len(made.keep), len(made.size))
    ready, picked, lost = (np.zeros(shape, np.int64) for _ in range(3))
    column = np.searchsorted(made.keep, np.arange(len(seen.rounds)))  # what lies between two goes to the later one
    for each, at in zip(seen.rounds, column.tolist(), strict=True):
        for table, who in ((ready, each.ready), (picked, each.picked), (lost, each.lost)):
            table[at] += np.bincount(made.row[np.array(who, np.int64)], minlength=shape[1])
    capacity = seen.capacity[made.keep]
    known = np.isfinite(capacity)
    total, number = np.zeros(shape), np.zeros(shape)
    for at in range(shape[0]):
        total[at] = np.bincount(made.row, np.where(known[at], capacity[at], 0.0), shape[1])
        number[at] = np.bincount(made.row, known[at], shape[1])
    mean = total / np.maximum(number, 1)
    most = float(mean.max(initial=0.0)) or 1.0
    tree: dict[str, Any] = {
        "ready": pack_numbers(smallest(ready)),
        "picked": pack_numbers(smallest(picked)),
        "lost": pack_numbers(smallest(lost)),
        "capacity": pack_numbers(np.where(number > 0, 1 + np.rint(254 * mean / most), 0).astype(np.uint8)),
        "capacity_max": most,
    }
    if not made.fine:
        edges = np.concatenate([[0.0], seen.time[made.keep]])
        jobs = seen.jobs
        done = np.where(np.isnan(jobs.done), jobs.ready, jobs.done)
        tree["training"] = pack_numbers(_share(jobs, jobs.begin, done, edges, made))
        tree["away"] = pack_numbers(
            np.maximum(
                _share(jobs, jobs.received, jobs.begin, edges, made), _share(jobs, jobs.done, jobs.back, edges, made)
            )
        )
    return tree


def _share(jobs: Jobs, begin: Floats, end: Floats, edges: Floats, made: RowGrid) -> Any:
    """Return which share of its devices' time each row spent between begin and end, column by column, as bytes [C G].

    The time spent before an edge e is the sum of (e - begin) over what began before it, less that of (e - end).
    """
    columns, rows = len(edges) - 1, len(made.size)
    spent = np.zeros((columns + 1, rows))
    for sign, when in ((1, begin), (-1, end)):
        known = np.isfinite(when) & (when < edges[-1])
        at = np.searchsorted(edges, when[known], side="left").clip(0, columns)  # the first edge that is not before it
        flat = at * rows + made.row[jobs.device[known]]
        number = np.bincount(flat, minlength=(columns + 1) * rows).reshape(columns + 1, rows).cumsum(0)
        total = np.bincount(flat, when[known], (columns + 1) * rows).reshape(columns + 1, rows).cumsum(0)
        spent += sign * (edges[:, None] * number - total)
    width = np.maximum(np.diff(edges), 1e-300)[:, None]
    return np.rint(255 * (np.diff(spent, axis=0) / width / made.size).clip(0, 1)).astype(np.uint8)


def trainings(seen: RunView) -> dict[str, Any]:
    """Return every training of a run whose rows are devices, in columns; -1 stands for what is not known."""
    jobs, last = seen.jobs, float(seen.time[-1])
    order = np.lexsort((jobs.received, jobs.device))

    def column(values: Floats) -> dict[str, Any]:
        return pack_numbers(
            np.where(np.isfinite(values[order]), np.minimum(values[order], 1e30), -1.0).astype(np.float32)
        )

    done = np.where(np.isposinf(jobs.done), 2 * last + 1, jobs.done)
    begin = np.where(np.isposinf(jobs.begin), 2 * last + 1, jobs.begin)
    return {
        "device": pack_numbers(smallest(jobs.device[order])),
        "received": column(jobs.received),
        "begin": column(begin),
        "done": column(done),
        "back": column(jobs.back),
        "ready": column(jobs.ready),
    }


def age_columns(seen: RunView, made: RowGrid) -> dict[str, Any]:
    """Return how often each age was ready and picked, up to every column [C A]."""
    jobs, total = seen.jobs, len(seen.rounds)
    count = min(int(max((age for each in seen.rounds for age in each.age), default=0)) + 1, _MOST_AGES)
    ended = np.isfinite(jobs.ready)
    count = max(count, min(int(jobs.age[ended].max(initial=0)) + 1, _MOST_AGES))
    at = np.searchsorted(seen.time, jobs.ready[ended])
    # Aggregations at the same time follow each other; which of them it was matters to no sum that is shown later.
    ready = np.zeros((total, count), np.int64)
    np.add.at(ready, (at.clip(0, total - 1), jobs.age[ended].clip(0, count - 1)), 1)
    picked = np.array(
        [np.bincount(np.clip(each.age, 0, count - 1).astype(int), minlength=count) for each in seen.rounds]
    )
    return {
        "ready": pack_numbers(smallest(ready.cumsum(0)[made.keep])),
        "picked": pack_numbers(smallest(picked.cumsum(0)[made.keep])),
        "count": count,
        "more": count == _MOST_AGES,
    }


def labels(seen: RunView, made: RowGrid) -> dict[str, Any] | None:
    """Return the samples of each label, per row [G c] and in each column's picked set [C c]; None if nobody knows."""
    counts = seen.label_counts
    if counts is None:
        return None
    rows = np.zeros((len(made.size), counts.shape[1]), np.int64)
    np.add.at(rows, made.row, counts)
    picked = np.array([counts[seen.rounds[at].picked].sum(0) for at in made.keep.tolist()])
    return {"count": counts.shape[1], "rows": pack_numbers(smallest(rows)), "picked": pack_numbers(smallest(picked))}


def curve_columns(seen: RunView, level: int) -> dict[str, Any]:
    """Return the accuracy of the models that were scored, which need not be those of the columns."""
    scored = [each for each in seen.rounds if each.test_accuracy is not None]
    chosen = [scored[at] for at in every(len(scored), 2 * COLUMNS >> level).tolist()]
    named = {"index": "index", "time": "time", "accuracy": "test_accuracy"}
    return {name: [getattr(each, field) for each in chosen] for name, field in named.items()}


_PICKS: Final = ("picked", "age", "capacity", "symbols", "budget_bits", "sent_bits", "num_kept", "weight")


def picks(seen: RunView, made: RowGrid) -> dict[str, Any]:
    """Return who was picked at every column, one after the other, with what was recorded of each."""
    most = None if made.fine else _MOST_PICKS
    chosen = [seen.rounds[at] for at in made.keep.tolist()]
    tree: dict[str, Any] = {"offset": np.cumsum([0, *(len(each.picked[:most]) for each in chosen)])}
    for name in _PICKS:
        values = np.array([value for each in chosen for value in getattr(each, name)[:most]], np.float64)
        whole = name in ("picked", "age", "num_kept")
        tree[name] = pack_numbers(smallest(values.astype(np.int64)) if whole else values.astype(np.float32))
    return tree


def columns(seen: RunView, made: RowGrid) -> dict[str, Any]:
    """Return the numbers of every column's aggregation."""
    chosen = [seen.rounds[at] for at in made.keep.tolist()]
    tree: dict[str, Any] = {
        name: [getattr(each, name) for each in chosen] for name in ("index", "time", "label_variance", "proved_minimal")
    }
    for name in ("symbols", "bits"):
        tree[name] = [getattr(each.ledger, name) for each in chosen]
    tree["air"] = [sum(each.symbols) for each in chosen]
    tree["ready"] = [each.num_ready for each in chosen]
    tree["uploads"] = [len(each.picked) for each in chosen]
    tree["lost"] = [list(each.lost)[:_MOST_PICKS] for each in chosen]
    return tree
