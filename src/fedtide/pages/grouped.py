"""A folder of results without its study file: runs that differ in their seed only are one variant."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fedtide import config
from fedtide.core.forms import in_line
from fedtide.pages.costs import leaves
from fedtide.studies.result import RunResult, Store
from fedtide.studies.spec import Run, Study


def study_in(store: Store, name: str) -> tuple[Study, dict[str, dict[int, RunResult]]]:
    """Return what a folder holds as a study, and its results by variant and seed; labels say in what variants differ."""
    kept = store.all_files()
    groups: dict[str, dict[int, tuple[str, RunResult]]] = {}
    for run in sorted(kept):
        result = store.load(run, kept)
        tree = {key: value for key, value in result.experiment.items() if key != "seed"}
        groups.setdefault(json.dumps(tree, sort_keys=True), {})[int(result.experiment["seed"])] = run, result
    # in an order that does not hang on the hashes of the runs: the most seeds first
    ordered = sorted(groups.items(), key=lambda each: (-len(each[1]), each[0]))
    labels = _labels([dict(leaves(json.loads(tree))) for tree, _ in ordered], name)
    results = {
        label: {seed: result for seed, (_, result) in sorted(runs.items())}
        for label, (_, runs) in zip(labels, ordered, strict=True)
    }
    runs = [
        Run(label, config.experiment(result.experiment), run)
        for label, (_, found) in zip(labels, ordered, strict=True)
        for _, (run, result) in sorted(found.items())
    ]
    return Study(name, tuple(runs)), results


def _labels(trees: list[Mapping[str, Any]], name: str) -> list[str]:
    keys = dict.fromkeys(key for tree in trees for key in tree)
    several = [key for key in keys if len({repr(tree.get(key)) for tree in trees}) > 1]
    labels = [
        ", ".join(f"{key.rpartition('.')[2]}={in_line(tree[key])}" for key in several if key in tree) for tree in trees
    ]
    counts: dict[str, int] = {}
    for label in labels:
        counts[label] = counts.get(label, 0) + 1
    return [(label or name) if counts[label] == 1 else f"{label} (#{at + 1})" for at, label in enumerate(labels)]
