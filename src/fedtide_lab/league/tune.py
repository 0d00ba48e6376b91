"""Tuning: candidates run on a seed of their own, the best of each method is ranked on the others.

Three stages, each of which needs the one before: every method is tuned; the best of each group are combined and tuned, too;
all are ranked. Runs are cached by the hash of their configuration, so a benchmark that was stopped goes on, and one more
method costs its own runs only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedtide.config import merge_nested
from fedtide.studies import Store, Study, make_study, mean_accuracy
from fedtide_lab.league.methods import COMBINABLE, GROUPS, LEAGUE_METHODS, OWN, REFERENCE, LeagueMethod
from fedtide_lab.paper.figures import Tree
from fedtide_lab.worlds.studies import COMMON_KEYS, WORLDS, World

RANKING_SEEDS = 5
TUNING_SEED = 100  # of no run that ranks
CONFIRMING = range(10, 15)  # fresh seeds, for the winner
COMBINED = "combined"
CHANCE = 0.1  # the accuracy of a guess among ten labels, which every world here has
# What an upload and a training cost: 0.2 W at 200,000 symbols/s; 1e6 cycles per sample at 1e-28 J s^2 and 1 GHz
BASE: Tree = merge_nested(
    COMMON_KEYS,
    {
        "data": {"num_test": 1000},
        "policy": {"scheduler": "random"},
        "radio": {"joules_per_symbol": 1e-6},
        "fleet": {"joules_per_sample": 1e-4},
    },
)


_KNOWN = {world.name: world for world in WORLDS}
LEAGUE_WORLDS = (
    World(
        "paper",
        "The paper's cell",
        "MNIST in shards, Rayleigh fading drawn anew every period, T_k uniform, n = 300,000 symbols a period: the paper's "
        "non-i.i.d. setting",
        {},
    ),
    World(
        "macro",
        "A crowded macro cell",
        "MNIST in shards; devices within 500 m, path loss and 8 dB of shadowing under the fading, and a third of the "
        "symbols: n = 100,000",
        merge_nested(_KNOWN["macro"].tree, {"radio": {"num_symbols": 100_000}}),
    ),
    World(
        "phones",
        "Phones that come and go",
        "Fashion-MNIST in shards; on for 2 T_max and away for 1 on average; every job takes another time, 0.1 T_max and "
        "Exp(0.3), some phones slower",
        merge_nested(_KNOWN["phones"].tree, {"data": {"name": "fashion_mnist"}}),
    ),
)


class Entry(NamedTuple):
    """A method as it runs in a world: with the settings that were best in tuning."""

    method: LeagueMethod
    group: str
    setting: Tree
    rate: float  # of learning
    tuned: float  # its mean accuracy on the tuning seed

    @property
    def tree(self) -> Tree:
        """All that it changes in the reference."""
        return merge_nested(merge_nested(self.method.tree, self.setting), {"learning": {"learning_rate": self.rate}})


def tuning(world: World, methods: Sequence[LeagueMethod]) -> Study:
    """Return the runs that tune some methods in a world."""
    trees = {
        f"{each.method.name}, {number}": each.tree
        for method in methods
        for number, each in enumerate(_candidates(method))
    }
    return make_study(f"{world.name}, tuning", {name: _in(world, tree) for name, tree in trees.items()}, [TUNING_SEED])


def ranking_study(world: World, entries: Sequence[Entry], seeds: Sequence[int]) -> Study:
    """Return the runs that rank some methods in a world."""
    return make_study(world.name, {each.method.name: _in(world, each.tree) for each in entries}, seeds)


def tuned_entries(world: World, methods: Sequence[LeagueMethod], store: Store) -> list[Entry]:
    """Return these methods with their best settings in a world; without those that have no run there.

    A candidate that diverged is behind all that stayed finite.
    """
    found = []
    for method in methods:
        scored = [
            (result.diverged is None, mean_accuracy(result), each)
            for each, run in zip(_candidates(method), tuning(world, [method]).runs, strict=True)
            if store.has(run.name) and (result := store.load(run.name))
        ]
        if scored:
            _, level, best = max(scored, key=lambda row: row[:2])  # the first of equals
            found.append(best._replace(tuned=level))
    return found


def combine_tuned(found: Sequence[Entry]) -> LeagueMethod | None:
    """Return the best schedule, server, codec and training of a world in one, by their tuning; None before all are tuned.

    Of a group whose best did no better than its control, nothing is taken. What it is tuned with are the weights
    gamma^age, as for all methods that have no setting of their own.
    """
    by_name = {each.method.name: each for each in found}
    if by_name.keys() < LEAGUE_METHODS.keys():
        return None
    tree: Tree = {}
    titles: list[str] = []
    for group in COMBINABLE:
        best = max(
            (each for each in found if each.group == group and not each.method.alone), key=lambda each: each.tuned
        )
        if best.tuned > by_name[best.method.control].tuned:
            tree = merge_nested(tree, merge_nested(best.method.tree, best.setting))
            titles.append(best.method.name)
    return LeagueMethod(COMBINED, " + ".join(titles), tree, LEAGUE_METHODS[REFERENCE].settings) if tree else None


def _candidates(method: LeagueMethod) -> list[Entry]:
    """Return a method with every learning rate and each of its settings, not yet scored."""
    other = COMBINED if method.name == COMBINED else OWN
    group = next((group.name for group in GROUPS if method in group.methods), other)
    return [Entry(method, group, setting, rate, 0.0) for rate in method.rates for setting in method.settings]


def _in(world: World, tree: Tree) -> Tree:
    return merge_nested(merge_nested(BASE, world.tree), tree)
