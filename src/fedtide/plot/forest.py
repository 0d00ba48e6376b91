"""A forest plot: one row per comparison, with its difference and interval; verdicts differ in colour and shape."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedtide.plot.figure import new_figure, our_style, save
from fedtide.plot.style import COLOURS, GREY, SCREEN

if TYPE_CHECKING:
    from fedtide.studies.statistics import Comparison

_TEXT_SHARE = 0.5  # of the width
_LINE_INCHES = 0.15  # height of a line of text
_MARKS = {"holds": "o", "contradicted": "X", "not resolved": "D", "": "o"}
TINTS = {"holds": COLOURS[2], "contradicted": COLOURS[1], "not resolved": GREY, "runs missing": GREY}


class ForestRow(NamedTuple):
    """One comparison."""

    text: str
    interval: Comparison | None  # with infinite ends if there is one seed; None: no runs
    verdict: str = ""
    single: tuple[float, ...] = ()  # differences of the seeds, or of the other comparisons


def draw_rows(panel: Any, rows: Sequence[ForestRow], tints: Mapping[str, str], wrap: int = 200) -> None:
    """Draw rows from top to bottom: interval, mean, single values as small strokes. The mean is open without an interval."""
    place = 0.0
    places, texts = [], []
    for row in rows:
        lines = textwrap.wrap(row.text, wrap, break_on_hyphens=False) or [""]
        height = max(1.0, len(lines) * 0.86)
        middle = place + height / 2
        place += height + 0.25
        places.append(middle)
        texts.append("\n".join(lines))
        if row.interval is None:
            continue
        colour = tints.get(row.verdict, GREY)
        whole = math.isfinite(row.interval.low)
        for value in row.single:
            panel.plot(value, middle, "|", color=colour, markersize=4.5, markeredgewidth=0.6, alpha=0.6, label="_one")
        if whole:
            panel.plot([row.interval.low, row.interval.high], [middle] * 2, color=colour, linewidth=1.5, label="_row")
        panel.plot(
            row.interval.mean,
            middle,
            _MARKS.get(row.verdict, "o"),
            color=colour,
            markerfacecolor=colour if whole and row.verdict != "not resolved" else "white",
            markersize=4.2,
            label="_mean",
        )
    panel.axvline(0, color="black", linewidth=0.8)
    panel.set_yticks(places, texts)
    panel.tick_params(axis="y", length=0)
    panel.set_ylim(place, -0.25)
    panel.grid(visible=False, axis="y")


def few_numbers(panel: Any) -> None:
    """Label few ticks of a narrow panel, so that they do not touch."""
    panel.locator_params(axis="x", nbins=4, steps=[1, 2, 5, 10])


def draw_forest(groups: Mapping[str, Sequence[ForestRow]], stem: Path, style: str = SCREEN) -> list[Path]:
    """Draw groups of rows below one another, each on its own axis. groups: axis label -> rows."""
    from matplotlib.lines import Line2D

    with our_style(style) as how:
        width = min(how.width, 4.6)
        narrow = round(_TEXT_SHARE * width * 72 / (0.94 * how.small * how.letter))
        texts = {
            name: [textwrap.wrap(row.text, narrow, break_on_hyphens=False) for row in rows]
            for name, rows in groups.items()
        }
        sizes = [sum(max(1.0, 0.86 * len(each)) + 0.25 for each in lines) for lines in texts.values()]
        page = new_figure(width, _LINE_INCHES * how.small / 7.5 * sum(sizes) + 0.62 * len(groups) + 0.3)
        panels = page.subplots(len(groups), 1, height_ratios=sizes, squeeze=False)[:, 0]
        for panel, (name, rows) in zip(panels, groups.items(), strict=True):
            draw_rows(panel, rows, TINTS, narrow)
            panel.set_xlabel(name, fontsize=how.small)
            panel.tick_params(axis="y", labelsize=how.small * 0.94)
        kinds = dict.fromkeys(row.verdict for rows in groups.values() for row in rows)
        handles = [
            Line2D([], [], color=TINTS[kind], marker=_MARKS[kind], markersize=4.2, linewidth=1.5, label=kind,
                   markerfacecolor="white" if kind == "not resolved" else TINTS[kind])
            for kind in ("holds", "not resolved", "contradicted") if kind in kinds
        ]  # fmt: skip
        page.legend(handles=handles, loc="outside upper center", ncols=3, handlelength=2)
        return save(page, stem)
