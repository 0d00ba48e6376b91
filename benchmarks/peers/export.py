"""Writes the data of the job as fedtide's experiment deals it out: `python export.py FILE`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from job import JOB, Data, save

from fedtide import config
from fedtide.config import Experiment
from fedtide.engine.system import System, build


def experiment(**more: Any) -> Experiment:
    """Return the job as an experiment: the paper's default one with plain SGD at a constant rate."""
    learning = {
        "local_epochs": JOB.local_epochs,
        "batch_size": JOB.batch_size,
        "learning_rate": JOB.learning_rate,
        "schedule": "constant",
        "proximal": 0.0,
        "evaluate_every": 1e6,  # at the end only
    }
    policy = {"limit": JOB.clients_per_round}
    return config.experiment({"fleet": {"num_devices": JOB.num_devices}, "policy": policy, "learning": learning}, more)


def exported(system: System) -> Data:
    train, test = system.dataset.train, system.dataset.test
    return Data(
        images=train.floats(),
        labels=train.labels.astype(np.int64),
        test_images=test.floats(),
        test_labels=test.labels.astype(np.int64),
        held=np.stack(system.fleet.partition),
    )


if __name__ == "__main__":
    save(Path(sys.argv[1]), exported(build(experiment())))
