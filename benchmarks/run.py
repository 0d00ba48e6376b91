"""The paper's default run on the native trainer and on PyTorch, one after the other: the ratio, and where time goes.

    python benchmarks/run.py [HORIZON]      # 35 is the paper's: 140 aggregations; PyTorch takes minutes

N=40, R=8, n=300,000, non-i.i.d., proposed scheduling; all cores for both. Writes benchmarks/out/run.json.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedtide import config
from fedtide.engine.making import load_dataset
from fedtide.engine.simulate import simulate
from fedtide.engine.system import build, make_trainer

OUTSIDE = ("set-up", "scheduling", "codec", "aggregation", "records")  # neither training nor evaluation


def measure(trainer: str, horizon: float) -> dict[str, Any]:
    experiment = config.experiment({"learning": {"trainer": trainer}, "timeline": {"horizon": horizon}})
    dataset = load_dataset(experiment)
    system = build(experiment, dataset=dataset)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        made = make_trainer(system, os.cpu_count() or 1)
        result = simulate(experiment, Path(folder) / "run", system=system, trainer=made)
        seconds = time.perf_counter() - begun
    stages = {stage: round(spent, 2) for stage, spent in result.seconds.items()}
    return {
        "trainer": trainer,
        "seconds": round(seconds, 1),
        "stages": stages,
        "outside_share": sum(stages.get(stage, 0) for stage in OUTSIDE) / seconds,
        "samples_per_second": result.rounds[-1].ledger.samples_used / result.seconds["training"],
        "final_accuracy": result.rounds[-1].test_accuracy,
    }


def main(horizon: float) -> None:
    rows = [measure(trainer, horizon) for trainer in ("native", "torch")]
    table = Table(title=f"The paper's default run, {horizon * 4:g} aggregations, {os.cpu_count()} cores")
    for heading in ("trainer", "seconds", "training", "evaluation", "all else", "samples/s", "accuracy"):
        table.add_column(heading, justify="right")
    for row in rows:
        stages = row["stages"]
        table.add_row(
            row["trainer"],
            f"{row['seconds']:.1f}",
            f"{stages['training']:.1f}",
            f"{stages['evaluation']:.1f}",
            f"{row['outside_share']:.1%}",
            f"{row['samples_per_second']:,.0f}",
            f"{row['final_accuracy']:.4f}",
        )
    console = Console()
    console.print(table)
    console.print(f"native ends {rows[1]['seconds'] / rows[0]['seconds']:.1f} times sooner")
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "run.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 35.0)
