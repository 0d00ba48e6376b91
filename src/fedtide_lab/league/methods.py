"""The entries, read from methods.yaml: every method as what it changes in the reference, and what about it is tuned.

Four candidates each: two learning rates of the devices times two settings of the method. What a method has apart from what its
paper is about, its control has too: equal weights where gamma is not tuned, or dense updates that are added to the current
model, which robust servers and SCAFFOLD need. The control with equal weights has nothing to set: it has four learning rates.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fedtide.core import read_yaml_file
from fedtide.errors import FedtideError
from fedtide_lab.paper.figures import FRESH, Tree
from fedtide_lab.prose import packaged_prose

RATES = (0.07, 0.2)  # learning rates that methods are tried with
REFERENCE = "random"
EVEN = "equal_weights"
DENSE = "dense_mean"
PAPER_METHOD = "proposed"
COMBINABLE = ("schedule", "server", "codec", "local")  # one of each goes together
_AGES: tuple[Tree, Tree] = ({"policy": {"age_base": 1.0}}, {"policy": {"age_base": FRESH}})


class LeagueMethod(NamedTuple):
    """A method: what it changes in the reference, and its settings to choose from."""

    name: str
    title: str
    tree: Tree
    settings: tuple[Tree, ...]
    alone: bool = False  # it cannot be combined with methods of other groups
    control: str = REFERENCE  # what has all of it but the method itself
    rates: tuple[float, ...] = RATES  # learning rates that it is tried with


class MethodGroup(NamedTuple):
    """Methods that change the same thing; one of each group can be combined."""

    name: str
    title: str
    methods: tuple[LeagueMethod, ...]


def _method(name: str, row: dict[str, Any]) -> LeagueMethod:
    control = row.get("control", EVEN if "settings" in row else REFERENCE)
    settings, rates = tuple(row.get("settings", _AGES)), tuple(row.get("rates", RATES))
    return LeagueMethod(name, row["title"], row.get("changes", {}), settings, row.get("alone", False), control, rates)


GROUPS = tuple(
    MethodGroup(name, group["title"], tuple(_method(each, row) for each, row in group["methods"].items()))
    for name, group in yaml.safe_load(packaged_prose("league/methods.yaml")).items()
)
LEAGUE_METHODS = {method.name: method for group in GROUPS for method in group.methods}
OWN = "own"  # the group of a user's own methods
_ROW_KEYS = ("title", "changes", "settings", "control", "rates")


def own_league_methods(path: Path) -> tuple[LeagueMethod, ...]:
    """Return the methods of a user's own file: rows as in methods.yaml, by name, without a group."""
    found = []
    for name, row in read_yaml_file(path, "league").items():
        what = f"{path}: {name}"
        if name in (*LEAGUE_METHODS, "combined"):
            raise FedtideError(f"{what} is a method of the league already: give yours another name")
        if not isinstance(row, dict) or not isinstance(row.get("title"), str) or not {*row} <= {*_ROW_KEYS}:
            raise FedtideError(f"{what} is no row of the league: give a title, and any of {', '.join(_ROW_KEYS[1:])}")
        if any(not isinstance(row.get(key, []), list) or row.get(key) == [] for key in ("settings", "rates")):
            raise FedtideError(
                f"{what}: settings and rates are lists of what is tried in tuning; give some, or leave them out"
            )
        made = _method(name, row)
        if made.control not in LEAGUE_METHODS:
            known = ", ".join(LEAGUE_METHODS)
            raise FedtideError(f"{what}: control={made.control} is no method of the league: name one of {known}")
        found.append(made._replace(alone=True))
    if not found:
        raise FedtideError(
            f"{path} holds no row of the league: give some by name, such as `mine: {{title: ..., changes: ...}}`"
        )
    return tuple(found)
