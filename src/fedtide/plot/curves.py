"""Curves over seeds: a mean with its marker, thin lines for the seeds, the interval of the mean at the right end."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedtide.plot.style import Look
from fedtide.types import Floats

_SEED_LINE, _SEED_SHADE = 0.4, 0.35  # width and opacity
_STEP = 0.022  # between intervals at the right end, as a share of the axis
_MARKERS = 6  # per curve
CURVE_POINTS = 150  # of a curve, at most: more make files large and no line finer
ACCURACY = (0.0, 1.0)
SAID = "Thick lines are means over the seeds, thin ones single seeds; bars at the right end are 95 % intervals of the mean."
SMOOTHED = "Curves are averaged over one T_max around each moment."


def dashes(look: Look) -> Any:
    """Return a look's dash as Matplotlib wants it."""
    return (0, look.dash) if look.dash else "-"


def thinned(length: int) -> Any:
    """Return which of so many points are drawn, the first and the last among them."""
    return np.unique(np.linspace(0, length - 1, min(length, CURVE_POINTS)).round().astype(int))


def draw_curve(
    panel: Any,
    x: Floats,
    mean: Floats,
    look: Look,
    name: str,
    seeds: Floats | None = None,
    place: int = 0,
    among: int = 1,
    within: tuple[float, float] = (-np.inf, np.inf),
) -> None:
    """Draw one curve. x, mean [n]; seeds [s n]; place: which of `among` curves it is; nothing goes beyond `within`."""
    kept = thinned(len(x))
    x, mean = x[kept], np.clip(mean[kept], *within)
    every = max(1, len(x) // _MARKERS)
    panel.plot(
        x,
        mean,
        linestyle=dashes(look),
        color=look.colour,
        marker=look.marker,
        markevery=(every * (2 * place + 1) // (2 * among), every),
        markeredgecolor="white",
        markeredgewidth=0.4,
        label=name,
    )
    if seeds is not None and len(seeds) > 1:
        lines = np.clip(seeds[:, kept], *within)
        panel.plot(x, lines.T, color=look.colour, linewidth=_SEED_LINE, alpha=_SEED_SHADE, label="_seeds", zorder=1.5)


def draw_end(
    panel: Any,
    at: float,
    mean: float,
    low: float,
    high: float,
    look: Look,
    within: tuple[float, float] = (-np.inf, np.inf),
) -> None:
    """Draw the interval of a mean at the right end: a bar with the curve's marker; an open marker without an interval."""
    mean, low, high = (float(np.clip(value, *within)) for value in (mean, low, high))
    if high > low:
        panel.plot([at, at], [low, high], color=look.colour, linewidth=1.1, label="_end", solid_capstyle="butt")
    face = look.colour if high > low else "white"
    panel.plot([at], [mean], marker=look.marker, color=look.colour, markerfacecolor=face, markersize=2.8, label="_end")


def leave_room(panel: Any, left: float, right: float, among: int) -> float:
    """Make room for so many intervals right of the curves; return the distance between them, in units of x."""
    step = _STEP * (right - left)
    panel.set_xticks(
        [tick for tick in panel.xaxis.get_major_locator().tick_values(left, right) if left <= tick <= right]
    )
    panel.set_xlim(left, right + step * (among + 1))
    return step
