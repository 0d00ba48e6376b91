"""A study as a figure."""

from __future__ import annotations

from pathlib import Path

from fedtide.errors import FedtideError
from fedtide.report.figure import COLOURS, STYLE, axis_name, new_figure, save
from fedtide.study.result import COLUMNS, Store
from fedtide.study.spec import Study
from fedtide.study.statistics import band, difference_band
from fedtide.study.table import by_label


def draw_study(
    study: Study, store: Store, stem: Path, column: str, over: str, against: str | None = None
) -> list[Path]:
    """Draw every variant's mean curve with its band, or its difference from one of them; return the files."""
    import matplotlib as mpl

    for name in (column, over):
        if name not in COLUMNS:
            raise FedtideError(f"{name!r} is not recorded; use one of {', '.join(COLUMNS)}")
    if against is not None and against not in study.labels:
        raise FedtideError(f"--against {against!r} is no variant; there are {', '.join(map(repr, study.labels))}")
    results = {label: runs for label, runs in by_label(study, store).items() if runs}
    if not results:
        raise FedtideError(f"the study {study.name!r} has no finished run in {store.folder}; run it first")
    with mpl.rc_context(STYLE):
        figure = new_figure(5.2, 3.6)
        panel = figure.subplots()
        for position, (label, runs) in enumerate(results.items()):
            drawn = (
                band(list(runs.values()), column, over)
                if against is None
                else difference_band(runs, results.get(against, {}), column, over)
            )
            if drawn is None or label == against:
                continue
            colour = COLOURS[position % len(COLOURS)]
            panel.plot(drawn.x, drawn.mean, color=colour, label=f"{label} ({drawn.num_seeds})")
            panel.fill_between(drawn.x, drawn.low, drawn.high, color=colour, alpha=0.18, linewidth=0)
        panel.set_xlabel(axis_name(over))
        panel.set_ylabel(axis_name(column))
        if against is not None:
            panel.axhline(0, color="black", linewidth=0.8)
            panel.set_ylabel(f"{axis_name(column)}, averaged up to then,\nless that of {against}")
        panel.legend(fontsize=7.5)
        return save(figure, stem)
