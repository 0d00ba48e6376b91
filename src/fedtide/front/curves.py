"""Pictures of studies: what each variant reaches, and what each gains on the seeds that it shares with its reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedtide.errors import FedtideError
from fedtide.report.curves import ACCURACY, draw_curve, draw_end, leave_room
from fedtide.report.figure import axis_name
from fedtide.report.palette import looks
from fedtide.report.panels import time_name
from fedtide.studies.against import Reference
from fedtide.studies.pairing import across
from fedtide.studies.result import COLUMNS, RunResult
from fedtide.studies.statistics import FEW, aligned, band, difference_band, unmeasured

_GAIN = {"test_accuracy": "average so far, gain over"}
Results = Mapping[str, Mapping[int, RunResult]]  # label -> seed -> result


def check(results: Results, column: str, over: str) -> None:
    """Raise if there is nothing to draw, or not this."""
    for what, name in (("column", column), ("over", over)):
        if name not in COLUMNS:
            raise FedtideError(f"{what}={name!r} is not recorded; use one of {', '.join(COLUMNS)}")
    if reason := unmeasured((run for runs in results.values() for run in runs.values()), column, over):
        raise FedtideError(reason)


def draw(figure: Any, results: Results, compared: Mapping[str, Reference | None], column: str, over: str) -> Any:
    """Draw the mean curves and, with enough seeds, paired differences below them; return the one or two Axes.

    The upper panel has no bands: what seeds have in common would widen them, and hide what the lower one shows.
    """
    even = {label: runs for label, runs in aligned(results).items() if runs}
    names = {label: _text(label) for label in even}
    gains = {
        label: difference_band(results[label], results[reference.label], column, over)
        for label in even
        if (reference := compared.get(label)) is not None and results.get(reference.label)
    }
    drawn = {label: gain for label, gain in gains.items() if gain is not None and gain.num_seeds >= FEW}
    panels = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2)) if drawn else [figure.subplots()]
    drawn_as = looks(even)
    within = ACCURACY if column == "test_accuracy" else (-np.inf, np.inf)
    if drawn:
        right = max(float(gain.x[-1]) for gain in drawn.values())
        step = leave_room(panels[1], 0, right, len(drawn))
    for position, (label, runs) in enumerate(even.items()):
        look = drawn_as[label]
        curve = band(list(runs.values()), column, over)
        words = f"{names[label]} ({curve.num_seeds})"
        draw_curve(panels[0], curve.x, curve.mean, look, words, None, position, len(even), within)
    for place, (label, gain) in enumerate(drawn.items()):
        look = drawn_as[label]
        draw_curve(panels[1], gain.x, gain.mean, look, names[label], gain.curves, place, len(drawn))
        draw_end(panels[1], right + step * (place + 1), gain.mean[-1], gain.low[-1], gain.high[-1], look)
    panels[0].set_ylabel(f"{axis_name(column)}, mean")
    panels[0].legend(fontsize=8, title=across(even) or "seeds in brackets", title_fontsize=7)
    units = {run.experiment["fleet"]["max_duration"] for runs in even.values() for run in runs.values()}
    panels[-1].set_xlabel(time_name(units == {1}) if over == "time" else axis_name(over))
    if drawn:
        others = {reference.text for label in drawn if (reference := compared[label]) is not None}
        other = _text(others.pop()) if len(others) == 1 else "its reference"
        panels[1].axhline(0, color="black", linewidth=0.8)
        panels[1].set_ylabel(f"{_GAIN.get(column, 'average so far, less')}\n{other}", fontsize=8)
        panels[1].set_title("paired over seeds, 95 % interval at the end", fontsize=8)
    return tuple(panels)


def _text(label: str) -> str:
    """A label as it is, cut: Matplotlib would take $ for mathematics and hide what begins with an underscore."""
    text = (label if len(label) <= 40 else f"{label[:37]}...").replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
