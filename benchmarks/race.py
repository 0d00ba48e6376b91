"""How often races err, and what they cost: numbers only, nothing is trained (about a minute).

    python benchmarks/race.py            # error rates of null races, then regret against runs
    python benchmarks/race.py --optuna   # with Optuna's TPE and median pruning in the comparison (needs optuna)

Numbers are drawn from results/league-first: 3 worlds, every method that never diverged, its mean accuracy over the horizon and over
the first quarter of it, on the seeds that all have. A method's number on a new seed is its mean and one of its own residuals
(what is left without the means of method and seed), smoothed by normal noise of Silverman's bandwidth.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from fedtide.studies import Store, mean_accuracy
from fedtide.studies.results import RunResult
from fedtide.studies.sequential import affordable_candidates, within_margin, worse_candidates

Floats, Bools = npt.NDArray[np.float64], npt.NDArray[np.bool_]
LEVEL, SEEDS, RACES, CANDIDATES, QUARTER = 0.05, 20, 1000, 20, 0.25
TIMES = 600
FEWEST_VARIANTS = 5  # of a group of stored runs whose residuals are used
MARGIN = 0.01


class World(NamedTuple):
    """Methods' means [K] and residuals [K seeds], over the horizon and over its first quarter."""

    mean: Floats
    residual: Floats
    short_mean: Floats
    short_residual: Floats


def short_accuracy(run: RunResult) -> float:
    """Return the mean accuracy over the first quarter of the horizon."""
    end = QUARTER * run.horizon
    time = np.concatenate([[0.0], np.minimum(run.column("time"), end), [end]])
    return float(np.concatenate([[run.chance], run.column("test_accuracy")]) @ np.diff(time) / end)


def residuals(values: Floats) -> tuple[Floats, Floats]:
    """Return means and what is left of them, as large as that of the true means would be."""
    mean = values.mean(axis=1)
    left = values - mean[:, None] - values.mean(axis=0) + values.mean()
    return mean, left * math.sqrt(left.size / ((left.shape[0] - 1) * (left.shape[1] - 1)))


def stored_worlds(folder: Path) -> list[World]:
    """Read the worlds of the league."""
    store = Store(folder)
    found: dict[tuple[object, ...], dict[str, dict[int, RunResult]]] = defaultdict(lambda: defaultdict(dict))
    for name in sorted(store.names()):
        run = store.load(name)
        tree = {key: value for key, value in run.experiment.items() if key != "seed"}
        data, radio = tree.get("data", {}), tree.get("radio", {})
        world = (str(data.get("name", "mnist")), radio.get("num_symbols", 300_000))
        found[world][json.dumps(tree, sort_keys=True)][run.seed] = run
    worlds = []
    for methods in found.values():
        kept = [
            runs for runs in methods.values() if len(runs) > 3 and all(run.diverged is None for run in runs.values())
        ]
        if len(kept) < CANDIDATES:
            continue
        seeds = sorted(set.intersection(*map(set, kept)))
        values, short = (
            np.array([[measure(runs[seed]) for seed in seeds] for runs in kept])
            for measure in (mean_accuracy, short_accuracy)
        )
        worlds.append(World(*residuals(values), *residuals(short)))
    return worlds


def draw(world: World, who: npt.NDArray[np.int64], seeds: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return new seeds of some methods, over the whole horizon and over its first quarter [k seeds]."""
    count = world.residual.shape[1]
    column, noise = rng.integers(count, size=(len(who), seeds)), rng.normal(size=(len(who), seeds))
    width = 1.06 * count**-0.2  # Silverman's, of a residual's deviation
    out = []
    for mean, left in ((world.mean, world.residual), (world.short_mean, world.short_residual)):
        own = left[who]
        picked = np.take_along_axis(own, column, axis=1) + width * own.std(axis=1, keepdims=True) * noise
        out.append(mean[who, None] + picked / math.sqrt(1 + width**2))
    return out[0], out[1]


def other_residuals(folders: list[Path]) -> list[Floats]:
    """Return the residuals of other stored runs, of variants that share data, devices, radio, horizon and seeds."""
    pools = []
    for folder in folders:
        store = Store(folder)
        groups: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
        for run in map(store.load, sorted(store.names())):
            tree = {key: value for key, value in run.experiment.items() if key != "seed"}
            shared = [tree.get(key) for key in ("data", "fleet", "radio")] + [run.horizon]
            groups[json.dumps(shared, sort_keys=True)][json.dumps(tree, sort_keys=True)][run.seed] = mean_accuracy(run)
        for variants in groups.values():
            kept = [runs for runs in variants.values() if set(runs) >= set(range(5))]
            if len(kept) >= FEWEST_VARIANTS:
                pools.append(residuals(np.array([[runs[seed] for seed in range(5)] for runs in kept]))[1].ravel())
    return pools


# Null races: all candidates are equally good, so whoever is dropped is dropped wrongly.


def raced(
    values: Floats, level: float = LEVEL, alive: Bools | None = None, margin: float = 0.0, budget: float = math.inf
) -> tuple[Bools, int, int]:
    """Race, looking after every seed; return who is left [K], the runs, and the seeds."""
    alive, runs, most = np.ones(len(values), np.bool_) if alive is None else alive.copy(), 0, values.shape[1]
    n = 0
    while n < most and alive.sum() > 1:
        if n:
            mean = np.where(alive, values[:, :n].mean(axis=1), -math.inf)
            count = affordable_candidates(int(alive.sum()), n, most, budget - runs)
            alive[np.argsort(-mean)[count:]] = False
        if runs + alive.sum() > budget:
            break
        n, runs = n + 1, runs + int(alive.sum())
        if n > 1:
            alive[list(worse_candidates(values[:, :n], alive, level))] = False
            leader = int(np.where(alive, values[:, :n].mean(axis=1), -math.inf).argmax())
            if margin and within_margin(values[:, :n], alive, leader, level, margin)[alive].all():
                break
    return alive, runs, n


def peeked(values: Floats) -> bool:
    """Say whether the usual t test (Bonferroni over pairs), looked at after every seed from the third on, drops anybody."""
    pairs = len(values) * (len(values) - 1)
    for n in range(3, values.shape[1] + 1):
        part = values[:, :n]
        difference = part[:, None] - part
        spread = np.maximum(difference.std(axis=2, ddof=1), 1e-12)  # a residual may come three times
        t = math.sqrt(n) * difference.mean(axis=2) / spread
        if t.max() > stdtrit(n - 1, 1 - LEVEL / pairs):
            return True
    return False


def null_races(worlds: list[World], others: list[Floats]) -> None:
    """Print how often equal candidates are told apart."""
    pools = [world.residual.ravel() for world in worlds]
    print(
        f"residuals of the paper and other worlds: {len(others)} groups of {min(map(len, others))} to {max(map(len, others))}"
    )
    noises: dict[str, Callable[[np.random.Generator, int], Floats]] = {
        "normal": lambda rng, k: rng.normal(size=(k, SEEDS)) * rng.uniform(0.3, 3, (k, 1)),
        "residuals of all methods of a world": lambda rng, k: rng.choice(pools[rng.integers(len(pools))], (k, SEEDS)),
        "residuals of the paper's and other worlds' runs": lambda rng, k: rng.choice(
            others[rng.integers(len(others))], (k, SEEDS)
        ),
        "each method's own residuals": lambda rng, k: _own(worlds, rng, k),
        "Student's t, 3 degrees": lambda rng, k: rng.standard_t(3, (k, SEEDS)),
        "exponential less a constant (skewed)": lambda rng, k: np.vstack(
            [np.zeros(SEEDS), rng.exponential(size=(k - 1, SEEDS)) - 1]
        ),
    }
    print("| candidates | noise | race | usual t test after every seed |\n|---|---|---|---|")
    for k in (2, 5, 20):
        for name, noise in noises.items():
            rng = np.random.default_rng(k)
            drawn = [noise(rng, k) for _ in range(RACES)]
            ours = np.mean([not raced(values)[0].all() for values in drawn])
            print(f"| {k} | {name} | {ours:.3f} | {np.mean([peeked(values) for values in drawn]):.3f} |", flush=True)


def _own(worlds: list[World], rng: np.random.Generator, k: int) -> Floats:
    world = worlds[rng.integers(len(worlds))]
    who = rng.choice(len(world.mean), k, replace=False)
    return draw(world, who, SEEDS, rng)[0] - world.mean[who, None]


# What a choice costs: the same surrogate, methods that do differ.


def best_of_first_seed(full: Floats, short: Floats) -> tuple[int, float]:
    return int(full[:, 0].argmax()), float(len(full))


def fixed_seeds(full: Floats, short: Floats, seeds: int) -> tuple[int, float]:
    return int(full[:, :seeds].mean(axis=1).argmax()), float(len(full) * seeds)


def halving(full: Floats, short: Floats, first: int) -> tuple[int, float]:
    """Successive halving over seeds: the better half goes on with twice as many."""
    alive, seeds, runs = np.arange(len(full)), first, 0.0
    while len(alive) > 1 and seeds <= full.shape[1]:
        runs += len(alive) * (seeds if seeds == first else seeds - seeds // 2)
        alive = alive[np.argsort(-full[alive, :seeds].mean(axis=1))[: math.ceil(len(alive) / 2)]]
        seeds *= 2
    seeds = min(seeds // 2, full.shape[1])
    return int(alive[full[alive, :seeds].mean(axis=1).argmax()]), runs


def race_of(full: Floats, short: Floats, quarter: bool = False, budget: float = math.inf) -> tuple[int, float]:
    alive, cost = np.ones(len(full), np.bool_), 0.0
    if quarter:
        alive, runs, _ = raced(short[:, :8], LEVEL / 2)
        cost = QUARTER * runs
        if alive.sum() == 1:
            return int(alive.argmax()), cost
    alive, runs, n = raced(full, LEVEL / (1 + quarter), alive, MARGIN, budget)
    return int(np.where(alive, full[:, :n].mean(axis=1), -math.inf).argmax()), cost + runs


def tpe(full: Floats, short: Floats, budget: float) -> tuple[int, float]:
    """Optuna's TPE over the choice, a fresh seed per trial, pruned by the median at a quarter of the horizon."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=0), pruner=optuna.pruners.MedianPruner()
    )
    cost, number = 0.0, 0
    while cost < budget:
        trial = study.ask({"who": optuna.distributions.CategoricalDistribution(list(range(len(full))))})
        who, seed = trial.params["who"], number % full.shape[1]
        trial.report(short[who, seed], 0)
        pruned = trial.should_prune()
        cost, number = cost + (QUARTER if pruned else 1), number + 1
        study.tell(trial, None if pruned else full[who, seed], state=optuna.trial.TrialState.PRUNED if pruned else None)
    return int(study.best_params["who"]), cost


def regrets(worlds: list[World], with_optuna: bool) -> None:
    """Print regret and runs of several ways to choose."""
    ways: dict[str, Callable[[Floats, Floats], tuple[int, float]]] = {
        "best of seed 0": best_of_first_seed,
        "3 seeds each": lambda full, short: fixed_seeds(full, short, 3),
        "9 seeds each": lambda full, short: fixed_seeds(full, short, 9),
        "20 seeds each": lambda full, short: fixed_seeds(full, short, 20),
        "successive halving from 1 seed": lambda full, short: halving(full, short, 1),
        "successive halving from 2 seeds": lambda full, short: halving(full, short, 2),
        "successive halving from 4 seeds": lambda full, short: halving(full, short, 4),
        "race, at most 20 seeds": race_of,
        "race, a quarter of the horizon first": lambda full, short: race_of(full, short, quarter=True),
        "race with a budget of 70 runs": lambda full, short: race_of(full, short, budget=70),
        "race with a budget of 120 runs": lambda full, short: race_of(full, short, budget=120),
    }
    if with_optuna:
        ways["Optuna TPE, median pruning, 70 runs (100 times)"] = lambda full, short: tpe(full, short, 70)
        ways["Optuna TPE, median pruning, 120 runs (100 times)"] = lambda full, short: tpe(full, short, 120)
    head = ("runs", "mean regret", "regret above 0.01", "regret above 0.002")
    print(f"\n| {TIMES} times, {CANDIDATES} methods | {' | '.join(head)} |\n|{'---|' * 5}")
    for name, way in ways.items():
        count = TIMES // 6 if "Optuna" in name else TIMES  # it takes a second for each
        rng, found = np.random.default_rng(7), []
        for number in range(count):
            world = worlds[number % len(worlds)]
            who = rng.choice(len(world.mean), CANDIDATES, replace=False)
            chosen, cost = way(*draw(world, who, SEEDS, rng))
            found.append((world.mean[who].max() - world.mean[who][chosen], cost))
        regret, cost = np.array(found).T
        print(
            f"| {name} | {cost.mean():.0f} | {regret.mean():.5f} | {(regret > 0.01).mean():.3f} | {(regret > 0.002).mean():.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--optuna", action="store_true")
    given = parser.parse_args()
    stored = stored_worlds(given.results / "league-first")
    print(", ".join(f"{len(world.mean)} methods on {world.residual.shape[1]} seeds" for world in stored))
    null_races(stored, other_residuals([given.results / "paper", given.results / "worlds"]))
    regrets(stored, given.optuna)
