"""The job on pfl-research: `python pfl_job.py` starts one worker per core, which is what its guide recommends.

Workers share a cohort through torch.distributed; each has one thread. The worker of rank 0 reports. pfl has no virtual clock,
so its rounds are synchronous. It takes a client's batches in the same order in every epoch.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any

from job import CORES, JOB, Data, Laps, load

RANK, ADDRESSES = "PFL_WORKER_RANK", "PFL_WORKER_ADDRESSES"


def free_ports() -> list[int]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(CORES)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def start_workers() -> int:
    """Start this script once per core; return 0 if all went well."""
    addresses = ",".join(f"localhost:{port}" for port in free_ports())
    started = [
        subprocess.Popen([sys.executable, __file__], env={**os.environ, RANK: str(rank), ADDRESSES: addresses})
        for rank in range(CORES)
    ]
    return max(abs(each.wait()) for each in started)


def work() -> None:
    import numpy as np
    import pfl.version
    import torch
    from network import CNN, accuracy
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel

    class Model(CNN):
        """The CNN with what pfl asks of a module."""

        def loss(self, images: Any, labels: Any) -> Any:
            self.train()
            return torch.nn.functional.cross_entropy(self(images), labels)

        def metrics(self, images: Any, labels: Any) -> dict[str, Any]:
            """Is asked in the first round only, which is not measured."""
            return {"samples": Weighted(0.0, len(labels))}

    class Watch(TrainingProcessCallback):
        def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Metrics]:
            laps.lap()
            return False, Metrics()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - pfl draws from it, and its workers have to draw alike
    data, laps, module = load(), Laps(), Model()
    tensors = [client(data, device) for device in range(JOB.num_devices)]
    sampler = get_user_sampler("random", list(range(JOB.num_devices)))
    clients = FederatedDataset(lambda device: Dataset(raw_data=tensors[device], user_id=str(device)), sampler)
    model = PyTorchModel(
        model=module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),  # a step of 1 is the average
    )
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=JOB.all_rounds,
            evaluation_frequency=10**6,
            train_cohort_size=JOB.clients_per_round,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=clients, val_data=clients),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=JOB.local_epochs,
            local_learning_rate=JOB.learning_rate,
            local_batch_size=JOB.batch_size,
        ),
        callbacks=[Watch()],
    )
    if os.environ[RANK] == "0":
        laps.report("pfl", pfl.version.__version__, accuracy(module, data))


def client(data: Data, device: int) -> list[Any]:
    from network import client_tensors

    return list(client_tensors(data, device))


if __name__ == "__main__":
    if RANK in os.environ:
        work()
    else:
        sys.exit(start_workers())
