"""The lines of a page: the palette's, each light or dark enough for the paper that it is drawn on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from fedtide.report.palette import looks

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
        for name, look in looks(names).items()
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
