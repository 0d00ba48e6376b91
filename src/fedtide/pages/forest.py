"""The comparisons of a study's page: paired differences with their intervals, as rows of a forest plot.

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


def forest_table(found: Forest) -> Markup:
    """Return the comparisons by the first measure as a table, for readers without scripts."""
    rows = []
    for group in found.groups:
        title = f"{group['text']} {group.get('setting', '')}".strip()
        verdict = group.get("verdicts", {}).get(found.measures[0], "")
        line = '<tr><th class="words" scope="colgroup" colspan="4">{title}</th><th>{verdict}</th></tr>'
        rows.append(markup(line, title=cut_text(title), verdict=verdict))
        rows += [_table_row(row["words"], row["by"].get(found.measures[0], {})) for row in group["rows"]]
    return markup(
        "<table><caption>Paired differences with their 95 % intervals; positive: {positive}</caption><thead><tr><th></th>"
        "<th>difference</th><th>interval</th><th>seeds</th><th></th></tr></thead><tbody>{rows}</tbody></table>",
        positive=found.positive,
        rows=join_markup(rows, "\n"),
    )


def _table_row(words: str, found: Mapping[str, Any]) -> Markup:
    known, whole = found.get("mean") is not None, found.get("low") is not None
    cells = [
        f"{found['mean']:+.4f}" if known else "",
        f"{found['low']:+.4f} to {found['high']:+.4f}" if whole else "",
        str(found["num_seeds"]) if known else "",
        found.get("verdict") or "runs missing",
    ]
    return markup(
        '<tr><td class="words">{words}</td>{cells}</tr>',
        words=words,
        cells=join_markup(markup("<td>{cell}</td>", cell=cell) for cell in cells),
    )
