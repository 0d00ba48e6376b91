"""The season: candidates are tuned on a seed of their own, the best of each method plays on the others.

Three stages, each of which needs the one before: every method is tuned; the best of each group are joined and tuned, too;
all play. Runs are kept by what they are, so a season that was stopped goes on, and a method more costs its own runs only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedtide.config import lay
from fedtide.studies.results import RunResult
from fedtide.studies.spec import Study, make_study
from fedtide.studies.statistics import mean_accuracy
from fedtide.studies.store import Store
from fedtide_lab.league.methods import GROUPS, JOINABLE, METHODS, REFERENCE, Method
from fedtide_lab.paper.figures import Tree
from fedtide_lab.worlds.studies import COMMON_KEYS, WORLDS

RANKING_SEEDS = 5
TUNING_SEED = 100  # of no run that ranks
CONFIRMING = range(10, 15)  # fresh seeds, for the winner
JOINED = "joined"
CHANCE = 0.1  # the accuracy of a guess among ten labels, which every world here has
# What an upload and a training cost: 0.2 W at 200,000 symbols/s; 1e6 cycles per sample at 1e-28 J s^2 and 1 GHz
BASE: Tree = lay(
    COMMON_KEYS,
    {
        "data": {"num_test": 1000},
        "policy": {"scheduler": "random"},
        "radio": {"joules_per_symbol": 1e-6},
        "fleet": {"joules_per_sample": 1e-4},
    },
)


class Arena(NamedTuple):
    """A world in which methods meet."""

    name: str
    title: str
    differs: str
    tree: Tree


_KNOWN = {world.name: world for world in WORLDS}
ARENAS = (
    Arena(
        "paper",
        "The paper's cell",
        "MNIST in shards, Rayleigh fading drawn anew every period, T_k uniform, n = 300,000 symbols a period: the paper's "
        "non-i.i.d. setting",
        {},
    ),
    Arena(
        "macro",
        "A crowded macro cell",
        "MNIST in shards; devices within 500 m, path loss and 8 dB of shadowing under the fading, and a third of the "
        "symbols: n = 100,000",
        lay(_KNOWN["macro"].tree, {"radio": {"num_symbols": 100_000}}),
    ),
    Arena(
        "phones",
        "Phones that come and go",
        "Fashion-MNIST in shards; on for 2 T_max and away for 1 on average; every job takes another time, 0.1 T_max and "
        "Exp(0.3), some phones slower",
        lay(_KNOWN["phones"].tree, {"data": {"name": "fashion_mnist"}}),
    ),
)


class Entry(NamedTuple):
    """A method as it plays in a world: with the settings that were best in tuning."""

    method: Method
    group: str
    setting: Tree
    rate: float  # of learning
    tuned: float  # its mean accuracy on the tuning seed

    @property
    def tree(self) -> Tree:
        """All that it changes in the reference."""
        return lay(lay(self.method.tree, self.setting), {"learning": {"learning_rate": self.rate}})


def tuning(arena: Arena, methods: Sequence[Method]) -> Study:
    """Return the runs that tune some methods in a world."""
    trees = {
        f"{each.method.name}, {number}": each.tree
        for method in methods
        for number, each in enumerate(_candidates(method))
    }
    return make_study(f"{arena.name}, tuning", {name: _in(arena, tree) for name, tree in trees.items()}, [TUNING_SEED])


def playing(arena: Arena, entries: Sequence[Entry], seeds: Sequence[int]) -> Study:
    """Return the runs that rank some methods in a world."""
    return make_study(arena.name, {each.method.name: _in(arena, each.tree) for each in entries}, seeds)


def tuned(arena: Arena, methods: Sequence[Method], store: Store) -> list[Entry]:
    """Return these methods with their best settings in a world; without those that have no run there.

    A candidate that diverged is behind all that stayed finite.
    """
    found = []
    for method in methods:
        scored = [
            (result.diverged is None, mean_accuracy(result), each)
            for each, run in zip(_candidates(method), tuning(arena, [method]).runs, strict=True)
            if store.has(run.name) and (result := store.load(run.name))
        ]
        if scored:
            _, level, best = max(scored, key=lambda row: row[:2])  # the first of equals
            found.append(best._replace(tuned=level))
    return found


def joined(found: Sequence[Entry]) -> Method | None:
    """Return the best schedule, server, codec and training of a world in one, by their tuning; None before all are tuned.

    Of a group whose best did no better than its control, nothing is taken. What it is tuned with are the weights
    gamma^age, as for all methods that have no setting of their own.
    """
    by_name = {each.method.name: each for each in found}
    if by_name.keys() < METHODS.keys():
        return None
    tree: Tree = {}
    titles: list[str] = []
    for group in JOINABLE:
        best = max(
            (each for each in found if each.group == group and not each.method.alone), key=lambda each: each.tuned
        )
        if best.tuned > by_name[best.method.control].tuned:
            tree = lay(tree, lay(best.method.tree, best.setting))
            titles.append(best.method.name)
    return Method(JOINED, " + ".join(titles), tree, METHODS[REFERENCE].settings) if tree else None


def results(arena: Arena, entries: Sequence[Entry], store: Store, most: int = 20) -> dict[str, dict[int, RunResult]]:
    """Read every stored run that ranks: method -> seed -> result."""
    found: dict[str, dict[int, RunResult]] = {}
    for run in playing(arena, entries, range(most)).runs:
        if store.has(run.name):
            found.setdefault(run.label, {})[run.experiment.seed] = store.load(run.name)
    return found


def _candidates(method: Method) -> list[Entry]:
    """Return a method with every learning rate and each of its settings, not yet scored."""
    group = next((group.name for group in GROUPS if method in group.methods), JOINED)
    return [Entry(method, group, setting, rate, 0.0) for rate in method.rates for setting in method.settings]


def _in(arena: Arena, tree: Tree) -> Tree:
    return lay(lay(BASE, arena.tree), tree)
