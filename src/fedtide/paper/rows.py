"""The ledger as plain data, and its comparisons in few words: what the page, the command line and `--json` show."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fedtide.paper.claims import Finding, Verdict, side_label
from fedtide.paper.reproduce import Observed
from fedtide.studies.statistics import CONFIDENCE


def plain(text: str) -> str:
    """Turn the figures' mathematics into plain text for tables."""
    for pattern, word in (
        (r"\\tilde T", "T~"),
        (r"T_\{\\max\}", "T_max"),
        (r"\\gamma", "γ"),
        (r"\\lambda", "λ"),
        (r"\$", ""),
    ):
        text = re.sub(pattern, word, text)
    return text


def claims_rows(verdicts: Sequence[Verdict], others: Sequence[Verdict] | None = None) -> list[dict[str, Any]]:
    """Return the ledger as plain data, for `--json`; `others` are the same claims decided by the other measures."""
    rows = []
    for position, verdict in enumerate(verdicts):
        row: dict[str, Any] = {
            "kind": "claim",
            "claim": verdict.claim.name,
            "text": verdict.claim.text,
            "quote": verdict.claim.quote,
            "section": verdict.claim.section,
            "reading": verdict.claim.reading,
            "verdict": verdict.verdict,
            "seeds_needed": verdict.seeds_needed,
            "weakest": {**_comparison(verdict.weakest), "seeds_needed": verdict.seeds_needed},
            "comparisons": _comparisons(verdict),
        }
        if others:
            other = others[position]
            row["by_other_measure"] = other.verdict
            for each, found in zip(row["comparisons"], _comparisons(other), strict=True):
                each["by_other_measure"] = found
        rows.append(row)
    return rows


def observed_rows(observed: Observed) -> list[dict[str, Any]]:
    """Return our own findings as plain data, for `--json`: differences, of which nothing is claimed."""
    rows = []
    for each, findings, others in observed:
        pairs = zip(findings, others, strict=True)
        rows.append(
            {
                "kind": "finding of ours",
                "finding": each.name,
                "text": each.text,
                "note": each.note,
                "comparisons": [{**_unclaimed(found), "by_other_measure": _unclaimed(other)} for found, other in pairs],
            }
        )
    return rows


def _unclaimed(finding: Finding) -> dict[str, Any]:
    """Return a difference with neutral words: nobody says which side should be higher."""
    row = _comparison(finding)
    words = {"holds": "higher", "contradicted": "lower"}
    return {**row, "positive_is": "the first is higher", "verdict": words.get(row["verdict"], row["verdict"])}


def _comparisons(verdict: Verdict) -> list[dict[str, Any]]:
    """Return a claim's comparisons, each with the seeds that would resolve it at the level at which the claim is decided."""
    return [
        {**_comparison(finding), "seeds_needed": verdict.more_seeds(finding, len(group))}
        for group in verdict.groups
        for finding in group
    ]


def _comparison(finding: Finding) -> dict[str, Any]:
    found = finding.at(CONFIDENCE)
    return {
        "figure": finding.check.figure,
        "better": plain(side_label(finding.check.better)),
        "worse": plain(side_label(finding.check.worse)),
        "metric": finding.check.metric,
        "lower_is_better": finding.check.lower_is_better,
        "positive_is": "as claimed",
        "verdict": finding.answer(),
        "paths_note": finding.paths_note,
        "diverged_note": finding.diverged_note,
        **({} if found is None else finite(found._asdict())),
    }


def finite(tree: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: an interval of one seed is null."""
    return {
        key: None if isinstance(value, float) and abs(value) == float("inf") else value for key, value in tree.items()
    }


def effect(row: Mapping[str, Any]) -> str:
    """Write an effect with its interval, and the seeds that would resolve it."""
    difference = row.get("difference", row.get("mean"))
    if difference is None:
        return "-" if row["verdict"] == "runs missing" else "runs too short to tell"
    note = "".join(f"; {row[each]}" for each in ("paths_note", "diverged_note") if row.get(each))
    if row["low"] is None:
        return f"{difference:+.4f} (one seed){note}"
    more = f"; about {row['seeds_needed']} would resolve it" if row["seeds_needed"] else ""
    return f"{difference:+.4f} ({row['low']:+.4f} to {row['high']:+.4f}; {row['num_seeds']} seeds{more}){note}"


def in_words(row: Mapping[str, Any]) -> str:
    """Write what a comparison claims in few words: what both sides share is said once."""
    sign = "<" if row["lower_is_better"] else ">"
    by = f" ({row['metric']})" if row["metric"] in ("variation", "roughness") else ""
    (better, _, setting), (worse, _, other) = (row[side].partition(" | ") for side in ("better", "worse"))
    if row["better"].startswith("gain of "):
        return f"{row['better']} {sign} {row['worse']}".replace(" | ", ", ") + by
    if setting == other:
        return f"{better} {sign} {worse}, {setting}{by}"
    return f"{better}, {setting} {sign} {other if better == worse else f'{worse}, {other}'}{by}"


def difference_words(row: Mapping[str, Any]) -> str:
    """Write which difference is taken; nothing is claimed about its sign."""
    return in_words(row).replace(" > ", " less ", 1)
