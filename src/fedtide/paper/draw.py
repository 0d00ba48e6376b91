"""The paper's curve figures, drawn from stored results: mean over seeds with a 95 % band, one panel per data setting."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedtide.paper.figures import Figure, label
from fedtide.report.figure import COLOURS, axis_name, new_figure, our_style, save
from fedtide.studies.pairing import across
from fedtide.studies.result import RunResult
from fedtide.studies.statistics import Band, aligned, band, difference_band

CROWD = 6  # with more curves than this the bands are fainter

Curves = Mapping[str, Mapping[int, RunResult]]  # label -> seed -> result


def draw(figure: Figure, curves: Curves, stem: Path) -> list[Path]:
    """Draw one figure of the paper; settings share the value axis."""
    with our_style():
        page = new_figure(3.6 * len(figure.settings), 3.1)
        panels = page.subplots(1, len(figure.settings), squeeze=False, sharey=True)[0]
        _fill(panels, figure, curves, figure.over)
        panels[0].legend(fontsize=7.5, loc="best")
        return save(page, stem)


def draw_resources(figure: Figure, curves: Curves, stem: Path) -> list[Path]:
    """Draw the same curves against what they cost: a row for the bits sent, a row for the samples that devices trained on."""
    with our_style():
        page = new_figure(3.6 * len(figure.settings), 5.4)
        rows = page.subplots(2, len(figure.settings), squeeze=False, sharey=True)
        for panels, over in zip(rows, ("bits", "samples_trained"), strict=True):
            _fill(panels, figure, curves, over)
        rows[0][0].legend(fontsize=7.5, loc="best")
        return save(page, stem)


def draw_difference(figure: Figure, curves: Curves, stem: Path) -> list[Path]:
    """Draw every curve's average so far less its reference's, seed by seed: what pairing leaves of the noise."""
    with our_style():
        page = new_figure(3.6 * len(figure.settings), 3.5)
        panels = page.subplots(1, len(figure.settings), squeeze=False, sharey=True)[0]
        heights = []
        for panel, setting in zip(panels, figure.settings, strict=True):
            seeds, notes = set(), dict[str, None]()
            for position, name in enumerate(figure.curves):
                reference = figure.reference(name)
                if reference is None:
                    continue
                runs, against = (curves.get(label(each, setting), {}) for each in (name, reference))
                drawn = difference_band(runs, against, figure.column, figure.over)
                if drawn is None:
                    continue
                _curve(panel, drawn, position, f"{name} $-$ {reference}", len(figure.curves) > CROWD)
                seeds.add(drawn.num_seeds)
                heights.append(drawn.mean[len(drawn.x) // 7 :])
                notes |= {drawn.note: None} if drawn.note else {}  # most curves have the same
            panel.axhline(0, color="black", linewidth=0.8)
            panel.set_title(_title(setting, seeds, "\n".join(notes)), fontsize=9)
            panel.set_xlabel(axis_name(figure.over))
        panels[0].set_ylabel(f"difference in {axis_name(figure.column)},\naveraged up to then")
        if heights:  # the first seventh, where curves rise steeply at different times, may leave the frame
            low, high = min(each.min() for each in heights), max(each.max() for each in heights)
            margin = 0.35 * max(high - low, abs(low), abs(high), 1e-3)
            panels[0].set_ylim(low - margin, high + margin)
        # below the panels: bands leave no free corner
        lines, names = panels[0].get_legend_handles_labels()
        page.legend(lines, names, fontsize=7.5, loc="outside lower center", ncols=2 if len(panels) > 1 else 1)
        return save(page, stem)


def _fill(panels: Any, figure: Figure, curves: Curves, over: str) -> None:
    """Draw mean curves and bands, one panel per setting, against a recorded column."""
    from matplotlib.ticker import EngFormatter

    lowest, highest = [], []
    for panel, setting in zip(panels, figure.settings, strict=True):
        seeds = set()
        runs = aligned({name: curves.get(label(name, setting), {}) for name in figure.curves})
        most = max(map(len, runs.values()), default=0)
        for position, name in enumerate(figure.curves):
            if name not in runs:
                continue
            drawn = band(list(runs[name].values()), figure.column, over, ratio=figure.column == "train_loss")
            fewer = f" ({_range({drawn.num_seeds})})" if drawn.num_seeds < most else ""
            _curve(panel, drawn, position, name + fewer, len(figure.curves) > CROWD)
            seeds.add(drawn.num_seeds)
            lowest.append(drawn.mean.min())
            highest.append(drawn.mean.max())
        panel.set_title(_title(setting, seeds, across(runs)), fontsize=9)
        panel.set_xlabel(axis_name(over))
        if over in ("bits", "samples_trained"):
            panel.xaxis.set_major_formatter(EngFormatter())  # 10 M
    panels[0].set_ylabel(axis_name(figure.column))
    if figure.column == "test_accuracy":
        _zoom(panels[0], curves)
    elif lowest:  # a loss falls by a factor, not by an amount
        for panel in panels:
            panel.set_yscale("log")
            panel.grid(visible=True, which="minor", linewidth=0.3)
            panel.yaxis.set_major_formatter("{x:g}")
            panel.yaxis.set_minor_formatter("")
        panels[0].set_ylim(0.7 * min(lowest), 1.2 * max(highest))


def _curve(panel: Any, drawn: Band, position: int, name: str, crowded: bool) -> None:
    colour = COLOURS[position % len(COLOURS)]
    style = "-" if drawn.num_seeds > 1 else "--"  # no band: one seed says nothing about the spread
    panel.plot(drawn.x, drawn.mean, style, color=colour, label=name)
    panel.fill_between(drawn.x, drawn.low, drawn.high, color=colour, alpha=0.08 if crowded else 0.18, linewidth=0)


def _zoom(panel: Any, curves: Curves) -> None:
    """Leave out the first steep rise: show from where the slower curves have begun to tell apart."""
    starts = [float(result.column("test_accuracy")[: max(len(result.columns["time"]) // 20, 1)].max()) for runs in
              curves.values() for result in runs.values()]  # fmt: skip
    tops = [float(result.column("test_accuracy").max()) for runs in curves.values() for result in runs.values()]
    if starts:
        panel.set_ylim(min(starts), min(1.0, max(tops) + 0.01))


def _title(setting: str, seeds: set[int], note: str) -> str:
    return f"{setting} data ({_range(seeds)})" + (f"\n{note}" if note else "")


def _range(seeds: set[int]) -> str:
    if not seeds:
        return "no runs"
    return f"{min(seeds)} seed{'s' * (min(seeds) > 1)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)} seeds"
