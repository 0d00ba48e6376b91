"""The page docs/paper.md: verdicts, then each figure with the claims that stand on it, their intervals, what curves spent."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtide.config import FRAMEWORKS, Experiment
from fedtide.core.files import write_output
from fedtide.plot.curves import SAID, SMOOTHED
from fedtide.studies.paths import WHY, note, paired, summary
from fedtide.studies.statistics import METRICS, paired_difference
from fedtide.studies.table import effect, finite_or_none
from fedtide_lab.paper.claims import FigureResults, Finding, Verdict
from fedtide_lab.paper.draw import smooths
from fedtide_lab.paper.figures import FIGURES, Figure, curve_label
from fedtide_lab.paper.reproduce import (
    Observed,
    claims_rows,
    difference_words,
    in_words,
    observed_rows,
    paper_ledger,
    plain_verdict,
    without_run,
)
from fedtide_lab.paper.sentences import CLAIMS

_MARKS = {
    "holds": "**holds**",
    "contradicted": "**contradicted**",
    "not resolved": "not resolved",
    "runs missing": "runs missing",
}

# Of a single comparison, which is a part of a claim or one way in which it may hold: no verdict on the paper.
_AS_CLAIMED = {
    "holds": "yes",
    "contradicted": "the other way",
    "not resolved": "not resolved",
    "runs missing": "runs missing",
}


_FULL = (
    "The figures of *Scheduling and Aggregation Design for Asynchronous Federated Learning over Wireless Networks* "
    "(Hu, Chen, Larsson), from full runs. This page is written by `fedtide paper`; the runs behind it are in "
    "`results/paper`, and running the command again adds only what is missing. `fedtide paper --draw-only --style ieee "
    "--out print` draws the figures for an IEEE column (`ieee-wide`: a page; `nature`), fonts embedded."
)
_AT_A_GLANCE = (
    "Every claim with the comparison on which it hangs: its difference, positive where it is as claimed, and the 95 % "
    "interval over seeds. Circles: the claim holds; crosses: contradicted; open diamonds: not resolved (without a bar: one "
    "seed). Small strokes are the other comparisons of a claim. Fig. is the paper's figure."
)
_PAIRED = (
    "Differences are taken seed by seed. Schedulers and weights of one seed meet the same fading, durations, "
    "partition, initial model and batches; frameworks and periods, whose clocks differ, share durations, partition "
    "and initial model; i.i.d. and non-i.i.d. runs share durations and fading."
)
RULE = (
    "A claim holds if each of its comparisons is resolved in the claimed direction (95 % interval of the paired "
    "difference). It is contradicted if one of its m comparisons is resolved the other way by an interval of 1 - 5 "
    "%/m, so that a claim of many comparisons is not contradicted by chance. Where one of several groups of "
    "comparisons is enough (one R, one γ), the one that holds must do so at 1 - 5 %/groups, all must be "
    "contradicted, and the table shows the best. Nothing is corrected for the number of claims, and some share "
    'comparisons. "About N would resolve it": with that many seeds the whole claim would be decided by this rule (in the '
    "table of verdicts), or this comparison at the level that its claim asks for, four times in five, if differences and "
    "their spreads are as measured. A run that did not stay finite counts as a guess from then on, and is told."
)
_MEASURES = (
    "The paper does not say how its curves are compared. Accuracies are compared here as averages over the horizon "
    "from time 0 (`mean_accuracy`), so that speed and level both count; losses as averages over the iterations "
    "(`mean_train_loss`); smoothness by how much the accuracy, read once per T_max, goes up and down in the second half "
    "of the horizon (`variation`; `roughness` alone sees what a curve does within one T_max). The last column has the "
    "verdict by another measure: at the end, which on all pages means averaged over the last tenth of the horizon "
    "(`final_accuracy`, `final_train_loss`), or the scatter around a quadratic trend in the second half (`roughness`)."
)
# What stands below a figure, by the kind of drawing.
_BELOW = {
    "difference": "What is gained, seed by seed, by the averages up to each moment: what pairing leaves of the noise, with "
    "the 95 % interval at the right end, by which claims against this reference are decided. The sign is that of the "
    "verdicts: above zero the first is better than the second, of a loss the lower one.",
    "resources": "The same curves against what they cost: bits sent over the uplink, and samples that devices trained on, "
    "used or wasted.",
}
_EFFECTS = (
    "Gains over the reference, seed by seed: the mean, its 95 % interval, and single seeds as small strokes. The curves "
    "themselves lie on one another."
)
_TIMELINES = {
    "frameworks_timeline": "Three frameworks in time, drawn from event traces (the paper's Fig. 2)",
    "ages_timeline": "Ages and subsets of devices, drawn from an event trace (the paper's Figs. 3 and 10)",
}
_QUOTED = (
    "Each claim leads to its place below, with the sentence of the paper that makes it, how we read that sentence, and every "
    "comparison. Quotations are literal, with mathematics as plain text and without citations."
)
_BESIDES = (
    "These are measurements of ours, no claims of the paper, so they get no verdict. The differences are taken as written, the "
    "first less the second."
)
_CLAIMED = {
    check.figure for claim in CLAIMS for check in claim.checks
}  # figures about which the paper claims something
_QUICK = (
    "**A quick look, not the paper's figures**: every run is cut to a tenth of its horizon, with two seeds unless "
    "told otherwise, by `fedtide paper --quick`. What such short runs say about the claims is preliminary; `fedtide "
    "paper` does the full ones."
)


def write_paper_page(
    page: Path,
    figures: Mapping[str, Sequence[Path]],
    results: FigureResults,
    verdicts: Sequence[Verdict],
    others: Sequence[Verdict],
    observed: Observed = (),
    quick: bool = False,
) -> None:
    """Write the page beside its figures."""
    rows = claims_rows(verdicts, others)
    lines = ["# The paper, reproduced", ""]
    if "verdicts" in figures:
        lines += [f"![Every claim, decided]({_image(page, figures['verdicts'])})", "", _AT_A_GLANCE, ""]
    lines += [_QUICK if quick else _FULL, "", _common(), "", _PAIRED, ""]
    lines += ["## Verdicts", "", _QUOTED, "", *_verdicts_table(rows), "", RULE, "", _MEASURES, ""]
    lines += ["## What we find besides", "", _BESIDES, "", *_observed_table(observed_rows(observed)), ""]
    lines += [
        "## Runs",
        "",
        *_folded("Curves, seeds and what they cost", _runs_table(results)),
        "## Figures and their claims",
        "",
    ]
    for name, figure in FIGURES.items():
        lines += [f"### {_heading(figure)}", "", *_images(page, figure, name, figures, results)]
        lines += [
            line
            for row, each in zip(rows, verdicts, strict=True)
            if _figure_of(row) == name
            for line in _claim(row, each)
        ]
        if name in figures:
            spent = paper_ledger(figure, results[name])
            lines += [*_proved(spent), *_folded("What each curve spent", _ledger_table(spent))]
    for name in (name for name in figures if name in _TIMELINES):
        lines += [f"### {_TIMELINES[name]}", "", f"![{_TIMELINES[name]}]({_image(page, figures[name])})", ""]
    page.parent.mkdir(parents=True, exist_ok=True)
    content = ("\n".join(lines).rstrip() + "\n").encode()
    write_output(page, content, rb"# .*fedtide paper", "a page of `fedtide paper`")


def _common() -> str:
    """Say what all figures share, from the defaults of an experiment."""
    usual = Experiment()
    learning, fedavg = usual.learning, FRAMEWORKS["fedavg"]["learning"]["proximal"]
    return (
        "Common to all, unless a caption says otherwise: MNIST; the CNN of 21,840 parameters with its dropout; "
        f"{usual.radio.snr_db:g} dB average SNR; T_k uniform on ({usual.fleet.min_duration:g}, T_max], drawn once per seed; "
        f"{learning.local_epochs} local epochs in batches of {learning.batch_size}; learning rate {learning.learning_rate:g}, "
        f"halved at half-time; λ = {learning.proximal:g} ({fedavg:g} in FedAvg); horizon {usual.timeline.horizon:g} T_max; the "
        "paper's codec. The paper prints no values of R, T~ and γ for its curves: R and T~ are ours, γ is that of the authors' "
        "released code. What else the text leaves open is filled as [architecture.md](architecture.md) says."
    )


def _verdicts_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        "| figure | claim | verdict | the comparison on which it hangs (positive: as claimed) | by the other measure |",
        "|---|---|---|---|---|",
    ]
    return lines + [
        f"| {_link(FIGURES[_figure_of(row)])} | [{row['text']}](#{_anchor(row['text'])}) | {_MARKS[row['verdict']]} "
        f"| {in_words(row['weakest'])}: {effect(row['weakest'])} | {row['by_other_measure']} |"
        for row in rows
    ]


def _observed_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines: list[str] = []
    for row in rows:
        lines += [
            f"**{row['text']}.** {row['note']}",
            "",
            "| | `mean_accuracy` (95 % interval) | `final_accuracy` |",
            "|---|---|---|",
        ]
        lines += [
            f"| {difference_words(each)} | {effect(each)} | {effect(each['by_other_measure'])} |"
            for each in row["comparisons"]
        ]
        lines.append("")
    return lines[:-1]


def _heading(figure: Figure) -> str:
    """Name a figure, and the paper's that it repeats."""
    return f"{figure.title} (the paper's {figure.number})" if figure.number else figure.title


def _link(figure: Figure) -> str:
    return f"[{figure.number or 'ours'}](#{_anchor(_heading(figure))})"


def _figure_of(row: Mapping[str, Any]) -> str:
    figure: str = row["comparisons"][0]["figure"]
    return figure


def _images(
    page: Path, figure: Figure, name: str, figures: Mapping[str, Sequence[Path]], results: FigureResults
) -> list[str]:
    """Show a figure with its caption, and below it the other drawings of the same runs."""
    if name not in figures:
        absent = f"{len(without_run(name, results))} of {len(figure.variants())} curves"
        return [f"Not drawn yet: {absent} have no run. `fedtide paper {name}` adds them.", ""]
    how = [_EFFECTS] if figure.effects else [SAID, *([SMOOTHED] if smooths(figure, results[name]) else [])]
    lines = [
        f"![{figure.title}]({_image(page, figures[name])})",
        "",
        " ".join([plain_verdict(figure.caption), *how]),
        "",
    ]
    lines += [figure.note, ""] if figure.note else []
    lines += _left_out(results[name])
    for kind, text in _BELOW.items():
        if f"{name}_{kind}" in figures:
            shown = [f"![{figure.title}, {kind}]({_image(page, figures[f'{name}_{kind}'])})", "", text]
            lines += _folded("Against bits and samples", shown) if kind == "resources" else [*shown, ""]
    return lines + ([] if name in _CLAIMED else [*_differences_table(figure, results[name]), ""])


def _left_out(curves: Mapping[str, Mapping[int, Any]]) -> list[str]:
    """Say which seeds a curve skips: seeds are taken in order, so a gap is somebody's choice and may bear on the result."""
    gaps: dict[tuple[int, ...], list[str]] = {}
    for name, runs in curves.items():
        absent = tuple(seed for seed in range(max(runs, default=0)) if seed not in runs)
        if absent:
            gaps.setdefault(absent, []).append(plain_verdict(name).replace(" | ", ", "))
    return [
        line
        for absent, names in gaps.items()
        for line in (
            f"Left out, though later seeds are there: seed {', '.join(map(str, absent))} of {'; '.join(names)}",
            "",
        )
    ]


def _image(page: Path, paths: Sequence[Path]) -> str:
    return os.path.relpath(next(path for path in paths if path.suffix == ".png"), page.parent)


def _claim(row: Mapping[str, Any], verdict: Verdict) -> list[str]:
    """Show a claim: the paper's words, our reading, and every comparison."""
    letters = "abcdefgh"[: len(verdict.groups)] if len(verdict.groups) > 1 else ""
    of_best = " of the best group" if letters else ""
    lines = [f"#### {row['text']}", "", f"{_MARKS[row['verdict']]}: {_count(verdict.decisive)}{of_best}.", ""]
    lines += [f'> "{row["quote"]}" ({row["section"]})', ""]
    lines += [f"We read it as: {row['reading']}", ""] if row["reading"] else []
    lines += [f"One of the groups {', '.join(letters)} is enough.", ""] if letters else []
    table = ["| comparison | difference (95 % interval) | as claimed? | by the other measure |", "|---|---|---|---|"]
    groups = (
        [f"{letter}: " for letter, group in zip(letters, verdict.groups, strict=True) for _ in group] if letters else []
    )
    for group, each in zip(groups or [""] * len(row["comparisons"]), row["comparisons"], strict=True):
        other = each["by_other_measure"]
        table.append(
            f"| {group}{in_words(each)} | {effect(each)} | {_AS_CLAIMED[each['verdict']]} "
            f"| `{other['metric']}` {effect(other)}: {_AS_CLAIMED[other['verdict']]} |"
        )
    many = len(row["comparisons"])
    return [*lines, *_folded(f"Its {many} comparison{'s' * (many > 1)}", table)]


def _anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _folded(summary: str, lines: Sequence[str]) -> list[str]:
    return ["<details>", f"<summary>{summary}</summary>", "", *lines, "", "</details>", ""]


def _runs_table(results: FigureResults) -> list[str]:
    """Say how many seeds each figure has and what one costs."""
    lines = ["| figure | curves | seeds | the quickest seed of each curve, on one core |", "|---|---|---|---|"]
    for name, figure in FIGURES.items():
        rows = paper_ledger(figure, results.get(name, {}))
        seeds = sorted({row["seeds"] for row in rows} | ({0} if len(rows) < len(figure.variants()) else set()))
        words = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        known = [row["seconds"] for row in rows if row["seconds"]]
        cost = f"{sum(known) / 60:.0f} min" if len(known) == len(figure.variants()) else "-"
        lines.append(f"| {figure.title} (`{name}`) | {len(figure.variants())} | {words} | {cost} |")
    every = [result for curves in results.values() for runs in curves.values() for result in runs.values()]
    return [*lines, "", "Figures share runs, so all together cost less than the sum.", "", f"{summary(every)} {WHY}"]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} s"


def _ledger_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        "| curve | seeds | uploads | symbols (airtime) | bits sent | kept share | samples trained | wasted | quickest run |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {plain_verdict(row['curve']).replace(' | ', ', ')} | {row['seeds']} | {row['uploads']:,.0f} "
            f"| {row['symbols'] / 1e6:,.1f} M "
            f"| {row['bits'] / 1e6:,.1f} M | {row['kept_share']:.3f} | {row['samples_trained'] / 1e6:,.1f} M "
            f"| {row['samples_wasted'] / max(row['samples_trained'], 1):.0%} | {_seconds(row['seconds'])} |"
        )
    return lines


def _differences_table(figure: Figure, curves: Mapping[str, Mapping[int, Any]]) -> list[str]:
    """Say how far each curve is from its reference, for a figure about which the paper claims nothing."""
    metric = METRICS["mean_accuracy"]
    lines = ["| curve | mean accuracy, less that of | difference (95 % interval) |", "|---|---|---|"]
    for setting in figure.settings:
        for curve in figure.curves:
            reference = figure.reference(curve)
            if reference is None:
                continue
            runs, base = (curves.get(curve_label(each, setting), {}) for each in (curve, reference))
            pairs = list(paired(runs, base).values())
            if pairs:
                found = paired_difference([metric(one) for one, _ in pairs], [metric(other) for _, other in pairs])
                row = {**finite_or_none(found._asdict()), "paths_note": note(pairs)}
                lines.append(f"| {plain_verdict(curve)}, {setting} | {plain_verdict(reference)} | {effect(row)} |")
    return lines


def _count(findings: Sequence[Finding]) -> str:
    """Say how many comparisons are as claimed, and what of the others is not merely unresolved."""
    answers = [each.answer() for each in findings]
    words = {"contradicted": "the other way", "runs missing": "without runs"}
    rest = [f"{answers.count(each)} {word}" for each, word in words.items() if each in answers]
    more = f" ({', '.join(rest)})" if rest else ""
    return f"{answers.count('holds')} of {len(answers)} comparisons as claimed{more}"


def _proved(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say where the proposed schedule is not the proved argmin of the label variance Omega (section III-A, without label)."""
    short = [
        f"{row['proved_share']:.0%} ({plain_verdict(row['curve']).replace(' | ', ', ')})"
        for row in rows
        if row["proved_share"] is not None and row["proved_share"] < 1
    ]
    if not short:
        return []
    return [
        "The schedule is the proved minimiser of the label variance in this share of the aggregations, and the best that was "
        f"found in the others: {', '.join(short)}.",
        "",
    ]
