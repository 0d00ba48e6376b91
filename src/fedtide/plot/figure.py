"""Figures of a run."""

from __future__ import annotations

import contextlib
import io
import logging
import math
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedtide.config import Experiment
from fedtide.core.files import refuse_other_kind
from fedtide.errors import RunFolderError
from fedtide.plot.style import COLOURS, SCREEN, Style, style_named
from fedtide.report.summary import evaluated
from fedtide.runs import RoundRecord, write_atomically

# Figures of a run. Matplotlib is imported when a figure is asked for, not before.


RUN_AXES = {
    "time": r"time (units of $T_{\max}$)",
    "index": "iteration",
    "test_accuracy": "test accuracy",
    "train_loss": "training loss",
    "bits": "bits sent",
    "samples_trained": "samples trained by the devices",
    "symbols": "symbols granted",
}
FORMATS = ("pdf", "svg", "png")
_BEGINNINGS = {"pdf": rb"%PDF-", "svg": rb"<\?xml .*<svg", "png": rb"\x89PNG"}


def axis_name(column: str) -> str:
    """Name a recorded column for an axis."""
    return RUN_AXES.get(column, column.replace("_", " "))


def load_matplotlib() -> Any:
    """Import Matplotlib for files alone: without the backend that a notebook or a mistake left in MPLBACKEND.

    It is quiet about a home that it cannot write to, in which case it keeps its font list elsewhere.
    """
    if "matplotlib" not in sys.modules:
        backend = os.environ.pop("MPLBACKEND", None)
        logging.getLogger("matplotlib").setLevel(logging.ERROR)
        try:
            import matplotlib
        finally:
            if backend is not None:
                os.environ["MPLBACKEND"] = backend
    import matplotlib

    return matplotlib


@contextmanager
def our_style(name: str = SCREEN) -> Iterator[Style]:
    """Draw in one of our styles."""
    style = style_named(name)
    with load_matplotlib().rc_context(style.settings):
        yield style


def new_figure(width: float, height: float) -> Any:
    """Return a bare Matplotlib figure with a canvas; no global state."""
    load_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def sheet(style: Style, rows: int, columns: int, height: float | None = None, **shared: Any) -> tuple[Any, Any]:
    """Return a figure as wide as the style says, and its panels [rows columns], which a single column has below one another.

    height: of a panel, in inches; None: the style's. shared: as for Matplotlib's `subplots`.
    """
    below = rows * columns if style.stacked else rows
    figure = new_figure(style.width, (height or style.panel) * below)
    panels = figure.subplots(below, 1 if style.stacked else columns, squeeze=False, **shared)
    return figure, panels.reshape(rows, columns)


def name_panel(panel: Any, style: Style, position: int, text: str) -> None:
    """Name a panel: above it, or as journals have it below, (a), (b), ...; the axis has its name already."""
    if style.titles:
        panel.set_title(text)
    else:
        panel.set_xlabel(f"{panel.get_xlabel()}\n({chr(ord('a') + position)}) {text}")


def legend_below(figure: Any, style: Style, panels: Any, **how: Any) -> None:
    """Put one legend of all that the panels show below them, in as many columns as fit."""
    found: dict[str, Any] = {}
    for panel in panels:
        for handle, name in zip(*panel.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    if not found:
        return
    letters = max(len(line) for name in found for line in re.sub(r"[\\\\${}]|tilde", "", name).split("\n"))
    wide = (
        style.width * 72 / (style.small * (style.letter * letters + 6.4))
    )  # 6.4: the line before it, and the gap after it
    columns = min(len(found), max(1, int(wide)))
    even = -(-len(found) // -(-len(found) // columns))  # no short last row where fewer columns do
    figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=even, **how)


def save(figure: Any, stem: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Save as PDF, SVG and PNG, without dates, so that the same figure gives the same bytes; replace figures only."""
    if not stem.name:
        raise RunFolderError(f"{str(stem)!r} names no file: give a name without ending, as in figures/mine")
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in formats]
    for path, kind in zip(paths, formats, strict=True):
        refuse_other_kind(path, _BEGINNINGS[kind], f"a figure ({kind.upper()})")
    for path in paths:
        write_figure(figure, path, dpi=180)
    return paths


def write_figure(figure: Any, path: Path, **how: Any) -> None:
    """Write one file, of the kind that its ending names: drawn in memory, put in place whole or not at all."""
    drawn, dates = io.BytesIO(), {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    figure.savefig(drawn, format=path.suffix[1:], metadata=dates.get(path.suffix[1:], {}), **how)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, drawn.getvalue())
    except (OSError, RunFolderError) as error:
        refusal = error if isinstance(error, OSError) else error.__cause__
        reason = (refusal.strerror if isinstance(refusal, OSError) else None) or error
        raise RunFolderError(
            f"the figure {path} cannot be written ({reason}): choose a place that you may write to"
        ) from error


def is_whole_figure(path: Path) -> bool:
    """Say whether a PNG file is there from its first to its last chunk."""
    if not path.is_file():
        return False
    try:
        with open(path, "rb") as file:
            begin = file.read(8)
            file.seek(-12, os.SEEK_END)
            return begin == b"\x89PNG\r\n\x1a\n" and file.read() == b"\0\0\0\0IEND\xaeB`\x82"
    except OSError:
        return False


def describe(experiment: Experiment) -> str:
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
    """Return the name of a part without where it lies, and without what Matplotlib takes for mathematics."""
    return name.rpartition(":")[2].replace("$", "")


def run_figure(experiment: Experiment, rounds: Sequence[RoundRecord], path: Path, style: str = SCREEN) -> None:
    """Draw accuracy and loss over simulated time, and below it what an upload sent, on average over those picked."""
    scored = evaluated(rounds)
    sent = [each for each in rounds if each.picked]
    draw_scores(
        path,
        {
            "time": [each.time for each in scored],
            "test_accuracy": [_number(each.test_accuracy) for each in scored],
            "test_loss": [_number(each.test_loss) for each in scored],
        },
        [each.time for each in sent],
        [sum(each.sent_bits) / len(each.picked) for each in sent],
        describe(experiment),
        experiment.fleet.max_duration == 1,
        style,
    )


def draw_scores(
    path: Path,
    scores: Mapping[str, Sequence[float]],
    time: Sequence[float],
    bits: Sequence[float],
    title: str,
    in_units: bool,
    style: str = SCREEN,
) -> None:
    """Draw a run. scores: time, test_accuracy and test_loss of all evaluations; bits that an upload sent at each time."""
    with our_style(style) as how:
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
        bottom.plot(time, [each / 1000 for each in bits], ".", ms=3, color=COLOURS[2])
        bottom.set_ylim(bottom=0)
        bottom.set_ylabel("kbit sent\nper upload")
        bottom.set_xlabel(RUN_AXES["time"] if in_units else "simulated time")
        figure.align_ylabels([top, bottom])
        if how.titles:
            figure.suptitle("\n".join(textwrap.wrap(title, 88)), fontsize=how.small)
        write_figure(figure, path)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


# Pictures for Python sessions and notebooks, in the style of our figures.


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
    return RUN_AXES["time"].replace("time", "simulated time") if in_units else "simulated time"


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
