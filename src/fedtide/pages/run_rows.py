"""A run in the rows and columns that a page draws: devices or groups of them, aggregations or every few of them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fedtide.errors import FedtideError
from fedtide.pages.run_view import Jobs, RunView
from fedtide.plot.charts import evenly_on_chart
from fedtide.report.summary import evaluated_rounds
from fedtide.runs.checkpoint import narrow_for_checkpoint
from fedtide.types import Floats, Ints

PAGE_BYTES: Final = 2_000_000  # at most
_NUM_LEVELS: Final = 12  # of detail
_MOST_DEVICES: Final = 256  # with a row each; beyond, rows are groups
_MOST_JOBS: Final = 40_000  # drawn one by one; beyond, trainings are shares of time
_NUM_GROUPS, NUM_COLUMNS = 100, 1200  # at level 0
_NUM_AGES: Final = 12  # the last one stands for all that are older
_PICKS_LISTED: Final = 64  # per aggregation, where devices are grouped
_TYPE_NAMES: Final = {"uint8": "u1", "uint16": "u2", "uint32": "u4", "float32": "f4"}


def fit_page(make: Callable[[int], str]) -> str:
    """Return the most detailed page of at most PAGE_BYTES. make: level -> page; level 0 has everything, the next about half."""
    for level in range(_NUM_LEVELS):
        page = make(level)
        if len(page.encode()) <= PAGE_BYTES:
            return page
    raise FedtideError(f"the page is larger than {PAGE_BYTES:,} bytes however it is thinned; show fewer runs in it")


def _pack_numbers(values: npt.NDArray[Any]) -> dict[str, Any]:
    """Return an array of unsigned integers or float32 as base64 with its shape; `fedtide.unpack` in common.js reads it."""
    wire = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"), copy=False)
    data = base64.b64encode(wire.tobytes()).decode()
    return {"packed": data, "type": _TYPE_NAMES[values.dtype.name], "shape": list(values.shape)}


class RowGrid(NamedTuple):
    """The rows and columns of a page."""

    row: Ints  # of each device [N]
    size: Ints  # devices in each row [G]
    keep: Ints  # positions of the aggregations that are columns [C]
    fine: bool  # a row is a device
    group: Ints | None = None  # cell or edge server of each row [G]; None: there is one


def row_grid(run: RunView, level: int) -> RowGrid:
    """Choose the rows and columns of a level."""
    count, total = run.num_devices, len(run.rounds)
    keep = evenly_on_chart(total, NUM_COLUMNS >> level)
    fine = count <= _MOST_DEVICES >> level and len(run.jobs.device) <= _MOST_JOBS >> level
    rows = count if fine else min(count, max(_NUM_GROUPS >> level, 4))
    row = np.arange(count) if fine else _rows_of_groups(run, rows)
    size = np.bincount(row)
    if run.groups is None:
        return RowGrid(row, size, keep, fine)
    group = np.empty(len(size), np.int64)
    group[row] = run.groups.number
    return RowGrid(row, size, keep, fine, group)


def _rows_of_groups(run: RunView, rows: int) -> Ints:
    """Return the row of each device if there are about so many [N]: a row is of one cell, and of devices of similar speed."""
    count = run.num_devices
    row, first = np.empty(count, np.int64), 0
    by_speed = rows_by_speed(run)
    number = np.zeros(count, np.int64) if run.groups is None else run.groups.number
    for group in np.unique(number).tolist():
        those = by_speed[number[by_speed] == group]
        share = max(1, rows * len(those) // count)
        row[those] = first + np.arange(len(those)) * share // len(those)
        first += share
    return row


def rows_by_speed(run: RunView) -> Ints:
    """Return the devices, the fastest on average first [N]."""
    jobs, count = run.jobs, run.num_devices
    # An unfinished training counts as long as it has lasted: a device that never finishes comes last.
    end = np.where(np.isfinite(jobs.done), jobs.done, run.time[-1])
    spent = np.bincount(jobs.device, np.maximum(end - jobs.begin, 0), count)
    ended = np.bincount(jobs.device[np.isfinite(jobs.ready)], minlength=count)
    return np.lexsort((np.arange(count), spent / np.maximum(ended, 0.5)))


def run_row_cells(run: RunView, grid: RowGrid) -> dict[str, Any]:
    """Return how many devices of every row were ready, picked, lost and silent at every column, and their mean capacity."""
    shape = (len(grid.keep), len(grid.size))
    counts = {name: np.zeros(shape, np.int64) for name in ("ready", "picked", "lost", "silent")}
    column = np.searchsorted(grid.keep, np.arange(len(run.rounds)))  # what lies between counts for the later one
    for each, at in zip(run.rounds, column.tolist(), strict=True):
        for name, table in counts.items():
            table[at] += np.bincount(grid.row[np.array(getattr(each, name), np.int64)], minlength=shape[1])
    capacity = run.capacity[grid.keep]
    known = np.isfinite(capacity)
    total, number = (
        np.array([np.bincount(grid.row, values, shape[1]) for values in table])
        for table in (np.where(known, capacity, 0.0), known)
    )
    mean = total / np.maximum(number, 1)
    most = float(mean.max(initial=0.0)) or 1.0
    tree: dict[str, Any] = {
        **{name: _pack_numbers(narrow_for_checkpoint(table)) for name, table in counts.items()},
        "capacity": _pack_numbers(np.where(number > 0, 1 + np.rint(254 * mean / most), 0).astype(np.uint8)),
        "capacity_max": most,
    }
    if not grid.fine:
        edges = np.concatenate([[0.0], run.time[grid.keep]])
        jobs = run.jobs
        done = np.where(np.isnan(jobs.done), jobs.ready, jobs.done)
        tree["training"] = _pack_numbers(_share(jobs, jobs.begin, done, edges, grid))
        before, after = (
            _share(jobs, *gone, edges, grid) for gone in ((jobs.received, jobs.begin), (jobs.done, jobs.back))
        )
        tree["away"] = _pack_numbers(np.maximum(before, after))
    return tree


def _share(jobs: Jobs, begin: Floats, end: Floats, edges: Floats, grid: RowGrid) -> Any:
    """Return the share of its devices' time that each row spent between begin and end, per column, as bytes [C G].

    The time spent before an edge e is the sum of (e - begin) over the jobs begun before e, less that of (e - end).
    """
    columns, rows = len(edges) - 1, len(grid.size)
    spent = np.zeros((columns + 1, rows))
    for sign, when in ((1, begin), (-1, end)):
        known = np.isfinite(when) & (when < edges[-1])
        at = np.searchsorted(edges, when[known], side="left").clip(0, columns)  # the first edge that is not before it
        flat = at * rows + grid.row[jobs.device[known]]
        number = np.bincount(flat, minlength=(columns + 1) * rows).reshape(columns + 1, rows).cumsum(0)
        total = np.bincount(flat, when[known], (columns + 1) * rows).reshape(columns + 1, rows).cumsum(0)
        spent += sign * (edges[:, None] * number - total)
    width = np.maximum(np.diff(edges), 1e-300)[:, None]
    return np.rint(255 * (np.diff(spent, axis=0) / width / grid.size).clip(0, 1)).astype(np.uint8)


def run_row_trainings(run: RunView) -> dict[str, Any]:
    """Return every training as columns, sorted by device; -1: not known."""
    jobs, last = run.jobs, float(run.time[-1])
    order = np.lexsort((jobs.received, jobs.device))

    times = {name: getattr(jobs, name)[order] for name in ("received", "begin", "done", "back", "ready")}
    for name in ("begin", "done"):
        times[name] = np.where(np.isposinf(times[name]), 2 * last + 1, times[name])
    known = {name: np.where(np.isfinite(time), np.minimum(time, 1e30), -1.0) for name, time in times.items()}
    packed = {name: _pack_numbers(time.astype(np.float32)) for name, time in known.items()}
    return {"device": _pack_numbers(narrow_for_checkpoint(jobs.device[order])), **packed}


def run_row_ages(run: RunView, grid: RowGrid) -> dict[str, Any]:
    """Return how often each age was ready and picked, up to every column [C A]."""
    picked, passed = (
        [np.asarray(ages, np.int64) for ages in of] for of in ((r.age for r in run.rounds), run.passed_over)
    )
    count = min(max(int(ages.max(initial=0)) for ages in (*picked, *passed)) + 1, _NUM_AGES)
    taken, left = (
        np.array([np.bincount(ages.clip(0, count - 1), minlength=count) for ages in of]).cumsum(0)[grid.keep]
        for of in (picked, passed)
    )
    return {
        "ready": _pack_numbers(narrow_for_checkpoint(taken + left)),
        "picked": _pack_numbers(narrow_for_checkpoint(taken)),
        "count": count,
        "more": count == _NUM_AGES,
    }


def run_row_labels(run: RunView, grid: RowGrid) -> dict[str, Any] | None:
    """Return the samples of each label, per row [G c] and in each column's picked set [C c]; None: not known."""
    counts = run.label_counts
    if counts is None:
        return None
    rows = np.zeros((len(grid.size), counts.shape[1]), np.int64)
    np.add.at(rows, grid.row, counts)
    picked = np.array([counts[run.rounds[at].picked].sum(0) for at in grid.keep.tolist()])
    return {
        "count": counts.shape[1],
        "rows": _pack_numbers(narrow_for_checkpoint(rows)),
        "picked": _pack_numbers(narrow_for_checkpoint(picked)),
    }


_LEAST_DB, _MOST_DB = -30.0, 100.0  # of interference over noise; less counts as so much


def run_row_interference(run: RunView, grid: RowGrid) -> dict[str, Any] | None:
    """Return I/N in dB that uploads met in every cell at every column, as bytes [C c]; 0: nobody sent there. None: one cell."""
    chosen = [run.rounds[at] for at in grid.keep.tolist()]
    count = 1 + max((cell for each in chosen for cell in each.cell), default=-1)
    if count < 2:
        return None
    total, number = np.zeros((2, len(chosen), count))
    for at, each in enumerate(chosen):
        np.add.at(total[at], list(each.cell), each.interference)
        np.add.at(number[at], list(each.cell), 1)
    with np.errstate(divide="ignore"):
        level = 10 * np.log10(total / np.maximum(number, 1)).clip(_LEAST_DB, _MOST_DB)
    low, high = np.floor(level[number > 0].min()), np.ceil(level[number > 0].max())
    share = (level - low) / max(high - low, 1.0)
    return {
        "level": _pack_numbers(np.where(number > 0, 1 + np.rint(254 * share), 0).astype(np.uint8)),
        "low": low,
        "high": max(high, low + 1.0),
        "count": count,
    }


_SCORES: Final = ("test_accuracy", "test_loss", "train_loss")
_MOST_METRICS: Final = 12  # of a run, that a page can draw


def run_row_curve(run: RunView, level: int) -> dict[str, Any]:
    """Return the scores of the scored models, which need not be those of the columns: accuracy, losses, metrics."""
    scored = evaluated_rounds(run.rounds)
    chosen = [scored[at] for at in evenly_on_chart(len(scored), 2 * NUM_COLUMNS >> level).tolist()]
    scores = {name: [getattr(each, name) for each in chosen] for name in _SCORES}
    measured = dict.fromkeys(name for each in chosen for name in each.metrics)
    scores |= {
        f"metrics/{name[:60]}": [each.metrics.get(name) for each in chosen] for name in [*measured][:_MOST_METRICS]
    }
    known = {name: values for name, values in scores.items() if any(value is not None for value in values)}
    return {"index": [each.index for each in chosen], "time": [each.time for each in chosen], "scores": known}


_PICK_FIELDS: Final = ("picked", "age", "capacity", "symbols", "budget_bits", "sent_bits", "num_kept", "weight")
_CELL_FIELDS: Final = ("cell", "edge", "interference")  # where there are several cells or servers


def run_row_uploads(run: RunView, grid: RowGrid) -> dict[str, Any]:
    """Return who was picked at every column, one after the other, with the values recorded for each."""
    most = None if grid.fine else _PICKS_LISTED
    chosen = [run.rounds[at] for at in grid.keep.tolist()]
    tree: dict[str, Any] = {"offset": np.cumsum([0, *(len(each.picked[:most]) for each in chosen)])}
    several = tuple(name for name in _CELL_FIELDS if any(getattr(each, name) for each in chosen))
    for name in (*_PICK_FIELDS, *several):
        values = np.array([value for each in chosen for value in getattr(each, name)[:most]], np.float64)
        whole = name in ("picked", "age", "num_kept", "cell", "edge")
        tree[name] = _pack_numbers(
            narrow_for_checkpoint(values.astype(np.int64)) if whole else values.astype(np.float32)
        )
    return tree


def run_row_columns(run: RunView, grid: RowGrid) -> dict[str, Any]:
    """Return the numbers of every column's aggregation."""
    chosen = [run.rounds[at] for at in grid.keep.tolist()]
    tree: dict[str, Any] = {
        name: [getattr(each, name) for each in chosen] for name in ("index", "time", "label_variance", "proved_minimal")
    }
    for name in ("symbols", "bits", *(["joules"] if run.rounds[-1].ledger.joules else [])):
        tree[name] = [getattr(each.ledger, name) for each in chosen]
    tree["air"] = [sum(each.symbols) for each in chosen]
    tree["ready"] = [each.num_ready for each in chosen]
    tree["uploads"] = [len(each.picked) for each in chosen]
    for name in ("lost", "silent", "retransmitted"):
        tree[name] = [list(getattr(each, name))[:_PICKS_LISTED] for each in chosen]
    return tree
