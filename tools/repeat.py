"""Repeat stored runs and compare every number, to the last bit, on the instruction path on which they were made.

python tools/repeat.py [STORE] [--count 20] [--seed 0]    repeats a random sample; exits with 1 if anything differs
python tools/repeat.py [STORE] --unknown [--count 20]     repeats runs that do not say their version, commit or seconds; where the
                                                          bits are the same, the new result takes the place of the old one

Each repeated run is kept in STORE/.repeated until all are done, so the command can be stopped and called again.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import numpy as np

from fedtide import config
from fedtide.studies import RunResult, Store, Study
from fedtide.studies.instruction_paths import PathPlan
from fedtide.studies.run import Outcome, run_study
from fedtide.studies.spec import Run

CHANGING = {"seconds"}  # the one total that may differ between repetitions
NEWER = {"symbols_sent", "bits_down"}  # columns that the oldest results do not have


def is_unknown(result: RunResult) -> bool:
    """Say whether a result lacks what made it, or how long it took."""
    known = result.provenance or {}
    return not (known.get("fedtide") and known.get("commit") and result.totals.get("seconds"))


def differences(old: RunResult, new: RunResult) -> list[str]:
    """Return the names of columns and totals that are not the same, to the last bit."""
    names = sorted({*old.columns, *new.columns} - (NEWER - {*old.columns}))
    found = [name for name in names if not np.array_equal(old.column(name), new.column(name), equal_nan=True)]
    totals = {*old.totals, *new.totals} - CHANGING
    found += sorted(name for name in totals if old.totals.get(name) != new.totals.get(name))
    sent = old.uploads_if_stored()
    if sent is not None:
        again = new.uploads
        for name in ("time", "num_ready", "counts", "picked", "age", "capacity", "lost"):
            if not np.array_equal(getattr(sent, name), getattr(again, name)):
                found.append(f"uploads: {name}")
    return found


def chosen_runs(store: Store, unknown: bool, count: int | None, seed: int) -> list[Run]:
    """Return the runs to repeat."""
    names = sorted(name for name in store.names() if not unknown or is_unknown(store.load(name)))
    if not unknown or count is not None:
        shuffled = np.random.default_rng(seed).permutation(len(names))
        names = sorted(names[place] for place in shuffled[: count or 20])
    made = [(name, config.experiment(store.load(name).experiment)) for name in names]
    runs = [Run(f"{name} on {store.load(name).path}", experiment, name) for name, experiment in made]
    return sorted(runs, key=lambda run: run.experiment.seed)


def main() -> int:
    """Repeat, compare, and say what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", nargs="?", default="results/paper")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--unknown", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    store = Store(Path(given.store))
    again = Store(store.folder / ".repeated")
    runs = chosen_runs(store, given.unknown, given.count, given.seed)
    todo = [run for run in runs if not again.has(run.name)]
    print(f"{len(runs)} of {len(store.names())} runs, {len(runs) - len(todo)} of them repeated before", flush=True)

    def tell(outcome: Outcome) -> None:
        old = store.load(outcome.run.name)
        found = differences(old, outcome.result) if outcome.result else [outcome.reason]
        print(f"{outcome.run.label}, seed {outcome.run.experiment.seed}: {', '.join(found) or 'same bits'}", flush=True)

    path = {run.name: store.load(run.name).path for run in todo}
    run_study(Study("repeated", tuple(todo)), again, workers=given.workers, plan=PathPlan(todo, path, []), on_done=tell)
    same = [
        run.name for run in runs if again.has(run.name) and not differences(store.load(run.name), again.load(run.name))
    ]
    if given.unknown:
        for name in same:
            store.save(name, again.load(name))
        store.compact(store.studies[0])
    if len(same) == len(runs):
        shutil.rmtree(again.folder, ignore_errors=True)
    print(f"{len(same)} of {len(runs)} runs repeat to the bit")
    return 0 if len(same) == len(runs) else 1


if __name__ == "__main__":
    sys.exit(main())
