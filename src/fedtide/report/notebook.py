"""What a notebook shows of a result: a few numbers in a table, and a small picture in the page itself. No scripts."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

_CELL = "text-align:left;padding:1px 12px 1px 0"


def card(title: str, table: str, figure: Any = None) -> str:
    """Return a title, a table and a Matplotlib figure (None: none) as one piece of HTML."""
    drawn = f"<br>{picture(figure)}" if figure is not None else ""
    return f"<div><b>{escape(title)}</b>{table}{drawn}</div>"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names and values as an HTML table."""
    rows = "".join(
        f'<tr><td style="{_CELL};opacity:.65">{escape(name)}</td><td style="{_CELL}">{escape(value)}</td></tr>'
        for name, value in pairs
    )
    return f"<table>{rows}</table>"


def html_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows of text under headings as an HTML table."""
    head = "".join(f'<th style="{_CELL}">{escape(each)}</th>' for each in headings)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{escape(each)}</td>' for each in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def picture(figure: Any) -> str:
    """Return a figure as an image inside the page (PNG)."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=110)
    return f'<img alt="figure" src="data:image/png;base64,{base64.b64encode(drawn.getvalue()).decode()}">'
