"""The job as a bare loop in PyTorch: `python torch_job.py threads|processes`.

threads: one process, operations on all cores. processes: one process per core with one thread each, which is faster for a
model as small as this. Models go through pipes as vectors.
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.connection import Connection
from typing import NamedTuple

import numpy as np
import torch
from job import CORES, JOB, THREADS, Data, Laps, load
from network import CNN, accuracy, client_tensors, train
from torch.nn.utils import parameters_to_vector, vector_to_parameters


class Worker(NamedTuple):
    """Trains one client after another in one module that is made once."""

    module: CNN
    clients: list[tuple[torch.Tensor, torch.Tensor]]

    @torch.no_grad()
    def put(self, model: torch.Tensor) -> None:
        vector_to_parameters(model.clone(), self.module.parameters())

    def trained(self, model: torch.Tensor, devices: list[int]) -> torch.Tensor:
        """Return the sum of the clients' models [d]."""
        total = torch.zeros_like(model)
        for device in devices:
            self.put(model)
            train(self.module, *self.clients[device])
            total += parameters_to_vector(self.module.parameters()).detach()
        return total


def worker(data: Data) -> Worker:
    return Worker(CNN(), [client_tensors(data, device) for device in range(JOB.num_devices)])


def serve(pipe: Connection) -> None:
    """Train what comes through the pipe, on one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    mine = worker(load())
    while (order := pipe.recv()) is not None:
        model, devices = order
        pipe.send(mine.trained(torch.from_numpy(model), devices).numpy())


class Processes:
    """One process per core."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes = []
        for _ in range(CORES):
            ours, theirs = context.Pipe()
            context.Process(target=serve, args=(theirs,), daemon=True).start()
            self.pipes.append(ours)

    def trained(self, model: torch.Tensor, devices: list[int]) -> torch.Tensor:
        for number, pipe in enumerate(self.pipes):
            pipe.send((model.numpy(), devices[number::CORES]))
        return torch.from_numpy(np.sum([pipe.recv() for pipe in self.pipes], axis=0))

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send(None)


def main(way: str) -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    data = load()
    torch.set_num_threads(THREADS)
    mine = worker(data)
    crew = mine if way == "threads" else Processes()
    model = parameters_to_vector(mine.module.parameters()).detach()
    laps = Laps()
    for _ in range(JOB.all_rounds):
        devices = rng.choice(JOB.num_devices, JOB.clients_per_round, replace=False).tolist()
        model = crew.trained(model, devices) / JOB.clients_per_round
        laps.lap()
    if isinstance(crew, Processes):
        crew.close()
    mine.put(model)
    laps.report(f"pytorch-{way}", torch.__version__, accuracy(mine.module, data), parameters=len(model))


if __name__ == "__main__":
    main(sys.argv[1])
