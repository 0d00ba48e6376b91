"""Curves that are looked at together: those of a figure of the paper, or of a study, in one or several settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from fedtide.pages.looks import line_trees
from fedtide.pages.pool import AXES, HEIGHTS, Pool, is_whole, spent
from fedtide.studies.pairing import across
from fedtide.studies.reaching import UNCOUNTED
from fedtide.studies.result import RunResult
from fedtide.studies.statistics import aligned

LONGEST: Final = 300  # characters of a label in a page


class Curve(NamedTuple):
    """A variant: what it is called among the curves of its setting, and its runs by seed."""

    label: str
    name: str
    setting: str
    runs: Mapping[int, RunResult]


class Family(NamedTuple):
    """Curves on one chart per setting."""

    name: str
    title: str
    caption: str
    curves: tuple[Curve, ...]
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


def family_tree(family: Family, pool: Pool) -> dict[str, Any]:
    """Return a family as plain data: curves with their runs, axes that can be had, and why others cannot."""
    even, lines = even_runs(family), line_trees(curve.name for curve in family.curves)
    curves = []
    for curve in family.curves:
        runs = {seed: [[each.path, pool.run(each)] for each in _everywhere(run)] for seed, run in curve.runs.items()}
        curves.append(
            {
                "label": cut(curve.label),
                "name": cut(curve.name),
                "setting": cut(curve.setting),
                "line": lines[curve.name],
                "runs": runs,
                "even": {seed: pool.run(run) for seed, run in even.get(curve.label, {}).items()},
            }
        )
    axes, absent = axes_of([run for curve in family.curves for run in curve.runs.values()])
    return {
        "name": family.name,
        "title": cut(family.title),
        "caption": family.caption,
        "curves": curves,
        "settings": [cut(setting) for setting in family.settings],
        "notes": [note for note in map(across, _by_setting(family, even).values()) if note],
        "heights": heights_of(family),
        "column": family.column,
        "over": family.over,
        "axes": axes,
        "absent": absent,
        "reference": {cut(name): cut(other) for name, other in family.reference.items()},
        "commands": list(family.commands),
    }


def even_runs(family: Family) -> dict[str, dict[int, RunResult]]:
    """Return every curve's runs on the seeds that the curves of its setting share, by label."""
    found: dict[str, dict[int, RunResult]] = {}
    for setting in family.settings:
        found |= aligned({curve.label: curve.runs for curve in family.curves if curve.setting == setting})
    return found


def axes_of(results: Sequence[RunResult]) -> tuple[list[str], dict[str, str]]:
    """Return the axes that all these runs have, and of the others why not."""
    counted = [{name: is_whole(values) for name, values in spent(each).items()} for each in results]
    axes = [name for name in AXES if all(each[name] for each in counted)]
    absent = {}
    for name in AXES:
        if name not in axes:
            few = f"{sum(not each[name] for each in counted)} of {len(counted)} runs did not count it"
            absent[name] = f"{few}: {UNCOUNTED[name]}" if name in UNCOUNTED else few
    return axes, absent


def heights_of(family: Family) -> list[str]:
    """Return the columns that were measured at all evaluations of all runs."""
    every = [run for curve in family.curves for run in curve.runs.values()]
    return [name for name in HEIGHTS if not any(np.isnan(run.column(name)).any() for run in every)]


def cut(text: str) -> str:
    """Return a label as a page keeps it."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _everywhere(run: RunResult) -> tuple[RunResult, ...]:
    return (run, *run.elsewhere)


def _by_setting(family: Family, even: Mapping[str, Mapping[int, RunResult]]) -> dict[str, dict[str, Any]]:
    return {
        setting: {
            each.label: even[each.label] for each in family.curves if each.setting == setting and each.label in even
        }
        for setting in family.settings
    }
