"""The page of a study or of a folder of results: a forest plot, and the curves behind each comparison."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

import numpy as np

from fedtide.errors import FedtideError, RunFolderError
from fedtide.pages.forest import Forest, extent, forest_svg, of_study, ticks
from fedtide.pages.run_rows import fit_page
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
from fedtide.studies.results import RunResult
from fedtide.studies.spec import Study, cell_text
from fedtide.studies.statistics import CONFIDENCE, half_width
from fedtide.studies.store import Store
from fedtide.studies.table import by_label, references

PARTS: Final = ("uPlot.iife.min.js", "common.js", "curves.js", "study.js")
_ORDER: Final = ("holds", "gains", "contradicted", "loses", "not resolved", "no difference", "runs missing")
_BODY: Final = """<header><h1><bdi>{title}</bdi></h1><p class="lead">{lead}</p></header>
<main id="main" class="study"><section id="forest" aria-label="Comparisons"></section>
<section id="detail" aria-label="Curves of the chosen comparison"></section></main>"""


def study_page(study: Study, store: Store, file: str = "STUDY.yaml") -> str:
    """Return the page of a study from its results in a store. file: the study file as the reader would name it."""
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
    found = of_study(family, 0, compared)
    done = sum(map(len, results.values()))
    lead = f"{len(curves)} variants, {done} of {len(study.runs)} runs. {counted(found)}"
    return forest_page(study.name, lead, [family], found)


def folder_page(folder: Path) -> str:
    """Return the page of a folder of results.

    An installed package may bring the page of a study of its own: an entry point of the group `fedtide.pages`, named as the
    study, that is a function of the store and returns the page.
    """
    store = Store(folder)
    if not store.names():
        raise RunFolderError(
            f"{folder} is no run folder and holds no results; name a run, or what `fedtide study run` or `fedtide paper` filled"
        )
    special = entry_points(group="fedtide.pages")
    for name in store.studies:
        if name in special.names:
            made: str = special[name].load()(store)
            return made
    study, results = study_in(store, folder.resolve().name)
    return results_page(study, results, [f"fedtide study paths {shlex.quote(str(folder))}"])


def forest_page(title: str, lead: str, families: Sequence[Family], found: Forest) -> str:
    """Return a page of comparisons with the curves of their families."""
    longest = max(
        len(run.columns["time"]) for family in families for curve in family.curves for run in curve.runs.values()
    )
    static = forest_svg(found.groups, found.measures[0], found.positive) if found.measures else Markup()
    body = markup(_BODY, title=text(title, 200), lead=lead)

    def make(level: int) -> str:
        pool = Pool(None if level == 0 else max(2, longest >> level))
        trees = [
            {**family_tree(family, pool), "ledger": ledger_rows(family), "differing": differing(family)}
            for family in families
        ]
        payload = {
            "title": cut_text(title),
            "families": trees,
            "forest": {**found._asdict(), "reach": {measure: _reach(found, measure) for measure in found.measures}},
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
        return page(title, payload, PARTS, body, static, styles=("study.css",))

    return fit_page(make)


def unit_widths(families: Sequence[Family]) -> dict[int, float]:
    """Return, by the number of seeds, the half-width of the interval of a mean for a standard deviation of 1."""
    most = max((len(curve.runs) for each in families for curve in each.curves), default=0)
    counts = {count: np.arange(float(count)) for count in range(2, most + 1)}
    return {count: float(half_width(values) / values.std(ddof=1)) for count, values in counts.items()}


def _reach(found: Forest, measure: str) -> dict[str, Any]:
    reach = extent([row["by"].get(measure, {}) for group in found.groups for row in group["rows"]])
    return {"most": reach, "ticks": ticks(reach)}


def counted(found: Forest) -> str:
    """Count the verdicts of the claims, or of the comparisons if there are no claims."""
    claims = [group["verdicts"][found.measures[0]] for group in found.groups if group["verdicts"]]
    rows = [row["by"][found.measures[0]]["verdict"] for group in found.groups for row in group["rows"] if row["by"]]
    what = "claim" if claims else "comparison"
    counts = Counter(claims or rows)
    known = [verdict for verdict in _ORDER if counts[verdict]]
    words = ", ".join(f"{counts[each]} {each[:-1] if each[-1] == 's' and counts[each] > 1 else each}" for each in known)
    total = sum(counts.values())
    return f"{total} {what}{'s' * (total != 1)}: {words}." if counts else "Nothing to compare: there is one variant."


def _places(study: Study) -> dict[str, tuple[str, str]]:
    """Return every variant's name on the axis that is compared, and its setting: its place on the others."""
    first, *others = study.axes or {"": []}
    several = [axis for axis in others if len(study.axes[axis]) > 1]
    return {
        label: (
            cell_text(each for each in cell if each[0] == first) or label,
            cell_text(each for each in cell if each[0] in several),
        )
        for label, cell in study.places.items()
    }


def _names(places: Mapping[str, tuple[str, str]], compared: Mapping[str, Any]) -> dict[str, str]:
    return {places[label][0]: places[each.label][0] for label, each in compared.items() if each is not None}
