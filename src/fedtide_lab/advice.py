"""What `fedtide advise` is measured against: four worlds, four designs in each, fresh seeds. benchmarks/advise.py makes the runs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedtide.config import merge_nested, nest
from fedtide.studies import Comparison, Store, make_study, mean_accuracy, metric_margin, paired_difference
from fedtide_lab.league.tune import LEAGUE_WORLDS
from fedtide_lab.paper.figures import Tree, stored_runs
from fedtide_lab.skies.studies import SKIES

ADVICE_SEEDS = range(200, 210)
# Short versions of the paper's cell, the macro cell, phones and a sky, with the paper's own design in all of them
_SHORT: Tree = {
    "data": {"num_train": 4000, "num_test": 2000},
    "fleet": {"num_devices": 40},
    "timeline": {"horizon": 10.0},
    "learning": {"batch_size": 25, "evaluate_every": 0.5},
}
_LEAGUE = {world.name: world.tree for world in LEAGUE_WORLDS}
_DRIVES = next(sky.tree for sky in SKIES if sky.name == "drives")


class AdviceWorld(NamedTuple):
    """A world with the paper's design, from which advice starts."""

    name: str
    title: str
    tree: Tree
    league: str  # the world of the league whose best method is asked


ADVICE_WORLDS = {
    world.name: world
    for world in (
        AdviceWorld("paper", "The paper's cell", _SHORT, "paper"),
        AdviceWorld("macro", "A crowded macro cell", merge_nested(_SHORT, _LEAGUE["macro"]), "macro"),
        AdviceWorld("phones", "Phones that come and go", merge_nested(_SHORT, _LEAGUE["phones"]), "phones"),
        AdviceWorld("drives", "Links like those of drives", merge_nested(_SHORT, _DRIVES), "paper"),
    )
}


class AdviceGains(NamedTuple):
    """How advice did in a world: its gain in mean accuracy over other designs, seed by seed."""

    world: AdviceWorld
    keys: Mapping[str, Any]  # what the advice changes
    accuracy: float
    method: str  # the league's best single method, in words
    over: Mapping[str, Comparison]  # paper, league, optuna


def advice_designs(world: AdviceWorld, folder: Path) -> dict[str, Tree]:
    """Return the designs that are compared in a world, from the files of the benchmark."""
    advice, league, optuna = (_read(folder / f"{world.name}{end}.json") for end in ("", "-league", "-optuna"))
    return {
        "paper": world.tree,
        "league": league["experiment"],
        "optuna": merge_nested(world.tree, nest(optuna["keys"])),
        "advice": merge_nested(world.tree, nest(advice["keys"])),
    }


def advice_gains(world: AdviceWorld, folder: Path) -> AdviceGains | None:
    """Compare the advice with the other designs; None if files or runs are missing."""
    if not all((folder / f"{world.name}{end}.json").is_file() for end in ("", "-league", "-optuna")):
        return None
    runs = stored_runs(make_study("advise", advice_designs(world, folder), ADVICE_SEEDS), Store(folder / world.name))
    level = {
        label: [mean_accuracy(found[seed]) for seed in ADVICE_SEEDS if seed in found] for label, found in runs.items()
    }
    if len(level) < 4 or any(len(found) < len(ADVICE_SEEDS) for found in level.values()):
        return None
    margin = metric_margin("mean_accuracy")
    return AdviceGains(
        world,
        _read(folder / f"{world.name}.json")["keys"],
        math.fsum(level["advice"]) / len(ADVICE_SEEDS),
        _read(folder / f"{world.name}-league.json")["method"],
        {
            label: paired_difference(level["advice"], level[label], margin=margin)
            for label in ("paper", "league", "optuna")
        },
    )


def _read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8")))
