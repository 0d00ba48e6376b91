"""The verdicts at a glance: a line per claim, with the comparison on which it hangs, on one axis per kind of measure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedtide.paper.claims import Verdict
from fedtide.paper.figures import FIGURES
from fedtide.report.forest import Row, draw_forest
from fedtide.report.style import SCREEN
from fedtide.studies.statistics import CONFIDENCE

AXES = {
    "mean_accuracy": "difference in mean test accuracy",
    "mean_train_loss": "difference in mean training loss",
    "variation": r"difference in ups and downs per $T_{\max}$",
}


def draw(verdicts: Sequence[Verdict], stem: Path, style: str = SCREEN) -> list[Path]:
    """Draw every claim that has runs, in the order of the paper; strokes are the other comparisons of the claim."""
    groups: dict[str, list[Row]] = {}
    for verdict in verdicts:
        weakest = verdict.weakest
        found = [each.at(CONFIDENCE) for each in verdict.decisive if each.check.metric == weakest.check.metric]
        others = tuple(each.mean for each in found if each is not None)
        number = FIGURES[weakest.check.figure].number
        text = f"{number + ': ' if number else ''}{verdict.claim.text.rstrip('.')}".replace("T_max", r"$T_{\max}$")
        row = Row(text, weakest.at(CONFIDENCE), verdict.verdict, others if len(others) > 1 else ())
        groups.setdefault(weakest.check.metric, []).append(row)
    return draw_forest({AXES[metric]: groups[metric] for metric in AXES if metric in groups}, stem, style)
