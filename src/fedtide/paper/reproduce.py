"""Run what the figures need, draw them, decide the claims, and write the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtide.errors import FedtideError
from fedtide.paper import timelines
from fedtide.paper.claims import Finding, Observation, Results, Verdict, decide, observe
from fedtide.paper.draw import draw, draw_difference, draw_resources
from fedtide.paper.figures import FIGURES, Figure, study
from fedtide.paper.sentences import CLAIMS, OBSERVATIONS
from fedtide.report.style import SCREEN
from fedtide.studies.result import RunResult, Store
from fedtide.studies.spec import Study
from fedtide.studies.statistics import shared

TIMELINES = "timelines"
# A quick look: a tenth of the horizon.
QUICK: dict[str, Any] = {"horizon_share": 0.1}
QUICK_SEEDS = 2
MOST_SEEDS = 1000


def chosen(names: Sequence[str]) -> list[str]:
    """Return the figures named, all of them if none is; raise for a name that is none."""
    known = [*FIGURES, TIMELINES]
    for name in names:
        if name not in known:
            raise FedtideError(f"the paper has no figure {name!r}; there are {', '.join(known)} (and `claims`)")
    return list(names) or known


def studies(names: Sequence[str], seeds: int | None, quick: Mapping[str, Any] | None) -> list[Study]:
    """Return the studies behind these figures; seeds=None takes each figure's own number."""
    if seeds and seeds > MOST_SEEDS:
        raise FedtideError(f"--seeds {seeds}: more than {MOST_SEEDS} seeds per curve would take years; ask for fewer")
    default = QUICK_SEEDS if quick else None
    return [
        study(FIGURES[name], range(seeds or default or FIGURES[name].seeds), quick) for name in names if name in FIGURES
    ]


def collect(names: Sequence[str], store: Store, quick: Mapping[str, Any] | None, seeds: int = 0) -> Results:
    """Read every stored run of these figures, whatever its seed: figure -> curve -> seed -> result."""
    found: dict[str, dict[str, dict[int, RunResult]]] = {}
    kept = store.all_files()
    for part in studies(names, max(seeds, 20), quick):
        curves = found.setdefault(part.name, {})
        for run in part.runs:
            if run.name in kept:
                curves.setdefault(run.label, {})[run.experiment.seed] = store.load(run.name, kept)
    return found


def without_run(name: str, results: Results) -> list[str]:
    """Return the curves of a figure that have no run yet."""
    return [label for label in FIGURES[name].variants() if not results.get(name, {}).get(label)]


def refuse_a_poorer_page(page: Path, results: Results, store: Path) -> None:
    """Raise if a page is there that was made from far more runs, as when the store is mistyped; nothing is drawn yet."""
    try:
        before = _runs_behind(page.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # no page, or none of ours
        return
    now = {name: sum(map(len, curves.values())) for name, curves in results.items()}
    lost = [name for name, count in before.items() if count and name in FIGURES and without_run(name, results)]
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


def draw_all(
    names: Sequence[str],
    results: Results,
    folder: Path,
    say: Callable[[str], None] = lambda _: None,
    style: str = SCREEN,
) -> dict[str, list[Path]]:
    """Draw figures into a folder; those without a single run are left out, with a word."""
    drawn: dict[str, list[Path]] = {}
    for name in names:
        if name == TIMELINES:
            drawn["frameworks_timeline"] = timelines.frameworks(folder / "paper-timeline-frameworks", style=style)
            drawn["ages_timeline"] = timelines.ages(folder / "paper-timeline-ages", style=style)
        elif results.get(name):
            figure = FIGURES[name]
            kinds = {
                "": draw,
                "difference": draw_difference,
                **({"resources": draw_resources} if figure.resources else {}),
            }
            for kind, drawing in kinds.items():
                stem = folder / f"paper-{name}{'-' * bool(kind)}{kind}"
                drawn[f"{name}_{kind}".rstrip("_")] = drawing(figure, results[name], stem, style)
        else:
            say(f"{name}: no finished run yet, so no figure")
    return drawn


def verdicts(results: Results) -> tuple[list[Verdict], list[Verdict]]:
    """Decide every claim, and again by the other measures."""
    return [decide(claim, results) for claim in CLAIMS], [decide(claim.by_other_measure(), results) for claim in CLAIMS]


Observed = Sequence[tuple[Observation, tuple[Finding, ...], tuple[Finding, ...]]]


def observed(results: Results) -> Observed:
    """Make the comparisons of every observation of ours, and again by the other measures."""
    return [(each, observe(each, results), observe(each.by_other_measure(), results)) for each in OBSERVATIONS]


def ledger(figure: Figure, curves: Mapping[str, Mapping[int, RunResult]]) -> list[dict[str, Any]]:
    """Return what each curve of a figure spent, averaged over the seeds that a panel's curves share (wall time: the least)."""
    rows = []
    for setting in figure.settings:
        labels = [name for name in figure.variants() if name.endswith(f" | {setting}")]
        rows += [_spent(name, runs) for name, runs in shared({name: curves.get(name, {}) for name in labels}).items()]
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
