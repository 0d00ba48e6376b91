"""The paper's curve figures, drawn from stored results: one panel per data setting, means, seeds and intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedtide.devices import Always, UniformDuration, first_duration
from fedtide.plot import (
    ACCURACY,
    COLOURS,
    SCREEN,
    ForestRow,
    Style,
    draw_curve,
    draw_end,
    draw_forest,
    draw_rows,
    few_chart_numbers,
    figure_axis_name,
    figure_sheet,
    figure_style,
    leave_chart_room,
    legend_below,
    line_styles,
    name_panel,
    new_figure,
    save_figure,
)
from fedtide.studies import (
    CONFIDENCE,
    FEWEST_SEEDS,
    METRICS,
    Band,
    RunResult,
    aligned_seeds,
    curves_zigzag,
    difference_band,
    mean_band,
    mixed_seeds_note,
    paired_difference,
    paired_results,
)
from fedtide.timeline import PerArrival, Periodic, Synchronous, make_clock, start_times
from fedtide.types import Floats, Ints, Tick
from fedtide_lab.paper.claims import Verdict
from fedtide_lab.paper.figures import FIGURES, Figure, curve_label

Curves = Mapping[str, Mapping[int, RunResult]]  # label -> seed -> result
_EFFECTS = {"mean_accuracy": "mean over the horizon", "final_accuracy": "mean over its last tenth"}


def drawing_smooths(figure: Figure, curves: Curves) -> bool:
    """Say whether a figure shows averages over one T_max: if one of its curves saws, all are smoothed alike."""
    return curves_zigzag((result for runs in curves.values() for result in runs.values()), figure.column)


def draw_figure(figure: Figure, curves: Curves, stem: Path, style: str = SCREEN) -> list[Path]:
    """Draw one figure of the paper; settings share the value axis."""
    if figure.effects:
        return _draw_effects(figure, curves, stem, style)
    with figure_style(style) as how:
        page, rows = figure_sheet(how, 1, len(figure.settings), _height(how, figure), sharey=True)
        _fill(rows[0], figure, curves, figure.over, how)
        legend_below(page, how, rows[0])
        return save_figure(page, stem)


def draw_resources(figure: Figure, curves: Curves, stem: Path, style: str = SCREEN) -> list[Path]:
    """Draw the same curves against what they cost: a row for the bits sent, a row for the samples that devices trained on."""
    with figure_style(style) as how:
        page, rows = figure_sheet(how, 2, len(figure.settings), 0.92 * _height(how, figure), sharey=True)
        for number, (panels, over) in enumerate(zip(rows, ("bits", "samples_trained"), strict=True)):
            _fill(panels, figure, curves, over, how, number * len(figure.settings))
        legend_below(page, how, rows.ravel())
        return save_figure(page, stem)


def draw_difference(figure: Figure, curves: Curves, stem: Path, style: str = SCREEN) -> list[Path]:
    """Draw gains of the averages so far, seed by seed, with the sign of the verdicts: what pairing leaves of the noise."""
    sign = -1 if figure.column == "train_loss" else 1
    drawn_as = line_styles(figure.curves)
    with figure_style(style) as how:
        page, rows = figure_sheet(how, 1, len(figure.settings), _height(how, figure), sharey=True)
        panels, heights = rows[0], []
        gains = {setting: _gains(figure, curves, setting) for setting in figure.settings}
        words = _with_seeds(
            {setting: {name: gain.num_seeds for name, gain in found.items()} for setting, found in gains.items()}
        )
        for number, (panel, setting) in enumerate(zip(panels, figure.settings, strict=True)):
            found = gains[setting]
            ends = [float(gain.x[-1]) for gain in found.values()]
            step = leave_chart_room(panel, 0, max(ends, default=1.0), len(found))
            for place, (name, gain) in enumerate(found.items()):
                of = " over ".join(figure.pair(name) or ()) + words[name].removeprefix(name)
                mean, low, high = (sign * each for each in (gain.mean, gain.low, gain.high))
                seeds = None if gain.curves is None else sign * gain.curves
                draw_curve(panel, gain.x, mean, drawn_as[name], of, seeds, place, len(found))
                at = max(ends) + step * (place + 1)
                draw_end(panel, at, mean[-1], min(low[-1], high[-1]), max(low[-1], high[-1]), drawn_as[name])
                heights += [mean, np.array([low[-1], high[-1]]), *(() if seeds is None else seeds)]
            panel.axhline(0, color="black", linewidth=0.8)
            panel.set_xlabel(figure_axis_name(figure.over))
            notes = dict.fromkeys(gain.note for gain in found.values() if gain.note)  # most curves have the same
            seeds_of = {gain.num_seeds for gain in found.values()}
            name_panel(panel, how, number, _title(setting, seeds_of, "\n".join(notes)))
        for panel in panels if how.stacked else panels[:1]:
            panel.set_ylabel(f"cumulative mean gain in\n{figure_axis_name(figure.column)}")
        if heights:  # no curve leaves the frame
            least, most = (float(pick(np.concatenate(heights))) for pick in (np.min, np.max))
            margin = 0.08 * max(most - least, 1e-3)
            panels[0].set_ylim(least - margin, most + margin)
        legend_below(page, how, panels)
        return save_figure(page, stem)


def _draw_effects(figure: Figure, curves: Curves, stem: Path, style: str = SCREEN) -> list[Path]:
    """Draw by how much every curve's accuracy differs from its reference's: for curves that lie on one another."""
    with figure_style(style) as how:
        num_rows = len(figure.curves) * len(figure.settings)
        page, rows = figure_sheet(how, 1, len(_EFFECTS), 0.9 + 0.22 * num_rows, sharey=not how.stacked)
        for number, (panel, (metric, words)) in enumerate(zip(rows[0], _EFFECTS.items(), strict=True)):
            lines = []
            for setting in figure.settings:
                for name in figure.curves:
                    pair = figure.pair(name)
                    sides = [curves.get(curve_label(each, setting), {}) for each in pair or ()]
                    pairs = list(paired_results(*sides).values()) if sides else []
                    if pairs:
                        values = [[METRICS[metric](each) for each in side] for side in zip(*pairs, strict=True)]
                        differences = tuple(a - b for a, b in zip(*values, strict=True))
                        lines.append(ForestRow(name, paired_difference(values[0], values[1]), single=differences))
            draw_rows(panel, lines, {"": COLOURS[0]})
            few_chart_numbers(panel)
            panel.set_xlabel(f"accuracy gained over {figure.against['']},\n{words}")
            if not how.titles:
                name_panel(panel, how, number, "")
        return save_figure(page, stem)


def _gains(figure: Figure, curves: Curves, setting: str) -> dict[str, Band]:
    """Return what is gained, or by a curve lost, against its reference, for all that have one."""
    found = {}
    for name in figure.curves:
        better, worse = (curves.get(curve_label(each, setting), {}) for each in figure.pair(name) or ("", ""))
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
            fewer.setdefault(name, set()).update({seeds} if seeds < most and seeds < FEWEST_SEEDS else set())
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
    smooth, drawn_as = drawing_smooths(figure, curves), line_styles(figure.curves)
    seen: list[Any] = []
    ends: list[float] = []
    shown = {setting: aligned_seeds({name: curves.get(curve_label(name, setting), {}) for name in figure.curves})
             for setting in figure.settings}  # fmt: skip
    words = _with_seeds({setting: {name: len(each) for name, each in runs.items()} for setting, runs in shown.items()})
    for number, (panel, setting) in enumerate(zip(panels, figure.settings, strict=True)):
        runs = shown[setting]
        found = {
            name: mean_band(list(runs[name].values()), figure.column, over, not accuracy, smooth)
            for name in figure.curves
            if name in runs
        }
        right = max((float(each.x[-1]) for each in found.values()), default=1.0)
        step = leave_chart_room(panel, 0, right, len(found))
        for place, (name, drawn) in enumerate(found.items()):
            look = drawn_as[name]
            draw_curve(panel, drawn.x, drawn.mean, look, words[name], drawn.curves, place, len(found), within)
            at = (right if over == figure.over else float(drawn.x[-1])) + step * (place + 1)
            draw_end(panel, at, drawn.mean[-1], drawn.low[-1], drawn.high[-1], look, within)
            seen += [drawn.mean, *(() if drawn.curves is None else drawn.curves)]
            ends += [float(drawn.low[-1]), float(drawn.high[-1])]
        panel.set_xlabel(figure_axis_name(over))
        name_panel(
            panel,
            style,
            first + number,
            _title(setting, {each.num_seeds for each in found.values()}, mixed_seeds_note(runs)),
        )
        if over in ("bits", "samples_trained"):
            panel.xaxis.set_major_formatter(EngFormatter())  # 10 M
    for panel in panels if style.stacked else panels[:1]:
        panel.set_ylabel(figure_axis_name(figure.column))
    if not seen:
        return
    low, high = min(*(each.min() for each in seen), *ends), max(*(each.max() for each in seen), *ends)
    if accuracy:  # no curve leaves the frame
        panels[0].set_ylim(max(0.0, low - 0.02), min(1.0, high + 0.01))
    else:  # a loss falls by a factor, not by an amount
        for panel in panels:
            panel.set_yscale("log")
            panel.grid(visible=True, which="minor", linewidth=0.3)
            panel.yaxis.set_major_formatter("{x:g}")
            panel.yaxis.set_minor_formatter("")
        panels[0].set_ylim(0.85 * low, 1.1 * high)


def _title(setting: str, seeds: set[int], note: str) -> str:
    return f"{setting} data ({_range(seeds)})" + (f"\n{note}" if note else "")


def _range(seeds: set[int]) -> str:
    if not seeds:
        return "no runs"
    return f"{min(seeds)} seed{'s' * (min(seeds) > 1)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)} seeds"


# The paper's two timeline drawings, drawn from real event traces of our own timelines.


_GREY = "#bbbbbb"


def draw_frameworks(
    stem: Path, seed: int = 4, num_devices: int = 5, horizon: float = 2.0, style: str = SCREEN
) -> list[Path]:
    """Draw synchronous, fully asynchronous and periodic training of the same devices, one panel each."""
    uniform = UniformDuration(0.25, 1.0)
    duration = first_duration(uniform, seed, num_devices)
    clock = make_clock(seed, num_devices, horizon, uniform, Always())
    drawn = (
        ("synchronous (FedAvg)", list(Synchronous(1.0)(clock))),
        ("fully asynchronous (FedAsync)", list(PerArrival()(clock))),
        (r"periodic, $\tilde T=T_{\max}/4$", list(Periodic(0.25)(clock))),
    )
    with figure_style(style) as how:
        page = new_figure(how.width, 4.5)
        panels = page.subplots(3, 1, sharex=True)
        for panel, (title, ticks) in zip(panels, drawn, strict=True):
            _trace(panel, ticks, duration, horizon)
            panel.set_title(title, loc="left")
        panels[-1].set_xlabel(r"time (units of $T_{\max}$)")
        page.legend(handles=_legend(), loc="outside lower center", ncols=2, handlelength=1.6)
        return save_figure(page, stem)


def _legend() -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return [
        Patch(color=COLOURS[0], alpha=0.75, label="training"),
        Patch(facecolor="white", edgecolor=_GREY, hatch="///", label="waiting"),
        Line2D([], [], color=COLOURS[1], linewidth=1, label="aggregation"),
        Line2D([], [], color=COLOURS[1], marker="o", ms=4, linewidth=0, label=r"ready, receives the new $\theta$"),
    ]


def _trace(panel: Any, ticks: Sequence[Tick], duration: Floats, horizon: float) -> None:
    """Draw every device's training and waiting as bars, and the aggregations as lines."""
    born = start_times(ticks)
    version = np.ones(len(duration), np.int64)
    for tick in ticks:
        panel.axvline(tick.time, color=COLOURS[1], linewidth=0.7, alpha=0.6)
        for device in tick.ready.tolist():
            _bar(panel, device, float(born[version[device]]), float(duration[device]), tick.time)
            version[device] = tick.index + 1
        panel.plot(
            [tick.time] * len(tick.ready), tick.ready, "o", ms=3.5, color=COLOURS[1], mec="white", mew=0.5, zorder=4
        )
    for device in range(len(duration)):  # those still at work at the end
        begun = float(born[version[device]])
        _bar(panel, device, begun, min(float(duration[device]), horizon - begun), horizon)
    panel.set_xlim(0, horizon)
    panel.set_ylim(len(duration) - 0.4, -0.6)
    panel.set_yticks(range(len(duration)), [f"device {k + 1}" for k in range(len(duration))])
    panel.grid(False)


def _bar(panel: Any, device: int, begun: float, duration: float, until: float) -> None:
    panel.barh(device, duration, left=begun, height=0.6, color=COLOURS[0], alpha=0.75, edgecolor="white", linewidth=0.8)
    if until - begun - duration > 1e-9:
        waited = until - begun - duration
        panel.barh(
            device, waited, left=begun + duration, height=0.6, color="white", edgecolor=_GREY, hatch="///", linewidth=0
        )


def draw_ages(
    stem: Path, seed: int = 1, num_devices: int = 10, at: int = 8, limit: int = 5, style: str = SCREEN
) -> list[Path]:
    """Draw ten devices up to one aggregation: who is ready, with which age, and who is scheduled (at random)."""
    from fedtide.rng import stream

    uniform = UniformDuration(0.1, 1.0)
    duration = first_duration(uniform, seed, num_devices)
    ticks = list(Periodic(0.25)(make_clock(seed, num_devices, (at + 1) / 4, uniform, Always())))
    tick = ticks[at - 1]
    age: Ints = tick.index - tick.start
    picked = set(tick.ready[np.sort(stream(seed, "schedule", at).permutation(len(tick.ready))[:limit])].tolist())
    with figure_style(style) as how:
        page = new_figure(how.width, 3.0)
        panel = page.subplots()
        born = start_times(ticks)
        ready = dict(zip(tick.ready.tolist(), age.tolist(), strict=True))
        for device in range(num_devices):
            held = 1
            for earlier in ticks[: at - 1]:
                if device in earlier.ready:
                    held = earlier.index + 1
            begun, colour = float(born[held]), COLOURS[ready[device] % len(COLOURS)] if device in ready else _GREY
            panel.barh(device, min(float(duration[device]), tick.time - begun), left=begun, height=0.6, color=colour,
                       alpha=0.9 if device in picked else 0.35)  # fmt: skip
            text = (
                "still training"
                if device not in ready
                else f"age {ready[device]}" + (", scheduled" if device in picked else "")
            )
            panel.text(tick.time + 0.03, device, text, va="center", fontsize=how.small)
        for each in ticks[at - 5 : at]:
            panel.axvline(each.time, color=COLOURS[1], linewidth=1.6 if each.index == at else 0.6)
            panel.text(each.time, -0.85, f"t={each.index}", ha="center", fontsize=how.small)
        panel.set_xlim(float(born[at - 3]) - 0.03, tick.time + (0.62 if how.stacked else 0.47))
        panel.set_ylim(num_devices - 0.4, -0.7)
        panel.set_yticks(range(num_devices), [f"device {k + 1}" for k in range(num_devices)])
        panel.set_xlabel(r"time (units of $T_{\max}$), $\tilde T=T_{\max}/4$")
        panel.grid(False)
        return save_figure(page, stem)


# The verdicts at a glance: a line per claim, with the comparison on which it hangs, on one axis per kind of measure.


_AXES = {
    "mean_accuracy": "difference in mean test accuracy",
    "mean_train_loss": "difference in mean training loss",
    "variation": r"difference in ups and downs per $T_{\max}$",
    "kept_share": "difference in the share of elements kept",
}


def draw_verdicts(verdicts: Sequence[Verdict], stem: Path, style: str = SCREEN) -> list[Path]:
    """Draw every claim that has runs, in the order of the paper; strokes are the other comparisons of the claim."""
    groups: dict[str, list[ForestRow]] = {}
    for verdict in verdicts:
        weakest = verdict.weakest
        found = [each.at(CONFIDENCE) for each in verdict.decisive if each.check.metric == weakest.check.metric]
        others = tuple(each.mean for each in found if each is not None)
        number = FIGURES[weakest.check.figure].number
        text = f"{number + ': ' if number else ''}{verdict.claim.text.rstrip('.')}".replace("T_max", r"$T_{\max}$")
        row = ForestRow(text, weakest.at(CONFIDENCE), verdict.verdict, others if len(others) > 1 else ())
        groups.setdefault(weakest.check.metric, []).append(row)
    return draw_forest({_AXES[metric]: groups[metric] for metric in _AXES if metric in groups}, stem, style)
