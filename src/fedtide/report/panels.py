"""Pictures for Python sessions and notebooks, in the style of our figures."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedtide.config import Experiment
from fedtide.records import RoundRecord
from fedtide.report.figure import AXES, axis_name, load_matplotlib, new_figure, our_style
from fedtide.report.palette import COLOURS
from fedtide.report.style import SCREEN
from fedtide.report.summary import evaluated


def _for_sessions() -> None:
    """Import Matplotlib with the backend that a notebook asks for, so that its own pictures appear as ever."""
    first, backend = "matplotlib" not in sys.modules, os.environ.get("MPLBACKEND")
    matplotlib = load_matplotlib()
    if first and backend:
        with contextlib.suppress(ValueError):  # it may be a mistake
            matplotlib.rcParams["backend"] = backend


@contextlib.contextmanager
def shown_figure(width: float, height: float, style: str = SCREEN) -> Iterator[Any]:
    """Make a figure of pyplot's in our style: a notebook shows it at the end of its cell, a script with plt.show().

    Styles for print have a width of their own; the height goes with it.
    """
    _for_sessions()
    from matplotlib import pyplot

    with our_style(style) as how:
        share = 1.0 if how.name == SCREEN else how.width / width
        yield pyplot.figure(figsize=(width * share, height * max(share, 0.8)), layout="constrained")


@contextlib.contextmanager
def inline_figure(width: float, height: float) -> Iterator[Any]:
    """Make a figure that only the page it is put into shows."""
    _for_sessions()
    with our_style():
        yield new_figure(width, height)


def time_name(in_units: bool) -> str:
    """Name the axis of simulated time; in_units: the unit is the longest computation, T_max, and not the user's own."""
    return AXES["time"].replace("time", "simulated time") if in_units else "simulated time"


def draw_run(axes: Any, experiment: Experiment, rounds: Sequence[RoundRecord], column: str, **style: Any) -> Any:
    """Draw one score of a run over simulated time."""
    scored = evaluated(rounds)
    values = [getattr(each, column) for each in scored]
    points = {"marker": "."} if len(scored) < 30 else {}
    axes.plot(
        [each.time for each in scored],
        [math.nan if value is None else value for value in values],
        **{"color": COLOURS[0], **points, **style},
    )
    axes.set_xlabel(time_name(experiment.fleet.max_duration == 1))
    axes.set_ylabel(axis_name(column))
    return axes


def draw_plan(figure: Any, experiment: Experiment, rows: Sequence[Mapping[str, Any]]) -> tuple[Any, Any]:
    """Draw who is ready and picked at every aggregation, and below it what an upload may cost; return both axes."""
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    granted = [row for row in rows if "picked" in row]
    size = {"linestyle": "none", "marker": ".", "markersize": 5 if len(rows) < 200 else 2}
    top.plot([row["time"] for row in rows], [row["num_ready"] for row in rows], **size, color=COLOURS[0], label="ready")
    if granted:
        time, picked = [row["time"] for row in granted], [len(row["picked"]) for row in granted]
        top.plot(time, picked, **size, color=COLOURS[1], label="picked")
    top.set_ylabel("devices")
    top.set_ylim(bottom=0)
    top.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=8)
    uploads = [(row["time"], bits / 1000) for row in granted for bits in row["budget_bits"]]
    bottom.plot([each[0] for each in uploads], [each[1] for each in uploads], **size, color=COLOURS[2])
    if not granted:
        bottom.text(0.5, 0.5, "not known before training", transform=bottom.transAxes, ha="center", va="center")
    bottom.set_ylabel("kbit per\nupload")
    bottom.set_ylim(bottom=0)
    bottom.set_xlabel(time_name(experiment.fleet.max_duration == 1))
    return top, bottom
