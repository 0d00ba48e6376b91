"""The shell of every page: one file, nothing fetched, nothing of a user's that could be anything but text."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, Final

import numpy as np

from fedtide.errors import FedtideError
from fedtide.plot.style import line_styles

# The lines of a page: the palette's, each light or dark enough for the paper that it is drawn on.


WHITE, BLACK = "#ffffff", "#14161a"  # the papers of base.css
CONTRAST: Final = {WHITE: 3.0, BLACK: 4.5}  # of a line with its paper: WCAG 2.2, 1.4.11, and more where thin lines fade


def line_trees(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return for every name its colour on light and on dark paper, its dash (px) and its marker."""
    return {
        name: {
            "light": seen_on(look.colour, WHITE),
            "dark": seen_on(look.colour, BLACK),
            "dash": [round(1.8 * each, 1) for each in look.dash],
            "marker": look.marker,
        }
        for name, look in line_styles(names).items()
    }


def seen_on(colour: str, paper: str) -> str:
    """Return a colour, moved away from the paper's just as far as it takes to be seen on it."""
    other = "#ffffff" if luminance(paper) < 0.5 else "#000000"
    for share in range(0, 101, 5):
        mixed = _mixed(colour, other, share / 100)
        if contrast(mixed, paper) >= CONTRAST[paper]:
            return mixed
    return other


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    """Return the relative luminance of #rrggbb, from 0 to 1."""
    red, green, blue = (_linear(each / 255) for each in _parts(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else float(((part + 0.055) / 1.055) ** 2.4)


def _parts(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))


def _mixed(colour: str, other: str, share: float) -> str:
    mixed = (round(a + share * (b - a)) for a, b in zip(_parts(colour), _parts(other), strict=True))
    return "#" + "".join(f"{each:02x}" for each in mixed)


# The shell of every page: one file, nothing fetched, nothing of a user's that could be anything but text.


_DIGITS: Final = 7  # of the numbers in a page; what is drawn needs fewer, what is read out no more
_STYLESHEETS: Final = ("uPlot.min.css", "base.css")
# Of every page; a pattern, by which a page of ours is told from other files.
BEGINNING: Final = (
    rb'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    rb'<meta http-equiv="Content-Security-Policy" content="default-src '
)
# A JSON string may hold these escaped: no label can end the script it is in.
_ESCAPES: Final = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}


def page(
    title: str,
    payload: object,
    parts: Sequence[str],
    body: Markup,
    still: Markup,
    *,
    styles: Sequence[str] = (),
    polls: bool = False,
) -> str:
    """Return a page as one HTML file. Equal arguments give equal bytes.

    title: plain text. payload: what JSON and NumPy know, numbers are rounded. parts: asset scripts, in order. body: HTML
    with landmarks. still: an SVG for readers without scripts.
    styles: asset style sheets after the common ones. polls: the page may ask the server it came from for more.
    """
    if not (isinstance(body, Markup) and isinstance(still, Markup)):
        raise TypeError("a page is made of Markup: whatever else is put into it could be a user's words")
    sheets = [_inline(each, "style") for each in (*_STYLESHEETS, *styles)]
    scripts = [_inline(each, "script") for each in parts]
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(_hash(each) for each in scripts) or repr('none')}",
            f"style-src {' '.join(_hash(each) for each in sheets)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            *(("connect-src 'self'",) if polls else ()),
        )
    )
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<link rel="icon" href="data:,">',
        f"<title>{text(title, 200)}</title>",
        *(f"<style>{each}</style>" for each in sheets),
        "</head>",
        "<body>",
        '<a class="skip" href="#main">Skip to the content</a>',
        '<div id="tools" class="tools"></div>',
        body,
        f'<noscript><figure class="still">{still}<figcaption>A still picture: with scripts, this page can be explored.'
        "</figcaption></figure></noscript>",
        f'<script type="application/json" id="data">{as_json(payload)}</script>',
        *(f"<script>{each}</script>" for each in scripts),
        "</body>",
        "</html>",
    ]
    return "\n".join(lines) + "\n"


class Markup(str):
    """HTML in which all that a user may have written is escaped. `text`, `markup` and `joined` make it, nobody else."""

    __slots__ = ()


def markup(template: str, **values: object) -> Markup:
    """Return a template of ours with its fields filled: Markup as it is, numbers as the template says, all else as text."""
    known = {name: each if isinstance(each, Markup | int | float) else text(each) for name, each in values.items()}
    return Markup(template.format(**known))


def joined(parts: Iterable[object], between: str = "") -> Markup:
    """Return parts one after the other; what is no Markup is text."""
    return Markup(between.join(each if isinstance(each, Markup) else text(each) for each in parts))


def policy_of(made: str) -> str:
    """Return the security policy that a page has in itself."""
    found = re.search(r'Content-Security-Policy" content="([^"]*)"', made)
    assert found is not None
    return found[1]


def text(words: object, most: int | None = None) -> Markup:
    """Return what a user may have written as HTML that shows it and does nothing; at most so many characters of it.

    Set apart (bdi), so that words from right to left do not turn what is around them, needs an element: see `label`.
    """
    shown = str(words).encode("utf-8", "replace").decode()  # a lone surrogate is no text
    if most is not None and len(shown) > most:
        shown = shown[: most - 1] + "…"
    return Markup(html.escape(shown))


def html_label(words: object, most: int = 120) -> Markup:
    """Return a user's label as HTML of its own direction, cut to `most` characters."""
    return markup("<bdi>{words}</bdi>", words=text(words, most))


def as_json(payload: object) -> str:
    """Return a payload as JSON that can stand in a script element: sorted keys, rounded numbers, nothing that ends it."""
    return json.dumps(plain_text(payload), sort_keys=True, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)


def plain_text(value: Any) -> Any:
    """Return a value as JSON knows it: floats with DIGITS digits, None for those that are no number."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        short = float(f"{value:.{_DIGITS}g}")
        return int(short) if short == int(short) and abs(short) < 2**53 else short
    if isinstance(value, Mapping):
        return {str(key): plain_text(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain_text(each) for each in value]
    if value is None or isinstance(value, str | int):
        return value
    raise TypeError(f"a {type(value).__name__} has no place in a page")


def asset(name: str) -> str:
    """Return a file of `pages/assets`."""
    return (resources.files("fedtide.pages") / "assets" / name).read_text(encoding="utf-8")


def _inline(name: str, element: str) -> str:
    content = asset(name)
    if f"</{element}" in content.lower() or "<!--" in content:
        raise FedtideError(f"pages/assets/{name} would end the {element} that it is put into; write it differently")
    return content


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
