"""Tables that fit a terminal, and a run's curve and summary in one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

# Tables that fit: as wide as the room at most, and never with a word cut in two where the room could hold it.
#
# Cells are rich markup. A column keeps its lines whole unless it `wraps`, which breaks between words; where even that does
# not fit, each row becomes a few lines of its own.


_GAPS = (2, 1)  # characters between columns: better two
_LEAST = 16  # characters that a wrapped column has at least, if its text is as long
_LONGEST = 36  # of a word that a column is made wide enough for; a longer one (a path, a label of a user) is folded


class TableColumn(NamedTuple):
    """How a column looks."""

    heading: str
    right: bool = False
    wraps: bool = False
    style: str = ""


def listed(
    columns: Sequence[TableColumn], rows: Iterable[Sequence[str]], room: int, title: str = "", indent: int = 0
) -> RenderableType:
    """Lay rows out in columns if these fit into the room, else one below the other."""
    cells = [[Text.from_markup(each) for each in row] for row in rows]
    made: RenderableType = _stacked(columns, cells)
    for gap in _GAPS:
        if widths := _widths(columns, cells, room - indent - gap * (len(columns) - 1)):
            made = _side_by_side(columns, cells, widths, gap)
            break
    shown: list[RenderableType] = [Text.from_markup(title, style="italic")] if title else []
    return Group(*shown, Padding(made, (0, 0, 0, indent)) if indent else made)


def pairs(rows: Mapping[str, Any], room: int, title: str | Text = "", indent: int = 2) -> RenderableType:
    """Lay names out, whole, each beside its text. rows: name -> plain text."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows.items():
        table.add_row(Text(name), Text(str(text)))
    head = [title if isinstance(title, Text) else Text(title, style="italic")] if title else []
    return Group(*head, Padding(table, (0, 0, 0, indent if room > 40 else 0)))


def _widths(columns: Sequence[TableColumn], cells: Sequence[Sequence[Text]], room: int) -> list[int] | None:
    """Return the width of every column; None if the room, without the gaps, is too small for them."""
    least, most = [], []
    for position, column in enumerate(columns):
        texts = [row[position].plain for row in cells]
        lines = [cell_len(line) for text in texts for line in text.splitlines()]
        words = [cell_len(word) for text in (column.heading, *(texts if column.wraps else ())) for word in text.split()]
        whole = max([*lines, *words], default=0)
        word = max(words, default=0)
        least.append(max(min(word, _LONGEST), min(_LEAST, whole)) if column.wraps else whole)
        most.append(max(whole, cell_len(column.heading)))
    left = room - sum(least)
    if left < 0:
        return None
    wanted = sum(most) - sum(least)
    share = min(1.0, left / wanted) if wanted else 0.0
    return [low + int((high - low) * share) for low, high in zip(least, most, strict=True)]


def _side_by_side(
    columns: Sequence[TableColumn], cells: Sequence[Sequence[Text]], widths: Sequence[int], gap: int
) -> Table:
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
    for column, width in zip(columns, widths, strict=True):
        table.add_column(
            Text(column.heading),
            width=width,
            justify="right" if column.right else "left",
            overflow="fold",
            style=column.style,
        )
    for row in cells:
        table.add_row(*row)
    return table


def _stacked(columns: Sequence[TableColumn], cells: Sequence[Sequence[Text]]) -> Group:
    """Lay each row out as its first cell, and below it the others beside their headings."""
    made: list[RenderableType] = []
    for first, *rest in cells:
        first.stylize(columns[0].style or "bold")
        made.append(first)
        for column, text in zip(columns[1:], rest, strict=True):
            if text.plain.strip():
                made.append(Padding(Text.assemble((f"{column.heading}: ", "dim"), text, overflow="fold"), (0, 0, 0, 2)))
    return Group(*made)


# A run for the terminal: its curve, and its numbers as a table.


_BLOCKS = " ▁▂▃▄▅▆▇█"
_MARGIN = 7  # columns left of the blocks: the axis and its numbers
_NARROWEST = 8  # columns of blocks
NOT_REACHED = "not reached"


def curve_lines(
    time: Sequence[float], value: Sequence[float], room: int = 80, chance: float | None = None, height: int = 10
) -> Text:
    """Draw accuracies over time as block columns, on 0 to 1, as wide as the room.

    room: columns of the terminal. chance: the accuracy of guessing, drawn as a line; None: not known.
    """
    text, width = Text(), max(room - _MARGIN, _NARROWEST)
    if not value:
        return text
    columns = np.interp(np.linspace(time[0], time[-1], width), time, value)
    eighths = np.clip(np.round(columns * 8 * height), 0, 8 * height).astype(int)
    at = None if chance is None else max(int(np.ceil(chance * height - 1e-9)) - 1, 0)  # the row that the line is in
    for row in range(height - 1, -1, -1):
        label = "1.00 ┤" if row == height - 1 else f"{chance:.2f} ┤" if row == at else "│"
        levels = np.clip(eighths - 8 * row, 0, 8).tolist()
        text.append(f"{label:>{_MARGIN}}", style="dim")
        if row == at:  # the line goes through columns that are higher, too
            for level in levels:
                text.append(*("┄", "cyan reverse") if level == 8 else (("┄" + _BLOCKS[1:])[level], "cyan"))
            text.append("\n")
        else:
            text.append(f"{''.join(_BLOCKS[level] for level in levels)}\n", style="cyan")
    first, last = f"{time[0]:g}", f"{time[-1]:g}"
    text.append(f"{'0.00 └':>{_MARGIN}}{'─' * width}\n", style="dim")
    text.append(f"{'':{_MARGIN}}{first}{last:>{width - len(first)}}\n", style="dim")
    text.append("test accuracy over simulated time".center(width + _MARGIN).rstrip(), style="dim")
    if chance is not None:
        text.append("\n" + f"┄ chance, {chance:.3g}".center(width + _MARGIN).rstrip(), style="dim")
    return text


def _number(value: Any, pattern: str = "{:,.4g}") -> str:
    return "-" if value is None else pattern.format(value)


def _reached(value: float | None) -> str:
    return NOT_REACHED if value is None else f"{value:g}"


def summary_table(title: str, summary: Mapping[str, Any], room: int = 80) -> RenderableType:
    """Lay a summary out as a table: two names and numbers in a line if there is room, else one."""
    from fedtide.report.summary import TARGETS

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
