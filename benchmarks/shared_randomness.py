"""What pairing saves if servers at different paces share fading and batches: the table of docs/studies.md.

    python benchmarks/shared_randomness.py            does the runs that results/sharing/runs.csv lacks, 15 minutes on one core
    python benchmarks/shared_randomness.py --table    prints the table

The plan, made before any run: five arms of the paper's figure of periods (N=40, R=8, random scheduling, non-i.i.d.) over a quarter
of its horizon, seeds 0 to 7, once by default and once with radio.coherence_time=T_max/8 and learning.seed_by=job. The metric is
the mean accuracy. Each arm is paired with T_max/4. Reported is the variance of the paired difference divided by the sum of the two
arms' variances: 1 means that pairing saves nothing, 0.5 that half as many seeds do. Its 95 % interval comes from the F
distribution of var(x + y) / var(x - y), which is exact for normal numbers whose variances are equal. The last row sums
numerators and denominators over all pairs; its interval is a bootstrap of the seeds, which is too short with so few of them.

Time ran out: the stored runs of T_max/8 end with seed 4. No difference or ratio had been computed by then.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import fdtri

import fedtide

STORE = Path(__file__).resolve().parents[1] / "results" / "sharing" / "runs.csv"
SEEDS, REFERENCE, COSTLIEST, HORIZON, CHANCE, RESAMPLES = range(8), "T_max/4", "T_max/8", 8.75, 0.1, 10_000
BASE = {"policy.scheduler": "random", "timeline.horizon": HORIZON}
ARMS: dict[str, dict[str, Any]] = {
    REFERENCE: {},
    "T_max": {"timeline.period": 1.0},
    "FedAvg": {"framework": "fedavg"},
    "T_max/2": {"timeline.period": 0.5},
    COSTLIEST: {"timeline.period": 0.125},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "shared": {"radio.coherence_time": 0.125, "learning.seed_by": "job"},
}


def accuracy(arm: str, option: str, seed: int) -> float:
    """Return the mean accuracy of a run: every model counts until the next one, chance before the first."""
    result = fedtide.simulate(fedtide.experiment(BASE, ARMS[arm], OPTIONS[option], seed=seed), threads=1)
    time = [0.0, *(each.time for each in result.rounds), HORIZON]
    return float(np.array([CHANCE, *(each.test_accuracy for each in result.rounds)]) @ np.diff(time)) / HORIZON


def stored() -> dict[tuple[str, str, int], float]:
    """Return the mean accuracy of every run that was done."""
    if not STORE.exists():
        return {}
    with STORE.open(newline="") as file:
        return {(row["arm"], row["option"], int(row["seed"])): float(row["accuracy"]) for row in csv.DictReader(file)}


def run() -> None:
    """Do the runs that are missing, a seed at a time, those of the costliest arm last."""
    done = stored()
    STORE.parent.mkdir(exist_ok=True)
    keys = [(arm, option, seed) for seed in SEEDS for arm in ARMS for option in OPTIONS]
    for key in sorted(keys, key=lambda key: key[0] == COSTLIEST):
        if key not in done:
            done[key] = accuracy(*key)
            with STORE.open("w", newline="") as file:
                rows = [["arm", "option", "seed", "accuracy"], *([*each, repr(done[each])] for each in sorted(done))]
                csv.writer(file, lineterminator="\n").writerows(rows)


def ratio(x: Any, y: Any) -> tuple[float, float, float]:
    """Return var(x - y) / (var x + var y) with its interval."""
    n, q = len(x), np.var(x + y, ddof=1) / np.var(x - y, ddof=1)
    bound = float(fdtri(n - 1, n - 1, 0.975))
    return tuple(float(2 / (1 + each)) for each in (q, q * bound, q / bound))  # type: ignore[return-value]


def complete(done: dict[tuple[str, str, int], float], *arms: str) -> list[int]:
    """Return the seeds with all runs of these arms."""
    return [seed for seed in SEEDS if all((arm, option, seed) in done for arm in arms for option in OPTIONS)]


def pooled(values: dict[str, Any], seeds: Any) -> float:
    """Return the ratio of the sums over all pairs, on these seeds."""
    x, others = values[REFERENCE][seeds], [values[arm][seeds] for arm in ARMS if arm != REFERENCE]
    return float(sum(np.var(x - y) for y in others) / sum(np.var(x) + np.var(y) for y in others))


def table() -> str:
    """Return the table."""
    done = stored()
    text = [
        "| pair | seeds | difference | spread of it | ratio | difference, shared | spread, shared | ratio, shared |"
    ]
    text += ["| --- |" + " ---: |" * 7]
    for arm in [each for each in ARMS if each != REFERENCE]:
        seeds = complete(done, arm, REFERENCE)
        cells = [f"{arm} − {REFERENCE}", str(len(seeds))]
        for option in OPTIONS:
            x, y = (np.array([done[each, option, seed] for seed in seeds]) for each in (arm, REFERENCE))
            found, low, high = ratio(x, y)
            cells += [
                f"{np.mean(x - y):+.4f}",
                f"{np.std(x - y, ddof=1):.4f}",
                f"{found:.2f} ({low:.2f} to {high:.2f})",
            ]
        text.append("| " + " | ".join(cells) + " |")
    seeds = complete(done, *ARMS)
    runs = [{arm: np.array([done[arm, option, seed] for seed in seeds]) for arm in ARMS} for option in OPTIONS]
    resampled = np.random.default_rng(0).integers(len(seeds), size=(RESAMPLES, len(seeds)))
    both = [np.array([pooled(values, chosen) for chosen in resampled if np.ptp(chosen)]) for values in runs]
    whole = [pooled(values, np.arange(len(seeds))) for values in runs]
    cells = ["all pairs", str(len(seeds))]
    for point, drawn in zip(whole, both, strict=True):
        low, high = np.quantile(drawn, [0.025, 0.975])
        cells += ["", "", f"{point:.2f} ({low:.2f} to {high:.2f})"]
    low, high = np.quantile(both[1] / both[0], [0.025, 0.975])
    text += ["| " + " | ".join(cells) + " |", ""]
    text.append(f"Shared over default, all pairs: {whole[1] / whole[0]:.2f} (bootstrap {low:.2f} to {high:.2f}).")
    return "\n".join(text)


if __name__ == "__main__":
    if "--table" not in sys.argv:
        run()
    print(table())
