"""What FLGo asks of a benchmark: who makes the task, who loads it, who computes losses."""

from __future__ import annotations

from typing import Any

import torch
from flgo.benchmark.toolkits.cv.classification import FromDatasetGenerator, FromDatasetPipe, GeneralCalculator
from job import load
from torch.utils.data import TensorDataset

data = load()
train_data = TensorDataset(torch.from_numpy(data.images), torch.from_numpy(data.labels))
test_data = TensorDataset(torch.from_numpy(data.test_images), torch.from_numpy(data.test_labels))


class TaskGenerator(FromDatasetGenerator):
    def __init__(self) -> None:
        super().__init__(benchmark="flgo_mnist", train_data=train_data, val_data=None, test_data=test_data)


class TaskPipe(FromDatasetPipe):
    """Loads the task."""

    class TaskDataset(FromDatasetPipe.TaskDataset):
        """FLGo's subset with the method that PyTorch's loader has asked for since FLGo was written."""

        def __getitems__(self, which: list[int]) -> list[Any]:
            return [self[each] for each in which]

    def __init__(self, task_path: str) -> None:
        super().__init__(task_path, train_data=train_data, val_data=None, test_data=test_data)


def held(_: Any = None) -> list[list[int]]:
    """Return the sample numbers of every client."""
    return data.held.tolist()


TaskCalculator = GeneralCalculator
