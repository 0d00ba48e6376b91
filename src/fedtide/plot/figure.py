"""Figures in our styles: panels, legends, axis labels, files. Matplotlib is imported when a figure is drawn, not before."""

from __future__ import annotations

import contextlib
import io
import logging
import math
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedtide.core.files import file_fault, refuse_other_file_kind, write_atomically
from fedtide.errors import RunFolderError
from fedtide.plot.style import SCREEN, Style, style_named

RUN_AXES = {
    "time": r"time (units of $T_{\max}$)",
    "index": "iteration",
    "test_accuracy": "test accuracy",
    "train_loss": "training loss",
    "bits": "bits sent",
    "samples_trained": "samples trained by the devices",
    "symbols": "symbols granted",
}
PAGE_INCHES = 9.2  # height of a page: no figure is taller
FORMATS = ("pdf", "svg", "png")
_BEGINNINGS = {"pdf": rb"%PDF-", "svg": rb"<\?xml .*<svg", "png": rb"\x89PNG"}


def figure_axis_name(column: str) -> str:
    """Name a recorded column for an axis."""
    return RUN_AXES.get(column, column.replace("_", " "))


def figure_time_name(in_units: bool) -> str:
    """Name the axis of simulated time; in_units: the unit is the longest computation, T_max, and not the user's own."""
    return RUN_AXES["time"].replace("time", "simulated time") if in_units else "simulated time"


def _load_matplotlib(interactive: bool = False) -> Any:
    """Import Matplotlib without the backend named in MPLBACKEND, which may be a mistake; interactive: use it if it exists.

    Matplotlib's own warnings, such as a home folder that it cannot write to, are silenced.
    """
    backend = None
    if "matplotlib" not in sys.modules:
        backend = os.environ.pop("MPLBACKEND", None)
        logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        import matplotlib
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    if interactive and backend:
        with contextlib.suppress(ValueError):
            matplotlib.rcParams["backend"] = backend
    return matplotlib


@contextlib.contextmanager
def figure_style(name: str = SCREEN) -> Iterator[Style]:
    """Draw in one of our styles."""
    style = style_named(name)
    with _load_matplotlib().rc_context(style.settings):
        yield style


def new_figure(width: float, height: float) -> Any:
    """Return a bare Matplotlib figure with a canvas, at most a page high; no global state."""
    _load_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, min(height, PAGE_INCHES)), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


@contextlib.contextmanager
def shown_figure(width: float, height: float, style: str = SCREEN) -> Iterator[Any]:
    """Make a pyplot figure in our style: a notebook shows it after its cell, a script with plt.show().

    Styles for print have their own width; the height is scaled with it.
    """
    _load_matplotlib(interactive=True)
    from matplotlib import pyplot

    pyplot.draw_if_interactive()  # loads the backend: what it sets would be taken back at the end of the style
    with figure_style(style) as how:
        share = 1.0 if how.name == SCREEN else how.width / width
        yield pyplot.figure(figsize=(width * share, height * max(share, 0.8)), layout="constrained")


@contextlib.contextmanager
def inline_figure(width: float, height: float) -> Iterator[Any]:
    """Make a figure for a notebook card; pyplot does not know it."""
    _load_matplotlib(interactive=True)
    with figure_style():
        yield new_figure(width, height)


def figure_sheet(style: Style, rows: int, columns: int, height: float | None = None, **shared: Any) -> tuple[Any, Any]:
    """Return a figure of the style's width and its panels [rows columns]; a stacked style has them in one column, on one page.

    height: of a panel, in inches; None: the style's. shared: as for Matplotlib's `subplots`.
    """
    stacked = style.stacked and (height or style.panel) * rows * columns <= PAGE_INCHES
    below = rows * columns if stacked else rows
    figure = new_figure(style.width, (height or style.panel) * below)
    panels = figure.subplots(below, 1 if stacked else columns, squeeze=False, **shared)
    return figure, panels.reshape(rows, columns)


def name_panel(panel: Any, style: Style, position: int, text: str) -> None:
    """Name a panel above it, or below its axis label as (a), (b), ... as journals do."""
    if style.titles:
        panel.set_title(text)
    else:
        room = style.width / panel.get_gridspec().ncols - 0.35  # inches
        letters = max(12, int(room * 72 / (style.size * style.letter)))
        lines = [part for line in text.split("\n") for part in textwrap.wrap(line, letters) or [""]]
        name = "\n".join([f"({chr(ord('a') + position)}) {lines[0]}", *lines[1:]])
        panel.set_xlabel("\n".join(filter(None, [panel.get_xlabel(), name])))


def legend_below(figure: Any, style: Style, panels: Any, **how: Any) -> None:
    """Put one legend for all panels below them, in as many columns as fit."""
    found: dict[str, Any] = {}
    for panel in panels:
        for handle, name in zip(*panel.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    if not found:
        return
    letters = max(len(line) for name in found for line in re.sub(r"[\\\\${}]|tilde", "", name).split("\n"))
    line_and_gap = 6.4  # letters
    fit = int(style.width * 72 / (style.small * (style.letter * letters + line_and_gap)))
    rows = math.ceil(len(found) / min(len(found), max(1, fit)))
    columns = math.ceil(len(found) / rows)  # no short last row if fewer columns need no more rows
    figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=columns, **how)


def save_figure(figure: Any, stem: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Save as PDF, SVG and PNG without dates, so that the same figure gives the same bytes. Only figures are replaced."""
    if not stem.name:
        raise RunFolderError(f"{str(stem)!r} names no file: give a name without ending, as in figures/mine")
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in formats]
    for path, kind in zip(paths, formats, strict=True):
        refuse_other_file_kind(path, _BEGINNINGS[kind], f"a figure ({kind.upper()})")
    for path in paths:
        write_figure(figure, path, dpi=180)
    return paths


def write_figure(figure: Any, path: Path, **how: Any) -> None:
    """Write one file in the format of its suffix, whole or not at all."""
    drawn, dates = io.BytesIO(), {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    figure.savefig(drawn, format=path.suffix[1:], metadata=dates.get(path.suffix[1:], {}), **how)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise file_fault(path, "written", error) from error
    write_atomically(path, drawn.getvalue())


def is_whole_figure(path: Path) -> bool:
    """Say whether a PNG file exists and is complete."""
    try:
        return path.is_file() and path.read_bytes().endswith(b"IEND\xaeB`\x82")
    except OSError:
        return False
