"""The README: the text of tools/README.md.in, its numbers filled in from stored results. About half a minute.

python tools/readme.py    writes README.md
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from fedtide import config
from fedtide.cli.parts import described_kind
from fedtide.parts.kinds import KINDS
from fedtide.studies import Comparison, Store, mean_accuracy, paired_difference, paired_results
from fedtide.studies.spec import spec_run_name
from fedtide_lab.external.page import external_numbers, external_runs
from fedtide_lab.league.page import LeagueValues
from fedtide_lab.league.ranking import ranking_benchmark
from fedtide_lab.league.tune import LEAGUE_WORLDS
from fedtide_lab.paper.figures import FIGURES, curve_label, figure_study, stored_runs
from fedtide_lab.prose import fill_prose
from fedtide_lab.skies.studies import SKIES, sky_study
from fedtide_lab.worlds.page import decided_worlds
from fedtide_lab.worlds.studies import NO_CLAIMS, WORLDS, collect_worlds

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE, PAGE = Path(__file__).with_name("README.md.in"), ROOT / "README.md"
LEAGUE_SHOWN = LEAGUE_WORLDS[:3]  # the whole worlds, in which every method is ranked


def stored(name: str) -> Store:
    """Open the committed results of a page."""
    return Store(ROOT / "results" / name)


def filled(template: str) -> str:
    """Return the README. Blocks of code are left as they stand."""
    values = {**package_values(), **paper_values(), **world_values(), **league_values(), **published_values()}
    pieces = re.split(r"(^```.*?^```$)", template, flags=re.M | re.S)
    pieces[::2] = [fill_prose(piece, values, TEMPLATE.name) for piece in pieces[::2]]
    return "".join(pieces)


def package_values() -> dict[str, Any]:
    """Count what there is to choose from, and compare times with other frameworks'."""
    rows = json.loads((ROOT / "docs" / "results" / "performance" / "peers.json").read_text())["rows"]
    whole, *others = (row["seconds"] for row in rows if "seconds" in row and row["peer"] != "fedtide-training")
    times = [other / whole for other in others]
    parts = sum(len(described_kind(kind)["parts"]) for kind in KINDS)
    return {"kinds": len(KINDS), "parts": parts, "least times": min(times), "most times": max(times)}


def paper_values() -> dict[str, Any]:
    """Compare the proposed schedule with random scheduling, and tell how the default experiment ends."""
    runs = stored_runs(figure_study(FIGURES["schedulers"], range(5)), stored("paper"))  # the seeds of the example
    demo = stored("paper").load(spec_run_name(config.experiment({})))
    found: dict[str, Any] = {"demo end": float(demo.column("test_accuracy")[-1])}
    for setting, key in (("non-i.i.d.", "schedule"), ("i.i.d.", "schedule, iid")):
        pairs = paired_results(*(runs[curve_label(name, setting)] for name in ("proposed", "random"))).values()
        levels = np.array([[mean_accuracy(run) for run in pair] for pair in pairs])
        gain = paired_difference(levels[:, 0], levels[:, 1])
        found |= {key: gain, f"{key} interval": interval(gain), f"{key} seeds": gain.num_seeds}
        if key == "schedule":
            found |= dict(zip(("level proposed", "level random"), levels.mean(axis=0).tolist(), strict=True))
    return found


def published_values() -> dict[str, Any]:
    """Count the published accuracies that have all their runs beside them, and those that one run of ours could be."""
    numbers = [
        each for each in external_numbers(external_runs(stored("external"))) if len(each.accuracies) == each.cell.seeds
    ]
    return {
        "compared": len(numbers),
        "agreeing": sum(each.verdict == "yes" for each in numbers),
    }


def interval(found: Comparison) -> str:
    """Write an interval."""
    return f"{found.low:+.3f} to {found.high:+.3f}"


def world_values() -> dict[str, Any]:
    """Count the worlds that contradict a claim, and take the lead of the best channels on the road."""
    worlds = collect_worlds(WORLDS, stored("worlds"))
    verdicts = [
        verdict.verdict
        for world in decided_worlds(WORLDS, worlds)
        for verdict in world.verdicts
        if verdict.claim.name not in NO_CLAIMS
    ]
    stores = [stored(name) for name in ("skies", "worlds", "league-first")]
    drives = collect_worlds(SKIES, *stores, study=sky_study)["drives"]
    pairs = paired_results(drives["proposed"], drives["BC"]).values()
    behind = paired_difference(*zip(*([mean_accuracy(run) for run in pair] for pair in pairs), strict=True))
    others = sum(1 for world in WORLDS if world.name != "paper")
    contradicted = verdicts.count("contradicted")
    return {"worlds": others, "contradicted in worlds": contradicted, "BC, drives": behind, "lead of BC": -behind.mean}


def league_values() -> dict[str, Any]:
    """Take gains over random scheduling from the league."""
    found = ranking_benchmark(LEAGUE_SHOWN, stored("league"))
    tables = [table for table, _ in found]
    values = LeagueValues(tables, {table.world.name: runs for table, runs in found})
    names = [table.world.name for table in tables]

    def gains(method: str) -> str:
        *some, last = (f"{values[f'{world} {method} over random'].mean:.3f}" for world in names)
        return f"{', '.join(some)} and {last}"

    return {
        "methods": len({row.name for table in tables for row in table.rows}),
        "fedac gains": gains("fedac"),
        "schedule gains": gains("proposed"),
        "server over schedule": min(values[f"{world} fedac over proposed"].mean for world in names),
    }


if __name__ == "__main__":
    PAGE.write_text(filled(TEMPLATE.read_text(encoding="utf-8")), encoding="utf-8")
