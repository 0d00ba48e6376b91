"""How good is the swap descent where enumeration is out of reach? A proof from OR-tools' CP-SAT is the yardstick.

    python benchmarks/schedule.py [TICKS]

The weights figure's system (N=100, R=30): C(50,30) = 4.7e13 subsets. For each of the first ticks whose pool is that large,
the label variance that the scheduler reaches, its time, and the minimum that CP-SAT proves (at most 120 s each).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from ortools.sat.python import cp_model
from rich.console import Console
from rich.table import Table

from fedtide import config
from fedtide.drivers.ticks import candidates_at
from fedtide.policy.label_variance import ENUMERATION_LIMIT, label_variance, minimise
from fedtide.policy.scheduling import best_channels
from fedtide.rng import stream
from fedtide.system import build, load_dataset

SECONDS = 120.0


def prove(label_counts: np.ndarray, size: int, hint: np.ndarray) -> tuple[float, float, float]:
    """Return CP-SAT's best value of the sum of squares, its proved bound and the seconds it took."""
    model = cp_model.CpModel()
    taken = [model.new_bool_var(f"x{row}") for row in range(len(label_counts))]
    model.add(sum(taken) == size)
    total = int(label_counts[0].sum()) * size  # all devices hold the same number of samples here
    squares = []
    for column in label_counts.T.tolist():
        gap = model.new_int_var(-total, total, "")
        num_labels = label_counts.shape[1]
        model.add(num_labels * sum(c * x for c, x in zip(column, taken, strict=True)) - total == num_labels * gap)
        square = model.new_int_var(0, total**2, "")
        model.add_multiplication_equality(square, [gap, gap])
        squares.append(square)
    model.minimize(sum(squares))
    for row, x in enumerate(taken):
        model.add_hint(x, row in hint)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = SECONDS
    solver.parameters.num_workers = 2
    solver.solve(model)
    return solver.objective_value, solver.best_objective_bound, solver.wall_time


def main(count: int) -> None:
    experiment = config.experiment(
        {"fleet": {"num_devices": 100}, "policy": {"limit": 30}, "radio": {"num_symbols": 380_000}}
    )
    system = build(experiment, dataset=load_dataset(experiment, images=False))
    rows: list[dict[str, Any]] = []
    for tick in system.ticks:
        seen = candidates_at(system, tick, np.zeros(100, np.int64))
        pool = best_channels(seen, 0.5, 30)
        counts = seen.label_counts[pool]
        if len(pool) < 50 or len(rows) == count:
            continue
        begun = time.perf_counter()
        picked, _ = minimise(counts, 30, stream(0, "schedule", tick.index))
        seconds = time.perf_counter() - begun
        best, bound, proof_seconds = prove(counts, 30, picked)
        rows.append(
            {
                "tick": tick.index,
                "reached": label_variance(counts[picked]),
                "seconds": seconds,
                "proved_minimum": best if bound >= best else None,
                "bound": bound,
                "proof_seconds": proof_seconds,
            }
        )
    table = Table(title=f"Label variance, C(50,30) subsets (enumerated up to {ENUMERATION_LIMIT:,})")
    for heading in ("tick", "reached", "ms", "proved minimum", "proof s"):
        table.add_column(heading, justify="right")
    for row in rows:
        proved = "-" if row["proved_minimum"] is None else f"{row['proved_minimum']:,.0f}"
        table.add_row(
            str(row["tick"]),
            f"{row['reached']:,.0f}",
            f"{1e3 * row['seconds']:.1f}",
            proved,
            f"{row['proof_seconds']:.1f}",
        )
    Console().print(table)
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "schedule.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
