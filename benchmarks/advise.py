"""Does `fedtide advise` beat hand-set designs? Four worlds, four designs, fresh seeds.

In each world: the paper's design (the base), the best single method of the league there, the best of Optuna's trials (TPE with
median pruning, one seed, the same choices, the same core-seconds), and the advice. Then all of them on the same fresh seeds and on
the test set. Designs and their runs are kept in results/advice/benchmark, all other runs in build/advise; it goes on where it
stopped.

python benchmarks/advise.py                      all worlds: hours of two cores
python benchmarks/advise.py macro --budget 10m   one world
python benchmarks/advise.py --draw-only          the table of docs/advise.md, from the runs there are
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import fedtide
from fedtide import config
from fedtide.studies import Store, make_study, mean_accuracy
from fedtide.studies.design_space import design_space
from fedtide.studies.race_input import race_budget
from fedtide.studies.run import run_study
from fedtide.studies.table import by_label
from fedtide_lab.advice import ADVICE_SEEDS, ADVICE_WORLDS, advice_designs, advice_gains
from fedtide_lab.league.ranking import is_analog, ranking_benchmark
from fedtide_lab.league.tune import COMBINED, LEAGUE_WORLDS, world_experiment

OPTUNA_SEED = 0
ROOT = Path(__file__).parents[1]
WORK = ROOT / "build" / "advise"


def advised(name: str, folder: Path, budget: str) -> dict[str, Any]:
    """Return what the advice changes."""
    place = folder / f"{name}.json"
    if not place.is_file():
        found = fedtide.advise(
            ADVICE_WORLDS[name].tree, budget=budget, out=WORK / name, store=WORK / name / "results", workers=2
        )
        place.write_text(
            json.dumps({"keys": found.keys, "runs": found.num_runs, "seconds": found.seconds}, indent=1) + "\n"
        )
    return dict(json.loads(place.read_text())["keys"])


def best_trial(name: str, folder: Path, seconds: float) -> dict[str, Any]:
    """Return the best of Optuna's trials: whole runs on one seed, pruned after a quarter of the horizon."""
    import optuna

    place = folder / f"{name}-optuna.json"
    if place.is_file():
        return dict(json.loads(place.read_text())["keys"])
    base = config.experiment(ADVICE_WORLDS[name].tree)
    space = design_space(base)
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=0), pruner=optuna.pruners.MedianPruner()
    )
    used, store = 0.0, Store(WORK / name / "optuna")
    while used < seconds:
        trial = study.ask()
        setting = tuple(trial.suggest_categorical(choice.name, list(choice.options)) for choice in space.choices)
        value, quarter = math.nan, True
        for share in (0.25, 1.0):
            more = {"timeline.horizon": base.timeline.horizon * share, "data.validation": 0.1}
            made = make_study("optuna", {"trial": space.experiment(setting, more)}, [OPTUNA_SEED])
            run_study(made, store, workers=1, backend="here")
            runs = by_label(made, store)["trial"]
            if OPTUNA_SEED not in runs:
                break
            run = runs[OPTUNA_SEED]
            used += run.totals.get("seconds") or 0.0
            value = math.nan if run.diverged is not None else mean_accuracy(run)
            if math.isnan(value):
                break
            if quarter:
                trial.report(value, 1)
                quarter = False
                if trial.should_prune():
                    break
        state = optuna.trial.TrialState
        if math.isnan(value):
            study.tell(trial, state=state.FAIL)
        elif trial.should_prune():
            study.tell(trial, state=state.PRUNED)
        else:
            study.tell(trial, value)
    chosen = study.best_trial.params
    keys = space.keys(tuple(chosen[choice.name] for choice in space.choices))
    place.write_text(json.dumps({"keys": keys, "trials": len(study.trials), "seconds": used}, indent=1) + "\n")
    return keys


def best_single(name: str, folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the best method of the league in a world, apart from combinations, in words and as an experiment."""
    place = folder / f"{name}-league.json"
    if place.is_file():
        kept = json.loads(place.read_text())
        return kept["method"], kept["experiment"]
    world = next(world for world in LEAGUE_WORLDS if world.name == ADVICE_WORLDS[name].league)
    store = ROOT / "results" / "league"
    tables = ranking_benchmark([world], Store(store)) if store.is_dir() else []
    if not tables:
        raise SystemExit(f"{store} has no ranking of the world {world.name}: run `fedtide league` first")
    rows = tables[0][0].rows
    row = next(row for row in rows if row.name != COMBINED and row.is_finite and not is_analog(row))
    tree = world_experiment(world._replace(tree=ADVICE_WORLDS[name].tree), row.entry.tree)
    place.write_text(json.dumps({"method": row.words, "experiment": tree}, indent=1) + "\n")
    return row.words, tree


def compared(name: str, folder: Path, budget: str, draw_only: bool) -> list[str] | None:
    """Return a row of the table; None if runs are missing."""
    place = folder / f"{name}.json"
    if draw_only and not (place.is_file() and (folder / f"{name}-optuna.json").is_file()):
        return None
    world = ADVICE_WORLDS[name]
    best_single(name, folder)
    advised(name, folder, budget)
    best_trial(name, folder, json.loads(place.read_text())["seconds"])
    if not draw_only:
        study = make_study("advise", advice_designs(world, folder), ADVICE_SEEDS)
        run_study(study, Store(folder / name, "advise"), workers=2)
    found = advice_gains(world, folder)
    if found is None:
        return None

    def over(label: str) -> str:
        gain = found.over[label]
        return f"{gain.mean:+.3f} ({gain.low:+.3f} to {gain.high:+.3f}), {gain.verdict}"

    changed = " ".join(map(_as_arguments, found.keys, found.keys.values()))
    singly = f"{found.method}: {over('league')}"
    return [world.title, changed, f"{found.accuracy:.3f}", over("paper"), singly, over("optuna")]


def _as_arguments(key: str, value: Any) -> str:
    """Write a key as it is given on the command line: a part by its name, then its parameters."""
    if not isinstance(value, dict):
        return f"`{key}={value}`"
    return " ".join([f"`{key}={value['name']}`", *(f"`{key}.{k}={v}`" for k, v in value.items() if k != "name")])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worlds", nargs="*", choices=[[], *ADVICE_WORLDS], help="default: all")
    parser.add_argument("--budget", default="6m", help="of the advice, on the clock with two workers")
    parser.add_argument("--draw-only", action="store_true")
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "advice" / "benchmark")
    given = parser.parse_args()
    race_budget(given.budget)
    given.results.mkdir(parents=True, exist_ok=True)
    heads = [
        "world",
        "advice",
        "its mean accuracy",
        "over the paper's design",
        "over the league's best single method (for drives: tuned in the paper's cell)",
        "over Optuna's best",
    ]
    rows = [
        row
        for name in given.worlds or ADVICE_WORLDS
        if (row := compared(name, given.results, given.budget, given.draw_only))
    ]
    print("\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)))


if __name__ == "__main__":
    main()
