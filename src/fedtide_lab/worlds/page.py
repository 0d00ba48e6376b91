"""The page of a survey: a verdict for every claim in every world, with its interval, and what the worlds are like.

docs/worlds.md is one, docs/skies.md another. The text is the survey's page.md, and findings.md beside its results; this module
computes what stands in their places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtide.config import TimelineConfig
from fedtide.plot import (
    SCREEN,
    TINTS,
    ForestRow,
    draw_rows,
    few_chart_numbers,
    figure_sheet,
    figure_style,
    name_panel,
    save_figure,
)
from fedtide.studies import CONFIDENCE, EQUIVALENT, RunResult, final_accuracy, pair_paths_summary, table_effect
from fedtide_lab.paper.claims import Claim, FigureResults, Verdict, decide_claim
from fedtide_lab.paper.page import TEXTS
from fedtide_lab.paper.reproduce import claims_rows, in_words
from fedtide_lab.prose import (
    fill_prose,
    folded_prose,
    gain_words,
    key_words,
    packaged_prose,
    prose_findings,
    prose_table,
    write_prose_page,
)
from fedtide_lab.worlds.studies import (
    COMMON_KEYS,
    CURVES,
    HORIZON,
    NO_CLAIMS,
    WORLDS_SURVEY,
    Change,
    Survey,
    World,
    world_change,
    world_claims,
)

_SIGNS = {"holds": "**+**", "contradicted": "**−**", EQUIVALENT: "**≈**", "not resolved": "·"}  # by how verdicts begin
_NONE = "(There are no such runs yet.)"
_SHOWN = ("proposed", "random", "BC")  # schedules in the table of what worlds are like, and its columns
# Columns of that table
_DESCRIBED = {
    "ready": "ready per aggregation",
    "capacity": "capacity of those picked, bit/symbol: 5 %, median, 95 %",
    "outage": "picked with no capacity",
    "kept": "kept of an update",
    "lost": "lost",
    "age": "age: mean, largest",
    "never": "devices that never upload",
    "variance": "variance of labels",
    "end": "accuracy at the end",
}


class Decided(NamedTuple):
    """A world with its claims, decided."""

    world: World
    verdicts: tuple[Verdict, ...]


def decided_worlds(
    worlds: Sequence[World], results: FigureResults, claims: Callable[[str], Sequence[Claim]] = world_claims
) -> list[Decided]:
    """Decide every claim in every world that has runs."""
    return [
        Decided(world, tuple(decide_claim(each, results) for each in claims(world.name)))
        for world in worlds
        if results.get(world.name)
    ]


def world_rows(found: Sequence[Decided], called: str = "world") -> list[dict[str, Any]]:
    """Return everything as plain data, for `--json`."""
    return [{called: each.world.name, **row} for each in found for row in claims_rows(each.verdicts)]


def draw_worlds(
    found: Sequence[Decided], stem: Path, style: str = SCREEN, panels: Mapping[str, str] = WORLDS_SURVEY.panels
) -> list[Path]:
    """Draw the main gains with their intervals, a panel for each comparison and a line for each world."""
    with figure_style(style) as how:
        page, grid = figure_sheet(how, 3, 2, 0.55 + 0.19 * len(found), sharey=True)
        for number, (panel, (claim, title)) in enumerate(zip(grid.ravel(), panels.items(), strict=True)):
            rows = []
            for each in found:
                finding = next(v for v in each.verdicts if v.claim.name == claim).findings[0]
                rows.append(ForestRow(each.world.title, finding.at(CONFIDENCE), finding.answer(), finding.difference))
            draw_rows(panel, rows, TINTS)
            few_chart_numbers(panel)
            name_panel(panel, how, number, title.replace("T_max", r"$T_{\max}$"))
        label = "gain in mean accuracy, seed by seed, with its 95 % interval"
        page.supxlabel(label, fontsize=how.size if how.titles else how.small)
        return save_figure(page, stem)


def write_worlds_page(
    page: Path,
    figure: Path,
    found: Sequence[Decided],
    results: FigureResults,
    store: Path,
    survey: Survey = WORLDS_SURVEY,
) -> None:
    """Write the page of a survey beside its figure. store: the folder of the results, with findings.md if any."""
    runs = [result for curves in results.values() for seeds in curves.values() for result in seeds.values()]
    columns = {name: head for name, head in _DESCRIBED.items() if name in survey.columns}
    described = _described_worlds(found, results)
    changes = {each.world.name: world_changes(each.world, survey.claims, results) for each in found}
    changes = {name: made for name, made in changes.items() if made}
    titles = {each.world.name: each.world.title for each in found}
    counted = sum(made is not None for world in changes.values() for made in world.values())
    against = {each.world.name: titles.get(each.world.against, "") for each in found}
    heads = [["less that in", *(against[name] for name in changes)]] if len({*against.values()}) > 1 else []
    rows = [
        [name, *(change_cell(made[name]) for made in changes.values())] for name in next(iter(changes.values()), {})
    ]
    more = dict(survey.more(results)) if survey.more else {}
    values = {
        "horizon": HORIZON,
        "paper horizon": TimelineConfig.model_fields["horizon"].default,
        "common": key_words(COMMON_KEYS, ", "),
        "paths": pair_paths_summary(runs),
        "figure": figure,
        "verdicts": _verdicts(found, survey.claims("")),
        "rule": TEXTS["rule"],
        "changes": prose_table(["gain of", *(titles[world] for world in changes)], heads + rows) if rows else _NONE,
        "changes counted": counted,
        "bold by chance": counted * (1 - CONFIDENCE),
        "alike": prose_table(
            [survey.called, "schedule", *columns.values()],
            [
                [titles[world], schedule, *(cells[name] for name in columns)]
                for (world, schedule), cells in described.items()
            ],
        ),
        "list": worlds_list([each.world for each in found], survey.called),
        "curves": ", ".join(CURVES),
        "comparisons": "\n\n".join(map(_comparisons, found)),
    }
    values |= more | prose_findings(store, survey_values(found, results, survey) | more, ("in short", "reasons"))
    template = f"{survey.name}/page.md"
    write_prose_page(page, fill_prose(packaged_prose(template), values, template), survey.name)


def survey_values(found: Sequence[Decided], results: FigureResults, survey: Survey) -> dict[str, Any]:
    """Return what findings may name: `WORLD SCHEDULE COLUMN`, `WORLD gain A over B`, `WORLD change A over B`, and counts."""
    told: dict[str, Any] = {
        f"{world} {schedule} {name}": cells[name]
        for (world, schedule), cells in _described_worlds(found, results).items()
        for name in survey.columns
    }
    for each in found:
        world = each.world.name
        for name, made in world_changes(each.world, survey.claims, results).items():
            told |= {} if made is None else {f"{world} change {name}": made.paired}
        for finding in (finding for verdict in each.verdicts for finding in verdict.findings):
            if (gain := finding.at(CONFIDENCE)) is not None:
                told[f"{world} gain {finding.check.better} over {finding.check.worse}"] = gain
    return told | _counts(found, survey)


def world_changes(
    world: World,
    claims: Callable[[str], Sequence[Claim]],
    results: FigureResults,
    confidence: float = CONFIDENCE,
) -> dict[str, Change | None]:
    """Return what every gain in a world is, less what it is in the world that it is compared with; nothing of that itself."""
    if world.against == world.name:
        return {}
    return {
        f"{check.better} over {check.worse}": world_change(check, results, world.against, confidence)
        for claim in claims(world.name)
        for check in claim.checks
    }


def worlds_list(worlds: Sequence[World], called: str) -> str:
    """Return the table of what worlds are."""
    if not worlds:
        return _NONE
    rows = [[each.title, each.differs, key_words(each.tree) or "the defaults"] for each in worlds]
    return prose_table([called, "what differs", "as keys"], rows)


def _counts(found: Sequence[Decided], survey: Survey) -> dict[str, Any]:
    """Count in how many worlds each claim of the paper holds, and how often one is contradicted."""
    holds, contradicted = [], 0
    for number, claim in enumerate(survey.claims("")):
        verdicts = [each.verdicts[number].verdict for each in found]
        if claim.name not in NO_CLAIMS:
            holds.append(f"{claim.text.rstrip('.')} ({verdicts.count('holds')})")
            contradicted += verdicts.count("contradicted")
    return {survey.name: len(found), "contradicted": contradicted, "claims that hold": "; ".join(holds)}


def _verdicts(found: Sequence[Decided], claims: Sequence[Claim]) -> str:
    num_seeds = [max((len(f.difference) for v in each.verdicts for f in v.findings), default=0) for each in found]
    heads = [f"{each.world.title} ({n} seed{'s' * (n != 1)})" for each, n in zip(found, num_seeds, strict=True)]
    rows = [
        [claim.text, *(_verdict_cell(each.verdicts[number]) for each in found)] for number, claim in enumerate(claims)
    ]
    return prose_table(["claim", *heads], rows)


def _verdict_cell(verdict: Verdict) -> str:
    interval = verdict.weakest.at(CONFIDENCE)
    sign = next((sign for kind, sign in _SIGNS.items() if verdict.verdict.startswith(kind)), "")
    return (
        sign
        if interval is None
        else f"{sign} {gain_words(interval)}"
        if np.isfinite(interval.low)
        else gain_words(interval)
    )


def change_cell(made: Change | None) -> str:
    """Write a change with its interval, bold if it is resolved."""
    words = gain_words(made.paired if made else None)
    if made is None or made.paired.verdict not in ("higher", "lower"):
        return words
    return f"**{words}**{'' if made.is_unpaired else ' †'}"


def _described_worlds(found: Sequence[Decided], results: FigureResults) -> dict[tuple[str, str], dict[str, str]]:
    """Return what every world is like under some schedules."""
    return {
        (each.world.name, schedule): _described(list(curve.values()))
        for each in found
        for schedule in _SHOWN
        if (curve := results[each.world.name].get(schedule))
    }


def _described(runs: Sequence[RunResult]) -> dict[str, str]:
    def flat(name: str) -> Any:
        return np.concatenate([getattr(run.uploads, name) for run in runs])

    def total(name: str) -> float:
        return float(np.mean([run.totals[name] or 0 for run in runs]))

    age = flat("age")
    low, middle, high = np.quantile(flat("capacity"), [0.05, 0.5, 0.95])
    ready = np.concatenate([run.uploads.num_ready for run in runs])
    end = np.mean([final_accuracy(run) for run in runs])
    return {
        "ready": f"{ready.mean():.1f}",
        "capacity": f"{low:.2f}, {middle:.2f}, {high:.2f}",
        "outage": f"{100 * np.mean(flat('capacity') <= 0):.0f} %",
        "kept": f"{100 * total('mean_kept_share'):.0f} %",
        "lost": f"{100 * flat('lost').mean():.0f} %",
        "age": f"{age.mean():.2f}, {age.max()}",
        "never": f"{100 * np.mean([_never(run) for run in runs]):.0f} %",
        "variance": f"{total('mean_label_variance'):,.0f}",
        "end": f"{end:.3f}",
    }


def _never(run: RunResult) -> float:
    """Return the share of the devices that never uploaded."""
    devices = int(run.experiment["fleet"]["num_devices"])
    return 1 - len(np.unique(run.uploads.picked)) / devices


def _comparisons(each: Decided) -> str:
    rows = {
        in_words(comparison).rstrip(", "): [table_effect(comparison), table_effect(comparison["by_other_measure"])]
        for row in claims_rows(each.verdicts)
        for comparison in row["comparisons"]
    }
    made = prose_table(
        ["comparison", "mean accuracy", "at the end"], [[words, *cells] for words, cells in rows.items()]
    )
    return f"### {each.world.title}\n\n{folded_prose(f'Its {len(rows)} comparisons', made)}"
