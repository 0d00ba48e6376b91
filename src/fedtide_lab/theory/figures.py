"""The figures of `fedtide theory`. A bound whose conditions are broken is named in the legend and not drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedtide.plot import LINE_STYLES, SCREEN, STYLES, LineStyle, Style, chart_dashes, legend_below, new_figure
from fedtide_lab.theory.bound import PAPER_BOUND, BoundCurve, Constants
from fedtide_lab.theory.measure import Measured
from fedtide_lab.theory.sweeps import SWEEPS, Point

_BOUNDS: dict[str, LineStyle] = {
    "paper": LINE_STYLES["Theorem 1"],
    "tight": LINE_STYLES["tight"],
    "sharp": LINE_STYLES["sharp"],
}
_MEASURED = LINE_STYLES["measured"]
_HELD = {"num_levels": 2, "period": 0}  # sweeps that move r_min as well, and the point whose r_min is held
_LABELS = {"paper": "Theorem 1", "tight": "tight", "sharp": "sharp (ours)"}


def bound_figure(
    title: str, c: Constants, curves: Sequence[BoundCurve], measured: Measured, style: Style = STYLES[SCREEN]
) -> Any:
    """Draw every bound that holds, its asymptote and the measured E||theta(t) - theta*||^2 with its 95 % band over t."""
    figure = new_figure(style.width, 1.6 * style.panel)
    axes = figure.add_subplot()
    t = np.arange(1, len(measured.mean) + 2)
    for each in curves:
        look = _BOUNDS[each.variant]
        line = {"color": look.colour, "linestyle": chart_dashes(look)}
        if each.values is None:
            axes.plot([], [], **line, label=f"{_LABELS[each.variant]}: says nothing (condition broken)")
            continue
        marked = {"marker": look.marker, "markevery": max(1, len(t) // 7)}
        axes.plot(t, np.concatenate([[c.initial], each.values]), **line, **marked, label=_LABELS[each.variant])
        axes.axhline(each.asymptote, color=look.colour, lw=0.8, ls=":", zorder=0)
    mean = np.concatenate([[c.initial], measured.mean])
    half = np.concatenate([[0.0], measured.half_width])
    runs = len(measured.squared_error)
    axes.plot(t, mean, color=_MEASURED.colour, lw=1.2, label=f"measured, {runs} runs, 95 % band")
    axes.fill_between(t, np.maximum(mean - half, mean / 10), mean + half, color=_MEASURED.colour, alpha=0.2, lw=0)
    axes.set(xlabel="iteration $t$", ylabel=r"$E\,\|\theta(t)-\theta^*\|^2$", yscale="log", xlim=(1, t[-1]))
    if style.titles:
        axes.set_title(title)
    axes.plot([], [], color="grey", lw=0.8, ls=":", label="asymptotes of the bounds")
    legend_below(figure, style, [axes])
    return figure


def sweep_figure(
    title: str, sweeps: Mapping[str, Sequence[Point]], num_ticks: int, style: Style = STYLES[SCREEN]
) -> Any:
    """Draw a row per sweep: left where the error ends, right how fast it halves.

    num_ticks: of the runs in which the measured error falls; where it has not halved by then, an arrow says so.
    """
    from matplotlib.ticker import NullFormatter

    figure = new_figure(style.width, 1.25 * len(sweeps) + 0.9)
    grid = figure.subplots(len(sweeps), 2, squeeze=False)
    size, measured = {"ms": 3.2}, {"color": _MEASURED.colour, "marker": _MEASURED.marker}
    late = False
    for (ends, halves), (key, points) in zip(grid, sweeps.items(), strict=True):
        x = np.array([SWEEPS[key].position(point) for point in points])
        for name, look in _BOUNDS.items():
            line: dict[str, Any] = {
                "color": look.colour,
                "linestyle": chart_dashes(look),
                "marker": look.marker,
                **size,
            }
            ends.plot(x, [point.curves[name].asymptote for point in points], **line, label=_LABELS[name])
            halves.plot(x, [point.half_life[name] for point in points], **line)
        if key in _HELD:
            held = points[_HELD[key]].constants.r_min
            floor = [PAPER_BOUND.asymptote(p.constants._replace(r_min=held), p.alpha) for p in points]
            ends.plot(x, floor, color=_BOUNDS["paper"].colour, ls=":", lw=1.2, label=r"Theorem 1, $r_{\min}$ held")
        reached, spread = (np.array([getattr(p, name) for p in points]) for name in ("floor", "floor_half_width"))
        ends.errorbar(x, reached, yerr=spread, **measured, **size, lw=1.1, capsize=2, label="measured")
        halved = np.array([point.measured_half_life for point in points])
        halves.plot(x, halved, **measured, **size, lw=1.1)
        slow = np.isnan(halved)
        late = late or bool(slow.any())
        halves.plot(x[slow], np.full(slow.sum(), num_ticks), "^", color=_MEASURED.colour, mfc="white", ms=4.5)
        young = np.array([not point.settled for point in points])
        ends.plot(x[young], reached[young], "s", **size, color=_MEASURED.colour, mfc="white", zorder=5)
        for axes in (ends, halves):
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            axes.set_ylim(10 ** np.floor(np.log10(low)), 10 ** np.ceil(np.log10(high)))
            axes.yaxis.set_minor_formatter(NullFormatter())
            if key in ("num_levels", "heterogeneity", "period"):
                axes.set_xscale("log", base=10 if key == "heterogeneity" else 2)
            if key in ("num_levels", "period"):
                axes.set_xticks(x, [f"{value:g}" for value in x])
                axes.minorticks_off()
            axes.set_xlabel(SWEEPS[key].axis)
    names = ("where the error ends", "iterations until it halves")
    for axes, name in zip(grid[0], names, strict=True):
        axes.set_title(name)  # of a column, in every style
    if late:
        words = f"measured, not halved in {num_ticks:,}"
        grid[0, 0].plot([], [], "^", color=_MEASURED.colour, mfc="white", ms=4.5, label=words)
    if not all(point.settled for points in sweeps.values() for point in points):
        grid[0, 0].plot([], [], "s", **size, color=_MEASURED.colour, mfc="white", label="measured, still rising")
    legend_below(figure, style, grid[:, 0], title=title if style.titles else None)
    return figure
