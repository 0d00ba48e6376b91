"""The job on Flower's simulation engine.

One Ray actor per core, each with one thread. An actor reads the data once and keeps it: the fastest that a client app can do.
No client evaluates. Flower has no virtual clock, so its rounds are synchronous.
"""

from __future__ import annotations

import os
from typing import Any

os.environ["FLWR_TELEMETRY_ENABLED"] = os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"

import flwr
import torch
from flower_client import client_app
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from job import CORES, JOB, Laps, load
from network import CNN, accuracy

server_app = ServerApp()


@server_app.main()
def serve(grid: Grid, _: Context) -> None:
    torch.manual_seed(0)
    laps, module = Laps(), CNN()

    def after(number: int, _: ArrayRecord) -> None:
        if number:
            laps.lap()

    share: dict[str, Any] = {"fraction_train": JOB.clients_per_round / JOB.num_devices, "fraction_evaluate": 0.0}
    strategy = FedAvg(**share, min_available_nodes=JOB.num_devices)
    result = strategy.start(grid, ArrayRecord(module.state_dict()), JOB.all_rounds, evaluate_fn=after)
    module.load_state_dict(result.arrays.to_torch_state_dict())
    laps.report("flower", flwr.__version__, accuracy(module, load()))


if __name__ == "__main__":
    config: Any = {
        "init_args": {"num_cpus": CORES, "include_dashboard": False, "logging_level": "error"},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    }
    run_simulation(server_app, client_app, JOB.num_devices, backend_config=config)
