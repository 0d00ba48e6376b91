"""Pictures of studies: what each variant reaches, and what each gains on the seeds that it shares with its reference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedtide.errors import FedtideError
from fedtide.plot.charts import ACCURACY, draw_curve, draw_end, leave_chart_room
from fedtide.plot.figure import (
    figure_axis_name,
    figure_sheet,
    figure_style,
    figure_time_name,
    legend_below,
    name_panel,
    save_figure,
)
from fedtide.plot.style import SCREEN, LineStyle, line_styles
from fedtide.studies.results import COLUMNS, SeedResults
from fedtide.studies.spec import VARIANT, Study
from fedtide.studies.statistics import (
    FEWEST_SEEDS,
    Band,
    aligned_seeds,
    curves_zigzag,
    difference_band,
    mean_band,
    mixed_seeds_note,
    unmeasured_column,
)
from fedtide.studies.table import Reference, table_references

_ANY = (-np.inf, np.inf)
# How figures name axes and their values.
_AXIS_NAMES = {
    "limit": "R",
    "period": r"$\tilde T$",
    "num_symbols": "n",
    "num_devices": "N",
    "age_base": r"$\gamma$",
    "proximal": r"$\lambda$",
    "num_levels": r"$\nu$",
    "snr_db": "SNR (dB)",
}
_VALUE_NAMES = {"iid": "i.i.d.", "shards": "non-i.i.d.", "dirichlet": "Dirichlet"}


def check_drawable(results: SeedResults, column: str, over: str) -> None:
    """Raise if there is no such column, or it was not measured."""
    for what, name in (("column", column), ("over", over)):
        known = [
            *COLUMNS,
            *sorted({name for runs in results.values() for run in runs.values() for name in run.metrics}),
        ]
        if name not in known:
            raise FedtideError(f"{what}={name!r} is not recorded; use one of {', '.join(known)}")
    if reason := unmeasured_column((run for runs in results.values() for run in runs.values()), column, over):
        raise FedtideError(reason)


def draw_study_results(
    figure: Any, results: SeedResults, compared: Mapping[str, Reference | None], column: str, over: str
) -> Any:
    """Draw the mean curves and, with enough seeds, paired differences below them; return the one or two Axes.

    The upper panel has no bands: what seeds have in common would widen them, and hide what the lower one shows.
    """
    even = aligned_seeds(results)
    styles, names = line_styles(even), {label: _text(label, 40) for label in even}
    gains = {
        label: gain for label, gain in _gains(results, compared, column, over).items() if gain.num_seeds >= FEWEST_SEEDS
    }
    panels = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2)) if gains else [figure.subplots()]
    for place, (label, runs) in enumerate(even.items()):
        curve = mean_band(list(runs.values()), column, over)
        text = f"{names[label]} ({curve.num_seeds})"
        within = ACCURACY if column == "test_accuracy" else _ANY
        draw_curve(panels[0], curve.x, curve.mean, styles[label], text, None, place, len(even), within)
    panels[0].set_ylabel(f"{figure_axis_name(column)}, mean")
    panels[0].legend(fontsize=8, title=mixed_seeds_note(even) or "seeds in brackets", title_fontsize=7)
    units = {run.max_duration for runs in even.values() for run in runs.values()}
    panels[-1].set_xlabel(figure_time_name(units == {1}) if over == "time" else figure_axis_name(over))
    if gains:
        _draw_bands(panels[1], gains, styles, names)
        others = {reference.text for label in gains if (reference := compared[label]) is not None}
        other = _text(others.pop(), 40) if len(others) == 1 else "its reference"
        panels[1].axhline(0, color="black", linewidth=0.8)
        what = "gain over" if column == "test_accuracy" else "less"
        panels[1].set_ylabel(f"cumulative mean, {what}\n{other}", fontsize=8)
        panels[1].set_title("paired over seeds, 95 % interval at the end", fontsize=8)
    return tuple(panels)


def draw_study(
    study: Study,
    results: SeedResults,
    stem: Path,
    column: str,
    over: str,
    against: str | None = None,
    style: str = SCREEN,
) -> list[Path]:
    """Draw every variant's mean curve, its seeds and its interval, or its gain over another one; return the files.

    against: as in `table_references`; None for the curves themselves. style: as in `plot.style`. Scores that saw are averaged over
    one T_max; differences are averages anyway.
    """
    check_drawable(results, column, over)
    even, compared = aligned_seeds(results), table_references(study, against)
    label = figure_axis_name(column)
    if against is None:
        every = [run for runs in results.values() for run in runs.values()]
        smooth = column in ("test_accuracy", "test_loss", "train_loss") and curves_zigzag(every, column)
        bands = {name: mean_band(list(runs.values()), column, over, smooth=smooth) for name, runs in even.items()}
        label += ",\naveraged over one $T_{\\max}$" if smooth else ""
    else:
        bands = _gains(results, compared, column, over)
        what = "gain" if column == "test_accuracy" else "difference"
        name, _, value = against.rpartition("=")
        axis = next((each for each in study.axes if each.rpartition(".")[2] == name), None)
        other = _text(_axis_value(axis, value) if axis else against, 40)
        label = f"cumulative mean {what} in\n{label} {'over' if what == 'gain' else 'from'} {other}"
        if not any(results[each.label] for each in compared.values() if each):
            raise FedtideError(f"against {against!r} has no finished run yet; run the study first")
    texts = {
        name: f"{_text(name)} ({each.num_seeds})" + (f"\n{each.note}" if each.note else "")
        for name, each in bands.items()
    }
    places = {name: _place(study, name) for name in bands}
    settings = list(dict.fromkeys(setting for _, setting in places.values()))
    if len({*places.values()}) == len(places):  # curves of one panel are told apart by their name
        texts = {name: text.replace(_text(name), _text(places[name][0]), 1) for name, text in texts.items()}
    looks = line_styles(name for name, _ in places.values()) if len(settings) > 1 else line_styles(even)
    with figure_style(style) as how:
        rows = math.ceil(len(settings) / 2)
        height = (1.45 if len(settings) == 1 else 1.0) * how.panel + 0.1 * len(bands) / len(settings)
        figure, panels = figure_sheet(how, rows, min(2, len(settings)), height, sharey=True)
        within = ACCURACY if column == "test_accuracy" and against is None else _ANY
        for number, (panel, setting) in enumerate(zip(panels.ravel(), settings, strict=False)):
            mine = {name: band for name, band in bands.items() if places[name][1] == setting}
            drawn_as = {name: looks[places[name][0] if len(settings) > 1 else name] for name in mine}
            _draw_bands(panel, mine, drawn_as, texts, within)
            panel.set_xlabel(figure_axis_name(over))
            if len(settings) == 1:
                panel.set_ylabel(label)
            if against is not None:
                panel.axhline(0, color="black", linewidth=0.8)
            if setting:
                name_panel(panel, how, number, _text(setting, 80))
        for panel in panels.ravel()[len(settings) :]:
            panel.remove()
        if len(settings) > 1:
            whole = label if panels.shape[0] == 1 else label.replace("\n", " ")
            figure.supylabel(whole, fontsize=panels[0, 0].yaxis.label.get_size())
        title = mixed_seeds_note(even) or None if against is None else None
        legend_below(figure, how, panels.ravel()[: len(settings)], title=title)
        return save_figure(figure, stem)


def _place(study: Study, label: str) -> tuple[str, str]:
    """Return how a variant is named among those of its panel, and its panel: its values on all axes but the first."""
    first, *others = study.axes or {"": []}
    named = [(axis, _axis_value(axis, value)) for axis, value in study.places.get(label, ())]
    own = ", ".join(text for axis, text in named if axis == first) or label
    return own, ", ".join(text for axis, text in named if axis in others and len(study.axes[axis]) > 1)


def _axis_value(axis: str, value: str) -> str:
    """Name a value of an axis as figures do: R=8, i.i.d., random."""
    name = axis.rpartition(".")[2]
    if axis == VARIANT:
        return value
    if name in _AXIS_NAMES:
        return f"{_AXIS_NAMES[name]}={value}"
    return _VALUE_NAMES.get(value, value) if not value.replace(".", "").isdigit() else f"{name}={value}"


def _gains(results: SeedResults, compared: Mapping[str, Reference | None], column: str, over: str) -> dict[str, Band]:
    """Return what every variant gains over its reference on the seeds that both have."""
    found: dict[str, Band] = {}
    for label, runs in results.items():
        reference = compared.get(label)
        gain = difference_band(runs, results[reference.label], column, over) if reference else None
        if gain is not None:
            found[label] = gain
    return found


def _draw_bands(
    panel: Any,
    bands: Mapping[str, Band],
    styles: Mapping[str, LineStyle],
    texts: Mapping[str, str],
    within: tuple[float, float] = _ANY,
) -> None:
    """Draw mean curves with their seeds, and the interval of each mean at the right end."""
    right = max((float(each.x[-1]) for each in bands.values()), default=1.0)
    step = leave_chart_room(panel, 0, right, len(bands))
    for place, (label, each) in enumerate(bands.items()):
        style = styles[label]
        draw_curve(panel, each.x, each.mean, style, texts[label], each.curves, place, len(bands), within)
        draw_end(panel, right + step * (place + 1), each.mean[-1], each.low[-1], each.high[-1], style, within)


def _text(label: str, most: int = 1000) -> str:
    """A label as it is, cut: Matplotlib would take $ for mathematics and hide what begins with an underscore."""
    text = (label if len(label) <= most else f"{label[: most - 3]}...").replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
