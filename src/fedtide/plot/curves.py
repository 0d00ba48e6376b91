"""Curves over seeds: a mean with its marker, thin lines for the seeds, the interval of the mean at the right end."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedtide.plot.style import LineStyle
from fedtide.types import Floats

_SEED_WIDTH, _SEED_OPACITY = 0.4, 0.35
_INTERVAL_STEP = 0.022  # between the intervals at the right end, as a share of the axis
_MARKERS_PER_CURVE = 6
CURVE_POINTS = 150  # at most: more make files larger and no line finer
ACCURACY = (0.0, 1.0)
SAID = "Thick lines are means over the seeds, thin ones single seeds; bars at the right end are 95 % intervals of the mean."
SMOOTHED = "Curves are averaged over one T_max around each moment."


def dashes(line: LineStyle) -> Any:
    """Return a line's dash in Matplotlib's form."""
    return (0, line.dash) if line.dash else "-"


def drawn_points(length: int) -> Any:
    """Return which points of a curve are drawn, always with the first and the last."""
    return np.unique(np.linspace(0, length - 1, min(length, CURVE_POINTS)).round().astype(int))


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
    drawn = drawn_points(len(x))
    x, mean = x[drawn], np.clip(mean[drawn], *within)
    every = max(1, len(x) // _MARKERS_PER_CURVE)
    panel.plot(
        x,
        mean,
        linestyle=dashes(line),
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


def leave_room(panel: Any, left: float, right: float, among: int) -> float:
    """Make room for `among` intervals right of the curves; return the distance between them, in units of x."""
    step = _INTERVAL_STEP * (right - left)
    panel.set_xticks(
        [tick for tick in panel.xaxis.get_major_locator().tick_values(left, right) if left <= tick <= right]
    )
    panel.set_xlim(left, right + step * (among + 1))
    return step
