"""Run what the figures need, draw them, decide the claims, and write the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtide.errors import FedtideError
from fedtide.plot import SCREEN
from fedtide.studies import CONFIDENCE, RunResult, Store, Study, aligned_seeds, finite_table_value
from fedtide_lab.paper import draw as paper_draw
from fedtide_lab.paper.claims import FigureResults, Finding, Verdict, adjusted_p_values, claim_side_label, decide_claim
from fedtide_lab.paper.draw import draw_difference, draw_figure, draw_resources
from fedtide_lab.paper.figures import FIGURES, Figure, figure_study, stored_runs
from fedtide_lab.paper.sentences import CLAIMS, OBSERVATIONS

_TIMELINES = "timelines"
# A quick look: a tenth of the horizon.
QUICK_SHARE: dict[str, Any] = {"horizon_share": 0.1}
_QUICK_SEEDS = 2
_MOST_SEEDS = 1000


def reproduced_figures(names: Sequence[str]) -> list[str]:
    """Return the figures named, all of them if none is; raise for a name that is none."""
    known = [*FIGURES, _TIMELINES]
    for name in names:
        if name not in known:
            raise FedtideError(f"the paper has no figure {name!r}; there are {', '.join(known)} (and `claims`)")
    return list(names) or known


def reproduced_studies(names: Sequence[str], seeds: int | None, quick: Mapping[str, Any] | None) -> list[Study]:
    """Return the studies behind these figures; seeds=None takes each figure's own number."""
    if seeds and seeds > _MOST_SEEDS:
        raise FedtideError(f"--seeds {seeds}: more than {_MOST_SEEDS} seeds per curve would take years; ask for fewer")
    default = _QUICK_SEEDS if quick else None
    return [
        figure_study(FIGURES[name], FIGURES[name].seed_numbers(seeds or default or 0), quick)
        for name in names
        if name in FIGURES
    ]


def collect_reproduced(
    names: Sequence[str], store: Store, quick: Mapping[str, Any] | None, seeds: int = 0
) -> FigureResults:
    """Read the stored runs of these figures: figure -> curve -> seed -> result. seeds=0: those of the plan."""
    return {part.name: stored_runs(part, store) for part in reproduced_studies(names, seeds or None, quick)}


def without_reproduced_run(name: str, results: FigureResults) -> list[str]:
    """Return the curves of a figure that have no run yet."""
    labels = FIGURES[name].variants() if name in FIGURES else ()
    return [label for label in labels if not results.get(name, {}).get(label)]


def refuse_a_poorer_page(page: Path, results: FigureResults, store: Path) -> None:
    """Raise if a page is there that was made from far more runs, as when the store is mistyped; nothing is drawn yet."""
    try:
        before = _runs_behind(page.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # no page, or none of ours
        return
    now = {name: sum(map(len, curves.values())) for name, curves in results.items()}
    lost = [name for name, count in before.items() if count and without_reproduced_run(name, results)]
    if lost or sum(now.values()) < sum(before.values()) / 2:
        what = f"the figure{'s' * (len(lost) > 1)} {', '.join(lost)}" if lost else "most of its runs"
        raise FedtideError(
            f"{page} was made from more runs than {store} holds: written anew it would lose {what}; name the right --store or "
            "another --out, or use --force"
        )


def _runs_behind(page: str) -> dict[str, float]:
    """Return about how many runs are behind each figure of a page: its table has a row `figure | curves | seeds |`."""
    rows = re.findall(r"\(`(\w+)`\) \| (\d+) \| (\d+)(?: to (\d+))? \|", page)
    return {
        name: int(curves) * (int(low) + int(high or low)) / 2 if int(low) else 0 for name, curves, low, high in rows
    }


def draw_reproduced(
    names: Sequence[str],
    results: FigureResults,
    folder: Path,
    say: Callable[[str], None] = lambda _: None,
    style: str = SCREEN,
    on_figure: Callable[[float, int, str], None] = lambda *_: None,
) -> dict[str, list[Path]]:
    """Draw figures into a folder; those without a single run are left out, with a word. on_figure: as `study_progress` yields."""
    drawn: dict[str, list[Path]] = {}
    for number, name in enumerate(names):
        on_figure(1, number, f"drawing {name}")
        if name == _TIMELINES:
            drawn["frameworks_timeline"] = paper_draw.draw_frameworks(folder / "paper-timeline-frameworks", style=style)
            drawn["ages_timeline"] = paper_draw.draw_ages(folder / "paper-timeline-ages", style=style)
        elif results.get(name):
            figure = FIGURES[name]
            kinds = {
                "": draw_figure,
                "difference": draw_difference,
                **({"resources": draw_resources} if figure.resources else {}),
            }
            for kind, drawing in kinds.items():
                stem = folder / f"paper-{name}{'-' * bool(kind)}{kind}"
                drawn[f"{name}_{kind}".rstrip("_")] = drawing(figure, results[name], stem, style)
        else:
            say(f"{name}: no finished run yet, so no figure")
    return drawn


def reproduced_verdicts(results: FigureResults, planned: bool = True) -> list[Verdict]:
    """Decide every claim. planned: a claim has no verdict before it has all seeds of the plan."""
    plan = {name: figure.seed_numbers() for name, figure in FIGURES.items()} if planned else None
    return [decide_claim(claim, results, plan) for claim in CLAIMS]


def reproduced_observations(results: FigureResults) -> list[Verdict]:
    """Make the comparisons of every observation of ours; their verdicts mean nothing."""
    return [decide_claim(each, results) for each in OBSERVATIONS]


def paper_ledger(figure: Figure, curves: Mapping[str, Mapping[int, RunResult]]) -> list[dict[str, Any]]:
    """Return what each curve of a figure spent, averaged over the seeds that a panel's curves share (wall time: the least)."""
    rows = []
    for setting in figure.settings:
        labels = [name for name in figure.variants() if name.endswith(f" | {setting}")]
        rows += [
            _spent(name, list(runs.values()))
            for name, runs in aligned_seeds({name: curves.get(name, {}) for name in labels}).items()
        ]
    return rows


def _spent(name: str, runs: Sequence[RunResult]) -> dict[str, Any]:
    def mean(column: str) -> float:
        return sum(float(run.column(column)[-1]) for run in runs) / len(runs)

    def mean_total(total: str) -> float:
        return sum(run.totals[total] or 0 for run in runs) / len(runs)

    used, trained = mean("samples_used"), mean("samples_trained")
    return {
        "curve": name,
        "seeds": len(runs),
        "uploads": mean_total("uploads"),
        "symbols": mean("symbols"),
        "bits": mean("bits"),
        "samples_trained": trained,
        "samples_wasted": trained - used,
        "kept_share": mean_total("mean_kept_share"),
        # None: this scheduler proves nothing
        "proved_share": mean_total("proved_minimal_share")
        if runs[0].totals["proved_minimal_share"] is not None
        else None,
        # The least: the machine may have been busy with other work during the rest.
        "seconds": min((run.totals["seconds"] for run in runs if run.totals["seconds"]), default=None),
    }


# The ledger as plain data, and its comparisons in few words: what the page, the command line and `--json` show.


def plain_verdict(text: str) -> str:
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


def claims_rows(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return the ledger as plain data, for `--json`."""
    adjusted = adjusted_p_values([verdict.p_value for verdict in verdicts])
    return [
        {
            "kind": "claim",
            "claim": verdict.claim.name,
            "text": verdict.claim.text,
            "quote": verdict.claim.quote,
            "section": verdict.claim.section,
            "reading": verdict.claim.reading,
            "verdict": verdict.verdict,
            "so_far": verdict.so_far,
            "seeds": min(len(finding.difference) for finding in verdict.findings),
            "seeds_awaited": verdict.awaited,
            "seeds_needed": verdict.seeds_needed,
            "weakest": {**_comparison(verdict.weakest), "seeds_needed": verdict.seeds_needed},
            "comparisons": [
                {**each, "by_other_measure": other}
                for each, other in zip(_comparisons(verdict), _comparisons(verdict.other), strict=True)
            ],
            "by_other_measure": verdict.other.so_far,
            "p": verdict.p_value,
            "p_adjusted": {name: values[number] for name, values in adjusted.items()},
        }
        for number, verdict in enumerate(verdicts)
    ]


def observed_rows(observed: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return our own findings as plain data, for `--json`: differences, of which nothing is claimed."""
    return [
        {
            "kind": "finding of ours",
            "finding": each.claim.name,
            "text": each.claim.text,
            "note": each.claim.reading,
            "comparisons": [
                {**_unclaimed(found), "by_other_measure": _unclaimed(other)}
                for found, other in zip(each.findings, each.other.findings, strict=True)
            ],
        }
        for each in observed
    ]


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
        "better": plain_verdict(claim_side_label(finding.check.better)),
        "worse": plain_verdict(claim_side_label(finding.check.worse)),
        "metric": finding.check.metric,
        "lower_is_better": finding.check.lower_is_better,
        "positive_is": "as claimed",
        "verdict": finding.answer(),
        "paths_note": finding.paths_note,
        "diverged_note": finding.diverged_note,
        **({} if found is None else finite_table_value(found._asdict())),
    }


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
