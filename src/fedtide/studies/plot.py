"""A study as a figure."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedtide.errors import FedtideError
from fedtide.report.figure import COLOURS, axis_name, new_figure, our_style, save
from fedtide.studies.against import references
from fedtide.studies.pairing import across
from fedtide.studies.result import COLUMNS, Store
from fedtide.studies.spec import Study
from fedtide.studies.statistics import aligned, band, difference_band
from fedtide.studies.table import by_label

LINES = ("-", "--", ":", "-.")  # beyond seven variants


def _shown(label: str) -> str:
    """A label as it is: Matplotlib would take $ for mathematics and hide what begins with an underscore."""
    text = label.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def draw_study(
    study: Study, store: Store, stem: Path, column: str, over: str, against: str | None = None
) -> list[Path]:
    """Draw every variant's mean curve with its band, or its difference from another one; return the files.

    against: as in `references`; None for the curves themselves.
    """
    for name in (column, over):
        if name not in COLUMNS:
            raise FedtideError(f"{name!r} is not recorded; use one of {', '.join(COLUMNS)}")
    compared = references(study, against)
    results = {label: runs for label, runs in by_label(study, store).items() if runs}
    if not results:
        raise FedtideError(f"the study {study.name!r} has no finished run in {store.folder}; run it first")
    if any(np.isnan(run.column(column)).all() for runs in results.values() for run in runs.values()):
        need = "; it needs learning.training_loss=true" if column == "train_loss" else ""
        raise FedtideError(f"{column} was not measured in all of these runs{need}")
    if against is not None and not any(each.label in results for each in compared.values() if each):
        raise FedtideError(f"--against {against!r} has no finished run yet; run the study first")
    with our_style():
        figure = new_figure(5.2, 3.6)
        panel = figure.subplots()
        even = aligned(results)
        for position, (label, runs) in enumerate(results.items()):
            reference = compared[label]
            if against is not None and reference is None:
                continue
            drawn = (
                band(list(even[label].values()), column, over)
                if against is None or reference is None
                else difference_band(runs, results.get(reference.label, {}), column, over)
            )
            if drawn is None:
                continue
            colour = COLOURS[position % len(COLOURS)]
            style = LINES[position // len(COLOURS) % len(LINES)]
            words = f"{_shown(label)} ({drawn.num_seeds})" + (f"\n{drawn.note}" if drawn.note else "")
            panel.plot(drawn.x, drawn.mean, style, color=colour, label=words)
            panel.fill_between(drawn.x, drawn.low, drawn.high, color=colour, alpha=0.18, linewidth=0)
        panel.set_xlabel(axis_name(over))
        panel.set_ylabel(axis_name(column))
        if against is not None:
            panel.axhline(0, color="black", linewidth=0.8)
            panel.set_ylabel(f"{axis_name(column)}, averaged up to then,\nless that of {against}")
        above = across(even) if against is None else ""
        panel.legend(fontsize=7.5, title=above or None, title_fontsize=6.5)
        return save(figure, stem)
