"""APPFL's virtual clock (`appfl.vsim`) under its FedAsync with fixed durations, without training: who arrives when, how stale.

A client's duration is APPFL's time per step, 1 here, times its steps, 1, times its factor; what is sent takes no time.
"""
# ruff: noqa: E402 - what comes before an import has to

from __future__ import annotations

import importlib.metadata
import json
import logging
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

# As in appfl_job.py: torchvision's wheel is built for CUDA
for operator in ("nms", "qnms"):
    torch.library.define(f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from appfl.agent import SimServerAgent
from appfl.vsim import AsyncSimDriver, ClientProfile
from job import RESULT

asked = json.loads(sys.argv[1])
durations, HERE = asked["durations"], Path(__file__).resolve().parent


class Client:
    """A client that leaves the model as it is, in one step."""

    def __init__(self, name: str) -> None:
        self._name, self._model = name, {}

    def get_id(self) -> str:
        return self._name

    def load_parameters(self, model: dict[str, Any]) -> None:
        self._model = model

    def train(self) -> None:
        return

    def get_parameters(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return self._model, {"current_local_steps": 1}


LEAN = {"optimize_memory": False}  # as in appfl_job.py: it collects garbage at every arrival
SETTINGS = {
    "model_configs": {"model_path": str(HERE / "network.py"), "model_name": "CNN"},
    "server_configs": LEAN,
    "algorithm_configs": {
        "num_global_epochs": asked["arrivals"],
        "scheduler": "AsyncScheduler",
        "scheduler_kwargs": {"num_clients": len(durations), **LEAN},
        "aggregator": "FedAsyncAggregator",
        "aggregator_kwargs": {"num_clients": 1, **LEAN},
        "device": "cpu",
    },
    "log_configs": {"logging_output_dirname": "logs"},
}

with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    names = [str(device) for device in range(len(durations))]
    server = SimServerAgent(SETTINGS, num_clients=len(durations))
    profiles = {
        name: ClientProfile(compute_factor=float(each), bandwidth=math.inf)
        for name, each in zip(names, durations, strict=True)
    }
    clients = [Client(name) for name in names]
    driver = AsyncSimDriver(server, clients, profiles, len(durations), logging.getLogger("clock"), base_step_time=1.0)
    driver.run()
arrived = [(record["vtime"], int(record["cid"]), record["staleness"]) for record in driver.history]
print(RESULT + json.dumps({"version": importlib.metadata.version("appfl"), "arrived": arrived}))
