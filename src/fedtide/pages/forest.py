"""The forest plot of a page: paired differences with their intervals as rows, and as a static SVG.

Positive is always better: higher accuracy, lower loss, less variation; for a claim, what the paper says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from fedtide.pages.shell import Markup, join_markup, markup
from fedtide.pages.study_curves import Family, cut_text
from fedtide.studies.metrics import METRICS
from fedtide.studies.statistics import diverged, note, paired, paired_difference
from fedtide.studies.table import Reference, finite_or_none

LOWER: Final = ("mean_train_loss", "final_train_loss", "variation", "roughness")  # is better
_GAIN_VERDICTS: Final = {"higher": "gains", "lower": "loses"}
_WIDTH, _LABEL_WIDTH, _NUMBER_WIDTH = 900, 390, 150  # px: all, the labels at the left, the numbers at the right
_ROW_HEIGHT, _HEADING_HEIGHT = 17, 26  # px
_LONGEST_LABEL: Final = 62  # characters
_GOOD, _BAD, _OPEN, _NEUTRAL = "#00734d", "#a83a00", "#55595f", "#0060a0"
_COLOURS: Final = {
    "holds": _GOOD,
    "gains": _GOOD,
    "contradicted": _BAD,
    "loses": _BAD,
    "higher": _NEUTRAL,  # nothing is claimed about it
    "lower": _NEUTRAL,
}


def forest_svg(groups: Sequence[Mapping[str, Any]], measure: str, positive: str) -> Markup:
    """Return an SVG of the groups of a Forest, by one measure.

    The axis is a signed square root, so that small differences can be seen beside large ones. A filled circle is better, a
    diamond worse, an open square not resolved, a cross a single seed without an interval.
    """
    found = [row["by"].get(measure, {}) for group in groups for row in group["rows"]]
    reach = extent(found)
    lines, y = [], 30.0
    for group in groups:
        verdict = group.get("verdicts", {}).get(measure, "")
        title = f"{group['text']} {group.get('setting', '')}".strip()
        y += _HEADING_HEIGHT
        lines.append(_text(4, y, cut_text(title, 110), "start", "#1c1e21", bold=True))
        if verdict:
            lines.append(_text(_WIDTH - 4, y, verdict, "end", _COLOURS.get(verdict, _OPEN), bold=True))
        for row in group["rows"]:
            y += _ROW_HEIGHT
            lines += _drawn(row, row["by"].get(measure, {}), y, reach)
    return join_markup([_opening(y + 40, positive), *_axis(reach, y + 8), *lines, Markup("</svg>")], "\n")


def extent(found: Sequence[Mapping[str, Any]]) -> float:
    """Return the largest difference on the axis: the farthest end of an interval, except for a few wide ones."""
    ends = sorted(
        max(abs(each["low"]), abs(each["high"])) if each.get("low") is not None else abs(each["mean"])
        for each in found
        if each.get("mean") is not None
    )
    if not ends:
        return 0.1
    robust = ends[math.ceil(0.97 * len(ends)) - 1]
    return float(max(min(ends[-1], 1.25 * robust), 1e-4))


def ticks(reach: float) -> list[float]:
    """Return round differences from 0 to the end of the axis that do not overlap on a square root scale."""
    powers = [10.0**power for power in range(math.floor(math.log10(reach)) - 2, math.ceil(math.log10(reach)) + 1)]
    known = [factor * power for power in powers for factor in (1, 2, 5) if factor * power <= reach]
    kept: list[float] = []
    for each in reversed(known):
        if math.sqrt(each / reach) > 0.12 and (not kept or math.sqrt(kept[-1] / reach) - math.sqrt(each / reach) > 0.3):
            kept.append(float(f"{each:.1g}"))
    return [0.0, *reversed(kept)]


def axis_position(value: float, reach: float) -> float:
    """Return the position of a difference on the axis, from -1 to 1."""
    return max(-1.0, min(1.0, math.copysign(math.sqrt(abs(value) / reach), value)))


def _x(value: float, reach: float) -> float:
    left, right = _LABEL_WIDTH + 14, _WIDTH - _NUMBER_WIDTH - 12
    return (left + right) / 2 + axis_position(value, reach) * (right - left) / 2


def _opening(height: float, positive: str) -> Markup:
    title = f"Paired differences with their 95 % intervals; right of zero: {positive}"
    return markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" width="{width}" height="{height:.0f}" '
        'role="img" font-family="Helvetica, Arial, sans-serif" font-size="12"><title>{title}</title>'
        '<rect width="{width}" height="{height:.0f}" fill="#ffffff"/>{words}',
        width=_WIDTH,
        height=height,
        title=title,
        words=_text(4, 16, title, "start", _OPEN),
    )


def _axis(reach: float, bottom: float) -> list[Markup]:
    lines: list[Markup] = []
    for tick in ticks(reach):
        for value in {tick, -tick}:
            x, colour = _x(value, reach), "#1c1e21" if value == 0 else "#dcdcd8"
            path = '<path d="M{x:.1f} 26V{bottom:.1f}" stroke="{colour}" fill="none"/>'
            lines.append(markup(path, x=x, bottom=bottom, colour=colour))
            lines.append(_text(x, bottom + 16, "0" if value == 0 else f"{value:+g}".replace("-", "−"), "middle", _OPEN))
    return sorted(lines)


def _drawn(row: Mapping[str, Any], found: Mapping[str, Any], y: float, reach: float) -> list[Markup]:
    letter = f"{row['group']}: " if row.get("group") else ""
    lines = [_text(_LABEL_WIDTH, y, letter + cut_text(row["words"], _LONGEST_LABEL), "end", "#1c1e21")]
    if found.get("mean") is None:
        return [*lines, _text(_WIDTH - 4, y, found.get("verdict") or "runs missing", "end", _OPEN)]
    colour, middle, x = _COLOURS.get(found["verdict"], _OPEN), y - 4, _x(found["mean"], reach)
    fill = colour if found["verdict"] in _COLOURS else "#ffffff"
    if found["low"] is not None:
        path = '<path d="M{low:.1f} {y:.1f}H{high:.1f}" stroke="{colour}" stroke-width="2" fill="none"/>'
        low, high = _x(found["low"], reach), _x(found["high"], reach)
        lines.append(markup(path, low=low, high=high, y=middle, colour=colour))
    mark = '<path d="{path}" fill="{fill}" stroke="{colour}" stroke-width="1.5"/>'
    lines.append(markup(mark, path=_mark(found, x, middle), fill=fill, colour=colour))
    numbers = f"{found['mean']:+.4f}".replace("-", "−")
    seeds = f"{found['num_seeds']} seed{'s' * (found['num_seeds'] > 1)}"
    return [*lines, _text(_WIDTH - 4, y, f"{numbers} ({seeds})", "end", _OPEN)]


def _mark(found: Mapping[str, Any], x: float, y: float) -> str:
    """Return a circle, a diamond, a square or a cross as a path: the shape repeats what the colour says."""
    if found["low"] is None:
        return f"M{x - 3.5:.1f} {y - 3.5:.1f}l7 7m0 -7l-7 7"
    if found["verdict"] in ("contradicted", "loses", "lower"):
        return f"M{x - 5:.1f} {y:.1f}l5 -5 5 5 -5 5z"
    if found["verdict"] in _COLOURS:
        return f"M{x - 4:.1f} {y:.1f}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z"
    return f"M{x - 3.5:.1f} {y - 3.5:.1f}h7v7h-7z"


def _text(x: float, y: float, words: str, anchor: str, colour: str, bold: bool = False) -> Markup:
    return markup(
        '<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{weight}>{words}</text>',
        x=x,
        y=y,
        anchor=anchor,
        colour=colour,
        weight=Markup(' font-weight="bold"' if bold else ""),
        words="".join(filter(str.isprintable, words)),
    )


class Forest(NamedTuple):
    """Groups of rows, and the measures by which rows were compared."""

    measures: tuple[str, ...]
    groups: list[dict[str, Any]]
    positive: str  # what a positive difference is


def of_study(family: Family, position: int, compared: Mapping[str, Reference | None]) -> Forest:
    """Compare every variant of a study with its reference by every measure of all runs; one group per setting."""
    runs = {curve.label: curve.runs for curve in family.curves}
    measures = tuple(
        name
        for name, metric in METRICS.items()
        if any(runs.values()) and not any(math.isnan(metric(run)) for each in runs.values() for run in each.values())
    )
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for number, curve in enumerate(family.curves):
        reference = compared[curve.label]
        if reference is None:
            continue
        pairs = list(paired(curve.runs, runs[reference.label]).values())
        found = {name: gain_row(pairs, name) for name in measures}
        title, setting = f"Gain over {cut_text(reference.text)}", cut_text(curve.setting)
        group = groups.setdefault(
            (curve.setting, reference.text), {"text": title, "setting": setting, "rows": [], "verdicts": {}}
        )
        group["rows"].append(
            {
                "words": cut_text(curve.name),
                "family": position,
                "better": [number],
                "worse": [family.position(reference.label)],
                "by": {name: {**row, "metric": name} for name, row in found.items()},
            }
        )
    return Forest(measures, list(groups.values()), "better than the reference")


def gain_row(pairs: Sequence[Sequence[Any]], metric: str) -> dict[str, Any]:
    """Return the gain of the first of each pair over the second, with its interval, as plain data."""
    if not pairs:
        return {"verdict": "runs missing"}
    measure, sign = METRICS[metric], -1 if metric in LOWER else 1
    found = paired_difference([sign * measure(one) for one, _ in pairs], [sign * measure(other) for _, other in pairs])
    return {
        **finite_or_none(found._asdict()),
        "verdict": _GAIN_VERDICTS.get(found.verdict, found.verdict),
        "note": "; ".join(filter(None, [note(pairs), diverged([run for pair in pairs for run in pair])])),
    }
