"""Tuning: in every world, the candidates of a method race on seeds and samples that do not rank; the winner is its entry.

Each method has nine candidates and the same number of runs, over half of the horizon: after every seed, about half of the
candidates are set aside. Then the best of each group are combined, and tuned in the same way. Runs are cached by the hash of
their configuration, so a benchmark that was stopped goes on, and one more method costs its own runs only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedtide.config import merge_nested
from fedtide.studies import Store, Study, make_study, races
from fedtide_lab.league.methods import (
    COMBINABLE,
    EVEN,
    GROUPS,
    LEAGUE_METHODS,
    PAPER_METHOD,
    REFERENCE,
    UPDATES,
    LeagueMethod,
    method_group,
)
from fedtide_lab.paper.figures import Tree
from fedtide_lab.worlds.studies import WORLDS

RANKING_SEEDS = 10
LEAGUE_TUNING_SEEDS = (100, 101, 102)  # of no run that ranks
CONFIRMING = range(10, 15)  # fresh seeds, for the winner
COMBINED = "combined"
CHANCE = 0.1  # the accuracy of a guess among ten labels, which every world here has
VALIDATION_SHARE = 0.2  # of the samples that tuning runs are given: they score the candidates
BEST_CODEC = "dead_zone"  # with qsgd the best codec of the first benchmark, where qsgd diverged with local momentum
PAPER_CODEC = "sparse_quantized"
_HORIZON = 10.0  # T_max
_WITHOUT_CODEC = ("ef21", "over_the_air")
TUNING_RUNS = 15  # 9 candidates on the first seed, 4 on the second, 2 on the third
_NUM_TRAIN = 4000
# What an upload and a training cost: 0.2 W at 200,000 symbols/s; 1e6 cycles per sample at 1e-28 J s^2 and 1 GHz
BASE: Tree = {
    "data": {"num_train": _NUM_TRAIN, "num_test": 1000},
    "fleet": {"num_devices": 40, "joules_per_sample": 1e-4},
    "policy": {"limit": 8, "scheduler": "random"},
    "timeline": {"horizon": _HORIZON},
    "radio": {"joules_per_symbol": 1e-6},
    "codec": {"name": BEST_CODEC},
    "learning": {"batch_size": 25, "evaluate_every": 0.5},
}


_EVERY_GROUP = tuple(group.name for group in GROUPS)


class LeagueWorld(NamedTuple):
    """A world of the league, and which groups of methods meet in it."""

    name: str
    title: str
    differs: str  # in words, for the page
    tree: Tree
    groups: tuple[str, ...] = _EVERY_GROUP

    @property
    def methods(self) -> tuple[LeagueMethod, ...]:
        """The methods that meet here: those of its groups, and what they are compared with."""
        always = (PAPER_METHOD, REFERENCE, EVEN, UPDATES)
        return tuple(
            method for method in LEAGUE_METHODS.values() if method_group(method) in self.groups or method.name in always
        )

    @property
    def is_whole(self) -> bool:
        """Whether methods of all groups meet here, so that it tells what to deploy."""
        return self.groups == _EVERY_GROUP

    @property
    def horizon(self) -> float:
        """How long a run that ranks lasts, in T_max."""
        return float(self.tree.get("timeline", {}).get("horizon", _HORIZON))


_KNOWN = {world.name: world for world in WORLDS}
_MACRO: Tree = merge_nested(_KNOWN["macro"].tree, {"radio": {"num_symbols": 100_000}})
_PHONES: Tree = merge_nested(_KNOWN["phones"].tree, {"data": {"name": "fashion_mnist"}})
_PAPERS: Tree = {"codec": {"name": PAPER_CODEC}}
LEAGUE_WORLDS = (
    LeagueWorld(
        "paper",
        "The paper's cell",
        "MNIST in shards, Rayleigh fading drawn anew every period, T_k uniform, n = 300,000 symbols a period: the paper's "
        "non-i.i.d. setting",
        {},
    ),
    LeagueWorld(
        "macro",
        "A crowded macro cell",
        "MNIST in shards; devices within 500 m, path loss and 8 dB of shadowing under the fading, and a third of the "
        "symbols: n = 100,000",
        _MACRO,
    ),
    LeagueWorld(
        "phones",
        "Phones that come and go",
        "Fashion-MNIST in shards; on for 2 T_max and away for 1 on average; every job takes another time, 0.1 T_max and "
        "Exp(0.3), some phones slower",
        _PHONES,
    ),
    LeagueWorld(
        "long",
        "The paper's cell, ten times as long",
        "400 aggregations of a linear model (softmax regression), n = 100,000: long enough for servers that adapt",
        {
            "timeline": {"horizon": 100.0},
            "radio": {"num_symbols": 100_000},
            "learning": {"model": "softmax", "dropout": False, "evaluate_every": 2.0},
        },
        ("server", "codec", "local"),
    ),
    LeagueWorld(
        "attacked",
        "The paper's cell, with attackers",
        "8 of the 40 devices send their update with the opposite sign",
        {"learning": {"trainer": {"name": "attacked", "share": 0.2, "attack": "sign_flip", "strength": 1.0}}},
        ("robust",),
    ),
    LeagueWorld(
        "paper-codec",
        "The paper's cell, with the paper's codec",
        "as the paper's cell, and updates go through the paper's codec",
        _PAPERS,
        ("schedule", "server", "local"),
    ),
    LeagueWorld(
        "macro-codec",
        "A crowded macro cell, with the paper's codec",
        "as the crowded macro cell, and updates go through the paper's codec",
        merge_nested(_MACRO, _PAPERS),
        ("server", "local"),
    ),
)


class Entry(NamedTuple):
    """A method as it runs in a world: with the settings that were best in tuning."""

    method: LeagueMethod
    group: str
    setting: Tree
    rate: float  # of learning
    tuned: float  # its mean accuracy on held-out samples, over the tuning seeds

    @property
    def tree(self) -> Tree:
        """All that it changes in the reference."""
        return merge_nested(merge_nested(self.method.tree, self.setting), {"learning": {"learning_rate": self.rate}})


def candidates(method: LeagueMethod) -> dict[str, Entry]:
    """Return a method with every learning rate and each of its settings, not yet scored, by name."""
    group = COMBINED if method.name == COMBINED else method_group(method)
    return {
        f"{rate:g}, {number}": Entry(method, group, setting, rate, 0.0)
        for rate in method.rates
        for number, setting in enumerate(method.settings)
    }


def tuning_race(world: LeagueWorld, method: LeagueMethod) -> dict[str, Any]:
    """Return the race that tunes a method in a world, as `races` takes it."""
    shorter = {
        "timeline": {"horizon": world.horizon / (1 if method.whole else 2)},
        "data": {"num_train": round(_NUM_TRAIN / (1 - VALIDATION_SHARE))},  # devices hold as many as in runs that rank
    }
    return {
        "candidates": {name: each.tree for name, each in candidates(method).items()},
        "base": merge_nested(world_experiment(world, method.tree), shorter),
        "seeds": LEAGUE_TUNING_SEEDS,
        "budget": TUNING_RUNS,
        "validation": VALIDATION_SHARE,
        "confirm": 0,
    }


def tune_methods(
    wanted: Mapping[str, tuple[LeagueWorld, Sequence[LeagueMethod]]], store: Store, **how: Any
) -> dict[str, list[Entry]]:
    """Return the methods with their best settings, by world; how: as `races` takes it.

    Those that lack runs, or of which no candidate stays finite, are left out; `on_fault` is told which and why.
    """
    asked = {
        f"{name}: {method.name}": tuning_race(world, method)
        for name, (world, methods) in wanted.items()
        for method in methods
    }
    found = races(asked, name="league", store=store.folder, **{"on_fault": lambda *_: None, **how})
    entries: dict[str, list[Entry]] = {}
    for name, (_, methods) in wanted.items():
        ended = [(method, found[key]) for method in methods if (key := f"{name}: {method.name}") in found]
        entries[name] = [
            candidates(method)[won.leader]._replace(
                tuned=next(row.mean for row in won.rows if row.candidate == won.leader) or 0.0
            )
            for method, won in ended
        ]
    return entries


def tuned_entries(
    worlds: Sequence[LeagueWorld], store: Store, own: Sequence[LeagueMethod] = (), **how: Any
) -> dict[str, list[Entry]]:
    """Return every method as it runs in each world, and last the combined one. own: a user's. how: as `races` takes it."""
    first = tune_methods({world.name: (world, [*world.methods, *own]) for world in worlds}, store, **how)
    together = {
        world.name: (world, [method])
        for world in worlds
        if (method := combine_tuned(first[world.name], world)) is not None
    }
    second = tune_methods(together, store, **how)
    return {name: [*entries, *second.get(name, [])] for name, entries in first.items()}


def combine_tuned(found: Sequence[Entry], world: LeagueWorld) -> LeagueMethod | None:
    """Return the best schedule, server, codec and training of a world in one, by their tuning; None before all are tuned.

    Of a group whose best did no better than its control, nothing is taken. What is tuned of it, apart from the learning rate, is
    whether it does without the codec, or without the training.
    """
    by_name = {each.method.name: each for each in found}
    if not {method.name for method in world.methods} <= by_name.keys():
        return None
    parts: dict[str, Entry] = {}
    for group in (each for each in COMBINABLE if each in world.groups):
        best = max(
            (each for each in found if each.group == group and not each.method.alone), key=lambda each: each.tuned
        )
        if best.tuned > by_name[best.method.control].tuned:
            parts[group] = best
    if len(parts) < 2:
        return None
    trees = {
        tuple(part.method.name for part in left): _laid(left)
        for without in ("", "codec", "local")
        if (left := [part for group, part in parts.items() if group != without])
    }
    title = " + ".join(part.method.words for part in parts.values())
    return LeagueMethod(COMBINED, title, {}, tuple(trees.values()))


def _laid(parts: Sequence[Entry]) -> Tree:
    tree: Tree = {}
    for part in parts:
        tree = merge_nested(tree, merge_nested(part.method.tree, part.setting))
    return tree


def ranking_study(world: LeagueWorld, entries: Sequence[Entry], seeds: Sequence[int]) -> Study:
    """Return the runs that rank some methods in a world."""
    return make_study(world.name, {each.method.name: world_experiment(world, each.tree) for each in entries}, seeds)


def world_experiment(world: LeagueWorld, tree: Tree) -> Tree:
    """Return a world with what a method changes; a method that sends updates in its own way has no use for the world's codec."""
    under = merge_nested(BASE, world.tree)
    return merge_nested({**under, "codec": {}} if tree.get("method") in _WITHOUT_CODEC else under, tree)
