"""The job on FLGo's virtual clock with its FedBuff, an aggregation per R arrivals.

Clients train on threads of one process (FLGo's `parallel_type='t'`) with PyTorch's own threads off; its processes would be
started anew, with all clients' data, for every training. FLGo trains a client when its virtual clock
sends it the model.
"""

from __future__ import annotations

import importlib.metadata
import os
import tempfile

import flgo
import flgo.benchmark.partition
import flgo_mnist.core
import torch
from flgo.algorithm import fedbuff
from job import IN_FLIGHT, JOB, THREADS, Laps
from network import CNN, accuracy

laps, trained = Laps(), [0]


class Server(fedbuff.Server):
    """FedBuff's server, which says when a round ends."""

    def iterate(self) -> bool:
        updated = super().iterate()
        trained[0] += len(self.selected_clients)
        if updated:
            laps.lap(trained[0] * JOB.samples_per_client * JOB.local_epochs)
            trained[0] = 0
        return updated


class Algorithm:
    """What FLGo takes for the module of an algorithm."""

    Server, Client = Server, fedbuff.Client


class Dealt(flgo.benchmark.partition.BasicPartitioner):
    """Gives every client what the job says."""

    num_clients = JOB.num_devices

    def __call__(self, data: object) -> list[list[int]]:
        return flgo_mnist.core.held(data)


def make() -> CNN:
    """Return the CNN; of a class FLGo would inherit, and a Sequential has an arithmetic of its own."""
    return CNN()


OPTION = {
    "num_rounds": JOB.all_rounds,
    "proportion": IN_FLIGHT / JOB.num_devices,
    "algo_para": [JOB.clients_per_round / JOB.num_devices, 1.0],  # the buffer's share of the clients, the server's step
    "num_epochs": JOB.local_epochs,
    "batch_size": JOB.batch_size,
    "learning_rate": JOB.learning_rate,
    "optimizer": "SGD",
    "train_holdout": 0.0,
    "responsiveness": "LN-100-1000",  # log-normal latencies of mean 100
    "num_parallels": THREADS,
    "parallel_type": "t",
    "eval_interval": -1,
    "no_log_console": True,
    "no_tqdm": True,
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        flgo.gen_task_by_(flgo_mnist, Dealt(), "task")
        runner = flgo.init("task", Algorithm, OPTION, model=flgo.convert_model(make, "cnn"))
        torch.set_num_threads(1)
        runner.run()
        laps.report("flgo", importlib.metadata.version("flgo"), accuracy(runner.model, flgo_mnist.core.data))


if __name__ == "__main__":
    main()
