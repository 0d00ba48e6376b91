"""Two laws of queues that hold for asynchronous servers, checked on fedtide's clock: nothing is trained.

M devices train at a time, every arrival makes a new model, and the device that takes the free place begins with it. An arrival
makes each of the M - 1 others one version older. So the staleness of all arrivals and that of the updates still on their way add
up to M - 1 per arrival, exactly, and the mean staleness tends to M - 1: the discrete form of Little's law that Alahyane et al.
prove for queues at clients (arXiv 2502.08206). If all devices always train, the throughput is the sum of their rates.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtide.config import experiment
from fedtide.core import write_output
from fedtide.engine import build, planned
from fedtide.studies import half_width
from fedtide.types import Floats
from fedtide_lab.paper.figures import Tree
from fedtide_lab.prose import prose_table

QUEUES_FILE = "queues.csv"
_DEVICES, _HORIZON, _SEEDS, _MEAN, _SIGMA = 40, 105.0, 10, 0.3, 0.5
_WARM_UP = 5.0  # of the horizon; what arrives before it does not count
_LAWS: dict[str, tuple[str, Tree]] = {  # how long a job takes: in words, as keys
    "uniform": ("U(0.2, 1), once per device", {"min_duration": 0.2}),
    "exponential": (
        "Exp(0.3), for every job",
        {"duration": {"name": "shifted_exponential", "shift": 0.0, "mean": _MEAN}},
    ),
    "log-normal": (
        "log-normal (median 0.3, sigma 0.5), for every job",
        {"duration": {"name": "log_normal", "median": _MEAN, "sigma": _SIGMA, "per_job": True}},
    ),
}
_CONCURRENCY = (_DEVICES, 10)


class Queue(NamedTuple):
    """What one planned run says."""

    law: str
    concurrency: int  # M
    seed: int
    arrivals: int  # after the warm-up
    staleness: float  # their mean
    throughput: float  # arrivals per unit of time
    job_time: float  # mean time of these jobs
    rates: float  # the sum of the devices' rates; nan unless all of them train
    residual: int  # what is left of the identity: 0 if it holds


def measure_queue(law: str, concurrency: int, seed: int) -> Queue:
    """Plan a run and count."""
    tree: Tree = {
        "framework": "fedasync",
        "seed": seed,
        "data": {"name": "synthetic", "partition": "iid"},
        "fleet": {"num_devices": _DEVICES, **_LAWS[law][1]}
        | ({"concurrency": concurrency} if concurrency < _DEVICES else {}),
        "timeline": {"horizon": _HORIZON},
    }
    system = build(experiment(tree))
    ticks = [step.tick for step in planned(system)]
    assert all(len(tick.ready) == 1 for tick in ticks)
    number, start = np.arange(1, len(ticks) + 1), np.array([tick.start[0] for tick in ticks])
    time, device = np.array([tick.time for tick in ticks]), np.array([tick.ready[0] for tick in ticks])
    half = len(ticks) // 2
    waiting = (number > half) & (
        start <= half
    )  # on their way when half have arrived; the device of a free place is new
    old = (number - start)[:half].sum() + (half + 1 - start[waiting]).sum()
    late = time > _WARM_UP
    throughput = np.count_nonzero(late) / (_HORIZON - _WARM_UP)
    return Queue(
        law,
        concurrency,
        seed,
        int(np.count_nonzero(late)),
        float((number - start)[late].mean()),
        float(throughput),
        float((time - _began(time, start))[late].mean()),
        float((1 / _mean_times(law, time, device)).sum()) if concurrency == _DEVICES else math.nan,
        int(old - (concurrency - 1) * half),
    )


def _began(time: Floats, start: Any) -> Floats:
    """Return when the model of each version was there."""
    sent: Floats = np.concatenate([[0.0], time])
    found: Floats = sent[start - 1]
    return found


def _mean_times(law: str, time: Floats, device: Any) -> Floats:
    """Return the mean time of a job on each device; where it is the device's own, from when it arrived first."""
    known: dict[str, Callable[[], Floats]] = {
        "uniform": lambda: np.array([time[device == each].min() for each in range(_DEVICES)]),
        "exponential": lambda: np.full(_DEVICES, _MEAN),
        "log-normal": lambda: np.full(_DEVICES, _MEAN * np.exp(_SIGMA**2 / 2)),
    }
    return known[law]()


def store_queues(folder: Path) -> None:
    """Measure every law and write the table into a folder."""
    rows = [measure_queue(law, many, seed) for law in _LAWS for many in _CONCURRENCY for seed in range(_SEEDS)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Queue._fields)
    writer.writerows([f"{value:.9g}" if isinstance(value, float) else value for value in row] for row in rows)
    write_output(folder / QUEUES_FILE, text.getvalue().encode(), rb"law,concurrency", "a table of `fedtide external`")


def read_queues(folder: Path) -> list[Queue]:
    """Return the stored table; empty if there is none."""
    if not (folder / QUEUES_FILE).is_file():
        return []
    with (folder / QUEUES_FILE).open(newline="") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
        for row in rows:
            row |= {name: float(value) for name, value in row.items() if name != "law"}
            row |= {name: int(row[name]) for name in ("concurrency", "seed", "arrivals", "residual")}
        return [Queue(**row) for row in rows]


def queues_values(folder: Path) -> dict[str, Any]:
    """Return what the page names of them."""
    rows, hits, found = [], [], read_queues(folder)
    for law, (words, _) in _LAWS.items():
        for many in _CONCURRENCY:
            mine = [each for each in found if (each.law, each.concurrency) == (law, many)]
            measured: list[tuple[list[float], float, int]] = [  # the numbers, what the law says, digits
                ([each.staleness for each in mine], many - 1, 3),
                ([each.throughput * each.job_time for each in mine], many, 3),
                ([each.throughput / each.rates for each in mine if many == _DEVICES], 1, 4),
            ]
            cells = [_interval(values, digits) if values else "" for values, _, digits in measured]
            hits += [_holds(values, law_says) for values, law_says, _ in measured if values]
            exact = sum(each.residual == 0 for each in mine)
            rows.append([words, str(many), str(many - 1), cells[0], f"{exact} of {len(mine)}", *cells[1:]])
    heads = [
        *("a job takes", "M", "staleness by the law", "ours: mean (95 % interval)", "identity exact"),
        *("throughput × mean job time, M by Little's law", "throughput / sum of rates, 1 by the law"),
    ]
    return {
        "queues": prose_table(heads, rows) if found else "(Not measured yet.)",
        "queue seeds": _SEEDS,
        "queue devices": _DEVICES,
        "queue horizon": _HORIZON,
        "queue warm-up": _WARM_UP,
        "queue intervals": len(hits),
        "queue hits": sum(hits),
        "queues inexact": sum(each.residual != 0 for each in found),
    }


def _holds(values: list[float], wanted: float) -> bool:
    return bool(abs(np.mean(values) - wanted) <= half_width(np.array(values)))


def _interval(values: list[float], digits: int) -> str:
    mean, width = np.mean(values), float(half_width(np.array(values)))
    return f"{mean:.{digits}f} ({mean - width:.{digits}f} to {mean + width:.{digits}f})"
