"""What docs/skies.md says beyond the tables of every survey: what was switched off, and what that changed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedtide.config import dump, experiment
from fedtide.engine import build, planned
from fedtide.studies import (
    CONFIDENCE,
    EQUIVALENT,
    MARGINS,
    Comparison,
    mean_accuracy,
    paired_difference,
    paired_results,
)
from fedtide.types import Floats
from fedtide_lab.paper.claims import FigureResults
from fedtide_lab.prose import gain_words, key_words, prose_table
from fedtide_lab.skies.studies import ARMS, LEAGUE_CURVES, SKIES, TUNED, sky_claims, sky_study
from fedtide_lab.worlds.page import Decided, change_cell, decided_worlds, world_changes, worlds_list
from fedtide_lab.worlds.studies import NO_CLAIMS, Change, Survey, World

_VERDICTS = ("holds", f"{EQUIVALENT} {MARGINS['mean_accuracy']:g}", "not resolved", "contradicted")
_LEVELS = ("proposed", "random", "BC", TUNED, "dead_zone")  # methods whose own accuracy is compared
_ARM_GAINS = (
    *("proposed over random", "proposed over BC", "random over BC"),
    *(f"{method} over {TUNED}" for method in ("dead_zone", "ef21")),
)


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
    decided = decided_worlds(SKIES, results, sky_claims)
    levels = {sky.name: _levels(sky, results) for sky in (*SKIES, *ARMS)}
    signals = {sky.title: sky_signals(sky) for sky in SKIES if results.get(sky.name)}
    return {
        "signals": prose_table(
            ["sky", *(f"{name}, dB: 5 %, median, 95 %" for name in ("SNR", "I/N", "SINR"))],
            [
                [title, *(_decibels(found[name]) if found[name].any() else "none" for name in ("SNR", "I/N", "SINR"))]
                for title, found in signals.items()
            ],
        ),
        "explanations": prose_table(["arm", "less that in", *_ARM_GAINS], titled) if titled else "",
        "levels": prose_table(
            ["sky or arm", "less that in", *_LEVELS],
            [
                [sky.title, titles[sky.against], *(gain_words(levels[sky.name].get(name)) for name in _LEVELS)]
                for sky in (*SKIES, *ARMS)
                if levels[sky.name]
            ],
        ),
        "arms": worlds_list(arms, "arm"),
        "methods": prose_table(
            ["method", "as keys"], [[f"`{name}`", key_words(tree)] for name, tree in LEAGUE_CURVES.items()]
        ),
        "runs": sum(len(sky_study(sky).runs) for sky in (*SKIES, *ARMS)),
        "all changes": len(every),
        "by chance": len(every) * (1 - CONFIDENCE),
        "resolved": _num_resolved(every),
        "resolved among all": _num_resolved(strict),
        "paper contradicted": sum(
            verdict.verdict == "contradicted"
            for each in decided
            for verdict in each.verdicts
            if verdict.claim.name not in (*NO_CLAIMS, *LEAGUE_CURVES)
        ),
        "methods contradicted": "; ".join(
            f"`{name}` ({', '.join(where)})"
            for number, claim in enumerate(sky_claims(""))
            if (name := claim.name) in LEAGUE_CURVES and (where := _where(decided, number, "contradicted"))
        )
        or "none",
        "where": prose_table(
            ["claim", *_VERDICTS],
            [
                [claim.text, *(", ".join(_where(decided, number, verdict)) for verdict in _VERDICTS)]
                for number, claim in enumerate(sky_claims(""))
            ],
        ),
        **{
            f"{finding.check.figure} gain {finding.check.better} over {finding.check.worse}": gain
            for each in (*decided, *decided_worlds(ARMS, results, sky_claims))
            for verdict in each.verdicts
            for finding in verdict.findings
            if (gain := finding.at(CONFIDENCE)) is not None
        },
        **{f"{sky} level {name}": made for sky, found in levels.items() for name, made in found.items()},
        **{
            f"{arm} change {name}": made.paired
            for arm, found in changes.items()
            for name, made in found.items()
            if made is not None
        },
    }


def sky_signals(sky: World) -> dict[str, Floats]:
    """Return SNR, I/N and SINR of the uploads under random scheduling, numbers: of a plan, which trains nothing."""
    found: dict[str, list[Floats]] = {"SNR": [], "I/N": [], "SINR": []}
    for run in sky_study(sky).runs:
        if run.label != "random":
            continue
        system = build(experiment(dump(run.experiment), {"data": {"name": "synthetic"}}))  # it does not look at labels
        for step in planned(system):
            if step.grant is None or step.candidates is None:
                continue
            device, met = step.candidates.device[step.grant.picked], step.grant.interference
            link = system.channel(run.experiment.seed, step.tick.index, step.tick.time, device)
            assert link.signal is not None
            found["SNR"].append(link.signal.snr)
            found["I/N"].append(np.zeros(len(device)) if met is None else met)
    whole = {name: np.concatenate(columns) for name, columns in found.items() if columns}
    return {**whole, "SINR": whole["SNR"] / (1 + whole["I/N"])}


def _decibels(values: Floats) -> str:
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
    return ", ".join(f"{round(10 * math.log10(each))}" if each > 0 else "none" for each in (low, middle, high))


def _where(decided: Sequence[Decided], number: int, verdict: str) -> list[str]:
    """Return the skies in which a claim has this verdict."""
    return [each.world.name for each in decided if each.verdicts[number].verdict == verdict]


def _levels(sky: World, results: FigureResults) -> dict[str, Comparison]:
    """Return the mean accuracy of some methods under a sky, less that under what it is compared with."""
    here, there = results.get(sky.name, {}), results.get(sky.against, {})
    if sky.against == sky.name:
        return {}
    found = {}
    for name in _LEVELS:
        if pairs := paired_results(here.get(name, {}), there.get(name, {})).values():
            one, other = ([mean_accuracy(pair[side]) for pair in pairs] for side in (0, 1))
            found[name] = paired_difference(one, other, margin=MARGINS["mean_accuracy"])
    return found


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
        "dead_zone": "dead_zone over random",
        "soft_rate_label": "soft_rate_label over random",
    },
    ("ready", "capacity", "outage", "kept", "lost", "age", "never", "variance", "end"),
    "sky",
    ("worlds", "league-first"),
    ARMS,
    {name: TUNED for name in LEAGUE_CURVES if name != TUNED},
    sky_values,
)
