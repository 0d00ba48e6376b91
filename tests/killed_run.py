"""A run in a process of its own, to be killed by test_resume.py: python killed_run.py FOLDER. Checkpoints come often."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np

import fedtide
from fedtide.learning.trainer import LocalWork, Score, batches
from fedtide.rng import stream
from fedtide.runs import folder as run_folder
from fedtide.types import Job
from helpers import small, small_dataset

EXPERIMENT = small({"timeline": {"horizon": 45.0}, "fleet": {"num_devices": 7}, "radio": {"num_symbols": 120}})
DATASET = small_dataset()


class NumpyTrainer:
    """Softmax regression in NumPy: quick to import, real to learn."""

    def initial_model(self, seed: int) -> np.ndarray:
        return stream(seed, "initial_model").uniform(-0.1, 0.1, 195).astype(np.float32)

    def _gradient(self, model: np.ndarray, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        flat = images.reshape(len(images), -1)
        logits = flat @ model[:192].reshape(3, 64).T + model[192:]
        share = np.exp(logits - logits.max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        error = (share - np.eye(3, dtype=np.float32)[labels]) / len(labels)
        return np.concatenate([(error.T @ flat).ravel(), error.sum(axis=0)]).astype(np.float32), share

    def train(self, jobs: Sequence[Job]) -> np.ndarray:
        updates = []
        for job in jobs:
            here = job.start.copy()
            visited, bounds = batches(0, job.device, job.version, job.indices, LocalWork(4, 1))
            for batch in np.split(visited, bounds[1:-1]):
                gradient, _ = self._gradient(here, job.samples.images[batch], job.samples.labels[batch])
                here -= np.float32(job.learning_rate) * gradient
            updates.append(here - job.start)
        return np.stack(updates)

    def evaluate(self, model: np.ndarray, samples: Any) -> Score:
        _, share = self._gradient(model, samples.images, samples.labels)
        right = share[np.arange(len(share)), samples.labels]
        return Score(float((share.argmax(axis=1) == samples.labels).mean()), float(-np.log(right).mean()))


def main(folder: str) -> fedtide.Result:
    from fedtide.engine.system import build

    run_folder.CHECKPOINT_SECONDS = 0.02
    return fedtide.simulate(EXPERIMENT, folder, system=build(EXPERIMENT, dataset=DATASET), trainer=NumpyTrainer())


if __name__ == "__main__":
    main(sys.argv[1])
