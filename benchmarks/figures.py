"""The figures of README and docs/theory.md from what is stored: nothing is run. `make figures` makes all others, too.

The demo is the run of `fedtide run` in results/paper; docs/results/theory holds what these three commands wrote to theory.json,
to six digits:
fedtide theory sweep=all --out least-squares
fedtide theory task=softmax data=mnist num_samples=200 batch_size=50 sweep=all --out mnist
fedtide theory step_share=15 num_ticks=300 --out broken
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtide import config
from fedtide.plot.run import _draw_scores, describe_run
from fedtide.studies.spec import spec_run_name
from fedtide.studies.store import Store
from fedtide.types import Floats
from fedtide_lab.theory.bound import BoundCurve, Constants
from fedtide_lab.theory.command import Report, TheoryRow, _draw_theory
from fedtide_lab.theory.options import make_options
from fedtide_lab.theory.sweeps import Point

ROOT = Path(__file__).resolve().parent.parent
FIGURES, RESULTS = ROOT / "docs" / "figures", ROOT / "docs" / "results"


def draw_demo() -> None:
    """Draw the default experiment; all its aggregations are evaluated, and as many devices upload in each."""
    experiment = config.experiment({})
    result = Store(ROOT / "results" / "paper").load(spec_run_name(experiment))
    time, uploads = result.column("time"), experiment.policy.limit
    assert result.totals["uploads"] == uploads * len(time)
    bits = np.diff(result.column("bits"), prepend=0.0) / uploads
    scores = {name: result.column(name).tolist() for name in ("time", "test_accuracy", "test_loss")}
    _draw_scores(FIGURES / "demo.png", scores, time.tolist(), bits.tolist(), describe_run(experiment), True)


# A report read back from its theory.json, for drawing it again: nothing is measured anew.


class StoredErrors(NamedTuple):
    """What was measured, without the single runs."""

    mean: Floats
    half_width: Floats
    squared_error: Floats  # [runs 0]


def read_report(file: Path) -> Report:
    """Return the report that `fedtide theory --out` wrote."""
    tree = json.loads(file.read_text(encoding="utf-8"))
    options, measured = make_options(**tree["options"]), tree["measured"]
    return Report(
        options,
        Constants(**tree["constants"]),
        [TheoryRow(symbol, _number(each["value"]), each["how"]) for symbol, each in tree["how"].items()],
        tree["alpha"],
        [_curve(each) for each in tree["bounds"].values()],
        StoredErrors(np.array(measured["mean"]), np.array(measured["half_width"]), np.empty((options.num_seeds, 0))),
        {key: [_point(each) for each in points] for key, points in tree["sweeps"].items()},
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _curve(tree: dict[str, Any]) -> BoundCurve:
    values = None if tree["values"] is None else np.array(tree["values"])
    numbers = {name: _number(tree[name]) for name in ("step_limit", "contraction", "asymptote")}
    return BoundCurve(**{**tree, **numbers, "values": values})


def _point(tree: dict[str, Any]) -> Point:
    floors, problems = tree["asymptote"], tree["problem"]
    return Point(
        value=tree["value"],
        constants=Constants(**tree["constants"]),
        alpha=tree["alpha"],
        curves={
            name: BoundCurve(name, math.nan, math.nan, _number(floor), None, problems[name])
            for name, floor in floors.items()
        },
        half_life={name: _number(value) for name, value in tree["half_life"].items()},
        floor=tree["floor"],
        floor_half_width=tree["floor_half_width"],
        measured_half_life=_number(tree["measured_half_life"]),
        settled=tree["settled"],
    )


def main() -> None:
    draw_demo()
    for name, bounds in (("least-squares", "bound-least-squares"), ("mnist", "bound-mnist"), ("broken", "broken")):
        report = read_report(RESULTS / "theory" / f"{name}.json")
        _draw_theory(report, FIGURES / f"theory-{bounds}", FIGURES / f"theory-sweeps-{name}")


if __name__ == "__main__":
    main()
