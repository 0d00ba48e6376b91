"""The figures of docs/radio.md and docs/theory.md from what is stored: nothing is run. `make figures` makes all others, too.

docs/results/theory holds what these three commands wrote to theory.json, to six digits:
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

from fedtide.plot.figure import figure_sheet, figure_style, name_panel, save_figure
from fedtide.plot.style import COLOURS
from fedtide.radio.modem import Gap, Shannon, achieved_capacity
from fedtide.radio.nr import NewRadio
from fedtide.types import Floats
from fedtide_lab.theory.bound import BoundCurve, Constants
from fedtide_lab.theory.command import Report, TheoryRow, _draw_theory
from fedtide_lab.theory.options import make_options
from fedtide_lab.theory.sweeps import Point

ROOT = Path(__file__).resolve().parent.parent
_DASHES = ("-", "--", "-.", (0, (2.8, 1.4)))
FIGURES, RESULTS = ROOT / "docs" / "figures", ROOT / "docs" / "results"


def draw_modems() -> None:
    """Draw what modems carry at an SNR, and 5G NR with HARQ where an estimate is off."""
    snr_db, off_db, truth_db = np.linspace(-8, 30, 1521), np.linspace(-6, 6, 481), 12.0
    drawn = (
        {
            "Shannon": Shannon(),
            "gap: 3 dB, cap 5.55": Gap(),
            "NR, table 1": NewRadio(overhead=0.0),
            "NR, table 2": NewRadio(table=2, overhead=0.0),
        },
        {
            "outer loop": NewRadio(overhead=0.0, adaptation="outer"),
            "incremental redundancy": NewRadio(overhead=0.0),
            "chase combining": NewRadio(overhead=0.0, harq="chase"),
            "no HARQ": NewRadio(overhead=0.0, harq="none"),
        },
    )
    known, truth = 10 ** (snr_db / 10), np.full(len(off_db), 10 ** (truth_db / 10))
    links = (snr_db, known, known), (off_db, truth, truth * 10 ** (off_db / 10))
    with figure_style() as how:
        figure, panels = figure_sheet(how, 1, 2, 1.25 * how.panel)
        for panel, modems, (x, snr, estimate) in zip(panels[0], drawn, links, strict=True):
            for colour, dash, (name, modem) in zip(COLOURS, _DASHES, modems.items(), strict=False):
                found = achieved_capacity(modem, snr, estimate)
                panel.plot(x, found, color=colour, linestyle=dash, linewidth=1.4, label=name)
            panel.legend(loc="upper left" if modems is drawn[0] else "lower left", fontsize=how.small)
        left, right = panels[0]
        left.set(xlabel="SNR in dB", ylabel="bit/symbol", ylim=(0, 10))
        right.set(xlabel="estimate less true SNR in dB", ylim=(0, 4))
        name_panel(left, how, 0, "known links")
        name_panel(right, how, 1, f"NR at {truth_db:g} dB, estimate off")
        save_figure(figure, FIGURES / "modems", ["png"])


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
    draw_modems()
    for name, bounds in (("least-squares", "bound-least-squares"), ("mnist", "bound-mnist"), ("broken", "broken")):
        report = read_report(RESULTS / "theory" / f"{name}.json")
        _draw_theory(report, FIGURES / f"theory-{bounds}", FIGURES / f"theory-sweeps-{name}")


if __name__ == "__main__":
    main()
