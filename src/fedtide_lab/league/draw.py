"""The league's figures: gains over the reference in every world, and the leaders' accuracy over time, bits and joules."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedtide.plot import (
    SCREEN,
    TINTS,
    ForestRow,
    chart_dashes,
    draw_rows,
    few_chart_numbers,
    figure_sheet,
    figure_style,
    legend_below,
    line_styles,
    name_panel,
    save_figure,
)
from fedtide.studies import RunResult, amount_spent, mean_band
from fedtide_lab.league.methods import PAPER_METHOD, REFERENCE
from fedtide_lab.league.ranking import Runs, Standing, Standings, is_analog
from fedtide_lab.league.tune import COMBINED

_VERDICTS = {"higher": "holds", "lower": "contradicted"}  # as figures colour them; others are not resolved
_MOST = 18  # methods in the figure of gains
_OVER = {"time": r"time (units of $T_{\max}$)", "bits": "Mbit sent", "joules": "J spent"}
_SCALE = {"time": 1.0, "bits": 1e6, "joules": 1.0}


def draw_league_gains(tables: Sequence[Standings], stem: Path, style: str = SCREEN) -> list[Path]:
    """Draw the gains of the leading methods over the reference with their intervals, a panel for each world.

    The tables of the page have all methods.
    """
    tables = [each for each in tables if each.world.is_whole] or tables
    names = _drawn_methods(tables)
    words = {row.name: row.words for each in tables for row in each.rows}
    with figure_style(style) as how:
        page, grid = figure_sheet(how, 1, len(tables), 0.75 + 0.021 * how.small * len(names), sharey=True)
        for number, (panel, each) in enumerate(zip(grid[0], tables, strict=True)):
            gains = {row.name: row.over_reference for row in each.rows}
            rows = [(name, gains.get(name)) for name in names]
            draw_rows(
                panel,
                [
                    ForestRow(words[name], gain, _VERDICTS.get(gain.verdict, "not resolved") if gain else "")
                    for name, gain in rows
                ],
                TINTS,
            )
            few_chart_numbers(panel)
            name_panel(panel, how, number, each.world.name)
        page.supxlabel("gain in mean accuracy over random scheduling", fontsize=how.small)
        return save_figure(page, stem)


def draw_league_curves(
    tables: Sequence[Standings], runs: Mapping[str, Runs], stem: Path, style: str = SCREEN
) -> list[Path]:
    """Draw the accuracy of the reference, the paper's schedule and the best others over time, bits and joules."""
    tables = [each for each in tables if each.world.is_whole] or tables
    looks = line_styles(dict.fromkeys(row.words for each in tables for row in _leaders(each)))
    with figure_style(style) as how:
        page, panels = figure_sheet(how, len(tables), len(_OVER), 0.9 * how.panel, sharey=True)
        for line, each in zip(panels, tables, strict=True):
            for panel, (over, name) in zip(line, _OVER.items(), strict=True):
                for row in _leaders(each):
                    if over == "bits" and is_analog(row):
                        continue
                    found = [_with_reports(runs[each.world.name][row.name][seed]) for seed in each.seeds]
                    mean = mean_band(found, "test_accuracy", over)
                    look = looks[row.words]
                    panel.plot(
                        mean.x / _SCALE[over],
                        mean.mean,
                        label=row.words,
                        color=look.colour,
                        linestyle=chart_dashes(look),
                    )
                panel.axhline(each.target, color="#8c8c8c", linewidth=0.7, linestyle=":")
                panel.set_xlabel(name, fontsize=how.small)
                panel.set_ylim(0, 1)
            line[0].set_ylabel(f"{each.world.title}\ntest accuracy", fontsize=how.small)
        legend_below(page, how, panels.ravel())
        return save_figure(page, stem)


def _with_reports(run: RunResult) -> RunResult:
    """Return a run whose bits include what devices report to the server, as costs do."""
    return dataclasses.replace(run, columns={**run.columns, "bits": amount_spent(run, "bits")})


def _leaders(each: Standings) -> list[Standing]:
    """Return the combined one, the two best others, the paper's schedule and the reference."""
    alone = [row for row in each.rows if row.name not in (COMBINED, PAPER_METHOD, REFERENCE)]
    chosen = [*(row for row in each.rows if row.name == COMBINED), *alone[:2]]
    return [*chosen, *(row for row in each.rows if row.name in (PAPER_METHOD, REFERENCE))]


def _drawn_methods(tables: Sequence[Standings], most: int = _MOST) -> list[str]:
    """Return the methods whose worst rank in any world is best, and the paper's schedule, in the order of these ranks."""
    worst: dict[str, int] = {}
    for each in tables:
        for row in each.rows:
            worst[row.name] = max(worst.get(row.name, 0), row.rank)
    everywhere = [name for name in worst if all(name in {row.name for row in each.rows} for each in tables)]
    ordered = sorted((name for name in everywhere if name != REFERENCE), key=lambda name: (worst[name], name))
    return [name for place, name in enumerate(ordered) if place < most or name == PAPER_METHOD]
