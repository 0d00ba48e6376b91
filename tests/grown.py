"""Studies whose results are made by hand: curves that rise, differ by seed, and have clocks of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedtide import config
from fedtide.studies.results import RunResult, _column_arrays
from fedtide.studies.spec import Study, make_study
from stored import TINY


def grown(tree: dict[str, Any], level: float, points: int, isa: str = "avx2", **more: float) -> RunResult:
    """Return a run that rises to a level; more: columns that grow by so much with every evaluation."""
    experiment = tree if "seed" in tree else config.dump(config.experiment(tree))
    rng = np.random.default_rng(int(experiment["seed"]) * 1000 + points)
    time = np.linspace(0, experiment["timeline"]["horizon"], points + 1)[1:]
    rise = level * (1 - np.exp(-5 * time / time[-1])) + 0.02 * rng.standard_normal(points)
    ticks = np.arange(1, points + 1)
    columns: dict[str, Any] = {
        "index": ticks.tolist(),
        "time": time.tolist(),
        "test_accuracy": np.clip(rise, 0, 1).round(4).tolist(),
        "test_loss": [1.0] * points,
        "train_loss": (2.5 - 2 * np.clip(rise, 0, 1)).tolist(),
        "symbols": (1000.0 * ticks).tolist(),
        "bits": np.cumsum(rng.integers(100, 900, points)).astype(float).tolist(),
        "samples_used": (3 * ticks).tolist(),
        "samples_trained": (5 * ticks).tolist(),
        **{name: (step * ticks).tolist() for name, step in more.items()},
    }
    totals: dict[str, float | None] = {
        "aggregations": points, "uploads": 2 * points, "mean_kept_share": 0.5, "mean_age": 0.0,
        "mean_label_variance": 2.0, "proved_minimal_share": None, "overhead_bits": 7, "seconds": 2.0,
    }  # fmt: skip
    return RunResult(experiment, _column_arrays(columns), totals, {"isa": isa, "fedtide": "0.1"})


def studied(labels: dict[str, int], seeds: int = 4, **more: float) -> tuple[Study, dict[str, dict[int, RunResult]]]:
    """Return a study of variants with so many evaluations each, and its results; each variant is better than the last."""
    base = {**TINY, "timeline": {"horizon": 8}, "fleet": {"num_devices": 200}}
    variants = {label: {"policy": {"limit": number + 1}} for number, label in enumerate(labels)}
    study = make_study("grown", variants, range(seeds), base)
    results: dict[str, dict[int, RunResult]] = {label: {} for label in labels}
    for run in study.runs:
        number = list(labels).index(run.label)
        level = 0.6 + 0.3 * number / len(labels)
        results[run.label][run.experiment.seed] = grown(config.dump(run.experiment), level, labels[run.label], **more)
    return study, results
