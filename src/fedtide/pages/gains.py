"""The rows of a forest plot: paired differences with their intervals, of a study's variants or of the paper's claims.

Positive is always what is hoped for: higher accuracy, lower loss, fewer ups and downs; of a claim, what the paper says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from fedtide.pages.family import Family, cut
from fedtide.paper.claims import Finding, Side, Verdict
from fedtide.paper.reproduce import Observed
from fedtide.paper.rows import claims_rows, difference_words, finite, in_words, observed_rows, plain
from fedtide.studies.against import Reference
from fedtide.studies.pairing import note, paired
from fedtide.studies.statistics import METRICS, compare, diverged

LOWER: Final = ("mean_train_loss", "final_train_loss", "variation", "roughness")  # is better
WORDS: Final = {"higher": "gains", "lower": "loses"}
DECIDING, OTHER = "the measure that decides", "the other measure"


class Forest(NamedTuple):
    """Groups of rows, and the measures by which each row was made."""

    measures: tuple[str, ...]
    groups: list[dict[str, Any]]
    positive: str  # what a positive difference is


def of_study(family: Family, position: int, compared: Mapping[str, Reference | None]) -> Forest:
    """Compare every variant of a study with its reference, by every measure that all runs have; a group per setting."""
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
        found = {name: gain(pairs, name) for name in measures}
        place = groups.setdefault(
            (curve.setting, reference.text),
            {"text": f"Gain over {cut(reference.text)}", "setting": cut(curve.setting), "rows": [], "verdicts": {}},
        )
        place["rows"].append(
            {
                "words": cut(curve.name),
                "family": position,
                "better": [number],
                "worse": [family.position(reference.label)],
                "by": {name: {**row, "metric": name} for name, row in found.items()},
            }
        )
    return Forest(measures, list(groups.values()), "better than the reference")


def gain(pairs: Sequence[Sequence[Any]], metric: str) -> dict[str, Any]:
    """Return the gain of the first of each pair over the second, with its interval, as plain data."""
    if not pairs:
        return {"verdict": "runs missing"}
    measure, sign = METRICS[metric], -1 if metric in LOWER else 1
    found = compare([sign * measure(one) for one, _ in pairs], [sign * measure(other) for _, other in pairs])
    return {
        **finite(found._asdict()),
        "verdict": WORDS.get(found.verdict, found.verdict),
        "note": "; ".join(filter(None, [note(pairs), diverged([run for pair in pairs for run in pair])])),
    }


def of_claims(
    families: Sequence[Family], verdicts: Sequence[Verdict], others: Sequence[Verdict], observed: Observed = ()
) -> Forest:
    """Return the paper's claims with their comparisons, and what was observed besides."""
    places = {family.name: position for position, family in enumerate(families)}
    groups = []
    for row, verdict, other in zip(claims_rows(verdicts, others), verdicts, others, strict=True):
        letters = "abcdefgh" if len(verdict.groups) > 1 else ""
        of_group = [letters[number] for number, group in enumerate(verdict.groups) for _ in group] if letters else []
        rows = [
            _row(families, places, finding, each, in_words(each), of_group[number] if of_group else "")
            for number, (finding, each) in enumerate(zip(verdict.findings, row["comparisons"], strict=True))
        ]
        groups.append(
            {
                **{key: row[key] for key in ("text", "quote", "section", "reading")},
                "claim": row["claim"],
                "verdicts": {DECIDING: verdict.verdict, OTHER: other.verdict},
                "rows": rows,
                "note": "One of its groups is enough." if letters else "",
            }
        )
    for row, (_, findings, _others) in zip(observed_rows(observed), observed, strict=True):
        rows = [
            _row(families, places, finding, each, difference_words(each), "")
            for finding, each in zip(findings, row["comparisons"], strict=True)
        ]
        groups.append({"text": row["text"], "note": row["note"], "observed": True, "verdicts": {}, "rows": rows})
    return Forest((DECIDING, OTHER), groups, "as claimed")


def of_worlds(families: Sequence[Family], decided: Sequence[Sequence[tuple[Verdict, Verdict]]]) -> Forest:
    """Return the paper's main claims, each with its comparisons in every world. decided: by world, then by claim."""
    found = []
    for same in zip(*decided, strict=True):
        made = of_claims(families, [one for one, _ in same], [other for _, other in same]).groups
        rows = [
            {
                **row,
                "words": family.title if len(group["rows"]) == 1 else f"{family.title}: {row['words']}",
                "full": f"{family.title}: {row['words']}",
            }
            for family, group in zip(families, made, strict=True)
            for row in group["rows"]
        ]
        verdicts = {
            measure: f"holds in {sum(group['verdicts'][measure] == 'holds' for group in made)} of {len(made)} worlds"
            for measure in (DECIDING, OTHER)
        }
        found.append({"text": made[0]["text"], "verdicts": verdicts, "rows": rows, "note": ""})
    return Forest((DECIDING, OTHER), found, "as claimed")


def _row(
    families: Sequence[Family],
    places: Mapping[str, int],
    finding: Finding,
    row: Mapping[str, Any],
    words: str,
    letter: str,
) -> dict[str, Any]:
    check = finding.check
    family = families[places[check.figure]]
    return {
        "words": cut(words).rstrip(", "),
        "group": letter,
        "family": places[check.figure],
        "better": _numbers(family, check.better),
        "worse": _numbers(family, check.worse),
        "by": {DECIDING: _short(row), OTHER: _short(row["by_other_measure"])},
    }


def _short(row: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("metric", "mean", "low", "high", "num_seeds", "seeds_needed", "verdict")
    return {
        **{key: row[key] for key in keys if key in row},
        "note": "; ".join(filter(None, [row["paths_note"], row["diverged_note"]])),
    }


def _numbers(family: Family, side: Side) -> list[int]:
    return [family.position(plain(each)) for each in ((side,) if isinstance(side, str) else side)]
