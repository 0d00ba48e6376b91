"""The page docs/worlds.md: a verdict for every claim in every world, with its interval, and what the worlds are like.

The text is page.md here and findings.md beside the results; this module computes what stands in their places.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from fedtide.studies import CONFIDENCE, RunResult, final_accuracy, pair_paths_summary, table_effect
from fedtide_lab.paper.claims import FigureResults, Verdict, decide_claim
from fedtide_lab.paper.page import TEXTS
from fedtide_lab.paper.reproduce import claims_rows, in_words
from fedtide_lab.prose import (
    fill_prose,
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
    WORLDS,
    Change,
    World,
    world_change,
    world_claims,
)

_SIGNS = {"holds": "**+**", "contradicted": "**−**", "not resolved": "·", "runs missing": ""}
_CELL = WORLDS[0].name  # the paper's
_SHOWN = ("proposed", "random", "BC")  # schedules in the table of what worlds are like, and its columns
_DESCRIBED = {
    "ready": "ready per aggregation",
    "capacity": "capacity of those picked, bit/symbol: 5 %, median, 95 %",
    "kept": "kept of an update",
    "lost": "lost",
    "age": "age: mean, largest",
    "never": "devices that never upload",
    "variance": "variance of labels",
    "end": "accuracy at the end",
}
# What the figure shows: claim, title of its panel
PANELS = {
    "random": "proposed over random",
    "BC": "proposed over BC",
    "random over BC": "random over BC",
    "FedAvg": "T_max/4 over FedAvg",
    "T_max/2": "T_max/4 over T_max/2",
    "fresh": "γ = 0.846 over γ = 1, random",
}


class Decided(NamedTuple):
    """A world with its claims, decided."""

    world: World
    verdicts: tuple[Verdict, ...]


def decided_worlds(worlds: Sequence[World], results: FigureResults) -> list[Decided]:
    """Decide every claim in every world that has runs."""
    return [
        Decided(world, tuple(decide_claim(each, results) for each in world_claims(world.name)))
        for world in worlds
        if results.get(world.name)
    ]


def world_rows(found: Sequence[Decided]) -> list[dict[str, Any]]:
    """Return everything as plain data, for `--json`."""
    return [{"world": each.world.name, **row} for each in found for row in claims_rows(each.verdicts)]


def draw_worlds(found: Sequence[Decided], stem: Path, style: str = SCREEN) -> list[Path]:
    """Draw the main gains with their intervals, a panel for each comparison and a line for each world."""
    with figure_style(style) as how:
        page, grid = figure_sheet(how, 3, 2, 0.55 + 0.19 * len(found), sharey=not how.stacked)
        for number, (panel, (claim, title)) in enumerate(zip(grid.ravel(), PANELS.items(), strict=True)):
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


def write_worlds_page(page: Path, figure: Path, found: Sequence[Decided], results: FigureResults, store: Path) -> None:
    """Write the page beside its figure. store: the folder of the results, with findings.md if any."""
    runs = [result for curves in results.values() for seeds in curves.values() for result in seeds.values()]
    described = {
        (each.world.name, schedule): _described(list(curve.values()))
        for each in found
        for schedule in _SHOWN
        if (curve := results[each.world.name].get(schedule))
    }
    changes = {
        each.world.name: {
            f"{check.better} over {check.worse}": world_change(check, results)
            for claim in world_claims(each.world.name)
            for check in claim.checks
        }
        for each in found
        if each.world.name != _CELL
    }
    titles = {each.world.name: each.world.title for each in found}
    counted = sum(made is not None for world in changes.values() for made in world.values())
    values = {
        "horizon": HORIZON,
        "paper horizon": TimelineConfig.model_fields["horizon"].default,
        "common": key_words(COMMON_KEYS, ", "),
        "paths": pair_paths_summary(runs),
        "figure": figure,
        "verdicts": _verdicts(found),
        "rule": TEXTS["rule"],
        "changes": prose_table(
            ["gain of", *(titles[world] for world in changes)],
            [[name, *(_bold(made[name]) for made in changes.values())] for name in next(iter(changes.values()), {})],
        ),
        "changes counted": counted,
        "bold by chance": counted * (1 - CONFIDENCE),
        "alike": prose_table(
            ["world", "schedule", *_DESCRIBED.values()],
            [[titles[world], schedule, *cells] for (world, schedule), cells in described.items()],
        ),
        "list": prose_table(
            ["world", "what differs", "as keys"],
            [[each.world.title, each.world.differs, key_words(each.world.tree) or "the defaults"] for each in found],
        ),
        "curves": ", ".join(CURVES),
        "comparisons": "\n\n".join(map(_comparisons, found)),
    }
    told: dict[str, Any] = {
        f"{world} {schedule} {name}": cell
        for (world, schedule), cells in described.items()
        for name, cell in zip(_DESCRIBED, cells, strict=True)
    }
    for world, made in changes.items():
        told |= {f"{world} change {name}": each.paired for name, each in made.items() if each is not None}
    values |= prose_findings(store, told | _counts(found), ("in short", "reasons"))
    write_prose_page(page, fill_prose(packaged_prose("worlds/page.md"), values, "worlds/page.md"), "worlds")


def _counts(found: Sequence[Decided]) -> dict[str, Any]:
    """Count in how many worlds each claim of the paper holds, and how often one is contradicted."""
    holds, contradicted = [], 0
    for number, claim in enumerate(world_claims("")):
        verdicts = [each.verdicts[number].verdict for each in found]
        if claim.name not in NO_CLAIMS:
            holds.append(f"{claim.text.rstrip('.')} ({verdicts.count('holds')})")
            contradicted += verdicts.count("contradicted")
    return {"worlds": len(found), "contradicted": contradicted, "claims that hold": "; ".join(holds)}


def _verdicts(found: Sequence[Decided]) -> str:
    num_seeds = [max((len(f.difference) for v in each.verdicts for f in v.findings), default=0) for each in found]
    heads = [f"{each.world.title} ({n} seed{'s' * (n != 1)})" for each, n in zip(found, num_seeds, strict=True)]
    rows = [
        [claim.text, *(_verdict_cell(each.verdicts[number]) for each in found)]
        for number, claim in enumerate(world_claims(""))
    ]
    return prose_table(["claim", *heads], rows)


def _verdict_cell(verdict: Verdict) -> str:
    interval = verdict.weakest.at(CONFIDENCE)
    sign = _SIGNS[verdict.verdict]
    return (
        sign
        if interval is None
        else f"{sign} {gain_words(interval)}"
        if np.isfinite(interval.low)
        else gain_words(interval)
    )


def _bold(made: Change | None) -> str:
    words = gain_words(made.paired if made else None)
    if made is None or made.paired.verdict not in ("higher", "lower"):
        return words
    return f"**{words}**{'' if made.is_unpaired else ' †'}"


def _described(runs: Sequence[RunResult]) -> list[str]:
    def flat(name: str) -> Any:
        return np.concatenate([getattr(run.uploads, name) for run in runs])

    def total(name: str) -> float:
        return float(np.mean([run.totals[name] or 0 for run in runs]))

    age = flat("age")
    low, middle, high = np.quantile(flat("capacity"), [0.05, 0.5, 0.95])
    ready = np.concatenate([run.uploads.num_ready for run in runs])
    end = np.mean([final_accuracy(run) for run in runs])
    return [
        f"{ready.mean():.1f}",
        f"{low:.2f}, {middle:.2f}, {high:.2f}",
        f"{100 * total('mean_kept_share'):.0f} %",
        f"{100 * flat('lost').mean():.0f} %",
        f"{age.mean():.2f}, {age.max()}",
        f"{100 * np.mean([_never(run) for run in runs]):.0f} %",
        f"{total('mean_label_variance'):,.0f}",
        f"{end:.3f}",
    ]


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
    return f"### {each.world.title}\n\n{made}"
