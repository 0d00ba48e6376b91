"""Figures of one run, and of its plan."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedtide.config import Experiment
from fedtide.plot.figure import RUN_AXES, figure_axis_name, figure_style, figure_time_name, new_figure, write_figure
from fedtide.plot.style import COLOURS, SCREEN
from fedtide.report.summary import evaluated_rounds

if TYPE_CHECKING:  # a plan needs no run folders
    from fedtide.runs import RoundRecord


def describe_run(experiment: Experiment) -> str:
    """Say in one line what an experiment is."""
    names = {"shards": "non-i.i.d.", "iid": "i.i.d.", "dirichlet": "Dirichlet", "slow_labels": "slow labels"}
    data, setting, clock, who, codec = (
        _short(experiment.part(kind).name) for kind in ("data", "partition", "timeline", "scheduler", "codec")
    )
    setting = names.get(setting, setting)
    return (
        f"{data}, {setting}, N={experiment.fleet.num_devices}, R={experiment.policy.limit}, "
        f"n={experiment.radio.num_symbols:,.0f}, {clock}, {who}, $\\gamma$={experiment.policy.age_base:g}, {codec}, "
        f"seed {experiment.seed}"
    )


def _short(name: str) -> str:
    """Return the name of a part without its file, and without the $ that begins mathematics in Matplotlib."""
    return name.rpartition(":")[2].replace("$", "")


def run_figure(experiment: Experiment, rounds: Sequence[RoundRecord], path: Path, style: str = SCREEN) -> None:
    """Draw accuracy and loss over simulated time, and below them the mean bits per upload."""
    scored = evaluated_rounds(rounds)
    sent = [record for record in rounds if record.picked]
    _draw_scores(
        path,
        {
            "time": [record.time for record in scored],
            "test_accuracy": _scores(scored, "test_accuracy"),
            "test_loss": _scores(scored, "test_loss"),
        },
        [record.time for record in sent],
        [sum(record.sent_bits) / len(record.picked) for record in sent],
        describe_run(experiment),
        experiment.fleet.max_duration == 1,
        style,
    )


def _scores(scored: Sequence[RoundRecord], column: str) -> list[float]:
    return [math.nan if (value := getattr(record, column)) is None else value for record in scored]


def _draw_scores(
    path: Path,
    scores: Mapping[str, Sequence[float]],
    time: Sequence[float],
    bits: Sequence[float],
    title: str,
    in_units: bool,
    style: str = SCREEN,
) -> None:
    """Draw a run. scores: time, test_accuracy and test_loss of all evaluations; bits that an upload sent at each time."""
    with figure_style(style) as how:
        figure = new_figure(how.width, 1.75 * how.panel)
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        top.plot(scores["time"], scores["test_accuracy"], color=COLOURS[0])
        top.set_ylabel("test accuracy", color=COLOURS[0])
        top.set_ylim(0, 1)
        loss = top.twinx()
        loss.plot(scores["time"], scores["test_loss"], color=COLOURS[1], linewidth=1, linestyle=(0, (4, 1.5)))
        loss.set_ylabel("test loss (dashed)", color=COLOURS[1])
        loss.set_ylim(bottom=0)
        loss.grid(False)
        bottom.plot(time, [count / 1000 for count in bits], ".", ms=3, color=COLOURS[2])
        bottom.set_ylim(bottom=0)
        bottom.set_ylabel("kbit sent\nper upload")
        bottom.set_xlabel(RUN_AXES["time"] if in_units else "simulated time")
        figure.align_ylabels([top, bottom])
        if how.titles:
            figure.suptitle("\n".join(textwrap.wrap(title, 88)), fontsize=how.small)
        write_figure(figure, path)


def draw_run(axes: Any, experiment: Experiment, rounds: Sequence[RoundRecord], column: str, **style: Any) -> Any:
    """Draw one score of a run over simulated time."""
    scored = evaluated_rounds(rounds)
    points = {"marker": "."} if len(scored) < 30 else {}
    time = [record.time for record in scored]
    axes.plot(time, _scores(scored, column), **{"color": COLOURS[0], **points, **style})
    axes.set_xlabel(figure_time_name(experiment.fleet.max_duration == 1))
    axes.set_ylabel(figure_axis_name(column))
    return axes


def draw_plan(figure: Any, experiment: Experiment, rows: Sequence[Mapping[str, Any]]) -> tuple[Any, Any]:
    """Draw how many are ready and picked at every aggregation, and below it the bits granted per upload; return both Axes."""
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
    bottom.plot([time for time, _ in uploads], [kbit for _, kbit in uploads], **size, color=COLOURS[2])
    if not granted:
        bottom.text(0.5, 0.5, "not known before training", transform=bottom.transAxes, ha="center", va="center")
    bottom.set_ylabel("kbit per\nupload")
    bottom.set_ylim(bottom=0)
    bottom.set_xlabel(figure_time_name(experiment.fleet.max_duration == 1))
    return top, bottom
