"""Pictures of studies: what each variant reaches, and what each gains on shared seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedtide.errors import FedtideError
from fedtide.plot.charts import ACCURACY, draw_curve, draw_end, leave_room
from fedtide.plot.figure import axis_name, legend_below, our_style, save, sheet, time_name
from fedtide.plot.style import SCREEN, line_styles
from fedtide.studies.paths import across
from fedtide.studies.results import COLUMNS, RunResult
from fedtide.studies.spec import Study
from fedtide.studies.statistics import FEWEST_SEEDS, Band, aligned, band, difference_band, saws, unmeasured
from fedtide.studies.store import Store
from fedtide.studies.table import Reference, by_label, references

# Pictures of studies: what each variant reaches, and what each gains on the seeds that it shares with its reference.


_GAIN = {"test_accuracy": "average so far, gain over"}
_SeedResults = Mapping[str, Mapping[int, RunResult]]  # label -> seed -> result


def check_metric(results: _SeedResults, column: str, over: str) -> None:
    """Raise if there is nothing to draw, or not this."""
    for what, name in (("column", column), ("over", over)):
        if name not in COLUMNS:
            raise FedtideError(f"{what}={name!r} is not recorded; use one of {', '.join(COLUMNS)}")
    if reason := unmeasured((run for runs in results.values() for run in runs.values()), column, over):
        raise FedtideError(reason)


def draw_results(
    figure: Any, results: _SeedResults, compared: Mapping[str, Reference | None], column: str, over: str
) -> Any:
    """Draw the mean curves and, with enough seeds, paired differences below them; return the one or two Axes.

    The upper panel has no bands: what seeds have in common would widen them, and hide what the lower one shows.
    """
    even = {label: runs for label, runs in aligned(results).items() if runs}
    names = {label: _text(label) for label in even}
    gains = {
        label: difference_band(results[label], results[reference.label], column, over)
        for label in even
        if (reference := compared.get(label)) is not None and results.get(reference.label)
    }
    drawn = {label: gain for label, gain in gains.items() if gain is not None and gain.num_seeds >= FEWEST_SEEDS}
    panels = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2)) if drawn else [figure.subplots()]
    drawn_as = line_styles(even)
    within = ACCURACY if column == "test_accuracy" else (-np.inf, np.inf)
    if drawn:
        right = max(float(gain.x[-1]) for gain in drawn.values())
        step = leave_room(panels[1], 0, right, len(drawn))
    for position, (label, runs) in enumerate(even.items()):
        look = drawn_as[label]
        curve = band(list(runs.values()), column, over)
        words = f"{names[label]} ({curve.num_seeds})"
        draw_curve(panels[0], curve.x, curve.mean, look, words, None, position, len(even), within)
    for place, (label, gain) in enumerate(drawn.items()):
        look = drawn_as[label]
        draw_curve(panels[1], gain.x, gain.mean, look, names[label], gain.curves, place, len(drawn))
        draw_end(panels[1], right + step * (place + 1), gain.mean[-1], gain.low[-1], gain.high[-1], look)
    panels[0].set_ylabel(f"{axis_name(column)}, mean")
    panels[0].legend(fontsize=8, title=across(even) or "seeds in brackets", title_fontsize=7)
    units = {run.experiment["fleet"]["max_duration"] for runs in even.values() for run in runs.values()}
    panels[-1].set_xlabel(time_name(units == {1}) if over == "time" else axis_name(over))
    if drawn:
        others = {reference.text for label in drawn if (reference := compared[label]) is not None}
        other = _text(others.pop()) if len(others) == 1 else "its reference"
        panels[1].axhline(0, color="black", linewidth=0.8)
        panels[1].set_ylabel(f"{_GAIN.get(column, 'average so far, less')}\n{other}", fontsize=8)
        panels[1].set_title("paired over seeds, 95 % interval at the end", fontsize=8)
    return tuple(panels)


def _text(label: str) -> str:
    """A label as it is, cut: Matplotlib would take $ for mathematics and hide what begins with an underscore."""
    text = (label if len(label) <= 40 else f"{label[:37]}...").replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


# A study as a figure.


def _shown(label: str) -> str:
    """A label as it is: Matplotlib would take $ for mathematics and hide what begins with an underscore."""
    text = label.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def is_smoothed(results: dict[str, dict[int, RunResult]], column: str, against: str | None) -> bool:
    """Say whether the curves of a score are drawn as averages over one T_max; those of differences are averages anyway."""
    scores = ("test_accuracy", "test_loss", "train_loss")
    return (
        against is None
        and column in scores
        and saws((run for runs in results.values() for run in runs.values()), column)
    )


def draw_study(
    study: Study,
    store: Store,
    stem: Path,
    column: str,
    over: str,
    against: str | None = None,
    style: str = SCREEN,
) -> list[Path]:
    """Draw every variant's mean curve, its seeds and its interval, or its gain over another one; return the files.

    against: as in `references`; None for the curves themselves. style: as in `report.style`.
    """
    for name in (column, over):
        if name not in COLUMNS:
            raise FedtideError(f"{name!r} is not recorded; use one of {', '.join(COLUMNS)}")
    compared = references(study, against)
    results = {label: runs for label, runs in by_label(study, store).items() if runs}
    if not results:
        raise FedtideError(f"the study {study.name!r} has no finished run in {store.folder}; run it first")
    if reason := unmeasured((run for runs in results.values() for run in runs.values()), column, over):
        raise FedtideError(reason)
    if against is not None and not any(each.label in results for each in compared.values() if each):
        raise FedtideError(f"--against {against!r} has no finished run yet; run the study first")
    even, smooth = aligned(results), is_smoothed(results, column, against)
    drawn: dict[str, Band] = {}
    for label, runs in results.items():
        reference = compared[label]
        if against is None:
            drawn[label] = band(list(even[label].values()), column, over, smooth=smooth)
        elif reference is not None:
            gain = difference_band(runs, results.get(reference.label, {}), column, over)
            drawn |= {label: gain} if gain is not None else {}
    within = ACCURACY if column == "test_accuracy" and against is None else (-np.inf, np.inf)
    drawn_as = line_styles(results)
    with our_style(style) as how:
        figure, panels = sheet(how, 1, 1, 1.45 * how.panel + 0.1 * len(drawn))
        panel = panels[0, 0]
        right = max((float(each.x[-1]) for each in drawn.values()), default=1.0)
        step = leave_room(panel, 0, right, len(drawn))
        for place, (label, each) in enumerate(drawn.items()):
            words = f"{_shown(label)} ({each.num_seeds})" + (f"\n{each.note}" if each.note else "")
            draw_curve(panel, each.x, each.mean, drawn_as[label], words, each.curves, place, len(drawn), within)
            at = float(each.x[-1]) + step * (place + 1)
            draw_end(panel, at, each.mean[-1], each.low[-1], each.high[-1], drawn_as[label], within)
        panel.set_xlabel(axis_name(over))
        panel.set_ylabel(axis_name(column) + (",\naveraged over one $T_{\\max}$" if smooth else ""))
        if against is not None:
            panel.axhline(0, color="black", linewidth=0.8)
            what = "gain over" if column == "test_accuracy" else "difference from"
            panel.set_ylabel(f"{axis_name(column)}, averaged up to then:\n{what} {_shown(against)}")
        above = across(even) if against is None else ""
        legend_below(figure, how, [panel], title=above or None)
        return save(figure, stem)
