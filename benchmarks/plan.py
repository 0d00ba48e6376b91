"""What a world costs before anything is trained: a plan with a 5G modem, or with geometry, correlated fading and availability,
against one with Rayleigh fading and Shannon's capacity.

    python benchmarks/plan.py [num_devices]
    python benchmarks/plan.py million

The plans are made by turns in one process, and the least of several processor times is taken: the machine may be busy with
other work. First the whole of `fedtide.plan`, data and all, then timeline and ticks alone, of data that is dealt out already.
With `million`: a plan of a million devices in one cell and in seven, once each.
"""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter

import fedtide
from fedtide import config
from fedtide.config import Experiment
from fedtide.engine.making import load_dataset, make_fleet
from fedtide.engine.system import build
from fedtide.engine.ticks import planned

REPEATS = 7
WORLDS = {
    "Rayleigh": {},
    "one cell": {"radio": {"coverage": "log_distance"}},
    "seven interfering cells": {"radio": {"coverage": {"name": "hex_grid", "p0_dbm": -80.0, "alpha": 0.8}}},
    "5G NR with HARQ (modem nr)": {"radio": {"modem": "nr"}},
    "geometry, correlation, availability": {
        "radio": {"coverage": "uma", "channel": {"name": "jakes", "doppler": 0.4}},
        "fleet": {"availability": "markov"},
    },
    "the same, walking": {
        "radio": {
            "coverage": {"name": "uma", "speed": 1.5},
            "channel": {"name": "jakes", "doppler": 0.4},
        },
        "fleet": {"availability": "markov"},
    },
}


def main() -> None:
    """Print how long each plan takes, and how many times Rayleigh's that is."""
    if sys.argv[1:] == ["million"]:
        million()
        return
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    base = {
        "data": {"name": "synthetic", "num_train": 2 * count, "num_test": 10, "partition": "iid"},
        "fleet": {"num_devices": count},
        "policy": {"scheduler": "random", "limit": 50},
        "timeline": {"horizon": 35.0},
    }
    experiments = {name: config.experiment(config.merge_nested(base, tree)) for name, tree in WORLDS.items()}
    dataset = load_dataset(experiments["Rayleigh"])
    fleet = make_fleet(experiments["Rayleigh"], dataset)

    def ticks(experiment: Experiment) -> None:
        for _ in planned(build(experiment, dataset=dataset, fleet=fleet)):
            pass

    print(f"N = {count:,}, {base['timeline']['horizon'] * 4:g} aggregations, random scheduling; least of {REPEATS}")
    for title, work in (("fedtide.plan", fedtide.plan), ("timeline and ticks alone", ticks)):
        best = Counter[str]()
        for _ in range(REPEATS):
            for name, experiment in experiments.items():
                begun = time.process_time()
                work(experiment)
                took = time.process_time() - begun
                best[name] = min(best[name] or took, took)
        for name, seconds in best.items():
            print(f"{title:26} {name:38} {seconds:6.2f} s {seconds / best['Rayleigh']:6.2f} times Rayleigh's")
        print(f"{title:26} seven cells: {best['seven interfering cells'] / best['one cell']:.2f} times one cell")


def million() -> None:
    """Print how long a plan of a million devices takes, in one cell and in seven, where only some of them are ready at a tick."""
    base = {
        "data": {"name": "synthetic", "num_train": 10_000, "num_test": 10, "partition": "virtual_labels"},
        "fleet": {"num_devices": 1_000_000},
        "policy": {"scheduler": "random", "limit": 700},
        "timeline": {"horizon": 2.5},
        "radio": {"channel": "rayleigh_by_device", "num_symbols": 4e6},
    }
    for name in ("one cell", "seven interfering cells"):
        begun = time.process_time()
        plan = fedtide.plan(config.experiment(config.merge_nested(base, WORLDS[name])))
        took, peak = time.process_time() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"N = 1,000,000 {name:26} {plan.summary['aggregations']} aggregations {took:6.1f} s, peak so far {peak:.2f} GiB"
        )


if __name__ == "__main__":
    main()
