"""The figures of `fedtide theory`. A bound whose conditions are broken is named in the legend and not drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedtide.report.figure import new_figure
from fedtide.theory.bound import PAPER, Constants, Curve
from fedtide.theory.measure import Measured
from fedtide.theory.sweeps import SWEEPS, Point

STYLES: dict[str, dict[str, Any]] = {
    "paper": {"color": "#0072B2", "linestyle": "-", "lw": 2.6, "alpha": 0.75},
    "tight": {"color": "#009E73", "linestyle": "--", "lw": 1.5},
    "sharp": {"color": "#D55E00", "linestyle": "-", "lw": 1.3},
}
MEASURED = "black"
HELD = {
    "num_levels": 2,
    "period": 0,
}  # sweeps that move r_min as well, and the point whose r_min is held for comparison
LABELS = {"paper": "Theorem 1", "tight": "tight", "sharp": "sharp (ours)"}


def bound_figure(title: str, c: Constants, curves: Sequence[Curve], measured: Measured) -> Any:
    """Draw every bound that holds, its asymptote and the measured E||theta(t) - theta*||^2 with its 95 % band over t."""
    figure = new_figure(6.4, 4.2)
    axes = figure.add_subplot()
    t = np.arange(1, len(measured.mean) + 2)
    for each in curves:
        style = STYLES[each.variant]
        if each.values is None:
            axes.plot([], [], **style, label=f"{LABELS[each.variant]}: says nothing (condition broken)")
            continue
        axes.plot(t, np.concatenate([[c.initial], each.values]), **style, label=LABELS[each.variant])
        axes.axhline(each.asymptote, color=style["color"], lw=0.8, ls=":", zorder=0)
    mean = np.concatenate([[c.initial], measured.mean])
    half = np.concatenate([[0.0], measured.half_width])
    axes.plot(t, mean, color=MEASURED, lw=1.2, label=f"measured, {len(measured.squared_error)} runs, 95 % band")
    axes.fill_between(t, np.maximum(mean - half, mean / 10), mean + half, color=MEASURED, alpha=0.2, lw=0)
    axes.set(
        xlabel="iteration $t$", ylabel=r"$E\,\|\theta(t)-\theta^*\|^2$", yscale="log", title=title, xlim=(1, t[-1])
    )
    axes.plot([], [], color="grey", lw=0.8, ls=":", label="asymptotes of the bounds")
    axes.legend(frameon=False, fontsize=8)
    _tidy(axes)
    return figure


def sweep_figure(title: str, sweeps: Mapping[str, Sequence[Point]]) -> Any:
    """Draw one column per sweep: on top where the error ends, below how fast it halves."""
    figure = new_figure(2.75 * len(sweeps) + 0.6, 5.4)
    from matplotlib.ticker import NullFormatter

    grid = figure.subplots(2, len(sweeps), squeeze=False)
    for column, (key, points) in enumerate(sweeps.items()):
        top, bottom = grid[0, column], grid[1, column]
        x = np.array([SWEEPS[key].position(point) for point in points])
        for name, style in STYLES.items():
            floor = np.array([point.curves[name].asymptote for point in points])
            top.plot(x, floor, **style, marker="o", ms=3.5, label=LABELS[name])
            bottom.plot(x, [point.half_life[name] for point in points], **style, marker="o", ms=3.5)
        if key in HELD:
            held = points[HELD[key]].constants.r_min
            floor = np.array([PAPER.asymptote(p.constants._replace(r_min=held), p.alpha) for p in points])
            top.plot(x, floor, color=STYLES["paper"]["color"], ls=":", lw=1.2)
        reached = np.array([point.floor for point in points])
        spread = [point.floor_half_width for point in points]
        top.errorbar(x, reached, yerr=spread, color=MEASURED, marker="s", ms=3.5, lw=1.2, capsize=2, label="measured")
        young = np.array([not point.settled for point in points])
        top.plot(x[young], reached[young], "s", ms=3.5, color=MEASURED, mfc="white", zorder=5)
        bottom.plot(x, [point.measured_half_life for point in points], color=MEASURED, marker="s", ms=3.5, lw=1.2)
        for axes in (top, bottom):
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            axes.set_ylim(10 ** np.floor(np.log10(low)), 10 ** np.ceil(np.log10(high)))
            axes.yaxis.set_minor_formatter(NullFormatter())
            if key in ("num_levels", "heterogeneity", "period"):
                axes.set_xscale("log", base=10 if key == "heterogeneity" else 2)
            if key in ("num_levels", "period"):
                axes.set_xticks(x, [f"{value:g}" for value in x])
                axes.minorticks_off()
            _tidy(axes)
        bottom.set_xlabel(SWEEPS[key].axis)
    grid[0, 0].set_ylabel("asymptotic squared error")
    grid[1, 0].set_ylabel("half-life in iterations")
    if any(key in HELD for key in sweeps):
        grid[0, 0].plot([], [], color=STYLES["paper"]["color"], ls=":", lw=1.2, label=r"Theorem 1, $r_{\min}$ held")
    if not all(point.settled for points in sweeps.values() for point in points):
        grid[0, 0].plot([], [], "s", ms=3.5, color=MEASURED, mfc="white", label="measured, still rising")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False, title=title)
    return figure


def _tidy(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, which="major", lw=0.4, alpha=0.5)
