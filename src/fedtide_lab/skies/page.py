"""What docs/skies.md says beyond the tables of every survey: what was switched off, and what that changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedtide.studies import CONFIDENCE
from fedtide_lab.paper.claims import FigureResults
from fedtide_lab.prose import key_words, prose_table
from fedtide_lab.skies.studies import ARMS, LEAGUE_CURVES, SKIES, TUNED, sky_claims, sky_study
from fedtide_lab.worlds.page import change_cell, world_changes, worlds_list
from fedtide_lab.worlds.studies import Change, Survey

_ARM_GAINS = ("proposed over random", "proposed over BC", "random over BC", f"dead_zone over {TUNED}")


def sky_values(results: FigureResults) -> dict[str, Any]:
    """Return what else the page names: arms and what each changed, the methods of the league, how many tests these are."""
    titles = {sky.name: sky.title for sky in (*SKIES, *ARMS)}
    arms = [arm for arm in ARMS if results.get(arm.name)]
    changes = {arm.name: world_changes(arm, sky_claims, results) for arm in arms}
    every = _all_changes(results, CONFIDENCE)
    strict = _all_changes(results, 1 - (1 - CONFIDENCE) / max(len(every), 1))
    titled = [
        [arm.title, titles[arm.against], *(change_cell(changes[arm.name][name]) for name in _ARM_GAINS)] for arm in arms
    ]
    return {
        "explanations": prose_table(["arm", "less that in", *_ARM_GAINS], titled) if titled else "",
        "arms": worlds_list(arms, "arm"),
        "methods": prose_table(
            ["method", "as keys"], [[f"`{name}`", key_words(tree)] for name, tree in LEAGUE_CURVES.items()]
        ),
        "runs": sum(len(sky_study(sky).runs) for sky in (*SKIES, *ARMS)),
        "all changes": len(every),
        "by chance": len(every) * (1 - CONFIDENCE),
        "resolved": _num_resolved(every),
        "resolved among all": _num_resolved(strict),
        **{
            f"{arm} change {name}": made.paired
            for arm, found in changes.items()
            for name, made in found.items()
            if made is not None
        },
    }


def _all_changes(results: FigureResults, confidence: float) -> list[Change]:
    found = [world_changes(sky, sky_claims, results, confidence) for sky in (*SKIES, *ARMS)]
    return [made for each in found for made in each.values() if made is not None]


def _num_resolved(changes: Sequence[Change]) -> int:
    return sum(each.paired.verdict in ("higher", "lower") for each in changes)


SKIES_SURVEY = Survey(
    "skies",
    SKIES,
    sky_study,
    sky_claims,
    {
        "random": "proposed over random",
        "BC": "proposed over BC",
        "random over BC": "random over BC",
        "FedAvg": "T_max/4 over FedAvg",
        "dead_zone": "dead_zone over random, tuned",
        "soft_rate_label": "soft_rate_label over random, tuned",
    },
    ("ready", "capacity", "outage", "kept", "lost", "age", "never", "variance", "end"),
    "sky",
    ("worlds", "league"),
    ARMS,
    {name: TUNED for name in LEAGUE_CURVES if name != TUNED},
    sky_values,
)
