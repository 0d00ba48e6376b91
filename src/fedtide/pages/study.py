"""The page of a study, of the paper's runs, or of any folder of results: a forest plot, and behind it the curves."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from fedtide.errors import FedtideError, RunFolderError
from fedtide.pages import forest as pages_forest
from fedtide.pages.forest import Forest, extent, forest, ticks
from fedtide.pages.run_rows import fitting
from fedtide.pages.shell import Markup, markup, page, text
from fedtide.pages.study_curves import (
    HEIGHTS,
    PAGE_AXES,
    Family,
    PageCurve,
    Pool,
    cut_text,
    differing,
    family_tree,
    ledger_rows,
    study_in,
)
from fedtide.studies.paths import summary
from fedtide.studies.results import RunResult
from fedtide.studies.spec import VARIANT, Study
from fedtide.studies.statistics import CONFIDENCE, half_width
from fedtide.studies.store import Store
from fedtide.studies.table import Reference, by_label, references
from fedtide_lab.league.methods import METHODS, REFERENCE
from fedtide_lab.league.season import played
from fedtide_lab.league.tune import ARENAS, RANKING_SEEDS, tuning
from fedtide_lab.paper import reproduce
from fedtide_lab.paper.claims import FigureResults, decide
from fedtide_lab.paper.figures import FIGURES, Figure, figure_study
from fedtide_lab.paper.reproduce import plain_verdict
from fedtide_lab.worlds import studies as worlds_studies

PARTS: Final = ("uPlot.iife.min.js", "common.js", "curves.js", "study.js")
_ORDER: Final = ("holds", "gains", "contradicted", "loses", "not resolved", "no difference", "runs missing")
_BODY: Final = """<header><h1><bdi>{title}</bdi></h1><p class="lead">{lead}</p></header>
<main id="main" class="study"><section id="forest" aria-label="Comparisons"></section>
<section id="detail" aria-label="Curves of the chosen comparison"></section></main>"""


def study_page(study: Study, store: Store, file: str = "STUDY.yaml") -> str:
    """Return the page of a study from its results in a store. file: how its reader would name the study file."""
    results = by_label(study, store)
    if not any(results.values()):
        raise FedtideError(f"{store.folder} holds no run of {study.name!r}; run it first: `fedtide study run {file}`")
    place = f" --store {shlex.quote(str(store.folder))}"
    commands = [f"fedtide study run {shlex.quote(file)}{place}", f"fedtide study show {shlex.quote(file)}{place}"]
    return results_page(study, results, commands)


def results_page(study: Study, results: Mapping[str, Mapping[int, RunResult]], commands: Sequence[str] = ()) -> str:
    """Return the page of a study whose results are in memory, by variant and seed."""
    places = _places(study)
    curves = tuple(PageCurve(label, *places[label], results[label]) for label in study.labels)
    compared = references(study)
    family = Family("study", study.name, "", curves, reference=_names(places, compared), commands=tuple(commands))
    found = pages_forest.of_study(family, 0, compared)
    done = sum(map(len, results.values()))
    lead = f"{len(curves)} variants, {done} of {len(study.runs)} runs. {_counted(found)}"
    return _page(study.name, lead, [family], found)


def folder_page(folder: Path) -> str:
    """Return the page of a folder of results: the paper's, those of its worlds, or whatever runs there are."""
    store = Store(folder)
    kept = store.names()
    if not kept:
        raise RunFolderError(
            f"{folder} is no run folder and holds no results; name a run, or what `fedtide study run` or `fedtide paper` filled"
        )
    if _share([figure_study(figure, [0]) for figure in FIGURES.values()], kept) >= 0.5:
        return paper_page(reproduce.collect(list(FIGURES), store, None), store)
    if _share([worlds_studies.world_study(world, [0]) for world in worlds_studies.WORLDS], kept) >= 0.5:
        return worlds_page(store)
    if _share([tuning(arena, [METHODS[REFERENCE]]) for arena in ARENAS], kept) >= 0.5:
        return league_page(store)
    study, results = study_in(store, folder.resolve().name)
    return results_page(study, results, [f"fedtide study paths {shlex.quote(str(folder))}"])


def paper_page(results: FigureResults, store: Store) -> str:
    """Return the page of the paper: a verdict per claim, its comparisons, and the figures' curves behind them.

    results: as `reproduce.collect` reads them from the store; claims about other figures are left out.
    """
    families = [_figure(figure, results.get(name, {}), store) for name, figure in FIGURES.items() if results.get(name)]
    decided = [
        (one, other)
        for one, other in zip(*reproduce.verdicts(results), strict=True)
        if all(finding.check.figure in results for finding in one.findings)
    ]
    seen = [each for each in reproduce.observed(results) if all(finding.check.figure in results for finding in each[1])]
    found = pages_forest.of_claims(families, [one for one, _ in decided], [other for _, other in decided], seen)
    every = [run for curves in results.values() for runs in curves.values() for run in runs.values()]
    return _page("The paper's claims, decided", f"{_counted(found)} {summary(every)}", families, found)


def worlds_page(store: Store) -> str:
    """Return the page of the paper's main claims in other worlds."""
    results = worlds_studies.collect_worlds(worlds_studies.WORLDS, store)
    known = [world for world in worlds_studies.WORLDS if world.name in results]
    place = f" --store {shlex.quote(str(store.folder))}"
    families = [
        Family(
            world.name,
            world.title,
            f"{world.differs}.",
            tuple(PageCurve(name, name, "", results[world.name].get(name, {})) for name in worlds_studies.CURVES),
            reference={name: "random" for name in worlds_studies.CURVES if name != "random"},
            commands=(f"fedtide worlds {world.name}{place}",),
        )
        for world in known
    ]
    decided = [
        [
            (decide(claim, results), decide(claim.by_other_measure(), results))
            for claim in worlds_studies.claims(world.name)
        ]
        for world in known
    ]
    found = pages_forest.of_worlds(families, decided)
    lead = f"{len(found.groups)} claims in {len(known)} worlds, each the paper's cell with its data, radio or devices replaced."
    return _page("The paper's main claims in other worlds", lead, families, found)


def league_page(store: Store) -> str:
    """Return the page of the league: every method's gain over the reference, world by world, by rank."""
    place = f" --store {shlex.quote(str(store.folder))}"
    families: list[Family] = []
    groups: list[dict[str, Any]] = []
    measures: tuple[str, ...] = ()
    for number, (table, runs) in enumerate(each for arena in ARENAS if (each := played(arena, store)) is not None):
        names = [row.name for row in table.rows]
        family = Family(
            table.arena.name,
            table.arena.title,
            f"{table.arena.differs}.",
            tuple(
                PageCurve(name, name, "", {seed: runs[name][seed] for seed in runs[name] if seed < RANKING_SEEDS})
                for name in names
            ),
            reference={name: REFERENCE for name in names if name != REFERENCE},
            commands=(f"fedtide league {table.arena.name}{place}",),
        )
        others = {name: None if name == REFERENCE else Reference(REFERENCE, REFERENCE) for name in names}
        found = pages_forest.of_study(family, number, others)
        families.append(family)
        measures = found.measures
        groups += [{**group, "text": f"{table.arena.title}: gain over random scheduling"} for group in found.groups]
    if not families:
        raise RunFolderError(
            f"{store.folder} holds the league's tuning alone; let it play first: `fedtide league{place}`"
        )
    made = Forest(measures, groups, "better than random scheduling")
    lead = (
        f"{len(families[0].curves)} methods in {len(families)} worlds at equal airtime, tuned alike. {_counted(made)}"
    )
    return _page("The league of methods", lead, families, made)


def _page(title: str, lead: str, families: Sequence[Family], found: Forest) -> str:
    longest = max(len(run.columns["time"]) for each in families for curve in each.curves for run in curve.runs.values())
    still = forest(found.groups, found.measures[0], found.positive) if found.measures else Markup()
    body = markup(_BODY, title=text(title, 200), lead=lead)

    def made(level: int) -> str:
        pool = Pool(None if level == 0 else max(2, longest >> level))
        trees = [
            {**family_tree(each, pool), "ledger": ledger_rows(each), "differing": differing(each)} for each in families
        ]
        payload = {
            "title": cut_text(title),
            "families": trees,
            "forest": {**found._asdict(), "reach": {each: _reach(found, each) for each in found.measures}},
            "columns": pool.columns,
            "runs": pool.runs,
            "width": unit_widths(families),
            "confidence": CONFIDENCE,
            "axes": PAGE_AXES,
            "heights": HEIGHTS,
            "thinned": f"Curves are thinned to {longest >> level} of {longest} points, to keep this page below 2 MB; the "
            "comparisons are of all points."
            if pool.is_thinned
            else "",
        }
        return page(title, payload, PARTS, body, still, styles=("study.css",))

    return fitting(made)


def unit_widths(families: Sequence[Family]) -> dict[int, float]:
    """Return by the number of seeds the half-width of the interval of a mean whose spread is 1."""
    most = max((len(curve.runs) for each in families for curve in each.curves), default=0)
    counts = {count: np.arange(float(count)) for count in range(2, most + 1)}
    return {count: float(half_width(values) / values.std(ddof=1)) for count, values in counts.items()}


def _reach(found: Forest, measure: str) -> dict[str, Any]:
    reach = extent([row["by"].get(measure, {}) for group in found.groups for row in group["rows"]])
    return {"most": reach, "ticks": ticks(reach)}


def _counted(found: Forest) -> str:
    """Say how the comparisons came out, or the claims if there are any."""
    claims = [group["verdicts"][found.measures[0]] for group in found.groups if group["verdicts"]]
    rows = [row["by"][found.measures[0]]["verdict"] for group in found.groups for row in group["rows"] if row["by"]]
    what = "claim" if claims else "comparison"
    counts = Counter(claims or rows)
    known = [verdict for verdict in _ORDER if counts[verdict]]
    words = ", ".join(f"{counts[each]} {each[:-1] if each[-1] == 's' and counts[each] > 1 else each}" for each in known)
    total = sum(counts.values())
    return f"{total} {what}{'s' * (total != 1)}: {words}." if counts else "Nothing to compare: there is one variant."


def _figure(figure: Figure, curves: Mapping[str, Mapping[int, RunResult]], store: Store) -> Family:
    place = "" if store.folder == Path("results/paper") else f" --store {shlex.quote(str(store.folder))}"
    found = []
    for label in figure.variants():
        name, _, setting = plain_verdict(label).partition(" | ")
        found.append(PageCurve(plain_verdict(label), name, setting, curves.get(label, {})))
    reference = {
        plain_verdict(name): plain_verdict(other)
        for name in figure.curves
        if (other := figure.reference(name)) is not None
    }
    commands = (f"fedtide paper {figure.name}{place}", f"fedtide paper claims{place}")
    caption = " ".join(each for each in (plain_verdict(figure.caption), figure.note) if each)
    return Family(figure.name, figure.title, caption, tuple(found), figure.column, figure.over, reference, commands)


def _places(study: Study) -> dict[str, tuple[str, str]]:
    """Return every variant's name on the axis that is compared, and its setting: its place on the others."""
    cells = {label: study.cells.get(label, ((VARIANT, label),)) for label in study.labels}
    values: dict[str, dict[str, None]] = {}
    for cell in cells.values():
        for axis, value in cell:
            values.setdefault(axis, {})[value] = None
    several = [axis for axis, known in values.items() if len(known) > 1] or list(values)[:1]

    def words(cell: Sequence[tuple[str, str]], axes: Sequence[str]) -> str:
        shown = [
            value if axis == VARIANT else f"{axis.rpartition('.')[2]}={value}" for axis, value in cell if axis in axes
        ]
        return ", ".join(shown)

    return {label: (words(cell, several[:1]) or label, words(cell, several[1:])) for label, cell in cells.items()}


def _names(places: Mapping[str, tuple[str, str]], compared: Mapping[str, Any]) -> dict[str, str]:
    return {places[label][0]: places[each.label][0] for label, each in compared.items() if each is not None}


def _share(studies: Sequence[Study], kept: set[str]) -> float:
    names = {run.name for each in studies for run in each.runs}
    return sum(name in kept for name in names) / len(names)
