"""A run of a large fleet in a process of its own, to be killed: python large_run.py FOLDER TIMELINE NUM_DEVICES ROUNDS.

The devices hold the same few samples and know their updates, so that a run is all server. Checkpoints come often.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np

import fedtide
from fedtide.devices.fleet import Fleet
from fedtide.engine.making import system_durations
from fedtide.engine.system import System, build
from fedtide.runs import RoundRecord
from fedtide.runs import folder as run_folder
from helpers import FakeTrainer, small, small_dataset

FRAMEWORKS = {"periodic": "periodic", "per_arrival": "fedasync"}


def experiment(timeline: str, num_devices: int, horizon: float = 2.0, **keys: Any) -> fedtide.Experiment:
    return small(
        {
            "framework": FRAMEWORKS[timeline],
            "fleet": {"num_devices": num_devices, "min_duration": 0.3},
            "timeline": {"horizon": horizon},
            "policy": {"scheduler": "random", "limit": 5},
            "radio": {"channel": "rician", "num_symbols": 400},
            "learning": {"evaluate_every": 1e9},
        },
        keys,
    )


def system(made: fedtide.Experiment) -> System:
    """Every device holds the same samples."""
    dataset, count = small_dataset(), made.fleet.num_devices
    mine = np.arange(6)
    labels = np.bincount(dataset.train.labels[mine], minlength=dataset.num_labels)
    held = np.full(count, len(mine))
    fleet = Fleet(system_durations(made), [mine] * count, held, np.tile(labels, (count, 1)))
    return build(made, dataset=dataset, fleet=fleet)


class Enough(fedtide.FedtideError):
    """The run has come as far as it should."""


def until(count: int) -> Callable[[RoundRecord, int], None]:
    def on_round(record: RoundRecord, total: int) -> None:
        if record.index >= count:
            raise Enough

    return on_round


def main(folder: str, timeline: str, num_devices: int, rounds: int) -> None:
    run_folder.CHECKPOINT_SECONDS = 0.02
    made = experiment(timeline, num_devices)
    with contextlib.suppress(Enough):
        fedtide.simulate(made, folder, system=system(made), trainer=FakeTrainer(), on_round=until(rounds))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
