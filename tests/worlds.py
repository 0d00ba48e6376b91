"""Every scenario of the package, small enough for a test."""

from __future__ import annotations

from typing import Any

import fedtide
from fedtide import config
from fedtide.config import presets

NAMES = presets.scenario_names()
NUM_TRAIN, PERIODS = 1200, 10


def shrunk(name: str, **more: Any) -> dict[str, Any]:
    """Return keys that make a scenario quick to learn, and its world what it is: devices, radio and times stay."""
    full = config.experiment(scenario=name)
    return config.merge_nested(
        {
            "scenario": name,
            "data": {"name": "synthetic", "num_train": NUM_TRAIN, "num_test": 50},
            # as long for a sample as for all those in whose place it is
            "fleet": {"cycles_per_sample": full.fleet.cycles_per_sample * 60_000 / NUM_TRAIN},
            "timeline": {"horizon": PERIODS * full.timeline.period},
            "learning": {"model": "softmax", "batch_size": 10, "evaluate_every": 0.0},
        },
        config.nest(more),
    )


def small_world(name: str, **more: Any) -> fedtide.Experiment:
    """Return a scenario as an experiment that takes a moment."""
    return config.experiment(shrunk(name, **more))
