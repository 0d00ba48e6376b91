"""The shell of every page: one file that fetches nothing, in which a user's text stays text; and the colours of its lines."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np

from fedtide.core.files import refuse_other_file_kind, write_output
from fedtide.errors import FedtideError
from fedtide.plot.style import line_styles

WHITE, BLACK = "#ffffff", "#14161a"  # backgrounds of base.css
# of a line and its background: WCAG 2.2, 1.4.11, and more where thin lines fade
CONTRAST: Final = {WHITE: 3.0, BLACK: 4.5}
_DIGITS: Final = 7  # of the numbers in a page
_STYLESHEETS: Final = ("uPlot.min.css", "base.css")
# How every page begins, as a pattern: other files are not replaced by a page.
BEGINNING: Final = (
    rb'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    rb'<meta http-equiv="Content-Security-Policy" content="default-src '
)
_KIND: Final = "a page of fedtide"
_STILL: Final = (
    '<noscript><figure class="still">{static}<figcaption>With scripts, this page can be explored.'
    "</figcaption></figure></noscript>"
)
# Escaped in JSON strings, so that no label can end the script element.
_ESCAPES: Final = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}


def html_line_styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return for every name its colour on a light and on a dark background, its dash (px) and its marker."""
    return {
        name: {
            "light": _visible_on(line.colour, WHITE),
            "dark": _visible_on(line.colour, BLACK),
            "dash": [round(1.8 * length, 1) for length in line.dash],
            "marker": line.marker,
        }
        for name, line in line_styles(names).items()
    }


def _visible_on(colour: str, background: str) -> str:
    """Return a colour, made lighter or darker just enough to be seen on a background."""
    other = "#ffffff" if _luminance(background) < 0.5 else "#000000"
    for share in range(0, 101, 5):
        mixed = (round(a + share / 100 * (b - a)) for a, b in zip(_rgb(colour), _rgb(other), strict=True))
        found = "#" + "".join(f"{part:02x}" for part in mixed)
        if _color_contrast(found, background) >= CONTRAST[background]:
            return found
    return other


def _color_contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    """Return the relative luminance of #rrggbb, from 0 to 1."""
    parts = (part / 255 for part in _rgb(colour))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return float(0.2126 * red + 0.7152 * green + 0.0722 * blue)


def _rgb(colour: str) -> bytes:
    return bytes.fromhex(colour[1:])


def html_page(
    title: str,
    payload: object,
    parts: Sequence[str],
    body: Markup,
    static: Markup,
    *,
    styles: Sequence[str] = (),
    polls: bool = False,
) -> str:
    """Return a page as one HTML file. Equal arguments give equal bytes.

    title: plain text. payload: JSON and NumPy values; numbers are rounded. parts: asset scripts, in order. body: HTML with
    landmarks. static: an SVG for readers without scripts; empty if the body says all. styles: asset style sheets after
    the common ones. polls: the page may ask its server for more.
    """
    if not (isinstance(body, Markup) and isinstance(static, Markup)):
        raise TypeError("a page is made of Markup: other text could come from a user")
    sheets = [_asset(each) for each in (*_STYLESHEETS, *styles)]
    scripts = [_asset(each) for each in parts]
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts)) or repr('none')}; "
        f"style-src {' '.join(map(_hash, sheets))}; img-src data:; base-uri 'none'; form-action 'none'"
        + ("; connect-src 'self'" if polls else "")
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
        f"<title>{html_text(title, 200)}</title>",
        *(f"<style>{each}</style>" for each in sheets),
        "</head>",
        "<body>",
        '<a class="skip" href="#main">Skip to the content</a>',
        '<div id="tools" class="tools"></div>',
        body,
        *([_STILL.format(static=static)] if static else []),
        f'<script type="application/json" id="data">{payload_json(payload)}</script>',
        *(f"<script>{each}</script>" for each in scripts),
        "</body>",
        "</html>",
    ]
    return "\n".join(lines) + "\n"


def check_page_output(to: Path) -> None:
    """Raise if a page cannot be written here, before the work."""
    refuse_other_file_kind(to, BEGINNING, _KIND)
    if to.suffix != ".html":  # not model.npy, say, which would end a run under way
        raise FedtideError(f"{to}: a page needs a name that ends in .html")


def write_page_output(to: Path, content: str) -> int:
    """Write a page in place of nothing or of another page, and return its size in bytes."""
    made = content.encode()
    write_output(to, made, BEGINNING, _KIND)
    return len(made)


class Markup(str):
    """HTML in which a user's text is escaped. Only `html_text`, `markup` and `join_markup` make it."""

    __slots__ = ()


def markup(template: str, **values: object) -> Markup:
    """Fill the fields of a template: Markup as it is, numbers as the template says, everything else as text."""
    known = {name: each if isinstance(each, Markup | int | float) else html_text(each) for name, each in values.items()}
    return Markup(template.format(**known))


def join_markup(parts: Iterable[object], between: str = "") -> Markup:
    """Join parts; those that are not Markup are escaped."""
    return Markup(between.join(each if isinstance(each, Markup) else html_text(each) for each in parts))


def html_security_policy(made: str) -> str:
    """Return the security policy in a page's own head."""
    found = re.search(r'Content-Security-Policy" content="([^"]*)"', made)
    assert found is not None
    return found[1]


def html_text(words: object, most: int | None = None) -> Markup:
    """Return a user's text as HTML that shows it and does nothing, cut to `most` characters."""
    shown = str(words).encode("utf-8", "replace").decode()  # replaces lone surrogates
    if most is not None and len(shown) > most:
        shown = shown[: most - 1] + "…"
    return Markup(html.escape(shown))


def html_label(words: object, most: int = 120) -> Markup:
    """Return a user's label as HTML with its own writing direction, cut to `most` characters."""
    return markup("<bdi>{words}</bdi>", words=html_text(words, most))


def payload_json(payload: object) -> str:
    """Return a payload as JSON for a script element: sorted keys, rounded numbers, nothing that could end the element."""
    return json.dumps(_plain_data(payload), sort_keys=True, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)


def _plain_data(value: Any) -> Any:
    """Return a value as plain JSON data: floats rounded, None for NaN and infinities."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        short = float(f"{value:.{_DIGITS}g}")
        return int(short) if short == int(short) and abs(short) < 2**53 else short
    if isinstance(value, Mapping):
        return {str(key): _plain_data(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_data(each) for each in value]
    if value is None or isinstance(value, str | int):
        return value
    raise TypeError(f"a {type(value).__name__} has no place in a page")


def _asset(name: str) -> str:
    """Return a file of `pages/assets`."""
    return (resources.files("fedtide.pages") / "assets" / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
