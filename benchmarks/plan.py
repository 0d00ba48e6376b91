"""What a world costs before anything is trained: a plan with a 5G modem, or with geometry, correlated fading and availability,
against one with Rayleigh fading and Shannon's capacity.

    python benchmarks/plan.py [num_devices]

The plans are made by turns in one process, and the least of several processor times is taken: the machine may be busy with
other work. First the whole of `fedtide.plan`, data and all, then timeline and ticks alone, of data that is dealt out already.
"""

from __future__ import annotations

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


if __name__ == "__main__":
    main()
