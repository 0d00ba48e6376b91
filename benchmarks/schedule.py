"""The proposed schedule where enumeration is out of reach: how good, how sure, how long.

    python benchmarks/schedule.py [TICKS] [--prove]

Three tables, times in milliseconds of this process's CPU, the least of three:
- the first ticks of N=100, R=30 (50 candidates, C(50,30) = 4.7e13 subsets) with label shards and with Dirichlet data: the plain
  search (96 starts), 200 restarts of swap descent, the certified search and its gap;
- closing smaller ones: how many steps the tree takes;
- 500,000 candidates, R=1,000.
--prove: the minimum of the first table by OR-tools' CP-SAT as well (at most 120 s each; needs the package ortools).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from fedtide import config
from fedtide.engine.making import load_dataset
from fedtide.engine.step import step_candidates
from fedtide.engine.system import build
from fedtide.extension import native
from fedtide.rng import stream
from fedtide.schedule.label_variance import (
    _centred,
    _search,
    certify_label_variance,
    label_variance,
    minimise_label_variance,
)
from fedtide.schedule.schedulers import _best_channels

SECONDS = 120.0
DIRICHLET = {"partition": {"name": "dirichlet", "concentration": 0.5}}


def timed(call: Callable[[], Any], times: int = 3) -> tuple[Any, float]:
    """Return what a call gives and the least milliseconds of CPU it took."""
    least, answer = float("inf"), None
    for _ in range(times):
        begun = time.process_time()
        answer = call()
        least = min(least, 1e3 * (time.process_time() - begun))
    return answer, least


def prove(label_counts: np.ndarray, size: int, hint: np.ndarray) -> tuple[float, float, float]:
    """Return CP-SAT's best Omega, its proved bound and the seconds it took. All devices hold the same number of samples."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    taken = [model.new_bool_var(f"x{row}") for row in range(len(label_counts))]
    model.add(sum(taken) == size)
    num_labels = label_counts.shape[1]
    total = int(label_counts[0].sum()) * size
    squares = []
    for column in label_counts.T.tolist():
        gap = model.new_int_var(-num_labels * total, num_labels * total, "")  # c times what this label has too much
        model.add(num_labels * sum(c * x for c, x in zip(column, taken, strict=True)) - total == gap)
        square = model.new_int_var(0, (num_labels * total) ** 2, "")
        model.add_multiplication_equality(square, [gap, gap])
        squares.append(square)
    model.minimize(sum(squares))
    for row, x in enumerate(taken):
        model.add_hint(x, row in hint)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = SECONDS
    solver.parameters.num_workers = 2
    solver.solve(model)
    return solver.objective_value / num_labels**2, solver.best_objective_bound / num_labels**2, solver.wall_time


def ticks(data: dict[str, Any], count: int) -> list[tuple[int, np.ndarray]]:
    """Return the label counts of the first pools of 50 candidates, with their ticks."""
    tree = {"fleet": {"num_devices": 100}, "policy": {"limit": 30}, "radio": {"num_symbols": 380_000}, "data": data}
    experiment = config.experiment(tree)
    system = build(experiment, dataset=load_dataset(experiment, images=False))
    found = []
    for tick in system.ticks:
        seen = step_candidates(system, tick, np.zeros(100, np.int64))
        pool = _best_channels(seen, 0.5, 30)
        if len(pool) == 50 and len(found) < count:
            found.append((tick.index, seen.label_counts[pool]))
    return found


def fifty(count: int, proving: bool) -> list[dict[str, Any]]:
    """Return a row for each tick of both kinds of data."""
    rows = []
    for kind, data in (("shards", {}), ("dirichlet", DIRICHLET)):
        for tick, counts in ticks(data, count):

            def draws(tick: int = tick) -> np.random.Generator:
                return stream(0, "schedule", tick)

            (picked, _), plain_ms = timed(lambda: minimise_label_variance(counts, 30, draws()))  # noqa: B023 - called at once
            (_, descended), restarts_ms = timed(lambda: _search(counts, 30, draws(), 200, 0))  # noqa: B023
            sure, sure_ms = timed(lambda: certify_label_variance(counts, 30, draws()))  # noqa: B023
            row: dict[str, Any] = {
                "data": kind, "tick": tick, "swaps": label_variance(counts[picked]), "swaps_ms": plain_ms,
                "restarts_200": descended / counts.shape[1] ** 2, "restarts_ms": restarts_ms,
                "certified": sure.reached, "bound": sure.bound, "gap": sure.gap, "certified_ms": sure_ms,
            }  # fmt: skip
            assert row["certified"] <= min(row["swaps"], row["restarts_200"]) * (1 + 1e-12)
            if proving:
                best, bound, seconds = prove(counts, 30, sure.picked)
                row |= {"cp_sat": best, "cp_sat_bound": bound, "cp_sat_seconds": seconds}
            rows.append(row)
    return rows


def dirichlet(num_rows: int, samples: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.multinomial(samples, rng.dirichlet([0.5] * 10, num_rows))


def closing() -> list[dict[str, Any]]:
    """Return a row for each size: steps and milliseconds until it is proved, over five draws of Dirichlet data."""
    rows = []
    for num_rows, size in ((30, 10), (40, 8), (40, 12)):
        cells: list[tuple[int, float]] = []
        for seed in range(5):
            counts = dirichlet(num_rows, 600, seed)
            reached = certify_label_variance(counts, size, np.random.default_rng(seed))
            value = round(reached.reached * 100)
            (_, _, _, steps), ms = timed(
                lambda: native.branch(_centred(counts), size, value, 0, 10**9),  # noqa: B023 - called at once
                1,
            )
            cells.append((steps, ms))
        steps_taken, took = zip(*cells, strict=True)
        rows.append({"m": num_rows, "R": size, "steps": [*steps_taken], "ms": [*took]})
    return rows


def many() -> list[dict[str, Any]]:
    """Return a row for each kind of data of 500,000 candidates."""
    m, rng = 500_000, np.random.default_rng(0)
    shards = np.zeros((m, 10), np.int64)
    for column in rng.integers(0, 10, (2, m)):
        shards[np.arange(m), column] += 30
    kinds = {
        "shards": shards,
        "i.i.d., 60 samples": rng.multinomial(60, [0.1] * 10, m),
        "Dirichlet 0.5, 20 samples": dirichlet(m, 20, 1),
        "Dirichlet 0.5, 60 samples": dirichlet(m, 60, 1),
        "Dirichlet 0.5, 600 samples": dirichlet(m, 600, 1),
    }
    rows = []
    for kind, counts in kinds.items():
        (picked, proved), ms = timed(lambda: minimise_label_variance(counts, 1000, np.random.default_rng(0)))  # noqa: B023 - at once
        rows.append({"data": kind, "reached": label_variance(counts[picked]), "proved": proved, "ms": ms})
    return rows


def show(title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(title=title)
    for heading in rows[0]:
        table.add_column(heading, justify="right")
    for row in rows:
        cells = [each if isinstance(each, list) else [each] for each in row.values()]
        table.add_row(*(", ".join(f"{x:,.4g}" if isinstance(x, float) else str(x) for x in cell) for cell in cells))
    Console(width=160).print(table)


def main(count: int, proving: bool) -> None:
    found = {"fifty": fifty(count, proving), "closing": closing(), "many": many()}
    show("Label variance, N=100, R=30: 30 of 50 candidates (gap in samples per label)", found["fifty"])
    show("Until it is proved, Dirichlet 0.5, 600 samples", found["closing"])
    show("R=1,000 of 500,000 candidates", found["many"])
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "schedule.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    words = sys.argv[1:]
    numbers = [int(word) for word in words if word.isdigit()]
    main(numbers[0] if numbers else 5, "--prove" in words)
