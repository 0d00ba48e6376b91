"""The season: candidates are tuned on a seed of their own, the best of each method plays on the others.

Three stages, each of which needs the one before: every method is tuned; the best of each group are joined and tuned, too;
all play. Runs are kept by what they are, so a season that was stopped goes on, and a method more costs its own runs only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fedtide import config
from fedtide.config import merge
from fedtide.core.files import write_atomically
from fedtide.league.methods import GROUPS, JOINABLE, METHODS, REFERENCE, Method
from fedtide.paper.figures import Tree
from fedtide.paper.worlds import COMMON, WORLDS
from fedtide.studies.checking import TOTALS
from fedtide.studies.result import COLUMNS, RunResult, Store
from fedtide.studies.spec import Run, Study, make
from fedtide.studies.statistics import mean_accuracy
from fedtide.studies.work import Failure

SEEDS = 5
TUNING_SEED = 100  # of no run that ranks
CONFIRMING = range(10, 15)  # fresh seeds, for the winner
JOINED = "joined"
CHANCE = 0.1  # the accuracy of a guess among ten labels, which every world here has
DIVERGED = "diverged.json"  # beside the results: the runs that have none
# What an upload and a training cost: 0.2 W at 200,000 symbols/s; 1e6 cycles per sample at 1e-28 J s^2 and 1 GHz
BASE: Tree = merge(
    COMMON,
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
        merge(_KNOWN["macro"].tree, {"radio": {"num_symbols": 100_000}}),
    ),
    Arena(
        "phones",
        "Phones that come and go",
        "Fashion-MNIST in shards; on for 2 T_max and away for 1 on average; every job takes another time, 0.1 T_max and "
        "Exp(0.3), some phones slower",
        merge(_KNOWN["phones"].tree, {"data": {"name": "fashion_mnist"}}),
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
        return merge(merge(self.method.tree, self.setting), {"learning": {"learning_rate": self.rate}})


def tuning(arena: Arena, methods: Sequence[Method]) -> Study:
    """Return the runs that tune some methods in a world."""
    trees = {
        f"{each.method.name}, {number}": each.tree
        for method in methods
        for number, each in enumerate(_candidates(method))
    }
    return make(f"{arena.name}, tuning", {name: _in(arena, tree) for name, tree in trees.items()}, [TUNING_SEED])


def playing(arena: Arena, entries: Sequence[Entry], seeds: Sequence[int]) -> Study:
    """Return the runs that rank some methods in a world."""
    return make(arena.name, {each.method.name: _in(arena, each.tree) for each in entries}, seeds)


def tuned(arena: Arena, methods: Sequence[Method], store: Store) -> list[Entry]:
    """Return these methods with their best settings in a world; without those that have no run there.

    A candidate that diverged counts as chance.
    """
    found, read = [], reader(store)
    for method in methods:
        scored = [
            each._replace(tuned=mean_accuracy(result))
            for each, run in zip(_candidates(method), tuning(arena, [method]).runs, strict=True)
            if (result := read(run)) is not None
        ]
        if scored:
            found.append(max(scored, key=lambda each: each.tuned))  # the first of equals
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
            tree = merge(tree, merge(best.method.tree, best.setting))
            titles.append(best.method.name)
    return Method(JOINED, " + ".join(titles), tree, METHODS[REFERENCE].settings) if tree else None


def results(arena: Arena, entries: Sequence[Entry], store: Store, most: int = 20) -> dict[str, dict[int, RunResult]]:
    """Read every stored run that ranks: method -> seed -> result. A run that diverged is chance."""
    found: dict[str, dict[int, RunResult]] = {}
    read = reader(store)
    for run in playing(arena, entries, range(most)).runs:
        if (result := read(run)) is not None:
            found.setdefault(run.label, {})[run.experiment.seed] = result
    return found


def diverged(store: Store) -> dict[str, Any]:
    """Return the runs whose training diverged, by name: which run it was, on which instruction path, and the error."""
    file = store.folder / DIVERGED
    return dict(json.loads(file.read_text("utf-8"))) if file.exists() else {}


def note_diverged(store: Store, failures: Sequence[Failure], path: str) -> None:
    """Add runs that diverged to the list beside the results. Delete the file to try them again."""
    noted = {
        each.run.name: {"run": f"{each.run.label}, seed {each.run.experiment.seed}", "isa": path, "error": each.reason}
        for each in failures
    }
    if noted:
        text = json.dumps({**diverged(store), **noted}, indent=1, sort_keys=True)
        write_atomically(store.folder / DIVERGED, f"{text}\n".encode())


def is_diverged(result: RunResult) -> bool:
    """Say whether a result stands for a run that diverged."""
    return "diverged" in result.totals


def reader(store: Store) -> Callable[[Run], RunResult | None]:
    """Return a function that reads a run: its result, chance over the whole horizon if it diverged, None if it is missing."""
    kept, lost = store.all_files(), diverged(store)

    def read(run: Run) -> RunResult | None:
        if run.name in kept:
            return store.load(run.name, kept)
        return _at_chance(run, lost[run.name]) if run.name in lost else None

    return read


def _at_chance(run: Run, noted: Mapping[str, Any]) -> RunResult:
    """Return a result with one evaluation, at the end of the horizon: a guess. Nothing else of the run was stored."""
    columns: dict[str, list[float | None]] = {name: [0.0] for name in COLUMNS}
    totals: dict[str, float | None] = {name: None if form.optional else 0.0 for name, form in TOTALS.items()}
    totals["diverged"] = 1.0
    found = RunResult(config.dump(run.experiment), columns, totals, {"isa": noted["isa"]})
    columns.update(time=[run.experiment.timeline.horizon], test_accuracy=[found.chance])
    return found


def _candidates(method: Method) -> list[Entry]:
    """Return a method with every learning rate and each of its settings, not yet scored."""
    group = next((group.name for group in GROUPS if method in group.methods), JOINED)
    return [Entry(method, group, setting, rate, 0.0) for rate in method.rates for setting in method.settings]


def _in(arena: Arena, tree: Tree) -> Tree:
    return merge(merge(BASE, arena.tree), tree)
