"""A run for the terminal: its curve, and its numbers as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedtide.report.summary import TARGETS
from fedtide.report.tables import pairs

BLOCKS = " ▁▂▃▄▅▆▇█"
MARGIN = 7  # columns left of the blocks: the axis and its numbers
NARROWEST = 8  # columns of blocks
NOT_REACHED = "not reached"


def curve(
    time: Sequence[float], value: Sequence[float], room: int = 80, chance: float | None = None, height: int = 10
) -> Text:
    """Draw accuracies over time as block columns, on 0 to 1, as wide as the room.

    room: columns of the terminal. chance: the accuracy of guessing, drawn as a line; None: not known.
    """
    text, width = Text(), max(room - MARGIN, NARROWEST)
    if not value:
        return text
    columns = np.interp(np.linspace(time[0], time[-1], width), time, value)
    eighths = np.clip(np.round(columns * 8 * height), 0, 8 * height).astype(int)
    at = None if chance is None else max(int(np.ceil(chance * height - 1e-9)) - 1, 0)  # the row that the line is in
    for row in range(height - 1, -1, -1):
        label = "1.00 ┤" if row == height - 1 else f"{chance:.2f} ┤" if row == at else "│"
        levels = np.clip(eighths - 8 * row, 0, 8).tolist()
        text.append(f"{label:>{MARGIN}}", style="dim")
        if row == at:  # the line goes through columns that are higher, too
            for level in levels:
                text.append(*("┄", "cyan reverse") if level == 8 else (("┄" + BLOCKS[1:])[level], "cyan"))
            text.append("\n")
        else:
            text.append(f"{''.join(BLOCKS[level] for level in levels)}\n", style="cyan")
    first, last = f"{time[0]:g}", f"{time[-1]:g}"
    text.append(f"{'0.00 └':>{MARGIN}}{'─' * width}\n", style="dim")
    text.append(f"{'':{MARGIN}}{first}{last:>{width - len(first)}}\n", style="dim")
    text.append("test accuracy over simulated time".center(width + MARGIN).rstrip(), style="dim")
    if chance is not None:
        text.append("\n" + f"┄ chance, {chance:.3g}".center(width + MARGIN).rstrip(), style="dim")
    return text


def _number(value: Any, pattern: str = "{:,.4g}") -> str:
    return "-" if value is None else pattern.format(value)


def _reached(value: float | None) -> str:
    return NOT_REACHED if value is None else f"{value:g}"


def summary_table(title: str, summary: Mapping[str, Any], room: int = 80) -> RenderableType:
    """Lay a summary out as a table: two names and numbers in a line if there is room, else one."""
    reached = summary["time_to_accuracy"]
    cells = {
        "final test accuracy": _number(summary["final_accuracy"], "{:.4f}"),
        "aggregations": f"{summary['aggregations']:,}",
        "best test accuracy": _number(summary["best_accuracy"], "{:.4f}"),
        "uploads": f"{summary['uploads']:,}",
        "updates arrived": f"{summary['arrived']:,}",
        "updates lost": f"{summary['lost']:,}",
        "final test loss": _number(summary["final_loss"], "{:.4f}"),
        "kept share r/d, mean": _number(summary["mean_kept_share"], "{:.3f}"),
        **{f"time to {target:.0%}": _reached(reached[str(target)]) for target in TARGETS[1:3]},
        "age of updates, mean": _number(summary["mean_age"], "{:.2f}"),
        "age of updates, largest": _number(summary["largest_age"], "{:,}"),
        "label variance, mean": _number(summary["mean_label_variance"]),
        "symbols granted": f"{summary['symbols']:,.0f}",
        "symbols packets take": f"{summary['symbols_sent']:,.0f}",
        "proved minimal": _number(summary["proved_minimal_share"], "{:.0%}"),
        "bits sent": f"{summary['bits']:,.0f}",
        "header bits besides": f"{summary['overhead_bits']:,}",
        "bits of models down": f"{summary['bits_down']:,.0f}",
        "control bits": f"{summary['control_bits']:,.0f}",
        "airtime granted": _number(summary["air_time"] or None, "{:,.4g}"),
        "airtime packets take": _number(summary["air_time_sent"] or None, "{:,.4g}"),
        "joules as granted": _number(summary["joules"], "{:,.4g}"),
        "joules as sent": _number(summary["joules_sent"], "{:,.4g}"),
        "samples used": f"{summary['samples_used']:,}",
        "samples wasted": f"{summary['samples_wasted']:,}",
        # Digits are the same on the same path only.
        "instruction path": summary["instruction_path"] or "-",
        "trainer": summary["trainer"],
    }
    heading = Text(title, style="table.title", overflow="fold")
    names, rows = [*cells.items()][::2], [*cells.items()][1::2]
    table = Table(box=None, show_header=False, padding=(0, 2))
    widths = []
    for side in (names, rows):
        table.add_column(style="dim", no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        widths += [max(len(name) for name, _ in side), max(len(str(text)) for _, text in side)]
    if sum(widths) + 16 > room:
        return pairs(cells, room, heading)
    for (left, a), (right, b) in zip(names, rows, strict=True):
        table.add_row(left, a, right, str(b))
    return Group(heading, table)
