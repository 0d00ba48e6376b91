"""The page docs/paper.md: verdicts, then each figure with the claims that stand on it, their intervals, what curves spent.

The text is page.md and texts.md here and findings.md beside the results; this module computes what stands in their places.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedtide.config import FRAMEWORKS, Experiment
from fedtide.plot import SAID, SMOOTHED
from fedtide.studies import (
    CONFIDENCE,
    EQUIVALENCE_LEVEL,
    EQUIVALENT,
    MARGINS,
    METRICS,
    WHY,
    finite_table_value,
    mixed_pairs_note,
    pair_paths_summary,
    paired_difference,
    paired_results,
    table_effect,
)
from fedtide_lab.paper.claims import FigureResults, Finding, Verdict
from fedtide_lab.paper.draw import drawing_smooths
from fedtide_lab.paper.figures import FIGURES, Figure, curve_label, fedasync_uploads
from fedtide_lab.paper.reproduce import (
    claims_rows,
    difference_words,
    in_words,
    observed_rows,
    paper_ledger,
    plain_verdict,
    without_reproduced_run,
)
from fedtide_lab.paper.sentences import CLAIMS, CLOSE_MARGIN, OBSERVATIONS
from fedtide_lab.prose import (
    fill_prose,
    folded_prose,
    packaged_prose,
    prose_findings,
    prose_sections,
    prose_table,
    write_prose_page,
)

_MARKS = {"holds": "**holds**", "contradicted": "**contradicted**"}  # of a verdict; others are shown as they are
# Of a single comparison, which is a part of a claim or one way in which it may hold: no verdict on the paper.
_AS_CLAIMED = {"holds": "yes", "contradicted": "the other way"}
_EQUIVALENCE = {"margin": MARGINS["mean_accuracy"], "level": 100 * EQUIVALENCE_LEVEL}
TEXTS = prose_sections(fill_prose(packaged_prose("paper/texts.md"), _EQUIVALENCE, "paper/texts.md"))
_SEEDS_SHOWN = 200  # on which the uploads of FedAsync are counted; nothing is run for that
# The figures about which the paper claims something
_CLAIMED = {check.figure for claim in CLAIMS for check in claim.checks}


def write_paper_page(
    page: Path,
    figures: Mapping[str, Sequence[Path]],
    results: FigureResults,
    verdicts: Sequence[Verdict],
    observed: Sequence[Verdict] = (),
    quick: bool = False,
    store: Path | None = None,
) -> None:
    """Write the page beside its figures. store: the folder of the results, with findings.md if any."""
    rows = claims_rows(verdicts)
    notes = prose_findings(store, paper_values(), FIGURES) if store else {}
    shown = []
    for name, figure in FIGURES.items():
        note = notes.get(f"findings {name}") or figure.note
        shown += [f"### {_heading(figure)}", *_images(page, figure, note, figures, results)]
        shown += [_claim(row, each) for row, each in zip(rows, verdicts, strict=True) if _figure_of(row) == name]
        if name in figures:
            spent = paper_ledger(figure, results[name])
            shown += [_proved(spent), folded_prose("What each curve spent", _ledger_table(spent))]
    for name in figures:
        if name.endswith("_timeline"):
            shown += [f"### {TEXTS[name]}", f"![{TEXTS[name]}]({_image(page, figures[name])})"]
    verdicts_figure = ""
    if "verdicts" in figures:
        pages = [[path] for path in figures["verdicts"] if path.suffix == ".png"]  # a page each
        images = "\n".join(f"![Every claim, decided]({_image(page, each)})" for each in pages)
        verdicts_figure = f"{images}\n\n{TEXTS['at a glance']}"
    values = {
        **_common(),
        "verdicts figure": verdicts_figure,
        "about": TEXTS["quick look" if quick else "full runs"],
        "verdicts": _verdicts_table(rows),
        "claims": len(rows),
        "decided": sum(row["verdict"] in _MARKS for row in rows),
        **{f"decided, {name}": _num_decided(rows, name) for name in rows[0]["p_adjusted"]},
        "rule": TEXTS["rule"],
        "plan": _plan(),
        "margin": MARGINS["mean_accuracy"],
        "close margin": CLOSE_MARGIN,
        "awaited": sum(bool(row["seeds_awaited"]) for row in rows),
        "observed": _observed_tables(observed_rows(observed)),
        "runs": folded_prose("Curves, seeds and what they cost", _runs_table(results)),
        "figures": "\n\n".join(part for part in shown if part),
    }
    write_prose_page(page, fill_prose(packaged_prose("paper/page.md"), values, "paper/page.md"), "paper")


def _plan() -> str:
    """Say how many seeds the plan gives to each figure about which something is claimed or observed."""
    figures = sorted({check.figure for each in (*CLAIMS, *OBSERVATIONS) for check in each.checks}, key=[*FIGURES].index)
    return ", ".join(f"`{name}` {FIGURES[name].seeds}" for name in figures)


def _common() -> dict[str, Any]:
    """Return what all figures share, from the defaults of an experiment."""
    usual = Experiment()
    return {
        "snr": usual.radio.snr_db,
        "min duration": usual.fleet.min_duration,
        "epochs": usual.learning.local_epochs,
        "batch": usual.learning.batch_size,
        "rate": usual.learning.learning_rate,
        "proximal": usual.learning.proximal,
        "fedavg proximal": FRAMEWORKS["fedavg"]["learning"]["proximal"],
        "horizon": usual.timeline.horizon,
    }


def paper_values() -> dict[str, float]:
    """Return what findings may name about FedAsync's uploads if T_min = 0: how many, and the quickest devices' shares in percent."""
    uploads = [np.sort(fedasync_uploads(seed))[::-1] for seed in range(_SEEDS_SHOWN)]
    values = {f"uploads on seed {seed}": float(each.sum()) for seed, each in enumerate(uploads[:5])}
    for who, count in {"quickest": 1, "quickest five": 5}.items():
        shares = [100 * float(each[:count].sum() / each.sum()) for each in uploads[:10]]
        values |= {f"least share of the {who}": min(shares), f"largest share of the {who}": max(shares)}
        values[f"median share of the {who}"] = float(np.median(shares))
    most = FIGURES["frameworks_no_minimum"].most_uploads
    values |= {"most uploads": most, "seeds shown": _SEEDS_SHOWN}
    values["excluded seeds"] = sum(int(each.sum()) > most for each in uploads)
    return values


def _verdicts_table(rows: Sequence[Mapping[str, Any]]) -> str:
    heads = [
        "figure",
        "claim",
        "verdict",
        "the comparison on which it hangs (positive: as claimed)",
        "by the other measure",
        *("p", *rows[0]["p_adjusted"]),
    ]
    return prose_table(
        heads,
        [
            [
                _link(FIGURES[_figure_of(row)]),
                f"[{row['text']}](#{_anchor(row['text'])})",
                _verdict(row),
                f"{in_words(row['weakest'])}: {table_effect(row['weakest'])}",
                row["by_other_measure"],
                *(f"{p:.2g}" for p in (row["p"], *row["p_adjusted"].values())),
            ]
            for row in rows
        ],
    )


def _num_decided(rows: Sequence[Mapping[str, Any]], method: str) -> int:
    """Count the claims that are still decided with p values adjusted for the number of claims."""
    return sum(row["p_adjusted"][method] <= 1 - CONFIDENCE for row in rows)


def _observed_tables(rows: Sequence[Mapping[str, Any]]) -> str:
    heads = ["", "`mean_accuracy` (95 % interval)", "`final_accuracy`"]
    parts = []
    for row in rows:
        cells = [
            [difference_words(each), table_effect(each), table_effect(each["by_other_measure"])]
            for each in row["comparisons"]
        ]
        parts += [f"**{row['text']}.** {row['note']}", folded_prose("Its comparisons", prose_table(heads, cells))]
    return "\n\n".join(parts)


def _heading(figure: Figure) -> str:
    """Name a figure, and the paper's that it repeats."""
    return f"{figure.title} (the paper's {figure.number})" if figure.number else figure.title


def _link(figure: Figure) -> str:
    return f"[{figure.number or 'ours'}](#{_anchor(_heading(figure))})"


def _figure_of(row: Mapping[str, Any]) -> str:
    figure: str = row["comparisons"][0]["figure"]
    return figure


def _images(
    page: Path, figure: Figure, note: str, figures: Mapping[str, Sequence[Path]], results: FigureResults
) -> list[str]:
    """Show a figure with its caption and note, and below it the other drawings of the same runs."""
    name = figure.name
    if name not in figures:
        absent = f"{len(without_reproduced_run(name, results))} of {len(figure.variants())} curves"
        return [f"Not drawn yet: {absent} have no run. `fedtide paper {name}` adds them."]
    how = (
        [TEXTS["effects"]]
        if figure.effects
        else [SAID, *([SMOOTHED] if drawing_smooths(figure, results[name]) else [])]
    )
    caption = " ".join([plain_verdict(figure.caption), *how])
    parts = [f"![{figure.title}]({_image(page, figures[name])})", caption, note, *_left_out(results[name])]
    for kind in ("difference", "resources"):
        if f"{name}_{kind}" in figures:
            shown = f"![{figure.title}, {kind}]({_image(page, figures[f'{name}_{kind}'])})\n\n{TEXTS[kind]}"
            parts.append(folded_prose("Against bits and samples", shown) if kind == "resources" else shown)
    return parts if name in _CLAIMED else [*parts, _differences_table(figure, results[name])]


def _left_out(curves: Mapping[str, Mapping[int, Any]]) -> list[str]:
    """Say which seeds a curve skips: seeds are taken in order, so a gap is somebody's choice and may bear on the result."""
    gaps: dict[tuple[int, ...], list[str]] = {}
    for name, runs in curves.items():
        absent = tuple(seed for seed in range(max(runs, default=0)) if seed not in runs)
        if absent:
            gaps.setdefault(absent, []).append(plain_verdict(name).replace(" | ", ", "))
    return [
        f"Missing, although later seeds have run: seed {', '.join(map(str, absent))} of {'; '.join(names)}"
        for absent, names in gaps.items()
    ]


def _image(page: Path, paths: Sequence[Path]) -> str:
    return os.path.relpath(next(path for path in paths if path.suffix == ".png"), page.parent)


def _claim(row: Mapping[str, Any], verdict: Verdict) -> str:
    """Show a claim: the paper's words, our reading, and every comparison."""
    letters = "abcdefgh"[: len(verdict.groups)] if len(verdict.groups) > 1 else ""
    of_best = " in the best group" if letters else ""
    parts = [f'> "{row["quote"]}" ({row["section"]})']
    parts += [f"We read it as: {row['reading']}"] if row["reading"] else []
    parts += [f"One of the groups {', '.join(letters)} is enough."] if letters else []
    groups = (
        [f"{letter}: " for letter, group in zip(letters, verdict.groups, strict=True) for _ in group] if letters else []
    )
    many = len(row["comparisons"])
    rows = []
    for group, each in zip(groups or [""] * many, row["comparisons"], strict=True):
        other = each["by_other_measure"]
        by_other = f"`{other['metric']}` {table_effect(other)}: {_as_claimed(other)}"
        rows.append([group + in_words(each), table_effect(each), _as_claimed(each), by_other])
    heads = ["comparison", "difference (95 % interval)", "as claimed?", "by the other measure"]
    summary = f"The paper's words and {many} comparison{'s' * (many > 1)}"
    return "\n\n".join(
        [
            f"#### {row['text']}",
            f"{_verdict(row)}: {_count(verdict.decisive)}{of_best}.",
            folded_prose(summary, "\n\n".join([*parts, prose_table(heads, rows)])),
        ]
    )


def _verdict(row: Mapping[str, Any]) -> str:
    """Return a claim's verdict; while seeds of the plan are awaited, what the others say."""
    if row["seeds_awaited"]:
        planned = row["seeds_awaited"] + (row["seeds"] or 0)
        return f"{row['seeds']} of {planned} seeds; so far {row['so_far']}" if row["seeds"] else "runs missing"
    verdict: str = row["verdict"]
    return _MARKS.get(verdict, verdict)


def _as_claimed(comparison: Mapping[str, Any]) -> str:
    verdict: str = comparison["verdict"]
    return _AS_CLAIMED.get(verdict, verdict)


def _anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _runs_table(results: FigureResults) -> str:
    """Say how many seeds each figure has and what one costs."""
    lines = []
    for name, figure in FIGURES.items():
        rows = paper_ledger(figure, results.get(name, {}))
        seeds = sorted({row["seeds"] for row in rows} | ({0} if len(rows) < len(figure.variants()) else set()))
        words = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        known = [row["seconds"] for row in rows if row["seconds"]]
        cost = f"{sum(known) / 60:.0f} min" if len(known) == len(figure.variants()) else "-"
        lines.append([f"{figure.title} (`{name}`)", str(len(figure.variants())), words, cost])
    every = [result for curves in results.values() for runs in curves.values() for result in runs.values()]
    made = prose_table(["figure", "curves", "seeds", "the quickest seed of each curve, on one core"], lines)
    return f"{made}\n\nFigures share runs, so all together cost less than the sum.\n\n{pair_paths_summary(every)} {WHY}"


def _ledger_table(rows: Sequence[Mapping[str, Any]]) -> str:
    heads = ["curve", "seeds", "uploads", "symbols (airtime)", "bits sent", "kept share", "samples trained", "wasted"]
    return prose_table(
        [*heads, "quickest run"],
        [
            [
                plain_verdict(row["curve"]).replace(" | ", ", "),
                str(row["seeds"]),
                f"{row['uploads']:,.0f}",
                f"{row['symbols'] / 1e6:,.1f} M",
                f"{row['bits'] / 1e6:,.1f} M",
                f"{row['kept_share']:.3f}",
                f"{row['samples_trained'] / 1e6:,.1f} M",
                f"{row['samples_wasted'] / max(row['samples_trained'], 1):.0%}",
                "-" if row["seconds"] is None else f"{row['seconds']:.0f} s",
            ]
            for row in rows
        ],
    )


def _differences_table(figure: Figure, curves: Mapping[str, Mapping[int, Any]]) -> str:
    """Say how far each curve is from its reference, for a figure about which the paper claims nothing."""
    metric = METRICS["mean_accuracy"]
    rows = []
    for setting in figure.settings:
        for curve in figure.curves:
            reference = figure.reference(curve)
            if reference is None:
                continue
            runs, base = (curves.get(curve_label(each, setting), {}) for each in (curve, reference))
            pairs = list(paired_results(runs, base).values())
            if pairs:
                found = paired_difference([metric(one) for one, _ in pairs], [metric(other) for _, other in pairs])
                row = {**finite_table_value(found._asdict()), "paths_note": mixed_pairs_note(pairs)}
                rows.append([f"{plain_verdict(curve)}, {setting}", plain_verdict(reference), table_effect(row)])
    return prose_table(["curve", "mean accuracy, less that of", "difference (95 % interval)"], rows)


def _count(findings: Sequence[Finding]) -> str:
    """Say how many comparisons are as claimed, and what of the others is not merely unresolved."""
    answers = [each.answer() for each in findings]
    words = {"contradicted": "the other way", "runs missing": "without runs"}
    words |= {answer: f"with {answer}" for answer in sorted(answers) if answer.startswith(EQUIVALENT)}
    rest = [f"{answers.count(each)} {word}" for each, word in words.items() if each in answers]
    more = f" ({', '.join(rest)})" if rest else ""
    return f"{answers.count('holds')} of {len(answers)} comparisons as claimed{more}"


def _proved(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say where the proposed schedule is not the proved argmin of the label variance Omega (section III-A, without label)."""
    short = [
        f"{row['proved_share']:.0%} ({plain_verdict(row['curve']).replace(' | ', ', ')})"
        for row in rows
        if row["proved_share"] is not None and row["proved_share"] < 1
    ]
    if not short:
        return ""
    return (
        "The schedule is the proved minimiser of the label variance in this share of the aggregations, and the best that was "
        f"found in the others: {', '.join(short)}."
    )
