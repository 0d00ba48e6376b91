"""FLGo's virtual clock under its FedAsync with fixed latencies, without training: who arrives when, how stale.

FLGo's time goes in steps of 1. A client that arrived gets its next model in the step after, so a latency of T - 1 makes jobs of T.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import tempfile
from typing import Any

import flgo
import flgo.benchmark.partition
import flgo.simulator.base
import flgo_mnist.core
from flgo.algorithm import fedasync
from job import RESULT
from network import CNN

asked = json.loads(sys.argv[1])
arrived: list[tuple[float, int, int]] = []  # time, client, staleness


class Server(fedasync.Server):
    """FedAsync's server, which writes down what it receives."""

    def package_handler(self, received_packages: dict[str, Any]) -> bool:
        for client, model in zip(self.received_clients, received_packages["model"], strict=True):
            arrived.append((self.gv.clock.current_time, int(client), int(self.current_round - model._round)))
        return super().package_handler(received_packages)


class Client(fedasync.Client):
    """A client that leaves the model as it is."""

    def train(self, model: object) -> None:
        return


class Algorithm:
    """What FLGo takes for the module of an algorithm."""

    Server, Client = Server, Client


class Fixed(flgo.simulator.base.BasicSimulator):
    """Clients are always there, and each has its own latency."""

    def initialize(self, *_: object, **__: object) -> None:
        self.set_variable(self.all_clients, "latency", [each - 1 for each in asked["durations"]])
        self.set_variable(self.all_clients, "prob_available", [1.0] * len(self.all_clients))


class Dealt(flgo.benchmark.partition.BasicPartitioner):
    """Gives every client its samples."""

    num_clients = len(asked["durations"])

    def __call__(self, data: object) -> list[list[int]]:
        return flgo_mnist.core.held(data)


def make() -> CNN:
    """Return a model; of a class FLGo would inherit, and a Sequential has an arithmetic of its own."""
    return CNN()


OPTION = {
    "num_rounds": asked["arrivals"],
    "proportion": 1.0,
    "sample": "full",
    "eval_interval": -1,
    "train_holdout": 0.0,
    "no_log_console": True,
    "no_tqdm": True,
}

with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    flgo.gen_task_by_(flgo_mnist, Dealt(), "task")
    flgo.init("task", Algorithm, OPTION, model=flgo.convert_model(make, "cnn"), Simulator=Fixed).run()
print(RESULT + json.dumps({"version": importlib.metadata.version("flgo"), "arrived": arrived}))
