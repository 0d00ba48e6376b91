"""Do the paper's conclusions survive outside its laboratory? Its main comparisons, in other worlds.

Every world is the paper's cell (N = 40, R = 8, n = 300,000, non-i.i.d. data) with its data, its radio or its devices
replaced. Some replace more than one thing: slow fading also has estimates of channels, phones have other durations and come
and go, CIFAR-10 has another model and what that needs to learn. Horizons are shorter and training sets smaller than
in the paper, the same in all worlds unless said, so that a world costs minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from fedtide.config import merge_nested
from fedtide.studies import (
    CONFIDENCE,
    MARGINS,
    Comparison,
    RunResult,
    Store,
    Study,
    make_study,
    mean_accuracy,
    paired_difference,
    paired_results,
)
from fedtide_lab.paper.claims import Check, Claim, FigureResults
from fedtide_lab.paper.figures import FRESH, OLD, Tree, stored_runs

HORIZON = 10.0  # T_max
_SEEDS = 5
_MOST_SEEDS = 20  # seeds that are looked for
COMMON_KEYS: Tree = {
    "data": {"num_train": 8000, "num_test": 2000},
    "fleet": {"num_devices": 40},
    "policy": {"limit": 8},
    "timeline": {"horizon": HORIZON},
}


class World(NamedTuple):
    """A world: what of the paper's cell is replaced."""

    name: str
    title: str
    differs: str  # in words, for the page
    tree: Tree
    seeds: int = _SEEDS
    against: str = "paper"  # the world that its gains are compared with


WORLDS: tuple[World, ...] = (
    World("paper", "The paper's cell", "MNIST, Rayleigh fading drawn anew every period, T_k uniform, always there", {}),
    World("fashion", "Fashion-MNIST", "clothes instead of digits", {"data": {"name": "fashion_mnist"}}),
    World(
        "macro",
        "A macro cell",
        "devices within 500 m: path loss 128.1 + 37.6 log10 d and 8 dB of shadowing under the Rayleigh fading",
        {"radio": {"coverage": {"name": "log_distance", "radius": 500.0, "sigma_db": 8.0}}},
    ),
    World(
        "walking",
        "Slow fading, estimated",
        "fading with Jakes' spectrum, 0.4 cycles per T_max (0.90 from one period to the next), estimated with an error of "
        "10 % and a margin of 1 dB: a packet that has more bits than the link carries is lost",
        {
            "radio": {
                "channel": {"name": "jakes", "doppler": 0.4},
                "csi": {"name": "noisy", "error": 0.1, "margin_db": 1.0},
            }
        },
    ),
    World(
        "phones",
        "Phones that come and go",
        "on for 2 T_max and away for 1 on average; every job takes another time, 0.1 T_max and Exp(0.3), some phones slower",
        {
            "fleet": {
                "duration": {"name": "shifted_exponential", "shift": 0.1, "mean": 0.3, "spread": 0.5},
                "availability": {"name": "markov", "mean_on": 2.0, "mean_off": 1.0},
            }
        },
    ),
    World(
        "cifar",
        "CIFAR-10",
        "colour photographs, a CNN of 90,000 parameters without dropout, n four times as large, Dirichlet labels (0.5), a "
        "learning rate of 0.1 and batches of 20",
        {
            "data": {"name": "cifar10", "num_train": 4000, "num_test": 1000, "partition": "dirichlet"},
            "learning": {"model": "small_cnn", "dropout": False, "learning_rate": 0.1, "batch_size": 20},
            "radio": {"num_symbols": 1_200_000},
        },
        seeds=3,
    ),
)

_RANDOM: Tree = {"policy": {"scheduler": "random"}}


def _weighted(scheduler: str, age_base: float) -> Tree:
    return {"policy": {"scheduler": scheduler, "age_base": age_base}}


_PERIODS = {"T_max/8": 0.125, "T_max/2": 0.5, "T_max": 1.0}
CURVES: dict[str, Tree] = {
    "proposed": {},
    "random": _RANDOM,
    "BC": {"policy": {"scheduler": "best_channel"}},
    "age-based": {"policy": {"scheduler": "age_based"}},
    **{name: {**_RANDOM, "timeline": {"period": period}} for name, period in _PERIODS.items()},
    "FedAvg": {"framework": "fedavg", **_RANDOM},
    "random, fresh": _weighted("random", FRESH),
    "random, old": _weighted("random", OLD),
    "proposed, fresh": _weighted("proposed", FRESH),
    "proposed, old": _weighted("proposed", OLD),
}


def world_study(world: World, seeds: Sequence[int] | None = None) -> Study:
    """Return the runs of a world."""
    base = merge_nested(COMMON_KEYS, world.tree)
    return make_study(
        world.name, {name: merge_nested(base, tree) for name, tree in CURVES.items()}, seeds or range(world.seeds)
    )


def collect_worlds(
    worlds: Sequence[World], *stores: Store, study: Callable[[World, Sequence[int]], Study] = world_study
) -> FigureResults:
    """Read every run of these worlds in these stores, whatever its seed: world -> curve -> seed -> result."""
    found: dict[str, dict[str, dict[int, RunResult]]] = {}
    for world in worlds:
        whole = study(world, range(_MOST_SEEDS))
        for store in stores:
            for curve, runs in stored_runs(whole, store).items():
                known = found.setdefault(world.name, {}).setdefault(curve, {})
                known |= {seed: run for seed, run in runs.items() if seed not in known}
    return found


def world_claims(world: str) -> tuple[Claim, ...]:
    """Return the paper's main claims as comparisons in one world."""

    def over(better: str, *worse: str) -> tuple[Check, ...]:
        return tuple(Check(world, better, other) for other in worse)

    return (
        Claim("random", "The proposed schedule beats random scheduling.", over("proposed", "random")),
        Claim("BC", "The proposed schedule beats the best channels (BC).", over("proposed", "BC")),
        Claim("age-based", "The proposed schedule beats age-based scheduling.", over("proposed", "age-based")),
        Claim("random over BC", "Random scheduling beats the best channels (BC).", over("random", "BC")),
        Claim("FedAvg", "The periodic design at T_max/4 beats FedAvg.", over("random", "FedAvg")),
        *(Claim(name, f"T_max/4 beats {name} as a period.", over("random", name)) for name in _PERIODS),
        Claim(
            "fresh",
            f"Favouring fresh updates (gamma = {FRESH:g}) beats gamma = 1.",
            (*over("random, fresh", "random"), *over("proposed, fresh", "proposed")),
        ),
        Claim(
            "old",
            f"Favouring old updates (gamma = {OLD:g}) beats gamma = 1.",
            (*over("random, old", "random"), *over("proposed, old", "proposed")),
        ),
    )


NO_CLAIMS = ("random over BC", "old")  # of the paper: for comparison


class Survey(NamedTuple):
    """A list of worlds: what runs in each of them, and what is asked there."""

    name: str  # of its command, its page, its figure and its store
    worlds: tuple[World, ...]
    study: Callable[[World, Sequence[int] | None], Study]  # the runs of a world
    claims: Callable[[str], tuple[Claim, ...]]  # about a world, by its name
    panels: Mapping[str, str]  # of its figure: claim -> title
    columns: tuple[str, ...]  # of the table that says what its worlds are like
    called: str = "world"  # one of its worlds
    borrowed: tuple[str, ...] = ()  # stores beside its own that hold some of its runs
    arms: tuple[World, ...] = ()  # further worlds that run, and are not in its tables
    references: Mapping[str, str] = MappingProxyType({})  # of curves that are not compared with random scheduling
    more: Callable[[FigureResults], Mapping[str, Any]] | None = None  # what else its page names


WORLDS_SURVEY = Survey(
    "worlds",
    WORLDS,
    world_study,
    world_claims,
    {
        "random": "proposed over random",
        "BC": "proposed over BC",
        "random over BC": "random over BC",
        "FedAvg": "T_max/4 over FedAvg",
        "T_max/2": "T_max/4 over T_max/2",
        "fresh": "γ = 0.846 over γ = 1, random",
    },
    ("ready", "capacity", "kept", "lost", "age", "never", "variance", "end"),
)


class Change(NamedTuple):
    """What a comparison gains in a world, less what it gains in another."""

    paired: Comparison  # seed by seed
    is_unpaired: bool  # resolved with the seeds taken as unrelated, too (Welch)


def world_change(
    check: Check, results: FigureResults, cell: str = WORLDS[0].name, confidence: float = CONFIDENCE
) -> Change | None:
    """Compare the gain of a comparison in its world with that in another, the paper's cell; None without runs.

    A seed means the same T_k (but for phones), the same shards (but for CIFAR-10) and the same Rayleigh fading (but for slow
    fading) in two worlds. The interval of paired differences is right whether or not the two gains are correlated.
    """
    from scipy import stats

    curves = [results.get(world, {}).get(str(side), {}) for world in (check.figure, cell) for side in check[1:3]]
    level = [[mean_accuracy(run) for run in runs] for runs in paired_results(*curves).values()]
    here, there = [a - b for a, b, _, _ in level], [c - d for _, _, c, d in level]
    welch = stats.ttest_ind(here, there, equal_var=False).pvalue < 1 - confidence if len(level) > 1 else False
    made = paired_difference(here, there, confidence, MARGINS["mean_accuracy"]) if level else None
    return Change(made, bool(welch)) if made else None
