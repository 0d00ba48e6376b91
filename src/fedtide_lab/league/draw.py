"""The league's figures: gains over the reference in every world, and the leaders' accuracy over time, bits and joules."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtide.plot import COLOURS, TINTS, ForestRow, draw_rows, few_chart_numbers, figure_style, new_figure, save_figure
from fedtide.studies import RunResult, amount_spent, mean_band
from fedtide_lab.league.methods import PAPER_METHOD, REFERENCE
from fedtide_lab.league.ranking import Runs, Standing, Standings, is_analog
from fedtide_lab.league.tune import COMBINED

_VERDICTS = {"higher": "holds", "lower": "contradicted"}  # as figures colour them; others are not resolved
_MOST = 18  # methods in the figure of gains
_OVER = {"time": r"time (units of $T_{\max}$)", "bits": "Mbit sent", "joules": "J spent"}
_SCALE = {"time": 1.0, "bits": 1e6, "joules": 1.0}


def draw_league_gains(tables: Sequence[Standings], stem: Path) -> list[Path]:
    """Draw the gains of the leading methods over the reference with their intervals, a panel for each world.

    As wide as a column of a journal; the tables of the page have all methods.
    """
    names = _drawn_methods(tables)
    with figure_style():
        page = new_figure(3.6, 0.75 + 0.16 * len(names))
        panels = page.subplots(1, len(tables), sharey=True, squeeze=False)[0]
        for panel, each in zip(panels, tables, strict=True):
            gains = {row.name: row.over_reference for row in each.rows}
            rows = [(name, gains.get(name)) for name in names]
            draw_rows(
                panel,
                [
                    ForestRow(name, gain, _VERDICTS.get(gain.verdict, "not resolved") if gain else "")
                    for name, gain in rows
                ],
                TINTS,
            )
            few_chart_numbers(panel)
            panel.set_title(each.world.name, fontsize=7.5)
            panel.tick_params(labelsize=7)
        page.supxlabel("gain in mean accuracy over random scheduling", fontsize=7)
        return save_figure(page, stem)


def draw_league_curves(tables: Sequence[Standings], runs: Mapping[str, Runs], stem: Path) -> list[Path]:
    """Draw the accuracy of the reference, the paper's schedule and the best others over time, bits and joules."""
    with figure_style():
        page = new_figure(7.2, 2.05 * len(tables))
        panels = page.subplots(len(tables), len(_OVER), sharey="row", squeeze=False)
        for line, each in zip(panels, tables, strict=True):
            for panel, (over, name) in zip(line, _OVER.items(), strict=True):
                for row, style in zip(_leaders(each), _STYLES, strict=False):
                    if over == "bits" and is_analog(row):
                        continue
                    found = [_with_reports(runs[each.world.name][row.name][seed]) for seed in each.seeds]
                    mean = mean_band(found, "test_accuracy", over)
                    panel.plot(mean.x / _SCALE[over], mean.mean, label=row.name, linewidth=1.2, **style)
                panel.axhline(each.target, color="#aaaaaa", linewidth=0.7, linestyle=":")
                panel.set_xlabel(name, fontsize=7.5)
                panel.tick_params(labelsize=7)
                panel.set_ylim(0, 1)
            line[0].set_ylabel(f"{each.world.title}\ntest accuracy", fontsize=7.5)
            line[-1].legend(fontsize=6.5, loc="lower right")
        return save_figure(page, stem)


def _with_reports(run: RunResult) -> RunResult:
    """Return a run whose bits include what devices report to the server, as costs do."""
    return dataclasses.replace(run, columns={**run.columns, "bits": amount_spent(run, "bits")})


_STYLES: tuple[dict[str, Any], ...] = (
    {"color": COLOURS[0]},
    {"color": COLOURS[1], "linestyle": "--"},
    {"color": COLOURS[2], "linestyle": "-."},
    {"color": COLOURS[3], "linestyle": (0, (4, 1, 1, 1, 1, 1))},
    {"color": COLOURS[6], "linestyle": ":"},
)


def _leaders(each: Standings) -> list[Standing]:
    """Return the two best, the best method alone, the paper's schedule and the reference: five at most."""
    alone = [row for row in each.rows if row.name not in (COMBINED, PAPER_METHOD, REFERENCE)]
    chosen = [*(row for row in each.rows if row.name == COMBINED), *alone[:2]]
    return [*chosen, *(row for row in each.rows if row.name in (PAPER_METHOD, REFERENCE))]


def _drawn_methods(tables: Sequence[Standings], most: int = _MOST) -> list[str]:
    """Return the methods whose worst rank in any world is best, and the paper's schedule, in the order of these ranks."""
    worst: dict[str, int] = {}
    for each in tables:
        for row in each.rows:
            worst[row.name] = max(worst.get(row.name, 0), row.rank)
    ordered = sorted((name for name in worst if name != REFERENCE), key=lambda name: (worst[name], name))
    return [name for place, name in enumerate(ordered) if place < most or name == PAPER_METHOD]
