"""The curves of a study's page, what they spent and where they differ. Columns and runs are stored once per page."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from fedtide import config
from fedtide.core.yaml12 import yaml_in_line
from fedtide.pages.html import html_line_styles
from fedtide.plot.charts import evenly_on_chart
from fedtide.studies.metrics import SHARES, UNCOUNTED, amount_spent, counted_note
from fedtide.studies.results import METRIC_PREFIX, RunResult
from fedtide.studies.spec import Run, Study
from fedtide.studies.statistics import aligned_seeds, mixed_seeds_note
from fedtide.studies.store import Store
from fedtide.types import Floats

# Quantities that curves may be drawn over, with their labels. Bits: payloads and what devices report before scheduling.
PAGE_AXES: Final = {
    "time": "time",
    "index": "iteration",
    "bits": "bits sent",
    "symbols": "symbols granted",
    "air_time": "seconds on the air",
    "joules": "energy (J)",
    "samples_trained": "samples trained on",
    "bits_down": "bits down",
}
HEIGHTS: Final = {"test_accuracy": "test accuracy", "train_loss": "training loss"}
_LONGEST_LABEL: Final = 300  # characters
_MOST_METRICS: Final = 24  # drawn on a page; a run may measure more
_SPENT_COLUMNS: Final = ("bits", "symbols", "air_time", "joules", "samples_trained", "bits_down")
_SHARES_SHOWN: Final = ("lost_share", "silent_share", "retransmitted_share", "idle_share")
_NOT_COMPARED: Final = ("seed", "tracker")  # keys


class Pool:
    """The columns and runs of a page as plain data, each stored once; runs refer to columns by number."""

    def __init__(self, most: int | None = None) -> None:
        """most: points per run, evenly spaced, always with the last; None: all."""
        self.columns: list[Any] = []
        self.runs: list[dict[str, Any]] = []
        self.is_thinned = False
        self._most = most
        self._numbers: dict[bytes, int] = {}
        self._known: dict[str, int] = {}

    def run(self, result: RunResult) -> int:
        """Return the number of a run."""
        found = _spent(result) | {name: result.column(name) for name in (*HEIGHTS, *result.metrics[:_MOST_METRICS])}
        kept = np.arange(len(found["time"])) if self._most is None else evenly_on_chart(len(found["time"]), self._most)
        self.is_thinned |= len(kept) < len(found["time"])
        named = {name: self._column(values[kept]) for name, values in found.items() if _is_whole_column(values)}
        fleet = result.experiment.get("fleet", {})
        entry = {**named, "chance": result.chance, "window": float(fleet.get("max_duration", 1.0))}
        key = repr(entry)
        if key not in self._known:
            self._known[key] = len(self.runs)
            self.runs.append(entry)
        return self._known[key]

    def _column(self, values: Floats) -> int:
        key = values.tobytes()
        if key not in self._numbers:
            self._numbers[key] = len(self.columns)
            self.columns.append(_coded(values))
        return self._numbers[key]


def _spent(result: RunResult) -> dict[str, Floats]:
    """Return what a run had spent at every evaluation, by the names of PAGE_AXES; NaN where it was not counted."""
    return {name: amount_spent(result, name) for name in PAGE_AXES}


def _is_whole_column(values: Floats) -> bool:
    """Say whether a column is finite at every evaluation and not all zero."""
    return len(values) > 0 and bool(np.isfinite(values).all()) and bool(np.any(values))


def _coded(values: Floats) -> Any:
    """Return a column as plain data: integers as differences, which are short and exact; others as they are."""
    if np.all(values == np.round(values)) and np.all(np.abs(values) < 2**53):
        return {"steps": np.diff(values.astype(np.int64), prepend=0).tolist()}
    return values.tolist()


class PageCurve(NamedTuple):
    """A variant: its label in the study, its name among the curves of its setting, and its runs by seed."""

    label: str
    name: str
    setting: str
    runs: Mapping[int, RunResult]


class Family(NamedTuple):
    """Curves on one chart per setting."""

    name: str
    title: str
    caption: str
    curves: tuple[PageCurve, ...]
    column: str = "test_accuracy"
    over: str = "time"
    reference: Mapping[str, str] = {}  # a curve's name -> the name of what it is measured against
    commands: tuple[str, ...] = ()

    @property
    def settings(self) -> list[str]:
        """The settings, in order."""
        return list(dict.fromkeys(curve.setting for curve in self.curves))

    def position(self, label: str) -> int:
        """Return the number of a curve."""
        return [curve.label for curve in self.curves].index(label)


def page_heights(families: Iterable[Family]) -> dict[str, str]:
    """Return the columns that a page may draw, with their labels: scores, and what else was measured."""
    runs = [run for family in families for curve in family.curves for run in curve.runs.values()]
    measured = {name for run in runs for name in run.metrics[:_MOST_METRICS]}
    return HEIGHTS | {name: cut_curve_label(name.removeprefix(METRIC_PREFIX), 60) for name in sorted(measured)}


def study_curves_family(family: Family, pool: Pool) -> dict[str, Any]:
    """Return a family as plain data: curves with their runs, available axes, and why others are not available."""
    even, lines = _even_runs(family), html_line_styles(curve.name for curve in family.curves)
    curves = []
    for curve in family.curves:
        runs = {
            seed: [[copy.path, pool.run(copy)] for copy in (run, *run.elsewhere)] for seed, run in curve.runs.items()
        }
        curves.append(
            {
                "label": cut_curve_label(curve.label),
                "name": cut_curve_label(curve.name),
                "setting": cut_curve_label(curve.setting),
                "line": lines[curve.name],
                "runs": runs,
                "even": {seed: pool.run(run) for seed, run in even.get(curve.label, {}).items()},
            }
        )
    axes, absent = _axes_of([run for curve in family.curves for run in curve.runs.values()])
    counted = counted_note(run for curve in family.curves for run in curve.runs.values()).capitalize()
    by_setting = [
        {curve.label: even[curve.label] for curve in family.curves if curve.setting == setting and curve.label in even}
        for setting in family.settings
    ]
    return {
        "name": family.name,
        "title": cut_curve_label(family.title),
        "caption": family.caption,
        "curves": curves,
        "settings": [cut_curve_label(setting) for setting in family.settings],
        "notes": [note for note in (*map(mixed_seeds_note, by_setting), counted) if note],
        "heights": _heights_of(family),
        "column": family.column,
        "over": family.over,
        "axes": axes,
        "absent": absent,
        "reference": {cut_curve_label(name): cut_curve_label(other) for name, other in family.reference.items()},
        "commands": list(family.commands),
        "ledger": _ledger_rows(family),
        "differing": _differing(family),
    }


def _even_runs(family: Family) -> dict[str, dict[int, RunResult]]:
    """Return every curve's runs on the seeds that the curves of its setting share, by label."""
    found: dict[str, dict[int, RunResult]] = {}
    for setting in family.settings:
        found |= aligned_seeds({curve.label: curve.runs for curve in family.curves if curve.setting == setting})
    return found


def _axes_of(results: Sequence[RunResult]) -> tuple[list[str], dict[str, str]]:
    """Return the axes that all these runs have, and why the others are missing."""
    counted = [{name: _is_whole_column(values) for name, values in _spent(run).items()} for run in results]
    axes = [name for name in PAGE_AXES if all(has[name] for has in counted)]
    absent = {}
    for name in PAGE_AXES:
        if name not in axes:
            few = f"{sum(not has[name] for has in counted)} of {len(counted)} runs did not count it"
            absent[name] = f"{few}: {UNCOUNTED[name]}" if name in UNCOUNTED else few
    return axes, absent


def _heights_of(family: Family) -> list[str]:
    """Return the columns that were measured at all evaluations of all runs; what was measured besides, unless it is all 0."""
    every = [run for curve in family.curves for run in curve.runs.values()]
    scores = [name for name in HEIGHTS if not any(np.isnan(run.column(name)).any() for run in every)]
    more = [name for name in page_heights([family]) if name not in HEIGHTS]
    return scores + [name for name in more if all(_is_whole_column(run.column(name)) for run in every)]


def cut_curve_label(text: str, most: int = _LONGEST_LABEL) -> str:
    """Return a label cut to `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _ledger_rows(family: Family) -> list[dict[str, Any]]:
    """Return what every curve spent up to its end, averaged over the seeds that its setting's curves share.

    A row has curve (its number), seeds, uploads, wasted (share of the samples trained on), _SPENT_COLUMNS and _SHARES_SHOWN;
    None: not counted.
    """
    even = _even_runs(family)
    rows = []
    for number, curve in enumerate(family.curves):
        runs = list(even.get(curve.label, {}).values())
        if not runs:
            continue
        columns = [_spent(run) for run in runs]
        ends = {
            name: float(np.mean([each[name][-1] for each in columns]))
            if all(_is_whole_column(each[name]) for each in columns)
            else None
            for name in _SPENT_COLUMNS
        }
        trained, used = ends["samples_trained"], float(np.mean([run.column("samples_used")[-1] for run in runs]))
        uploads = float(np.mean([run.totals["uploads"] or 0.0 for run in runs]))
        wasted = None if not trained else 1 - used / trained
        means = {name: float(np.mean([SHARES[name](run) for run in runs])) for name in _SHARES_SHOWN}
        shares = {name: None if math.isnan(mean) else mean for name, mean in means.items()}
        rows.append({"curve": number, "seeds": len(runs), "uploads": uploads, "wasted": wasted, **shares, **ends})
    return rows


def _differing(family: Family) -> dict[str, list[str]]:
    """Return the keys in which curves differ, each with a value per curve; "" if a curve has no run, or not this key."""
    trees = [
        next((config.nested_to_dotted(run.experiment) for run in curve.runs.values()), {}) for curve in family.curves
    ]
    return {
        key: [cut_curve_label(str(tree.get(key, "")) if tree.get(key, "") is not None else "none") for tree in trees]
        for key in _differing_keys([tree for tree in trees if tree])
        if key.partition(".")[0] not in _NOT_COMPARED
    }


def _differing_keys(trees: Sequence[Mapping[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for tree in trees for key in tree)
    return [key for key in keys if len({repr(tree.get(key)) for tree in trees}) > 1]


def study_curves_in_store(store: Store, name: str) -> tuple[Study, dict[str, dict[int, RunResult]]]:
    """Return the runs of a store without a study file as a study, and its results by variant and seed.

    Runs that differ only in their seed are one variant. Labels name the keys in which variants differ.
    """
    groups: dict[str, dict[int, tuple[str, RunResult]]] = {}
    for run in sorted(store.names()):
        result = store.load(run)
        tree = {key: value for key, value in result.experiment.items() if key != "seed"}
        groups.setdefault(json.dumps(tree, sort_keys=True), {})[int(result.experiment["seed"])] = run, result
    # the most seeds first; the order does not depend on the hashes of the runs
    ordered = sorted(groups.items(), key=lambda each: (-len(each[1]), each[0]))
    labels = _labels([config.nested_to_dotted(json.loads(tree)) for tree, _ in ordered], name)
    results, runs = {}, []
    for label, (_, found) in zip(labels, ordered, strict=True):
        results[label] = {seed: found[seed][1] for seed in sorted(found)}
        runs += [Run(label, config.experiment(found[seed][1].experiment), found[seed][0]) for seed in sorted(found)]
    return Study(name, tuple(runs)), results


def _labels(trees: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    several = _differing_keys(trees)
    labels = [
        ", ".join(f"{key.rpartition('.')[2]}={yaml_in_line(tree[key])}" for key in several if key in tree)
        for tree in trees
    ]
    counts = Counter(labels)
    return [(label or name) if counts[label] == 1 else f"{label} (#{at + 1})" for at, label in enumerate(labels)]
