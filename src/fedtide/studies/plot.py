"""A study as a figure."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedtide.errors import FedtideError
from fedtide.report.curves import ACCURACY, draw_curve, draw_end, leave_room
from fedtide.report.figure import axis_name, legend_below, our_style, save, sheet
from fedtide.report.palette import looks
from fedtide.report.style import SCREEN
from fedtide.studies.against import references
from fedtide.studies.pairing import across
from fedtide.studies.result import COLUMNS, RunResult, Store
from fedtide.studies.spec import Study
from fedtide.studies.statistics import Band, aligned, band, difference_band, saws, unmeasured
from fedtide.studies.table import by_label


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
    drawn_as = looks(results)
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
