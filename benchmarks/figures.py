"""The figures of README and docs/theory.md from what is stored: nothing is run. `make figures` makes all others, too.

The demo is the run of `fedtide run` in results/paper; docs/results/theory holds what these three commands wrote to theory.json,
to six digits:
fedtide theory sweep=all --out least-squares
fedtide theory task=softmax data=mnist num_samples=200 batch_size=50 sweep=all --out mnist
fedtide theory step_share=15 num_ticks=300 --out broken
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedtide import config
from fedtide.plot.run import describe, draw_scores
from fedtide.studies.spec import name_of
from fedtide.studies.store import Store
from fedtide_lab.theory import command

ROOT = Path(__file__).resolve().parent.parent
FIGURES, RESULTS = ROOT / "docs" / "figures", ROOT / "docs" / "results"


def draw_demo() -> None:
    """Draw the default experiment; all its aggregations are evaluated, and as many devices upload in each."""
    experiment = config.experiment({})
    result = Store(ROOT / "results" / "paper").load(name_of(experiment))
    time, uploads = result.column("time"), experiment.policy.limit
    assert result.totals["uploads"] == uploads * len(time)
    bits = np.diff(result.column("bits"), prepend=0.0) / uploads
    scores = {name: result.column(name).tolist() for name in ("time", "test_accuracy", "test_loss")}
    draw_scores(FIGURES / "demo.png", scores, time.tolist(), bits.tolist(), describe(experiment), True)


def main() -> None:
    draw_demo()
    for name, bounds in (("least-squares", "bound-least-squares"), ("mnist", "bound-mnist"), ("broken", "broken")):
        report = command.read_report(RESULTS / "theory" / f"{name}.json")
        command.draw_theory(report, FIGURES / f"theory-{bounds}", FIGURES / f"theory-sweeps-{name}")


if __name__ == "__main__":
    main()
