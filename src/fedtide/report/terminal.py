"""Tables and a small curve for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from fedtide.report.summary import TARGETS

BLOCKS = " ▁▂▃▄▅▆▇█"


def curve(time: Sequence[float], value: Sequence[float], room: int = 64, height: int = 8) -> Text:
    """Draw values over time as block columns, with the axis values at the sides; room: columns at hand for the blocks."""
    text, width = Text(), min(max(room, 8), 64)
    if not value:
        return text
    low, high = min(value), max(value)
    low, high = (low, high) if high > low else (low - 0.5, high + 0.5)
    columns = np.interp(np.linspace(time[0], time[-1], width), time, value)
    eighths = np.round((columns - low) / (high - low) * (8 * height - 1)).astype(int) + 1
    for row in range(height - 1, -1, -1):
        label = f"{high:7.3f} ┤" if row == height - 1 else f"{low:7.3f} ┤" if row == 0 else "        │"
        text.append(label, style="dim")
        text.append("".join(BLOCKS[int(np.clip(each - 8 * row, 0, 8))] for each in eighths), style="cyan")
        text.append("\n")
    right = f"{time[-1]:g}"
    text.append(f"        └{'─' * width}\n         {time[0]:<g}{right:>{width - len(f'{time[0]:g}')}}\n", style="dim")
    text.append(f"{'test accuracy over simulated time':^{width + 9}}", style="dim")
    return text


def _number(value: Any, pattern: str = "{:,.4g}") -> str:
    return "-" if value is None else pattern.format(value)


def summary_table(title: str, summary: Mapping[str, Any]) -> Table:
    """Lay a summary out as a table."""
    table = Table(
        title=Text(title, style="table.title"), title_justify="left", show_header=False, box=None, padding=(0, 2)
    )
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_column(style="dim")
    table.add_column(justify="right")
    reached = summary["time_to_accuracy"]
    cells = [
        ("final test accuracy", _number(summary["final_accuracy"], "{:.4f}")),
        ("aggregations", f"{summary['aggregations']:,}"),
        ("best test accuracy", _number(summary["best_accuracy"], "{:.4f}")),
        ("uploads", f"{summary['uploads']:,}"),
        ("final test loss", _number(summary["final_loss"], "{:.4f}")),
        ("kept share r/d, mean", _number(summary["mean_kept_share"], "{:.3f}")),
        *((f"time to {target:.0%}", _number(reached[str(target)], "{:g}")) for target in TARGETS[1:3]),
        ("age of updates, mean", _number(summary["mean_age"], "{:.2f}")),
        ("label variance, mean", _number(summary["mean_label_variance"])),
        ("symbols spent", f"{summary['symbols']:,.0f}"),
        ("proved minimal", _number(summary["proved_minimal_share"], "{:.0%}")),
        ("bits sent", f"{summary['bits']:,.0f}"),
        ("header bits besides", f"{summary['overhead_bits']:,}"),
        ("bits of models down", f"{summary['bits_down']:,.0f}"),
        ("control bits", f"{summary['control_bits']:,.0f}"),
        ("time on the air", _number(summary["air_time"] or None, "{:,.4g}")),
        ("joules", _number(summary["joules"], "{:,.4g}")),
        ("samples used", f"{summary['samples_used']:,}"),
        ("samples wasted", f"{summary['samples_wasted']:,}"),
        # Digits are the same on the same path only.
        ("instruction path", summary["instruction_path"] or "-"),
        ("trainer", summary["trainer"]),
    ]
    for (left, a), (right, b) in zip(cells[::2], cells[1::2], strict=False):
        table.add_row(left, a, right, b)
    return table
