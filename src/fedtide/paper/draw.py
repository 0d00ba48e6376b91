"""The paper's curve figures, drawn from stored results: mean over seeds with a 95 % band, one panel per data setting."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedtide.paper.figures import Figure, label
from fedtide.report.figure import COLOURS, STYLE, axis_name, new_figure, save
from fedtide.study.result import RunResult
from fedtide.study.statistics import band, difference_band

Curves = Mapping[str, Mapping[int, RunResult]]  # label -> seed -> result


def draw(figure: Figure, curves: Curves, stem: Path, over: str | None = None) -> list[Path]:
    """Draw one figure of the paper; settings share the value axis."""
    import matplotlib as mpl

    over = over or figure.over
    with mpl.rc_context(STYLE):
        page = new_figure(3.6 * len(figure.settings), 3.1)
        panels = page.subplots(1, len(figure.settings), squeeze=False, sharey=True)[0]
        for panel, setting in zip(panels, figure.settings, strict=True):
            seeds = set()
            for position, name in enumerate(figure.curves):
                runs = curves.get(label(name, setting), {})
                if not runs:
                    continue
                drawn = band(list(runs.values()), figure.column, over)
                colour = COLOURS[position % len(COLOURS)]
                panel.plot(drawn.x, drawn.mean, color=colour, label=name)
                panel.fill_between(drawn.x, drawn.low, drawn.high, color=colour, alpha=0.18, linewidth=0)
                seeds.add(drawn.num_seeds)
            panel.set_title(f"{setting} data ({_range(seeds)})", fontsize=9)
            panel.set_xlabel(axis_name(over))
        panels[0].set_ylabel(axis_name(figure.column))
        if figure.column == "test_accuracy":
            _zoom(panels[0], curves)
        panels[0].legend(fontsize=7.5, loc="best")
        return save(page, stem)


def draw_difference(figure: Figure, curves: Curves, stem: Path) -> list[Path]:
    """Draw every curve's average so far less its reference's, seed by seed: what pairing leaves of the noise."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        page = new_figure(3.6 * len(figure.settings), 3.1)
        panels = page.subplots(1, len(figure.settings), squeeze=False, sharey=True)[0]
        heights = []
        for panel, setting in zip(panels, figure.settings, strict=True):
            seeds = set()
            for position, name in enumerate(figure.curves):
                reference = figure.reference(name)
                if reference is None:
                    continue
                runs, against = (curves.get(label(each, setting), {}) for each in (name, reference))
                drawn = difference_band(runs, against, figure.column, figure.over)
                if drawn is None:
                    continue
                colour = COLOURS[position % len(COLOURS)]
                panel.plot(drawn.x, drawn.mean, color=colour, label=f"{name} $-$ {reference}")
                panel.fill_between(drawn.x, drawn.low, drawn.high, color=colour, alpha=0.18, linewidth=0)
                seeds.add(drawn.num_seeds)
                heights.append(drawn.mean[len(drawn.x) // 7 :])
            panel.axhline(0, color="black", linewidth=0.8)
            panel.set_title(f"{setting} data ({_range(seeds)})", fontsize=9)
            panel.set_xlabel(axis_name(figure.over))
        panels[0].set_ylabel(f"difference in {axis_name(figure.column)},\naveraged up to then")
        if heights:  # the first seventh, where curves rise steeply at different times, may leave the frame
            low, high = min(each.min() for each in heights), max(each.max() for each in heights)
            margin = 0.35 * max(high - low, abs(low), abs(high), 1e-3)
            panels[0].set_ylim(low - margin, high + margin)
        panels[0].legend(fontsize=7, loc="best")
        return save(page, stem)


def _zoom(panel: Any, curves: Curves) -> None:
    """Leave out the first steep rise: show from where the slower curves have begun to tell apart."""
    starts = [float(result.column("test_accuracy")[: max(len(result.columns["time"]) // 20, 1)].max()) for runs in
              curves.values() for result in runs.values()]  # fmt: skip
    tops = [float(result.column("test_accuracy").max()) for runs in curves.values() for result in runs.values()]
    if starts:
        panel.set_ylim(min(starts), min(1.0, max(tops) + 0.01))


def _range(seeds: set[int]) -> str:
    if not seeds:
        return "no runs"
    return f"{min(seeds)} seed{'s' * (min(seeds) > 1)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)} seeds"
