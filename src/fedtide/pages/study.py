"""The page of what a path names: of a run or two, or of a study, a forest plot with the curves behind each comparison.

A positive difference is always better: higher accuracy, lower loss, less variation; for a claim, what the paper says.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from fedtide.core.files import file_is_there
from fedtide.errors import FedtideError, RunFolderError
from fedtide.pages.advice import stored_advice_page
from fedtide.pages.html import Markup, html_page, html_text, join_markup, markup, payload_json
from fedtide.pages.run import run_page
from fedtide.pages.run_rows import fit_page
from fedtide.pages.study_curves import (
    PAGE_AXES,
    Family,
    PageCurve,
    Pool,
    cut_curve_label,
    page_heights,
    study_curves_family,
    study_curves_in_store,
)
from fedtide.studies.metrics import LOWER_IS_BETTER, MARGINS, METRICS
from fedtide.studies.results import RunResult
from fedtide.studies.spec import Study, cell_text, read_study
from fedtide.studies.statistics import (
    CONFIDENCE,
    EQUIVALENT,
    diverged_runs_note,
    half_width,
    mixed_pairs_note,
    paired_difference,
    paired_results,
)
from fedtide.studies.store import Store
from fedtide.studies.table import Reference, by_label, finite_table_value, table_references

PARTS: Final = ("uPlot.iife.min.js", "common.js", "curves.js", "study.js")
_ORDER: Final = ("holds", "gains", "contradicted", "loses", EQUIVALENT, "not resolved", "no difference", "runs missing")
_GAIN_VERDICTS: Final = {"higher": "gains", "lower": "loses"}
_BODY: Final = """<header><h1><bdi>{title}</bdi></h1><p class="lead">{lead}</p></header>
<main id="main" class="study"><section id="forest" aria-label="Comparisons"></section>
<section id="detail" aria-label="Curves of the chosen comparison"></section></main>"""


def study_or_run_page(paths: Sequence[Path], store: Path | None = None) -> str:
    """Return the page of what lies there, as one HTML file. store: where the results of a study file are."""
    if page_is_of_runs(paths):
        return run_page(paths)
    if len(paths) > 1:
        raise RunFolderError(f"{paths[0]} is not a run folder; name runs, or one study (a file, or its results)")
    if paths[0].is_dir():
        return _folder_page(paths[0])
    if paths[0].suffix == ".json":
        return stored_advice_page(paths[0])
    return _study_page(read_study(paths[0]), Store(store or Path("results")), str(paths[0]))


def page_is_of_runs(paths: Sequence[Path]) -> bool:
    """Say whether these are run folders; raise if something is not there, or only some are."""
    for path in paths:
        if not file_is_there(path):
            raise RunFolderError(f"not found: {path}; name a run folder or a study")
    found = [file_is_there(path / "experiment.yaml") for path in paths]
    if any(found) and not all(found):
        raise RunFolderError(f"{paths[found.index(False)]} is not a run folder; name only runs, or one study")
    return all(found)


def _study_page(study: Study, store: Store, file: str = "STUDY.yaml") -> str:
    """Return the page of a study from its results in a store. file: the study file as the reader would name it."""
    results = by_label(study, store)
    if not any(results.values()):
        raise FedtideError(f"{store.folder} holds no run of {study.name!r}; run it first: `fedtide study run {file}`")
    place = f" --store {shlex.quote(str(store.folder))}"
    commands = [f"fedtide study run {shlex.quote(file)}{place}", f"fedtide study show {shlex.quote(file)}{place}"]
    return _results_page(study, results, commands)


def follow_study(study: Study, store: Path) -> tuple[Any, Any, Any]:
    """Return what `pages.live` serves of a study under way: its page, how far it is, and a tag that changes with each run."""

    def have() -> set[str]:
        return Store(store).names() & {run.name for run in study.runs}

    def page(_: Sequence[Path], tag: str) -> str:
        results = by_label(study, Store(store))
        if any(results.values()):
            return _results_page(study, results, live=tag)
        raise FedtideError(f"{store} holds no run of {study.name!r} yet: wait for the first one")

    def data(_: Sequence[Path], tag: str) -> str:
        return payload_json({"live": tag, "done": len(have()), "total": len(study.runs)})

    return page, data, lambda _: str(len(have()))


def _results_page(
    study: Study,
    results: Mapping[str, Mapping[int, RunResult]],
    commands: Sequence[str] = (),
    live: str | None = None,
) -> str:
    """Return the page of a study whose results are in memory, by variant and seed. live: as in `run_page`."""
    places = _places(study)
    curves = tuple(PageCurve(label, *places[label], results[label]) for label in study.labels)
    compared = table_references(study)
    named = {places[label][0]: places[other.label][0] for label, other in compared.items() if other is not None}
    family = Family("study", study.name, "", curves, reference=named, commands=tuple(commands))
    found = study_page_forest(family, 0, compared, MARGINS)
    done = sum(map(len, results.values()))
    lead = f"{len(curves)} variants, {done} of {len(study.runs)} runs. {count_page_verdicts(found)}"
    progress = None if live is None else {"live": live, "done": done, "total": len(study.runs)}
    return forest_page(study.name, lead, [family], found, progress)


def _folder_page(folder: Path) -> str:
    """Return the page of a folder of results.

    An installed package may bring the page of a study of its own: an entry point of the group `fedtide.pages`, named as the
    study, that is a function of the store and returns the page.
    """
    store = Store(folder)
    if not store.names():
        raise RunFolderError(
            f"{folder} is neither a run folder nor a folder of results; name a run, or the --store of a study"
        )
    special = entry_points(group="fedtide.pages")
    for name in store.studies:
        if name in special.names:
            made: str = special[name].load()(store)
            return made
    study, results = study_curves_in_store(store, folder.resolve().name)
    return _results_page(study, results, [f"fedtide study paths {shlex.quote(str(folder))}"])


def forest_page(
    title: str, lead: str, families: Sequence[Family], found: Forest, progress: Mapping[str, Any] | None = None
) -> str:
    """Return a page of comparisons with the curves of their families. progress: of a study under way, which the page follows."""
    longest = max(
        len(run.columns["time"]) for family in families for curve in family.curves for run in curve.runs.values()
    )
    static = _forest_table(found) if found.measures else Markup()
    body = markup(_BODY, title=html_text(title, 200), lead=lead)

    def make(level: int) -> str:
        pool = Pool(None if level == 0 else max(2, longest >> level))
        payload = {
            "title": cut_curve_label(title),
            "progress": progress,
            "families": [study_curves_family(family, pool) for family in families],
            "forest": {**found._asdict(), "reach": {measure: _reach(found, measure) for measure in found.measures}},
            "columns": pool.columns,
            "runs": pool.runs,
            "width": _unit_widths(families),
            "confidence": CONFIDENCE,
            "axes": PAGE_AXES,
            "heights": page_heights(families),
            "thinned": f"Curves are thinned to {longest >> level} of {longest} points, to keep this page below 2 MB; the "
            "comparisons are of all points."
            if pool.is_thinned
            else "",
        }
        return html_page(title, payload, PARTS, body, static, styles=("study.css",), polls=progress is not None)

    return fit_page(make)


def _unit_widths(families: Sequence[Family]) -> dict[int, float]:
    """Return, by the number of seeds, the half-width of the interval of a mean for a standard deviation of 1."""
    most = max((len(curve.runs) for each in families for curve in each.curves), default=0)
    counts = {count: np.arange(float(count)) for count in range(2, most + 1)}
    return {count: float(half_width(values) / values.std(ddof=1)) for count, values in counts.items()}


def _reach(found: Forest, measure: str) -> dict[str, Any]:
    """Return the axis of every setting: how far it reaches, and its ticks on a square root scale."""
    by_setting: dict[str, list[Any]] = {}
    for group in found.groups:
        by_setting.setdefault(group.get("setting") or "", []).extend(
            row["by"].get(measure, {}) for row in group["rows"]
        )
    return {name: {"most": (most := _extent(rows)), "ticks": _ticks(most)} for name, rows in by_setting.items()}


def count_page_verdicts(found: Forest) -> str:
    """Count the verdicts of the claims, or of the comparisons if there are no claims."""
    claims = [group["verdicts"][found.measures[0]] for group in found.groups if group["verdicts"]]
    rows = [row["by"][found.measures[0]]["verdict"] for group in found.groups for row in group["rows"] if row["by"]]
    what = "claim" if claims else "comparison"
    counts = Counter(claims or rows)
    known = [verdict for order in _ORDER for verdict in sorted(counts) if _is_verdict(verdict, order)]
    words = ", ".join(f"{counts[each]} {each[:-1] if each[-1] == 's' and counts[each] > 1 else each}" for each in known)
    total = sum(counts.values())
    return f"{total} {what}{'s' * (total != 1)}: {words}." if counts else "Nothing to compare: there is one variant."


def _is_verdict(verdict: str, kind: str) -> bool:
    return verdict.startswith(kind) if kind == EQUIVALENT else verdict == kind


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


# The comparisons: paired differences with their intervals, as rows of a forest plot.


class Forest(NamedTuple):
    """Groups of rows, and the measures by which rows were compared."""

    measures: tuple[str, ...]
    groups: list[dict[str, Any]]
    positive: str  # what a positive difference is


def study_page_forest(
    family: Family,
    position: int,
    compared: Mapping[str, Reference | None],
    margins: Mapping[str, float] = {},  # read only
) -> Forest:
    """Compare every variant of a study with its reference by every measure of all runs; one group per setting.

    margins: by measure, the smallest difference that matters; without one, equivalence is not asked for.
    """
    runs = {curve.label: curve.runs for curve in family.curves}
    measures = tuple(
        name
        for name, metric in METRICS.items()
        if any(runs.values()) and not any(math.isnan(metric(run)) for each in runs.values() for run in each.values())
    )
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for number, curve in enumerate(family.curves):
        reference = compared[curve.label]
        if reference is None:
            continue
        pairs = list(paired_results(curve.runs, runs[reference.label]).values())
        found = {name: _gain_row(pairs, name, margins.get(name)) for name in measures}
        title, setting = f"Gain over {cut_curve_label(reference.text)}", cut_curve_label(curve.setting)
        group = groups.setdefault(
            (curve.setting, reference.text), {"text": title, "setting": setting, "rows": [], "verdicts": {}}
        )
        group["rows"].append(
            {
                "words": cut_curve_label(curve.name),
                "family": position,
                "better": [number],
                "worse": [family.position(reference.label)],
                "by": {name: {**row, "metric": name} for name, row in found.items()},
            }
        )
    return Forest(measures, list(groups.values()), "better than the reference")


def _gain_row(pairs: Sequence[Sequence[Any]], metric: str, margin: float | None = None) -> dict[str, Any]:
    """Return the gain of the first of each pair over the second, with its interval, as plain data."""
    if not pairs:
        return {"verdict": "runs missing"}
    measure, sign = METRICS[metric], -1 if metric in LOWER_IS_BETTER else 1
    ours, theirs = ([sign * measure(pair[side]) for pair in pairs] for side in (0, 1))
    found = paired_difference(ours, theirs, margin=margin)
    return {
        **finite_table_value(found._asdict()),
        "verdict": _GAIN_VERDICTS.get(found.verdict, found.verdict),
        "note": "; ".join(
            filter(None, [mixed_pairs_note(pairs), diverged_runs_note([run for pair in pairs for run in pair])])
        ),
    }


def _extent(found: Sequence[Mapping[str, Any]]) -> float:
    """Return the largest difference on the axis: the farthest end of an interval, except for a few wide ones."""
    ends = sorted(
        max(abs(each["low"]), abs(each["high"])) if each.get("low") is not None else abs(each["mean"])
        for each in found
        if each.get("mean") is not None
    )
    if not ends:
        return 0.1
    robust = ends[math.ceil(0.97 * len(ends)) - 1]
    return float(max(min(ends[-1], 1.25 * robust), 1e-4))


def _ticks(reach: float) -> list[float]:
    """Return round differences from 0 to the end of the axis that do not overlap on a square root scale."""
    powers = [10.0**power for power in range(math.floor(math.log10(reach)) - 2, math.ceil(math.log10(reach)) + 1)]
    known = [factor * power for power in powers for factor in (1, 2, 5) if factor * power <= reach]
    kept: list[float] = []
    for each in reversed(known):
        if math.sqrt(each / reach) > 0.12 and (not kept or math.sqrt(kept[-1] / reach) - math.sqrt(each / reach) > 0.3):
            kept.append(float(f"{each:.1g}"))
    return [0.0, *reversed(kept)]


def _forest_table(found: Forest) -> Markup:
    """Return the comparisons by the first measure as a table, for readers without scripts."""
    rows = []
    for group in found.groups:
        title = f"{group['text']} {group.get('setting', '')}".strip()
        verdict = group.get("verdicts", {}).get(found.measures[0], "")
        line = '<tr><th class="words" scope="colgroup" colspan="4">{title}</th><th>{verdict}</th></tr>'
        rows.append(markup(line, title=cut_curve_label(title), verdict=verdict))
        rows += [_table_row(row["words"], row["by"].get(found.measures[0], {})) for row in group["rows"]]
    return markup(
        "<table><caption>Paired differences with their 95 % intervals; positive: {positive}</caption><thead><tr><th></th>"
        "<th>difference</th><th>interval</th><th>seeds</th><th></th></tr></thead><tbody>{rows}</tbody></table>",
        positive=found.positive,
        rows=join_markup(rows, "\n"),
    )


def _table_row(words: str, found: Mapping[str, Any]) -> Markup:
    known, whole = found.get("mean") is not None, found.get("low") is not None
    cells = [
        f"{found['mean']:+.4f}" if known else "",
        f"{found['low']:+.4f} to {found['high']:+.4f}" if whole else "",
        str(found["num_seeds"]) if known else "",
        found.get("verdict") or "runs missing",
    ]
    return markup(
        '<tr><td class="words">{words}</td>{cells}</tr>',
        words=words,
        cells=join_markup(markup("<td>{cell}</td>", cell=cell) for cell in cells),
    )
