"""Curves over seeds (a mean with its marker, thin lines for the seeds, the interval at the right end), and forest plots."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedtide.plot.figure import PAGE_INCHES, figure_style, new_figure, save_figure
from fedtide.plot.style import COLOURS, GREY, SCREEN, LineStyle
from fedtide.types import Floats, Ints

if TYPE_CHECKING:
    from fedtide.studies.statistics import Comparison

_SEED_WIDTH, _SEED_OPACITY = 0.4, 0.35
_INTERVAL_STEP = 0.022  # between the intervals at the right end, as a share of the axis
_STRIP = 0.11  # of the axis, at least, for all of them
_MARKERS_PER_CURVE = 6
CURVE_POINTS = 150  # at most: more make files larger and no line finer
ACCURACY = (0.0, 1.0)
SAID = (
    "Thick lines are means over the seeds, thin ones single seeds. "
    "The grey strip has the 95 % intervals of the means at the right end."
)
SMOOTHED = "Curves are averaged over one T_max around each moment."


def chart_dashes(line: LineStyle) -> Any:
    """Return a line's dash in Matplotlib's form."""
    return (0, line.dash) if line.dash else "-"


def evenly_on_chart(count: int, most: int) -> Ints:
    """Return at most `most` of the positions 0 ... count - 1, evenly, with the first and the last [m]."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, max(most, 2)).round().astype(np.int64))


def draw_curve(
    panel: Any,
    x: Floats,
    mean: Floats,
    line: LineStyle,
    name: str,
    seeds: Floats | None = None,
    place: int = 0,
    among: int = 1,
    within: tuple[float, float] = (-np.inf, np.inf),
) -> None:
    """Draw one curve, clipped to `within`. x, mean [n]; seeds [s n]; place: its number among the `among` curves of the panel."""
    drawn = evenly_on_chart(len(x), CURVE_POINTS)
    x, mean = x[drawn], np.clip(mean[drawn], *within)
    every = max(1, len(x) // _MARKERS_PER_CURVE)
    panel.plot(
        x,
        mean,
        linestyle=chart_dashes(line),
        color=line.colour,
        marker=line.marker,
        markevery=(every * (2 * place + 1) // (2 * among), every),
        markeredgecolor="white",
        markeredgewidth=0.4,
        label=name,
    )
    if seeds is not None and len(seeds) > 1:
        lines = np.clip(seeds[:, drawn], *within)
        panel.plot(
            x, lines.T, color=line.colour, linewidth=_SEED_WIDTH, alpha=_SEED_OPACITY, label="_seeds", zorder=1.5
        )


def draw_end(
    panel: Any,
    at: float,
    mean: float,
    low: float,
    high: float,
    line: LineStyle,
    within: tuple[float, float] = (-np.inf, np.inf),
) -> None:
    """Draw the interval of a mean at the right end: a bar with the curve's marker; an open marker without an interval."""
    mean, low, high = (float(np.clip(value, *within)) for value in (mean, low, high))
    if high > low:
        panel.plot([at, at], [low, high], color=line.colour, linewidth=1.1, label="_end", solid_capstyle="butt")
    face = line.colour if high > low else "white"
    panel.plot([at], [mean], marker=line.marker, color=line.colour, markerfacecolor=face, markersize=2.8, label="_end")


def leave_chart_room(panel: Any, left: float, right: float, among: int) -> float:
    """Make a strip for `among` intervals right of the axis, with a name of its own; return their distance, in units of x."""
    step = max(_INTERVAL_STEP, _STRIP / (among + 1)) * (right - left)
    panel.set_xticks(
        [tick for tick in panel.xaxis.get_major_locator().tick_values(left, right) if left <= tick <= right]
    )
    panel.set_xlim(left, right + step * (among + 1))
    panel.spines["bottom"].set_bounds(left, right)
    panel.axvspan(
        right + 0.2 * step, right + step * (among + 1), color="#f0f0f0", linewidth=0, label="_strip", zorder=0
    )
    panel.annotate(
        "95 %", (right + step * (among + 1), 1), (0, 2), panel.get_xaxis_transform(), "offset points", ha="right",
        va="bottom", fontsize=panel.xaxis.get_ticklabels()[0].get_fontsize(), color="#555555", annotation_clip=False,
    )  # fmt: skip
    return step


# Forest plots: one row per comparison, with its difference and interval; verdicts differ in colour and shape.


_TEXT_SHARE = 0.5  # of the width
_LINE_INCHES = 0.14  # height of a line of text
_ROW_GAP = 0.25  # between rows, in lines
_GROUP_INCHES = 0.62  # of a group besides its rows
_MARKS = {"holds": "o", "no difference above": "s", "not resolved": "D", "contradicted": "X"}  # by how verdicts begin
TINTS = {
    "holds": COLOURS[2],
    "no difference above": COLOURS[0],
    "not resolved": GREY,
    "contradicted": COLOURS[1],
    "runs missing": GREY,
}


class ForestRow(NamedTuple):
    """One comparison."""

    text: str
    interval: Comparison | None  # with infinite ends if there is one seed; None: no runs
    verdict: str = ""
    single: tuple[float, ...] = ()  # differences of the seeds, or of the other comparisons


def _verdict_look(verdict: str, tints: Mapping[str, str]) -> tuple[str, str, bool]:
    """Return the colour and the marker of a verdict, and whether the marker is filled."""

    def listed(table: Mapping[str, str], otherwise: str) -> str:
        return next((look for kind, look in table.items() if verdict.startswith(kind)), otherwise)

    return listed(tints, GREY), listed(_MARKS, "o"), verdict != "not resolved"


def _wrapped(row: ForestRow, wrap: int) -> tuple[str, float]:
    """Return a row's text in lines of so many characters, and its height in lines."""
    lines = textwrap.wrap(row.text, wrap, break_on_hyphens=False) or [""]
    return "\n".join(lines), max(1.0, len(lines) * 0.86)


def draw_rows(panel: Any, rows: Sequence[ForestRow], tints: Mapping[str, str], wrap: int = 200) -> None:
    """Draw rows from top to bottom: interval, mean, single values as small strokes. The mean is open without an interval."""
    place = 0.0
    places, texts = [], []
    for row in rows:
        text, height = _wrapped(row, wrap)
        middle = place + height / 2
        place += height + _ROW_GAP
        places.append(middle)
        texts.append(text)
        if row.interval is None:
            continue
        colour, mark, filled = _verdict_look(row.verdict, tints)
        whole = math.isfinite(row.interval.low)
        for value in row.single:
            panel.plot(value, middle, "|", color=colour, markersize=4.5, markeredgewidth=0.6, alpha=0.6, label="_one")
        if whole:
            panel.plot([row.interval.low, row.interval.high], [middle] * 2, color=colour, linewidth=1.5, label="_row")
        panel.plot(
            row.interval.mean,
            middle,
            mark,
            color=colour,
            markerfacecolor=colour if whole and filled else "white",
            markersize=4.2,
            label="_mean",
        )
    panel.axvline(0, color="black", linewidth=0.8)
    panel.set_yticks(places, texts)
    panel.tick_params(axis="y", length=0)
    panel.set_ylim(place, -_ROW_GAP)
    panel.grid(visible=False, axis="y")


def few_chart_numbers(panel: Any) -> None:
    """Label few ticks of a narrow panel, so that they do not touch."""
    inches = panel.figure.get_figwidth() / panel.get_gridspec().ncols
    panel.locator_params(axis="x", nbins=4 if inches > 1.5 else 2, steps=[1, 2, 5, 10])


def _one_page(
    groups: Mapping[str, Sequence[ForestRow]], inches: Callable[[ForestRow], float]
) -> tuple[dict[str, list[ForestRow]], dict[str, list[ForestRow]]]:
    """Return the groups' rows that fit on a page, and the others. inches: height of a row."""
    pages: tuple[dict[str, list[ForestRow]], dict[str, list[ForestRow]]] = {}, {}
    left = PAGE_INCHES - 0.3
    for name, rows in groups.items():
        left -= _GROUP_INCHES
        for row in rows:
            left -= inches(row)
            pages[left < 0].setdefault(name, []).append(row)
    return pages


def draw_forest(groups: Mapping[str, Sequence[ForestRow]], stem: Path, style: str = SCREEN) -> list[Path]:
    """Draw groups of rows below one another, each on its own axis. groups: axis label -> rows.

    What does not fit on one page goes on in further files, NAME-2 and so on.
    """
    from matplotlib.lines import Line2D

    with figure_style(style) as how:
        width = min(how.width, 4.6)
        narrow = round(_TEXT_SHARE * width * 72 / (how.small * how.letter))
        sizes = [sum(_wrapped(row, narrow)[1] + _ROW_GAP for row in rows) for rows in groups.values()]
        line = _LINE_INCHES * how.small / 7.5
        first, rest = _one_page(groups, lambda row: line * (_wrapped(row, narrow)[1] + _ROW_GAP))
        if rest:
            number = int(stem.name.rpartition("-")[2]) if re.fullmatch(r".+-\d+", stem.name) else 1
            name = stem.name.removesuffix(f"-{number}")
            return draw_forest(first, stem, style) + draw_forest(rest, stem.with_name(f"{name}-{number + 1}"), style)
        page = new_figure(width, line * sum(sizes) + _GROUP_INCHES * len(groups) + 0.3)
        panels = page.subplots(len(groups), 1, height_ratios=sizes, squeeze=False)[:, 0]
        for panel, (name, rows) in zip(panels, groups.items(), strict=True):
            draw_rows(panel, rows, TINTS, narrow)
            panel.set_xlabel(name, fontsize=how.small)
            panel.tick_params(axis="y", labelsize=how.small)
        known = {row.verdict for rows in groups.values() for row in rows}
        handles = []
        for verdict in (each for kind in _MARKS for each in sorted(known) if each.startswith(kind)):
            colour, mark, filled = _verdict_look(verdict, TINTS)
            face = colour if filled else "white"
            handles.append(
                Line2D(
                    [],
                    [],
                    color=colour,
                    marker=mark,
                    markersize=4.2,
                    linewidth=1.5,
                    label=verdict,
                    markerfacecolor=face,
                )
            )
        page.legend(handles=handles, loc="outside upper center", ncols=2 if len(handles) == 4 else 3, handlelength=2)
        return save_figure(page, stem)
