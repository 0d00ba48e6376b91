"""Two schedulers on paired seeds: same data, same fading, same batches, so the difference is the scheduler's.

python examples/compare.py
"""

import fedtide

BASE = {
    "data": {"name": "synthetic", "num_train": 2000, "num_test": 500, "num_shards": 40},
    "fleet": {"num_devices": 20},
    "policy": {"limit": 4},
    "radio": {"num_symbols": 30_000},
    "timeline": {"horizon": 4.0},
    "learning": {"model": "softmax", "local_epochs": 1, "learning_rate": 0.05, "evaluate_every": 1.0},
}


def main(trainer: str = "native", seeds: int = 3) -> list[float]:
    """Print and return the gain of proposed over random, seed by seed."""
    base = fedtide.experiment(BASE, **{"learning.trainer": trainer})
    compared = fedtide.compare(
        {name: {"policy.scheduler": name} for name in ("random", "proposed")}, base=base, seeds=seeds
    )
    final = compared.values("final_accuracy")
    gains = [ours - final["random"][seed] for seed, ours in final["proposed"].items()]
    for seed, gain in enumerate(gains):
        ours, theirs = final["proposed"][seed], final["random"][seed]
        print(f"seed {seed}: proposed {ours:.3f}, random {theirs:.3f}, gain {gain:+.3f}")
    print(f"mean gain {sum(gains) / len(gains):+.3f}")
    print(compared)  # by the mean accuracy over the run, with the paired 95 % interval
    return gains


if __name__ == "__main__":
    main()
