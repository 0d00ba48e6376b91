"""The page of the oracle: what schedule, codec and radio are worth in each world, and the regret of every schedule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedtide.studies import Comparison
from fedtide_lab.oracle.brackets import (
    NUM_HELD_OUT,
    ORACLE,
    ORACLE_CURVES,
    ORACLE_MARGIN,
    ORACLE_SEEDS,
    ORACLE_WORLDS,
    SCHEDULES,
    Bracket,
)
from fedtide_lab.prose import (
    fill_prose,
    key_words,
    packaged_prose,
    prose_findings,
    prose_table,
    resolved_prose,
    write_prose_page,
)

_WORTH = ("ideal codec", "everybody", "everybody, ideal codec")


def oracle_rows(found: Sequence[Bracket]) -> list[dict[str, Any]]:
    """Return everything as plain data, for `--json`."""
    return [
        {
            "world": each.world.name,
            "accuracy": dict(each.accuracy),
            "gain_over_random": {name: _plain(gain) for name, gain in each.gain.items()},
            "regret": {name: _plain(regret) for name, regret in each.regret.items()},
            "paper_share": each.paper_share,
            "random_is_enough": each.scheduling.within is not None,
        }
        for each in found
    ]


def scheduling_verdict(bracket: Bracket) -> str:
    """Say in words what the schedule is worth in a world."""
    found = bracket.scheduling
    if found.within is not None:
        return f"random is within {found.within:g} of the oracle"
    return {"higher": "a schedule can gain", "lower": "the oracle is behind random"}.get(found.verdict, found.verdict)


def write_oracle_page(page: Path, found: Sequence[Bracket], paths: str, store: Path) -> None:
    """Write the page. paths: on which instruction paths the runs were made. store: their folder, with findings.md if any."""
    titles = [each.world.title for each in found]
    worth = [
        [
            each.world.title,
            resolved_prose(each.scheduling),
            scheduling_verdict(each),
            "" if each.paper_share is None else f"{100 * each.paper_share:.0f} %",
            *(resolved_prose(each.gain.get(name)) for name in _WORTH),
        ]
        for each in found
    ]
    heads = ["world", "the schedule: oracle over random", "verdict", "the paper's share of it"]
    values = {
        "held out": NUM_HELD_OUT,
        "margin": ORACLE_MARGIN,
        "missing": _missing(found),
        "paths": paths,
        "worth": prose_table([*heads, "the codec", "the radio", "codec and radio"], worth),
        "regrets": prose_table(
            ["regret of", *titles],
            [
                [name, *(resolved_prose(each.regret.get(name)) for each in found)]
                for name in SCHEDULES
                if any(name in each.regret for each in found)
            ],
        ),
        "levels": prose_table(
            ["curve", *titles, "as keys"],
            [
                [
                    name,
                    *(f"{each.accuracy[name]:.3f}" if name in each.accuracy else "" for each in found),
                    key_words(tree) or "the reference",
                ]
                for name, tree in ORACLE_CURVES.items()
            ],
        ),
    }
    values |= prose_findings(store, oracle_values(found), ("in short", "reasons"))
    template = "oracle/page.md"
    write_prose_page(page, fill_prose(packaged_prose(template), values, template), ORACLE)


def oracle_values(found: Sequence[Bracket]) -> dict[str, Any]:
    """Return what findings may name: `WORLD CURVE`, a gain, `WORLD regret SCHEDULE`, `WORLD CURVE accuracy`, `WORLD paper share`."""
    told: dict[str, Any] = {
        "worlds": len(found),
        "random is enough": sum(each.scheduling.within is not None for each in found),
    }
    for each in found:
        told |= {f"{each.world.name} {name}": gain for name, gain in each.gain.items()}
        told |= {f"{each.world.name} regret {name}": regret for name, regret in each.regret.items()}
        told |= {f"{each.world.name} {name} accuracy": level for name, level in each.accuracy.items()}
        if each.paper_share is not None:
            told[f"{each.world.name} paper share"] = each.paper_share
    return told


def _missing(found: Sequence[Bracket]) -> str:
    """Say in which worlds the oracle has not run on all seeds; nothing if it has."""
    have = {each.world.name: each.scheduling.num_seeds for each in found}
    short = [
        f"{world.title} ({have.get(world.name, 0)} of {ORACLE_SEEDS} seeds)"
        for world in ORACLE_WORLDS
        if have.get(world.name, 0) < ORACLE_SEEDS
    ]
    return f"**Runs of the oracle are missing**: {', '.join(short)}. `fedtide oracle` runs them." if short else ""


def _plain(found: Comparison) -> dict[str, Any]:
    return {**found._asdict(), "verdict": found.verdict}
