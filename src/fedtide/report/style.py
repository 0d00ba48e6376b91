"""What a figure is drawn for: a screen, or a journal's column with its widths, letters and embedded fonts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fedtide.errors import FedtideError

COMMON: Mapping[str, Any] = {
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "figure.dpi": 150,
    "savefig.bbox": "standard",  # the size that was asked for
    "svg.hashsalt": "fedtide",
    # TrueType, which editors and IEEE's check take; Matplotlib's own choice is Type 3, which they refuse
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
}


class Style(NamedTuple):
    """A style. Sizes in inches and points."""

    name: str
    width: float  # of the whole figure
    stacked: bool  # are panels below one another? Else side by side
    titles: bool  # above panels; else panels are named below, (a), (b), ...
    size: float  # of letters
    small: float  # of letters in legends and notes
    family: tuple[str, ...]
    mathematics: str
    letter: float  # mean width of a letter, in its size
    line: float = 1.3
    panel: float = 2.1  # height of a panel

    @property
    def settings(self) -> dict[str, Any]:
        """Return it as Matplotlib's parameters."""
        return {
            **COMMON,
            "font.family": list(self.family),
            "mathtext.fontset": self.mathematics,
            "font.size": self.size,
            "axes.labelsize": self.size,
            "axes.titlesize": self.size,
            "xtick.labelsize": self.small,
            "ytick.labelsize": self.small,
            "legend.fontsize": self.small,
            "legend.title_fontsize": self.small,
            "lines.linewidth": self.line,
            "lines.markersize": 4,
        }


# Matplotlib brings STIX, which has Times' letters: so a figure is the same on every machine.
_TIMES, _SANS = ("STIXGeneral",), ("Arial", "Helvetica", "Liberation Sans", "DejaVu Sans")
STYLES = {
    each.name: each
    for each in (
        Style("screen", 5.4, False, True, 9, 7.5, ("DejaVu Sans",), "dejavusans", 0.56, panel=2.5),
        Style("ieee", 3.5, True, False, 9, 8, _TIMES, "stix", 0.45, line=1.1, panel=1.9),
        Style("ieee-wide", 7.16, False, False, 9, 8, _TIMES, "stix", 0.45, line=1.1, panel=2.4),
        Style("nature", 89 / 25.4, True, False, 7, 6, _SANS, "dejavusans", 0.52, line=1.0, panel=1.8),
        Style("nature-wide", 183 / 25.4, False, False, 7, 6, _SANS, "dejavusans", 0.52, line=1.0, panel=2.4),
    )
}
SCREEN = "screen"


def named(name: str) -> Style:
    """Return a style; raise if there is none of this name."""
    if name not in STYLES:
        raise FedtideError(f"there is no style {name!r}; use one of {', '.join(STYLES)}")
    return STYLES[name]
