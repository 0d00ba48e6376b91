"""One colour, dash and marker per policy, the same in every figure and on every page; and the styles of journals.

Readers with colour-blindness can tell the colours apart. Curves of one figure also differ in dash and marker, so that a
grey print can be read. `tests/report/test_palette.py` simulates both. Pure data: nothing is imported to draw.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fedtide.errors import FedtideError

# Okabe and Ito's palette, for whatever is not a policy.
COLOURS = ("#0072B2", "#BF4B00", "#009E73", "#CC79A7", "#C48700", "#4A9BC8", "#000000")
GREY = "#8c8c8c"


class LineStyle(NamedTuple):
    """How a curve is drawn."""

    colour: str
    dash: tuple[float, ...] = ()  # on, off, on, off, ... in line widths; (): solid
    marker: str = "o"  # as Matplotlib calls it


SOLID: tuple[float, ...] = ()
DASHED = (5.0, 2.0)
DOTTED = (1.2, 1.5)
DASH_DOT = (6.0, 1.8, 1.2, 1.8)
LONG_DASH = (9.0, 2.5)
_DASH_DOT_DOT = (8.0, 1.8, 1.2, 1.8, 1.2, 1.8)
SHORT_DASH = (2.8, 1.4)
_LONG_SHORT = (8.0, 1.8, 2.8, 1.8)

LINE_STYLES: dict[str, LineStyle] = {
    # who is scheduled
    "proposed": LineStyle("#0072B2", SOLID, "o"),
    "random": LineStyle("#BF4B00", DASHED, "s"),
    "BC": LineStyle("#009E73", DASH_DOT, "^"),
    "BCBN2": LineStyle("#CC79A7", DOTTED, "D"),
    "age-based": LineStyle("#C48700", _DASH_DOT_DOT, "v"),
    "best of 30 subsets": LineStyle("#332288", _LONG_SHORT, "P"),
    # when the server acts; T_max/4 with random scheduling is `random`
    "FedAvg": LineStyle("#000000", LONG_DASH, "X"),
    "FedAsync 0.4": LineStyle("#4A9BC8", DOTTED, "P"),
    "FedAsync 0.8": LineStyle("#882255", DASH_DOT, "v"),
    "FedBuff": LineStyle("#117733", SHORT_DASH, "p"),
    "T_max/8": LineStyle("#6A3D9A", DOTTED, "D"),
    "T_max/2": LineStyle("#41A393", DASH_DOT, "^"),
    "T_max": LineStyle("#A99400", SOLID, "v"),
    # how many upload: light is many
    "R=2": LineStyle("#0D0887", SOLID, "o"),
    "R=4": LineStyle("#7A00A8", DASHED, "s"),
    "R=8": LineStyle("#B93289", DASH_DOT, "^"),
    "R=12": LineStyle("#E5695D", DOTTED, "D"),
    "R=20": LineStyle("#CA852B", _DASH_DOT_DOT, "v"),
    # how age counts: light hues favour the fresh, dark ones the old
    "proposed, fresh": LineStyle("#5C99C5", DOTTED, "^"),
    "proposed, old": LineStyle("#0B2A5B", DASH_DOT, "v"),
    "proposed, older": LineStyle("#9488DE", _LONG_SHORT, "p"),
    "random, fresh": LineStyle("#C18948", SHORT_DASH, "D"),
    "random, old": LineStyle("#6E2A00", LONG_DASH, "X"),
    "random, older": LineStyle("#B0005A", _DASH_DOT_DOT, "P"),
    # servers of other papers
    "FedAC": LineStyle("#882255", LONG_DASH, "p"),
    "ACE": LineStyle("#332288", DASH_DOT, "^"),
    "CA2FL": LineStyle("#117733", _DASH_DOT_DOT, "v"),
    # codecs
    "sparse_quantized": LineStyle("#AA4499", DASHED, "s"),
    "dead_zone": LineStyle("#117733", SOLID, "o"),
    # bounds
    "Theorem 1": LineStyle("#332288", LONG_DASH, "o"),
    "tight": LineStyle("#41A393", DASHED, "^"),
    "sharp": LineStyle("#CC6677", DASH_DOT, "D"),
    "measured": LineStyle("#000000", SOLID, "s"),
}
ALIASES = {
    "best_channel": "BC",
    "best_channel_best_norm": "BCBN2",
    "age_based": "age-based",
    "best_of_random_subsets": "best of 30 subsets",
    "periodic, proposed": "proposed",
    "periodic, random": "random",
    "random, T_max/4": "random",
    "T_max/4": "random",
    "paper": "proposed",
    "the paper's schedule": "proposed",
    "random scheduling": "random",
    "fedavg": "FedAvg",
    "fedasync": "FedAsync 0.4",
    "fedbuff": "FedBuff",
    **{f"{name}, γ=1": name for name in ("proposed", "random")},
    **{f"{name}, γ=0.846": f"{name}, fresh" for name in ("proposed", "random")},
    **{f"{name}, γ=1.182": f"{name}, old" for name in ("proposed", "random")},
    **{f"{name}, γ=2": f"{name}, older" for name in ("proposed", "random")},
}
_DASHES = (SOLID, DASHED, DASH_DOT, DOTTED, _DASH_DOT_DOT, SHORT_DASH, LONG_DASH, _LONG_SHORT)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
NUM_SPARE = len(COLOURS) * len(_DASHES)


def _spare_style(position: int) -> LineStyle:
    """Return a line style for a name without its own: the seven colours, then again with other dashes and markers; 56 in all."""
    turn, colour = divmod(position % NUM_SPARE, len(COLOURS))
    return LineStyle(
        COLOURS[colour], _DASHES[(colour + turn) % len(_DASHES)], _MARKERS[(colour + 3 * turn) % len(_MARKERS)]
    )


def _known_style(label: str) -> LineStyle | None:
    """Return the line style of a policy, framework or setting, found by its name or by the value in `key=value`."""
    name = label.partition(" | ")[0]
    for symbol, word in (("$", ""), (r"T_{\max}", "T_max"), (r"\gamma", "γ")):
        name = name.replace(symbol, word)
    for each in (name, name.rpartition("=")[2] if name.count("=") == 1 else ""):
        found = LINE_STYLES.get(ALIASES.get(each, each))
        if found is not None:
            return found
    return None


def line_styles(labels: Iterable[str]) -> dict[str, LineStyle]:
    """Return a line style for every label of one figure: known names have their own, the others take free ones.

    No two are alike while any is free. A style that shares no colour, dash or marker with another is taken first.
    """
    names = list(dict.fromkeys(labels))
    found: dict[str, LineStyle] = {}
    for label in names:
        style = _known_style(label)
        if style is not None and style not in found.values():
            found[label] = style
    used = set(found.values())
    for number, label in enumerate([name for name in names if name not in found]):
        free = [each for each in map(_spare_style, range(NUM_SPARE)) if each not in used] or [_spare_style(number)]
        parts = {part for style in used for part in style}  # colours, dashes and markers are never equal
        new = [each for each in free if each.colour not in parts]
        found[label] = next((each for each in new if not parts & set(each)), (new or free)[0])
        used.add(found[label])
    return {label: found[label] for label in names}


_COMMON: Mapping[str, Any] = {
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
    """What a figure is drawn for: a screen, or a journal's column. Sizes in inches and points."""

    name: str
    width: float  # of the whole figure
    stacked: bool  # panels are below one another, not side by side
    titles: bool  # above the panels; if not, names are below them, (a), (b), ...
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
            **_COMMON,
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
        Style("nature", 89 / 25.4, True, False, 7, 7, _SANS, "dejavusans", 0.52, line=1.0, panel=1.8),
        Style("nature-wide", 183 / 25.4, False, False, 7, 7, _SANS, "dejavusans", 0.52, line=1.0, panel=2.4),
    )
}
SCREEN = "screen"


def style_named(name: str) -> Style:
    """Return a style; raise if there is none of this name."""
    if name not in STYLES:
        raise FedtideError(f"style {name!r} is not known; use one of {', '.join(STYLES)}")
    return STYLES[name]
