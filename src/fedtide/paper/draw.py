"""The paper's curve figures, drawn from stored results: one panel per data setting, means, seeds and intervals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedtide.paper.figures import Figure, label
from fedtide.report.curves import ACCURACY, draw_curve, draw_end, leave_room
from fedtide.report.figure import axis_name, legend_below, name_panel, our_style, save, sheet
from fedtide.report.forest import Row, draw_rows, few_numbers
from fedtide.report.palette import COLOURS, looks
from fedtide.report.style import SCREEN, Style
from fedtide.studies.pairing import across, paired
from fedtide.studies.result import RunResult
from fedtide.studies.statistics import FEW, METRICS, Band, aligned, band, compare, difference_band, saws

Curves = Mapping[str, Mapping[int, RunResult]]  # label -> seed -> result
EFFECTS = {"mean_accuracy": "mean over the horizon", "final_accuracy": "mean over its last tenth"}


def smooths(figure: Figure, curves: Curves) -> bool:
    """Say whether a figure shows averages over one T_max: if one of its curves saws, all are smoothed alike."""
    return saws((result for runs in curves.values() for result in runs.values()), figure.column)


def draw(figure: Figure, curves: Curves, stem: Path, style: str = SCREEN) -> list[Path]:
    """Draw one figure of the paper; settings share the value axis."""
    if figure.effects:
        return draw_effects(figure, curves, stem, style)
    with our_style(style) as how:
        page, rows = sheet(how, 1, len(figure.settings), _height(how, figure), sharey=True)
        _fill(rows[0], figure, curves, figure.over, how)
        legend_below(page, how, rows[0])
        return save(page, stem)


def draw_resources(figure: Figure, curves: Curves, stem: Path, style: str = SCREEN) -> list[Path]:
    """Draw the same curves against what they cost: a row for the bits sent, a row for the samples that devices trained on."""
    with our_style(style) as how:
        page, rows = sheet(how, 2, len(figure.settings), 0.92 * _height(how, figure), sharey=True)
        for number, (panels, over) in enumerate(zip(rows, ("bits", "samples_trained"), strict=True)):
            _fill(panels, figure, curves, over, how, number * len(figure.settings))
        legend_below(page, how, rows.ravel())
        return save(page, stem)


def draw_difference(figure: Figure, curves: Curves, stem: Path, style: str = SCREEN) -> list[Path]:
    """Draw gains of the averages so far, seed by seed, with the sign of the verdicts: what pairing leaves of the noise."""
    sign = -1 if figure.column == "train_loss" else 1
    drawn_as = looks(figure.curves)
    with our_style(style) as how:
        page, rows = sheet(how, 1, len(figure.settings), _height(how, figure), sharey=True)
        panels, heights = rows[0], []
        gains = {setting: _gains(figure, curves, setting) for setting in figure.settings}
        words = _with_seeds(
            {setting: {name: gain.num_seeds for name, gain in found.items()} for setting, found in gains.items()}
        )
        for number, (panel, setting) in enumerate(zip(panels, figure.settings, strict=True)):
            found = gains[setting]
            ends = [float(gain.x[-1]) for gain in found.values()]
            step = leave_room(panel, 0, max(ends, default=1.0), len(found))
            for place, (name, gain) in enumerate(found.items()):
                of = " over ".join(figure.pair(name) or ()) + words[name].removeprefix(name)
                mean, low, high = (sign * each for each in (gain.mean, gain.low, gain.high))
                seeds = None if gain.curves is None else sign * gain.curves
                draw_curve(panel, gain.x, mean, drawn_as[name], of, seeds, place, len(found))
                at = max(ends) + step * (place + 1)
                draw_end(panel, at, mean[-1], min(low[-1], high[-1]), max(low[-1], high[-1]), drawn_as[name])
                late = slice(len(gain.x) // 7, None)
                heights += [mean[late], np.array([low[-1], high[-1]])]
            panel.axhline(0, color="black", linewidth=0.8)
            panel.set_xlabel(axis_name(figure.over))
            notes = dict.fromkeys(gain.note for gain in found.values() if gain.note)  # most curves have the same
            seeds_of = {gain.num_seeds for gain in found.values()}
            name_panel(panel, how, number, _title(setting, seeds_of, "\n".join(notes)))
        for panel in panels if how.stacked else panels[:1]:
            panel.set_ylabel(f"gain in {axis_name(figure.column)},\naveraged up to then")
        if heights:  # the first seventh, where curves rise steeply at different times, may leave the frame
            least, most = (float(pick(np.concatenate(heights))) for pick in (np.min, np.max))
            margin = 0.08 * max(most - least, 1e-3)
            panels[0].set_ylim(least - margin, most + margin)
        legend_below(page, how, panels)
        return save(page, stem)


def draw_effects(figure: Figure, curves: Curves, stem: Path, style: str = SCREEN) -> list[Path]:
    """Draw by how much every curve's accuracy differs from its reference's: for curves that lie on one another."""
    with our_style(style) as how:
        num_rows = len(figure.curves) * len(figure.settings)
        page, rows = sheet(how, 1, len(EFFECTS), 0.9 + 0.22 * num_rows, sharey=not how.stacked)
        for number, (panel, (metric, words)) in enumerate(zip(rows[0], EFFECTS.items(), strict=True)):
            lines = []
            for setting in figure.settings:
                for name in figure.curves:
                    pair = figure.pair(name)
                    sides = [curves.get(label(each, setting), {}) for each in pair or ()]
                    pairs = list(paired(*sides).values()) if sides else []
                    if pairs:
                        values = [[METRICS[metric](each) for each in side] for side in zip(*pairs, strict=True)]
                        differences = tuple(a - b for a, b in zip(*values, strict=True))
                        lines.append(Row(name, compare(values[0], values[1]), single=differences))
            draw_rows(panel, lines, {"": COLOURS[0]})
            few_numbers(panel)
            panel.set_xlabel(f"accuracy gained over {figure.against['']},\n{words}")
            if not how.titles:
                name_panel(panel, how, number, "")
        return save(page, stem)


def _gains(figure: Figure, curves: Curves, setting: str) -> dict[str, Band]:
    """Return what is gained, or by a curve lost, against its reference, for all that have one."""
    found = {}
    for name in figure.curves:
        better, worse = (curves.get(label(each, setting), {}) for each in figure.pair(name) or ("", ""))
        gain = difference_band(better, worse, figure.column, figure.over)
        if gain is not None:
            found[name] = gain
    return found


def _with_seeds(count: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    """Return the names of curves for the legend, with the seeds of those that have fewer than others. count: by setting."""
    fewer: dict[str, set[int]] = {}
    for each in count.values():
        most = max(each.values(), default=0)
        for name, seeds in each.items():
            fewer.setdefault(name, set()).update({seeds} if seeds < most and seeds < FEW else set())
    return {name: f"{name} ({_range(seeds)})" if seeds else name for name, seeds in fewer.items()}


def _height(style: Style, figure: Figure) -> float:
    """Return the height of a panel, with room for the legend below it: a line for two or three curves."""
    share = 1 if style.stacked and len(figure.settings) > 1 else len(figure.settings)
    return style.panel + 0.17 * len(figure.curves) / (2 if share > 1 else 1)


def _fill(panels: Any, figure: Figure, curves: Curves, over: str, style: Style, first: int = 0) -> None:
    """Draw mean curves, one panel per setting, against a recorded column. first: the number of the first panel."""
    from matplotlib.ticker import EngFormatter

    accuracy = figure.column == "test_accuracy"
    within = ACCURACY if accuracy else (0.0, np.inf)
    smooth, drawn_as = smooths(figure, curves), looks(figure.curves)
    means: list[Any] = []
    ends: list[float] = []
    shown = {setting: aligned({name: curves.get(label(name, setting), {}) for name in figure.curves})
             for setting in figure.settings}  # fmt: skip
    words = _with_seeds({setting: {name: len(each) for name, each in runs.items()} for setting, runs in shown.items()})
    for number, (panel, setting) in enumerate(zip(panels, figure.settings, strict=True)):
        runs = shown[setting]
        found = {
            name: band(list(runs[name].values()), figure.column, over, not accuracy, smooth)
            for name in figure.curves
            if name in runs
        }
        right = max((float(each.x[-1]) for each in found.values()), default=1.0)
        step = leave_room(panel, 0, right, len(found))
        for place, (name, drawn) in enumerate(found.items()):
            look = drawn_as[name]
            draw_curve(panel, drawn.x, drawn.mean, look, words[name], drawn.curves, place, len(found), within)
            at = (right if over == figure.over else float(drawn.x[-1])) + step * (place + 1)
            draw_end(panel, at, drawn.mean[-1], drawn.low[-1], drawn.high[-1], look, within)
            means.append(np.interp(np.linspace(0.05, 1, 20) * right, drawn.x, drawn.mean))
            ends += [float(drawn.low[-1]), float(drawn.high[-1])]
        panel.set_xlabel(axis_name(over))
        name_panel(
            panel, style, first + number, _title(setting, {each.num_seeds for each in found.values()}, across(runs))
        )
        if over in ("bits", "samples_trained"):
            panel.xaxis.set_major_formatter(EngFormatter())  # 10 M
    for panel in panels if style.stacked else panels[:1]:
        panel.set_ylabel(axis_name(figure.column))
    if accuracy and means:  # from where the slowest curve is after a twentieth of the horizon: all rise steeply before
        low = np.floor(10 * min(each[0] for each in means)) / 10
        panels[0].set_ylim(max(0.0, low), min(1.0, max(*(each.max() for each in means), *ends) + 0.01))
    elif means:  # a loss falls by a factor, not by an amount
        for panel in panels:
            panel.set_yscale("log")
            panel.grid(visible=True, which="minor", linewidth=0.3)
            panel.yaxis.set_major_formatter("{x:g}")
            panel.yaxis.set_minor_formatter("")
        panels[0].set_ylim(0.85 * min(*(each.min() for each in means), *ends), 1.1 * max(each.max() for each in means))


def _title(setting: str, seeds: set[int], note: str) -> str:
    return f"{setting} data ({_range(seeds)})" + (f"\n{note}" if note else "")


def _range(seeds: set[int]) -> str:
    if not seeds:
        return "no runs"
    return f"{min(seeds)} seed{'s' * (min(seeds) > 1)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)} seeds"
