"""A page to be read from top to bottom: prose with figures whose values are tables, which scripts make interactive."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from fedtide.errors import FedtideError
from fedtide.pages.html import Markup, html_line_styles, html_page, html_text, join_markup, markup
from fedtide.studies.statistics import EQUIVALENT, Band, Comparison

_KINDS: Final = {"holds": "good", "higher": "good", "contradicted": "bad", "lower": "bad"}
_PLACE: Final = re.compile(r"\(figure: (.+)\)\n(.+)\n(.+)")
_MINUS: Final = re.compile(r"(?<![^\s(])-(?=\d)")
_INLINE: Final = re.compile(r"\*\*(?P<bold>.+?)\*\*|`(?P<code>.+?)`|\[(?P<words>[^\]]+)\]\((?P<link>https://[^)]+)\)")


class GainRow(NamedTuple):
    """A difference with its interval, and what it means."""

    words: str
    gain: Comparison | None  # None: no runs
    verdict: str
    note: str = ""  # shown when the row is chosen


class GainPanel(NamedTuple):
    """Rows that are seen together."""

    title: str
    rows: Sequence[GainRow]


class CurvePanel(NamedTuple):
    """Mean curves that are seen together, by name."""

    title: str
    bands: Mapping[str, Band]
    shown: Sequence[str]  # at first


class ArticleFigure(NamedTuple):
    """A figure of which the reader sees one panel at a time. All panels are of one kind."""

    name: str
    panels: Sequence[GainPanel | CurvePanel]
    axes: tuple[str, str] = ("", "")  # of curves


def article_page(title: str, lead: str, text: str, figures: Sequence[ArticleFigure]) -> str:
    """Return a page of prose in Markdown. Every figure has a place: a line `(figure: NAME)`, then its title, then its caption."""
    waiting = {figure.name: figure for figure in figures}
    parts = []
    for block in re.split(r"\n{2,}", text.strip()):
        if place := _PLACE.fullmatch(block):
            if place[1] not in waiting:
                raise FedtideError(f"the text places the figure {place[1]!r}, which is not there or is placed twice")
            number = len(figures) - len(waiting) + 1
            parts.append(_figure(waiting.pop(place[1]), f"**{number}.** {place[2]}", place[3]))
        else:
            parts.append(_block(block))
    if waiting:
        raise FedtideError(f"the text has no place for {', '.join(waiting)}; add a paragraph (figure: NAME) for each")
    body = markup(
        '<header><h1>{title}</h1><p class="lead">{lead}</p></header><main id="main" class="article">{parts}</main>',
        title=title, lead=_inline(lead), parts=join_markup(parts, "\n"),
    )  # fmt: skip
    curves = {figure.name: _curves(figure) for figure in figures if isinstance(figure.panels[0], CurvePanel)}
    scripts = ("uPlot.iife.min.js", "common.js", "article.js")
    return html_page(title, {"figures": curves}, scripts, body, Markup(), styles=("study.css", "article.css"))


# ---- Markdown: headings, paragraphs, lists, tables; bold, code and links within them


def _block(text: str) -> Markup:
    lines = text.splitlines()
    if text.startswith("## "):
        return markup("<h2>{words}</h2>", words=_inline(text[3:]))
    if text.startswith("|"):
        head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
        return markup(
            '<div class="scroll"><table class="told"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>',
            head=join_markup(markup('<th scope="col" class="words">{cell}</th>', cell=_inline(cell)) for cell in head),
            rows=join_markup(markup("<tr>{cells}</tr>", cells=_cells(row)) for row in rows),
        )
    if text.startswith("- "):
        items = join_markup(markup("<li>{item}</li>", item=_inline(line[2:])) for line in lines)
        return markup("<ul>{items}</ul>", items=items)
    return markup("<p>{words}</p>", words=_inline(" ".join(lines)))


def _cells(row: Sequence[str]) -> Markup:
    return join_markup(markup('<td class="words">{cell}</td>', cell=_inline(cell)) for cell in row)


def _inline(text: str) -> Markup:
    return join_markup(_pieces(_MINUS.sub("−", text)))


def _pieces(text: str) -> Iterator[Markup]:
    end = 0
    for found in _INLINE.finditer(text):
        yield html_text(text[end : found.start()])
        if found["bold"]:
            yield markup("<b>{words}</b>", words=join_markup(_pieces(found["bold"])))
        elif found["code"]:
            yield markup("<code>{words}</code>", words=found["code"])
        else:
            yield markup('<a href="{link}">{words}</a>', link=found["link"], words=found["words"])
        end = found.end()
    yield html_text(text[end:])


# ---- figures


def _figure(figure: ArticleFigure, title: str, caption: str) -> Markup:
    panels = [
        markup(
            '<div class="panel" data-title="{title}"><h3>{title}</h3>{table}</div>',
            title=panel.title,
            table=_gain_table(panel) if isinstance(panel, GainPanel) else _curve_table(panel, figure.axes[1]),
        )
        for panel in figure.panels
    ]
    return markup(
        '<figure class="figure" id="figure-{name}" data-name="{name}"><h3 class="title">{title}</h3>'
        '<div class="choices screen"></div>{panels}<p class="readout" aria-live="polite"></p>'
        "<figcaption>{caption}</figcaption></figure>",
        name=figure.name, title=_inline(title), panels=join_markup(panels), caption=_inline(caption),
    )  # fmt: skip


def _axis_ends(gains: Sequence[Comparison]) -> tuple[float, float]:
    """Return an axis that holds zero, every mean, and nine in ten ends of intervals; longer intervals are cut."""
    means = [gain.mean for gain in gains]
    low, high = (
        np.array([value for gain in gains if np.isfinite(value := getattr(gain, end))] or means)
        for end in ("low", "high")
    )
    least = min(0.0, *means, float(np.quantile(low, 0.1)))
    most = max(0.0, *means, float(np.quantile(high, 0.9)))
    room = 0.04 * (most - least or 1.0)
    return least - room, most + room


def _ticks(ends: tuple[float, float]) -> list[float]:
    """Return three to six round numbers within an axis, with zero."""
    span = ends[1] - ends[0]
    step = next(s for power in range(-4, 3) for s in (1 * 10**power, 2 * 10**power, 5 * 10**power) if span / s <= 6)
    return [step * each for each in range(int(np.ceil(ends[0] / step)), int(np.floor(ends[1] / step)) + 1)]


def _across(value: float, ends: tuple[float, float]) -> str:
    return f"{100 * min(max((value - ends[0]) / (ends[1] - ends[0]), 0.0), 1.0):.2f}%"


def _grid(ends: tuple[float, float]) -> Markup:
    line = '<line class="{kind}" x1="{x}" x2="{x}" y1="0" y2="100%"/>'
    return join_markup(
        markup(line, kind="tick" if round(tick, 9) else "zero", x=_across(tick, ends)) for tick in _ticks(ends)
    )


def _gain_table(panel: GainPanel) -> Markup:
    gains = [row.gain for row in panel.rows if row.gain is not None]
    ends = _axis_ends(gains) if gains else (0.0, 1.0)
    number = '<text x="{x}" y="12" text-anchor="middle">{words}</text>'
    ticks = join_markup(
        markup(number, x=_across(tick, ends), words=f"{tick:+.4g}".replace("-", "−") if round(tick, 9) else "0")
        for tick in _ticks(ends)
    )
    return markup(
        '<table class="gains"><caption class="hidden">{title}</caption><thead><tr><th scope="col"></th><th class="plot">'
        '<svg aria-hidden="true">{ticks}</svg></th><th scope="col">difference (95 % interval)</th><th scope="col">verdict</th>'
        "</tr></thead><tbody>{rows}</tbody></table>",
        title=panel.title,
        ticks=ticks,
        rows=join_markup((_gain_row(row, ends) for row in panel.rows), "\n"),
    )


def _gain_row(row: GainRow, ends: tuple[float, float]) -> Markup:
    kind = "told" if row.verdict.startswith(EQUIVALENT) else _KINDS.get(row.verdict, "open")
    mean = interval = ""
    drawn = [_grid(ends)]
    if row.gain is not None:
        mean, interval = _MINUS.sub("−", f"{row.gain.mean:+.3f}"), "one seed"
        mark = '<circle class="{kind}" cx="{x}" cy="50%" r="4.5"/>'
        if np.isfinite(row.gain.low):
            interval = _MINUS.sub("−", f"({row.gain.low:+.3f} to {row.gain.high:+.3f})")
            line = '<line class="whisker" x1="{low}" x2="{high}" y1="50%" y2="50%"/>'
            drawn.append(markup(line, low=_across(row.gain.low, ends), high=_across(row.gain.high, ends)))
        full = "mark" if kind == "open" else "mark full"
        drawn.append(markup(mark, kind=full, x=_across(row.gain.mean, ends)))
    return markup(
        '<tr data-key="{words}" data-note="{note}"><th scope="row" class="words">{words}</th>'
        '<td class="plot"><svg class="{kind}" aria-hidden="true">{drawn}</svg></td>'
        '<td class="numbers"><b>{mean}</b> {interval}</td><td class="verdict {kind}">{verdict}</td></tr>',
        words=row.words, note=row.note, kind=kind, drawn=join_markup(drawn), mean=mean, interval=interval, verdict=row.verdict,
    )  # fmt: skip


def _curve_table(panel: CurvePanel, what: str) -> Markup:
    row = (
        '<tr data-key="{name}"><th scope="row" class="words">{name}</th><td>{middle:.3f}</td><td>{last:.3f}</td>'
        '<td class="value"></td></tr>'
    )
    rows = (
        markup(row, name=name, middle=float(np.interp(sum(band.x[[0, -1]]) / 2, band.x, band.mean)), last=band.mean[-1])
        for name, band in panel.bands.items()
    )
    return markup(
        '<div class="chart"></div><div class="scroll"><table class="lines"><caption class="hidden">{what}, {title}</caption>'
        '<thead><tr><th scope="col"></th>'
        '<th scope="col">half-way</th><th scope="col">at the end</th><th scope="col" class="value"></th></tr></thead>'
        "<tbody>{rows}</tbody></table></div>",
        what=what, title=panel.title, rows=join_markup(rows, "\n"),
    )  # fmt: skip


def _curves(figure: ArticleFigure) -> object:
    """Return the curves of a figure as plain data, those of a panel on the first one's grid."""
    panels = [panel for panel in figure.panels if isinstance(panel, CurvePanel)]
    styles = html_line_styles(dict.fromkeys(name for panel in panels for name in panel.bands))
    return {
        "axes": figure.axes,
        "panels": [
            {
                "x": (grid := next(iter(panel.bands.values())).x),
                "shown": panel.shown,
                "curves": [
                    {
                        "name": name,
                        "line": styles[name],
                        **{side: np.interp(grid, band.x, getattr(band, side)).round(4) for side in ("mean", "low", "high")},
                    }
                    for name, band in panel.bands.items()
                ],
            }
            for panel in panels
        ],
    }  # fmt: skip
