"""The entries, read from methods.yaml: every method as what it changes in the reference, and what about it is tuned.

Nine candidates each: three learning rates of the devices times three settings of the method. The control of a method has all of
it but what its paper is about: equal weights where gamma is not tuned, updates added to the current model where that is needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fedtide.config import nest
from fedtide.core import read_yaml_file
from fedtide.errors import FedtideError
from fedtide_lab.paper.figures import FRESH, Tree
from fedtide_lab.prose import packaged_prose

RATES = (0.04, 0.09, 0.2)  # learning rates that methods are tried with
REFERENCE = "random"
EVEN = "equal_weights"
UPDATES = "fedavg_updates"  # the control of robust servers and of SCAFFOLD
PAPER_METHOD = "proposed"
COMBINABLE = ("schedule", "server", "codec", "local")  # one of each goes together
AGE_BASES = (1.0, FRESH, 0.5)  # gamma, where a method has nothing else to set
OWN = "own"  # the group of a user's own methods
_ROW_KEYS = ("title", "changes", "grid", "settings", "control", "rates", "whole", "alone")


class LeagueMethod(NamedTuple):
    """A method: what it changes in the reference, and its settings to choose from."""

    name: str
    title: str
    tree: Tree
    settings: tuple[Tree, ...]
    alone: bool = False  # it cannot be combined with methods of other groups
    control: str = REFERENCE  # what has all of it but the method itself
    rates: tuple[float, ...] = RATES  # learning rates that it is tried with
    whole: bool = False  # it is tuned over the whole horizon

    @property
    def words(self) -> str:
        """Its name in words: the title up to a colon."""
        return self.title.partition(":")[0]


class MethodGroup(NamedTuple):
    """Methods that change the same thing; one of each group can be combined."""

    name: str
    title: str
    methods: tuple[LeagueMethod, ...]


def _method(name: str, row: dict[str, Any]) -> LeagueMethod:
    tuned = "grid" in row or "settings" in row
    ((key, values),) = row.get("grid", {"policy.age_base": AGE_BASES}).items()
    settings = row.get("settings", [{key: value} for value in values])
    return LeagueMethod(
        name,
        row["title"],
        nest(row.get("changes", {})),
        tuple(map(nest, settings)),
        row.get("alone", False),
        row.get("control", EVEN if tuned else REFERENCE),
        tuple(row.get("rates", RATES)),
        row.get("whole", False),
    )


GROUPS = tuple(
    MethodGroup(name, group["title"], tuple(_method(each, row) for each, row in group["methods"].items()))
    for name, group in yaml.safe_load(packaged_prose("league/methods.yaml")).items()
)
LEAGUE_METHODS = {method.name: method for group in GROUPS for method in group.methods}


def method_group(method: LeagueMethod) -> str:
    """Return the name of a method's group."""
    return next((group.name for group in GROUPS if method in group.methods), OWN)


def own_league_methods(path: Path) -> tuple[LeagueMethod, ...]:
    """Return the methods of a user's own file: rows as in methods.yaml, by name, without a group."""
    found = []
    for name, row in read_yaml_file(path, "league").items():
        what = f"{path}: {name}"
        if name in (*LEAGUE_METHODS, "combined"):
            raise FedtideError(f"{what} is a method of the league already: give yours another name")
        if not isinstance(row, dict) or not isinstance(row.get("title"), str) or not {*row} <= {*_ROW_KEYS}:
            raise FedtideError(
                f"{what} is not a row of the league: give a title, and any of {', '.join(_ROW_KEYS[1:])}"
            )
        settings, rates, grid = row.get("settings", [{}]), row.get("rates", RATES), row.get("grid", {"": [1]})
        if not settings or not isinstance(settings, list) or not all(isinstance(each, dict) for each in settings):
            raise FedtideError(f"{what}: settings are a list of keys to choose from; give some, or leave them out")
        if (
            not rates
            or not isinstance(rates, list | tuple)
            or not all(isinstance(each, float) and each > 0 for each in rates)
        ):
            raise FedtideError(f"{what}: rates are a list of learning rates such as 0.1; give some, or leave them out")
        if (
            not isinstance(grid, dict)
            or len(grid) != 1
            or not all(isinstance(each, list) and each for each in grid.values())
        ):
            raise FedtideError(f"{what}: grid is one key with a list of values, such as {{policy.limit: [4, 8, 16]}}")
        if not isinstance(row.get("changes", {}), dict):
            raise FedtideError(f"{what}: changes are keys with values, such as {{policy.scheduler: mine.py:pick}}")
        made = _method(name, row)
        if made.control not in LEAGUE_METHODS:
            known = ", ".join(LEAGUE_METHODS)
            raise FedtideError(f"{what}: control={made.control} is not a method of the league: name one of {known}")
        found.append(made._replace(alone=True))
    if not found:
        raise FedtideError(
            f"{path} holds no row of the league: give some by name, such as `mine: {{title: ..., changes: ...}}`"
        )
    return tuple(found)
