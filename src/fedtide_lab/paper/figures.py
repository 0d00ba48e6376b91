"""One entry per figure of the paper, read from figures.yaml: which runs it needs and what its caption says.

Runs are shared between figures.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import yaml

from fedtide.config import TimelineConfig, experiment, merge_nested
from fedtide.engine import system_durations
from fedtide.studies import RunResult, Store, Study, make_study
from fedtide.types import Ints
from fedtide_lab.prose import packaged_prose

Tree = Mapping[str, Any]

_SETTINGS: dict[str, Tree] = {
    "i.i.d.": {"data": {"partition": "iid"}},
    "non-i.i.d.": {"data": {"partition": "shards"}},
    "slow labels": {"data": {"partition": "slow_labels"}},
    "by labels": {},  # the curves differ in the data
}
# gamma of the authors' released code: 2.3/e favours fresh updates, its inverse old ones.
FRESH, OLD = 0.846, 1.182
OLDER = 2.0


class Figure(NamedTuple):
    """A figure of curves, one panel per data setting unless told otherwise."""

    name: str
    title: str
    caption: str
    base: Tree
    curves: Mapping[str, Tree]  # label -> what differs
    settings: Sequence[str] = ("i.i.d.", "non-i.i.d.")
    column: str = "test_accuracy"
    over: str = "time"
    seeds: int = 3  # how many the plan gives it
    most_uploads: int = 0  # of FedAsync: seeds on which it makes more are skipped; 0: none is
    note: str = ""  # what a reader of the page should know besides
    resources: bool = False  # its curves spend different amounts: draw them against bits and samples as well
    # curve -> the curve it is measured against, seed by seed; "": for all that are not named
    against: Mapping[str, str] = MappingProxyType({})
    reference_first: bool = False  # the claims are that the reference is the better one: gains are its own
    number: str = ""  # of the paper's own figure
    effects: bool = False  # its curves lie on one another: draw only how far they are from their reference

    def reference(self, curve: str) -> str | None:
        """Return the curve that this one is measured against; None for a reference itself."""
        found = self.against.get(curve, self.against.get("", curve))
        return None if found == curve else found

    def pair(self, curve: str) -> tuple[str, str] | None:
        """Return of which curve the gain is shown, and over which, with the sign of the verdicts; None for a reference."""
        reference = self.reference(curve)
        if reference is None:
            return None
        return (reference, curve) if self.reference_first else (curve, reference)

    def seed_numbers(self, count: int = 0) -> list[int]:
        """Return the first seeds that the figure takes, as many as the plan gives it unless told otherwise."""
        seeds = itertools.count() if not self.most_uploads else filter(self._has_few_uploads, itertools.count())
        return list(itertools.islice(seeds, count or self.seeds))

    def _has_few_uploads(self, seed: int) -> bool:
        return bool(fedasync_uploads(seed).sum() <= self.most_uploads)

    def variants(self) -> dict[str, dict[str, Any]]:
        """Return every curve in every setting, labelled `curve | setting`."""
        return {
            curve_label(curve, setting): {"_setting": _SETTINGS[setting], "_curve": tree}
            for setting in self.settings
            for curve, tree in self.curves.items()
            if "only" not in tree or tree["only"] == setting
        }


@functools.cache
def fedasync_uploads(seed: int) -> Ints:
    """Return how many updates every device of the paper's cell uploads under FedAsync, where T_min = 0 [N]."""
    made = experiment({"framework": "fedasync", "fleet": {"num_devices": 40}, "seed": seed})
    return np.floor(made.timeline.horizon / np.asarray(system_durations(made))).astype(np.int64)


def curve_label(curve: str, setting: str) -> str:
    """Name one curve in one setting."""
    return f"{curve} | {setting}"


FIGURES = {name: Figure(name, **row) for name, row in yaml.safe_load(packaged_prose("paper/figures.yaml")).items()}


def figure_study(figure: Figure, seeds: Sequence[int], quick: Tree | None = None) -> Study:
    """Return the study behind a figure; `quick` is laid on top of every run."""
    variants = {}
    for name, parts in figure.variants().items():
        tree = merge_nested(merge_nested(figure.base, parts["_setting"]), parts["_curve"])
        tree.pop("only", None)
        variants[name] = _shrink(tree, quick) if quick else tree
    return make_study(figure.name, variants, seeds)


def _shrink(tree: dict[str, Any], quick: Tree) -> dict[str, Any]:
    """Cut a run down to a fraction of its horizon, on smaller data, for a quick look."""
    whole = tree.get("timeline", {}).get("horizon", TimelineConfig.model_fields["horizon"].default)
    horizon = float(whole) * float(quick["horizon_share"])
    return merge_nested(
        merge_nested(tree, {k: v for k, v in quick.items() if k != "horizon_share"}), {"timeline": {"horizon": horizon}}
    )


def stored_runs(study: Study, store: Store) -> dict[str, dict[int, RunResult]]:
    """Read the runs of a study that are stored: label -> seed -> result."""
    found: dict[str, dict[int, RunResult]] = {}
    for run in study.runs:
        if store.has(run.name):
            found.setdefault(run.label, {})[run.experiment.seed] = store.load(run.name)
    return found
