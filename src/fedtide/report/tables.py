"""Tables that fit: as wide as the room at most, and never with a word cut in two where the room could hold it.

Cells are rich markup. A column keeps its lines whole unless it `wraps`, which breaks between words; where even that does
not fit, each row becomes a few lines of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

GAPS = (2, 1)  # characters between columns: better two
LEAST = 16  # characters that a wrapped column has at least, if its text is as long
LONGEST = 36  # of a word that a column is made wide enough for; a longer one (a path, a label of a user) is folded


class Column(NamedTuple):
    """How a column looks."""

    heading: str
    right: bool = False
    wraps: bool = False
    style: str = ""


def listed(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], room: int, title: str = "", indent: int = 0
) -> RenderableType:
    """Lay rows out in columns if these fit into the room, else one below the other."""
    cells = [[Text.from_markup(each) for each in row] for row in rows]
    made: RenderableType = _stacked(columns, cells)
    for gap in GAPS:
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


def _widths(columns: Sequence[Column], cells: Sequence[Sequence[Text]], room: int) -> list[int] | None:
    """Return the width of every column; None if the room, without the gaps, is too small for them."""
    least, most = [], []
    for position, column in enumerate(columns):
        texts = [row[position].plain for row in cells]
        lines = [cell_len(line) for text in texts for line in text.splitlines()]
        words = [cell_len(word) for text in (column.heading, *(texts if column.wraps else ())) for word in text.split()]
        whole = max([*lines, *words], default=0)
        word = max(words, default=0)
        least.append(max(min(word, LONGEST), min(LEAST, whole)) if column.wraps else whole)
        most.append(max(whole, cell_len(column.heading)))
    left = room - sum(least)
    if left < 0:
        return None
    wanted = sum(most) - sum(least)
    share = min(1.0, left / wanted) if wanted else 0.0
    return [low + int((high - low) * share) for low, high in zip(least, most, strict=True)]


def _side_by_side(columns: Sequence[Column], cells: Sequence[Sequence[Text]], widths: Sequence[int], gap: int) -> Table:
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


def _stacked(columns: Sequence[Column], cells: Sequence[Sequence[Text]]) -> Group:
    """Lay each row out as its first cell, and below it the others beside their headings."""
    made: list[RenderableType] = []
    for first, *rest in cells:
        first.stylize(columns[0].style or "bold")
        made.append(first)
        for column, text in zip(columns[1:], rest, strict=True):
            if text.plain.strip():
                made.append(Padding(Text.assemble((f"{column.heading}: ", "dim"), text, overflow="fold"), (0, 0, 0, 2)))
    return Group(*made)
