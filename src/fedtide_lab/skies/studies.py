"""One federation under several skies: Shannon's links, modems of 5G NR, interfering cells, drives and satellites.

Every sky is the federation of worlds/studies.py (N = 40, R = 8, MNIST in shards, 10 T_max) with another radio. The paper's
comparisons are asked there, and the five best methods of the league. An arm is a sky with one thing switched off (or one thing
of it alone switched on), which tests an explanation. Skies, arms, seeds and methods were fixed before any of these runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedtide.config import merge_nested
from fedtide.studies import Study, make_study
from fedtide_lab.league.ranking import Standings, is_analog
from fedtide_lab.league.tune import BASE
from fedtide_lab.paper.claims import Check, Claim
from fedtide_lab.paper.figures import FRESH, Tree
from fedtide_lab.worlds.studies import COMMON_KEYS, CURVES, WORLDS, World, world_claims

TUNED = "random, tuned"  # what the league's methods are compared with
_WORLD = {world.name: world.tree for world in WORLDS}
# Not asked: old updates (no claim of the paper) and a period of T_max, which is FedAvg's rounds in all but name
_NOT_ASKED = ("old", "T_max")
_ASKED = tuple(name for name in CURVES if name != "T_max" and not name.endswith("old"))


def _tuned(tree: Tree, rate: float, age_base: float | None = None) -> Tree:
    found = merge_nested(tree, {"learning": {"learning_rate": rate}})
    return found if age_base is None else merge_nested(found, {"policy": {"age_base": age_base}})


# Methods of the league with the settings that were best in the paper's cell; they were not tuned again under any sky.
LEAGUE_CURVES: dict[str, Tree] = {
    TUNED: _tuned({}, 0.2, FRESH),
    "dense_mean": _tuned(
        {"policy": {"aggregator": {"name": "average_deltas", "server_rate": 1.0}}, "codec": {"name": "dead_zone"}}, 0.2
    ),
    "qsgd": _tuned({"codec": {"name": "qsgd"}}, 0.2, FRESH),
    "dead_zone": _tuned({"codec": {"name": "dead_zone"}}, 0.2, FRESH),
    "ef21": _tuned({"method": "ef21", "policy": {"aggregator": {"rate": 2.0}}}, 0.07),
    "soft_rate_label": _tuned({"policy": {"scheduler": {"name": "soft_rate_label", "weight": 10.0}}}, 0.07),
}


def five_best(tables: Sequence[Standings]) -> list[str]:
    """Return the five methods of the league that are asked under every sky.

    Those whose worst rank in its worlds is best, among the methods that send packets, stay finite on all seeds and are ahead
    of their control in one world at least.
    """

    def is_ahead(name: str) -> bool:
        over = [row.over_control or row.over_reference for row in (table.row(name) for table in tables)]
        return any(found is not None and found.verdict == "higher" for found in over)

    worst: dict[str, int] = {}
    for first in tables[0].rows:
        rows = [table.row(first.name) for table in tables]
        if is_ahead(first.name) and all(each.is_finite and not is_analog(each) for each in rows):
            worst[first.name] = max(each.rank for each in rows)
    return sorted(worst, key=lambda name: worst[name])[:5]


SKIES: tuple[World, ...] = (
    World("paper", "The paper's cell, Shannon", "Rayleigh fading at 13 dB on average, log2(1 + SNR) bit/symbol", {}),
    World(
        "macro",
        "Macro cell, Shannon",
        "devices within 500 m: path loss 128.1 + 37.6 log10 d and 8 dB of shadowing under the Rayleigh fading",
        _WORLD["macro"],
        against="macro",
    ),
)
ARMS: tuple[World, ...] = ()
_CODEC_ARMS: tuple[str, ...] = ()  # those in which a dense codec is asked, too


def sky_study(sky: World, seeds: Sequence[int] | None = None) -> Study:
    """Return the runs of a sky, or of an arm: the paper's curves, then the league's."""
    is_arm = sky.name in {arm.name for arm in ARMS}
    curves = ("proposed", "random", "BC") if is_arm else _ASKED
    methods = (TUNED, "dead_zone") if sky.name in _CODEC_ARMS else () if is_arm else tuple(LEAGUE_CURVES)
    trees: dict[str, Tree] = {}
    for base, names, known in ((COMMON_KEYS, curves, CURVES), (BASE, methods, LEAGUE_CURVES)):
        trees |= {name: merge_nested(merge_nested(base, sky.tree), known[name]) for name in names}
    return make_study(sky.name, trees, seeds or range(sky.seeds))


def sky_claims(sky: str) -> tuple[Claim, ...]:
    """Return what is asked under one sky: the paper's main claims, and that each method beats random scheduling."""
    asked = tuple(claim for claim in world_claims(sky) if claim.name not in _NOT_ASKED)
    methods = [name for name in LEAGUE_CURVES if name != TUNED]
    return asked + tuple(
        Claim(name, f"`{name}` beats random scheduling, both tuned.", (Check(sky, name, TUNED),)) for name in methods
    )
