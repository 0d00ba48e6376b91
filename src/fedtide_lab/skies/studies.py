"""One federation under several skies: Shannon's links, modems of 5G NR, interfering cells, drives and satellites.

Every sky is the federation of worlds/studies.py (N = 40, R = 8, MNIST in shards, 10 T_max) with another radio. The paper's
comparisons are asked there, and the five best methods of the league. An arm is a sky with one thing switched off (or one thing
of it alone switched on), which tests an explanation. Skies, arms, seeds and methods were fixed before any of these runs, but
for the arms drives-linked and drives-strong and EF21 in leo-in-sight: what they explain had been seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedtide.config import merge_nested
from fedtide.studies import Study, make_study
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


_LEAGUE_BASE: Tree = merge_nested(
    COMMON_KEYS,
    {
        "data": {"num_test": 1000},
        "policy": {"scheduler": "random"},
        "radio": {"joules_per_symbol": 1e-6},
        "fleet": {"joules_per_sample": 1e-4},
    },
)
# Methods of the first benchmark of methods (results/league-first) with the settings that were best there in the paper's cell: the
# five whose worst rank was best among those that send packets and stayed finite. They were not tuned again under any sky.
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


def _with(*trees: Tree) -> Tree:
    found: Tree = {}
    for tree in trees:
        found = merge_nested(found, tree)
    return found


_NR: Tree = {"radio": {"modem": {"name": "nr"}}}
_MACRO: Tree = _WORLD["macro"]


_LOWEST_MCS_DB = -5.9  # from which on MCS 0 of the modem above is within its block error
_NO_CAP = 1000.0  # bit/symbol


def _gap(gap_db: float, cap: float = _NO_CAP, min_snr_db: float | None = None) -> Tree:
    modem = {"name": "gap", "gap_db": gap_db, "cap": cap} | ({} if min_snr_db is None else {"min_snr_db": min_snr_db})
    return {"radio": {"modem": modem}}


def _twin(**changes: Any) -> Tree:
    return _with(_NR, {"radio": {"channel": {"name": "drive_twin", "unit_seconds": 60.0, **changes}}})


# Seven hexagons of 500 m. Each cell has a seventh of the symbols, so that a period has as many as everywhere else. Power control
# makes up for 0.8 of the loss, with full power where it is that of a corner: P0 = 23 dBm - 10 log10(B/180 kHz) - 0.8 x 116.8 dB.
_CELLS: Tree = _with(
    _NR,
    {
        "radio": {
            "num_symbols": 42_857,
            "coverage": {
                "name": "hex_grid",
                "spacing": 866.0,
                "path_loss": {"name": "log_distance", "sigma_db": 8.0},
                "p0_dbm": -87.9,
                "alpha": 0.8,
                "margin_db": 3.0,
            },
        }
    },
)


def _cells(**changes: Any) -> Tree:
    return merge_nested(_CELLS, {"radio": {"coverage": changes}})


_LEO: Tree = _with(
    _NR,
    {
        "fleet": {"availability": "in_sight"},
        "radio": {
            "channel": {"name": "rician", "k_factor": 10.0},
            "coverage": {
                "name": "leo",
                "walker": "80: 40/5/1",
                "altitude_km": 2000.0,
                "stations": [[78.23, 15.41], [-72.0, 2.53], [53.08, 8.8], [-46.53, 168.38]],
                "min_elevation": 10.0,
                "antenna_db": 30.0,
                "unit_seconds": 3600.0,
                "random_start": True,
                "hold": True,
            },
        },
    },
)
SKIES: tuple[World, ...] = (
    World("paper", "Paper's cell, Shannon", "Rayleigh fading at 13 dB on average, log2(1 + SNR) bit/symbol", {}),
    World(
        "paper-nr",
        "Paper's cell, NR",
        "the same links with a modem of 5G NR: MCS up to 64-QAM at a block error of 10 %, HARQ with incremental redundancy, 8 % "
        "of overhead; nothing below the lowest MCS",
        _NR,
    ),
    World(
        "macro",
        "Macro cell, Shannon",
        "devices within 500 m: path loss 128.1 + 37.6 log10 d and 8 dB of shadowing under the Rayleigh fading",
        _MACRO,
        against="macro",
    ),
    World("macro-nr", "Macro cell, NR", "the macro cell with that modem", _with(_MACRO, _NR), against="macro"),
    World(
        "cells",
        "Seven cells, NR",
        "seven hexagons of 500 m under one server, each with a seventh of the symbols: power control, and interference of those "
        "picked in other cells, of which the server expects the mean and 3 dB more; a packet that meets more is lost",
        _CELLS,
        against="macro",
    ),
    World(
        "drives",
        "5G drives, NR",
        "a synthetic twin of the drive tests of Raca et al. (MMSys 2020): some devices stand, most drive, and at times there is "
        "no link; T_max is a minute",
        _twin(),
    ),
    World(
        "leo",
        "LEO, NR",
        "40 satellites at 2,000 km in five planes over four ground stations; they send and receive in sight alone; T_max is an "
        "hour",
        _LEO,
    ),
)
ARMS: tuple[World, ...] = (
    World(
        "macro-cap",
        "only the cap",
        "Shannon's links, at most 5.55 bit/symbol (64-QAM)",
        _with(_MACRO, _gap(0.0, 5.5547)),
        against="macro",
    ),
    World(
        "macro-gap",
        "only a gap",
        "Shannon's links with 3 dB less of SNR, and no cap",
        _with(_MACRO, _gap(3.0)),
        against="macro",
    ),
    World(
        "macro-outage",
        "only outage",
        "Shannon's links, nothing below an SNR of -5.9 dB, where NR has its lowest MCS",
        _with(_MACRO, _gap(0.0, min_snr_db=_LOWEST_MCS_DB)),
        against="macro",
    ),
    World(
        "macro-nr-once",
        "no HARQ",
        "blocks that fail are sent anew, without combining",
        _with(_MACRO, _NR, {"radio": {"modem": {"name": "nr", "harq": "none"}}}),
        against="macro-nr",
    ),
    World(
        "macro-nr-256",
        "256-QAM",
        "MCS table 2, up to 7.41 bit/symbol before overhead",
        _with(_MACRO, _NR, {"radio": {"modem": {"name": "nr", "table": 2}}}),
        against="macro-nr",
    ),
    World(
        "cells-quiet",
        "no interference",
        "cells do not hear each other",
        _cells(interferes=False),
        against="cells",
    ),
    World(
        "cells-full-power",
        "full power",
        "no power control: everybody sends at 23 dBm",
        _cells(p0_dbm=None),
        against="cells",
    ),
    World(
        "drives-frozen",
        "links stand still",
        "every link stays as it is at time 0",
        _twin(unit_seconds=1e-6),
        against="drives",
    ),
    World(
        "drives-shannon",
        "drives, Shannon",
        "the same SNRs, log2(1 + SNR) bit/symbol",
        _with(_twin(), {"radio": {"modem": {"name": "shannon"}}}),
        against="drives",
    ),
    World(
        "drives-linked",
        "always a link",
        "nobody is without a link at times; a link may still be below the lowest MCS",
        _twin(outages=False),
        against="drives",
    ),
    World(
        "drives-strong",
        "stronger links",
        "all links 10 dB stronger: their median is that of the paper's cell",
        _twin(offset_db=10.0),
        against="drives",
    ),
    World(
        "leo-in-sight",
        "always in sight",
        "satellites send and receive at all times, out of sight as at the end of their last pass",
        _with(_LEO, {"fleet": {"availability": "always"}}),
        against="leo",
    ),
)
# Methods of the league in arms: a dense codec, to see what bits are worth. EF21 was added when it had failed under that sky.
_DENSE = (TUNED, "dead_zone")
_ARM_METHODS: dict[str, tuple[str, ...]] = {
    "macro-cap": _DENSE,
    "macro-gap": _DENSE,
    "macro-outage": _DENSE,
    "cells-quiet": _DENSE,
    "leo-in-sight": (TUNED, "ef21"),
}


def sky_study(sky: World, seeds: Sequence[int] | None = None) -> Study:
    """Return the runs of a sky, or of an arm: the paper's curves, then the league's."""
    is_arm = sky.name in {arm.name for arm in ARMS}
    curves = ("proposed", "random", "BC") if is_arm else _ASKED
    methods = _ARM_METHODS.get(sky.name, ()) if is_arm else tuple(LEAGUE_CURVES)
    trees: dict[str, Tree] = {}
    for base, names, known in ((COMMON_KEYS, curves, CURVES), (_LEAGUE_BASE, methods, LEAGUE_CURVES)):
        trees |= {name: merge_nested(merge_nested(base, sky.tree), known[name]) for name in names}
    return make_study(sky.name, trees, seeds or range(sky.seeds))


def sky_claims(sky: str) -> tuple[Claim, ...]:
    """Return what is asked under one sky: the paper's main claims, and that each method beats random scheduling."""
    asked = tuple(claim for claim in world_claims(sky) if claim.name not in _NOT_ASKED)
    methods = [name for name in LEAGUE_CURVES if name != TUNED]
    return asked + tuple(
        Claim(name, f"`{name}` beats random scheduling, both tuned.", (Check(sky, name, TUNED),)) for name in methods
    )
