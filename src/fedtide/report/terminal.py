"""Tables that fit a terminal, and a run's curve and summary in one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_GAPS = (2, 1)  # characters between columns, the better one first
_MIN_WRAPPED = 16  # characters of a wrapped column, if its text is as long
_LONGEST_WORD = 36  # characters; a longer word (a path, a user's label) is folded
_BLOCKS = " ▁▂▃▄▅▆▇█"
_MARGIN = 7  # characters left of the blocks: the axis and its numbers
_MIN_BLOCKS = 8  # characters


class TableColumn(NamedTuple):
    """How a column is laid out. Its lines stay whole unless it `wraps`, which breaks them between words."""

    heading: str
    right: bool = False
    wraps: bool = False
    style: str = ""


def terminal_list(
    columns: Sequence[TableColumn], rows: Iterable[Sequence[str]], room: int, title: str = "", indent: int = 0
) -> RenderableType:
    """Lay rows of rich markup out in columns; where words would have to be broken, every row as lines of its own.

    The widths are ours: rich breaks the words of a column that it makes narrower.
    """
    cells = [[Text.from_markup(cell, emoji=False) for cell in row] for row in rows]
    heading = [Text.from_markup(title, style="italic", emoji=False)] if title else []
    for gap in _GAPS:
        widths = _widths(columns, cells, room - indent - gap * (len(columns) - 1))
        if widths is None:
            continue
        table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
        for column, width in zip(columns, widths, strict=True):
            side: Any = "right" if column.right else "left"
            table.add_column(Text(column.heading), width=width, justify=side, overflow="fold", style=column.style)
        for row in cells:
            table.add_row(*row)
        return Group(*heading, Padding(table, (0, 0, 0, indent)))
    return Group(*heading, Padding(_stacked(columns, cells), (0, 0, 0, indent)))


def terminal_pairs(
    rows: Mapping[str, Any], room: int, title: str | Text = "", indent: int = 2, style: str = "dim"
) -> RenderableType:
    """Lay names out, unbroken, each beside its text, which is plain unless it is a Text. style: of the names."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style=style, no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows.items():
        table.add_row(Text(name), text if isinstance(text, Text) else Text(str(text)))
    head = [title if isinstance(title, Text) else Text(title, style="italic")] if title else []
    return Group(*head, Padding(table, (0, 0, 0, indent if room > 40 else 0)))


def _widths(columns: Sequence[TableColumn], cells: Sequence[Sequence[Text]], room: int) -> list[int] | None:
    """Return the width of every column; None if the room, without the gaps, is too small for them."""
    least, most = [], []
    for position, column in enumerate(columns):
        texts = [row[position].plain for row in cells]
        lines = [cell_len(line) for text in texts for line in text.splitlines()]
        words = [cell_len(word) for text in (column.heading, *(texts if column.wraps else ())) for word in text.split()]
        whole, word = max([*lines, *words], default=0), max(words, default=0)
        least.append(max(min(word, _LONGEST_WORD), min(_MIN_WRAPPED, whole)) if column.wraps else whole)
        most.append(max(whole, cell_len(column.heading)))
    left, wanted = room - sum(least), sum(most) - sum(least)
    if left < 0:
        return None
    share = min(1.0, left / wanted) if wanted else 0.0
    return [low + int((high - low) * share) for low, high in zip(least, most, strict=True)]


def _stacked(columns: Sequence[TableColumn], cells: Sequence[Sequence[Text]]) -> Group:
    """Lay each row out as its first cell, and below it the others beside their headings."""
    lines: list[RenderableType] = []
    for first, *rest in cells:
        first.stylize(columns[0].style or "bold")
        lines.append(first)
        for column, text in zip(columns[1:], rest, strict=True):
            if text.plain.strip():
                line = Text.assemble((f"{column.heading}: ", "dim"), text, overflow="fold")
                lines.append(Padding(line, (0, 0, 0, 2)))
    return Group(*lines)


def terminal_curve(
    time: Sequence[float], value: Sequence[float], room: int = 80, chance: float | None = None, height: int = 10
) -> Text:
    """Draw accuracies over time as columns of blocks between 0 and 1.

    room: width in characters. chance: the accuracy of guessing, drawn as a line; None: not known.
    """
    text, width = Text(), max(room - _MARGIN, _MIN_BLOCKS)
    if not value:
        return text
    columns = np.interp(np.linspace(time[0], time[-1], width), time, value)
    eighths = np.clip(np.round(columns * 8 * height), 0, 8 * height).astype(int)
    at = None if chance is None else max(int(np.ceil(chance * height - 1e-9)) - 1, 0)  # the row of the line
    for row in range(height - 1, -1, -1):
        label = "1.00 ┤" if row == height - 1 else f"{chance:.2f} ┤" if row == at else "│"
        levels = np.clip(eighths - 8 * row, 0, 8).tolist()
        text.append(f"{label:>{_MARGIN}}", style="dim")
        if row == at:  # the line is drawn across higher columns, too
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


def terminal_summary(title: str, summary: Mapping[str, Any], room: int = 80) -> RenderableType:
    """Lay a summary out as a table with two names and numbers per line; one if there is no room for two."""
    from fedtide.report.summary import summary_texts

    cells = {name: value for name, value in summary_texts(summary).items() if value != "-"}
    heading = Text(title, style="table.title", overflow="fold")
    table = Table(box=None, show_header=False, padding=(0, 2))
    for _ in range(2):
        table.add_column(style="dim", no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
    pairs = [*cells.items()]
    for both in itertools.zip_longest(pairs[::2], pairs[1::2], fillvalue=("", "")):
        table.add_row(*itertools.chain(*both))
    widths = [max(map(cell_len, column.cells)) for column in table.columns]  # type: ignore[arg-type]
    return terminal_pairs(cells, room, heading) if sum(widths) + 16 > room else Group(heading, table)
