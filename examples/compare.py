"""Two schedulers on paired seeds: same data, same fading, same batches, so the difference is the scheduler's.

python examples/compare.py
"""

from statistics import mean

import fedtide

BASE = {
    "data": {"name": "synthetic", "num_train": 2000, "num_test": 500, "num_shards": 40},
    "fleet": {"num_devices": 20},
    "policy": {"limit": 4},
    "radio": {"num_symbols": 30_000},
    "timeline": {"horizon": 4.0},
    "learning": {"model": "softmax", "local_epochs": 1, "learning_rate": 0.05, "evaluate_every": 1.0},
}


def accuracy(scheduler: str, seed: int, trainer: str) -> float:
    """Run one experiment and return its final test accuracy."""
    policy = {**BASE["policy"], "scheduler": scheduler}
    learning = {**BASE["learning"], "trainer": trainer}
    result = fedtide.simulate(fedtide.experiment({**BASE, "seed": seed, "policy": policy, "learning": learning}))
    return result.rounds[-1].test_accuracy


def main(trainer: str = "native", seeds: int = 3) -> list[float]:
    """Print and return the gain of data_importance over random, seed by seed."""
    gains = []
    for seed in range(seeds):
        ours, theirs = (accuracy(scheduler, seed, trainer) for scheduler in ("data_importance", "random"))
        gains.append(ours - theirs)
        print(f"seed {seed}: data_importance {ours:.3f}, random {theirs:.3f}, gain {gains[-1]:+.3f}")
    print(f"mean gain {mean(gains):+.3f}")
    return gains


if __name__ == "__main__":
    main()
