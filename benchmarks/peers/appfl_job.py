"""The job on APPFL's virtual clock (`appfl.vsim`) with its FedBuff, an aggregation per R arrivals.

Its driver trains clients one after another in one process, so PyTorch's threads get all cores. APPFL's `optimize_memory`
collects garbage several times per client; it is off, which is faster.
"""
# ruff: noqa: E402 - what comes before an import has to

from __future__ import annotations

import importlib.metadata
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

import torch

# APPFL imports torchvision, whose wheel is built for CUDA and cannot load its operators beside a CPU build of PyTorch. Those
# that it describes at import are declared here, so that the import goes through; nothing here uses them.
for operator in ("nms", "qnms"):
    torch.library.define(f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import numpy as np
from appfl.agent import SimClientAgent, SimServerAgent
from appfl.vsim import AsyncSimDriver, ClientProfile
from job import IN_FLIGHT, JOB, THREADS, Laps, load
from network import CNN, accuracy, client_tensors
from torch.utils.data import TensorDataset

laps, trained = Laps(), [0]
HERE = Path(__file__).resolve().parent


class Client(SimClientAgent):
    """APPFL's client, whose trainings are counted."""

    def train(self, **more: Any) -> None:
        super().train(**more)
        trained[0] += JOB.samples_per_client * JOB.local_epochs


class Server(SimServerAgent):
    """APPFL's server, which says when its buffer was full."""

    arrived = 0

    def global_update(self, *given: Any, **more: Any) -> Any:
        model = super().global_update(*given, **more)
        self.arrived += 1
        if self.arrived % JOB.clients_per_round == 0:
            laps.lap(trained[0])
            trained[0] = 0
        return model


def settings() -> dict[str, Any]:
    lean = {"optimize_memory": False}
    training = {
        "mode": "epoch",
        "num_local_epochs": JOB.local_epochs,
        "optim": "SGD",
        "optim_args": {"lr": JOB.learning_rate},
        "loss_fn": "CrossEntropyLoss",
        "metric_path": str(HERE / "appfl_metric.py"),
        "metric_name": "share_right",
        "train_batch_size": JOB.batch_size,
        "train_data_shuffle": True,
        "do_validation": False,
        **lean,
    }
    return {
        "model_configs": {"model_path": str(HERE / "network.py"), "model_name": "CNN"},
        "server_configs": lean,
        "algorithm_configs": {
            "num_global_epochs": JOB.all_rounds * JOB.clients_per_round,  # APPFL counts every arrival
            "scheduler": "AsyncScheduler",
            "scheduler_kwargs": {"num_clients": JOB.num_devices, **lean},
            "aggregator": "FedBuffAggregator",
            # it weighs an update by 1 / num_clients: those in the buffer
            "aggregator_kwargs": {
                "K": JOB.clients_per_round,
                "num_clients": JOB.clients_per_round,
                "alpha": 1.0,
                **lean,
            },
            "trainer": "VanillaTrainer",
            "trainer_kwargs": training,
            "device": "cpu",
        },
        "log_configs": {"logging_output_dirname": "logs"},
    }


def main() -> None:
    data, rng = load(), np.random.default_rng(0)
    torch.manual_seed(0)
    torch.set_num_threads(THREADS)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        names = [str(device) for device in range(JOB.num_devices)]
        server = Server(settings(), num_clients=JOB.num_devices)
        held = [TensorDataset(*client_tensors(data, device)) for device in range(JOB.num_devices)]
        clients = [Client(settings(), name, (mine,)) for name, mine in zip(names, held, strict=True)]
        for client in clients:
            client.optimize_memory = False  # of a setting for all, its clients do not hear
        profiles = {
            name: ClientProfile(compute_factor=factor)
            for name, factor in zip(names, rng.uniform(1, 4, len(names)), strict=True)
        }
        AsyncSimDriver(server, clients, profiles, IN_FLIGHT, logging.getLogger("job"), base_step_time=0.01).run()
        module = CNN()
        module.load_state_dict(server.get_parameters(serial_run=True))
        laps.report("appfl", importlib.metadata.version("appfl"), accuracy(module, data))


if __name__ == "__main__":
    main()
