"""The job that every framework does, and how it is measured: NumPy and the standard library, nothing else.

A round is the training of R clients, each E passes over its own samples, and one aggregation. The data lies in one .npz that
`export.py` writes once, so that no framework fetches any.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


@dataclass(frozen=True)
class Job:
    """What is trained; `tests/docs/test_performance.py` compares it with fedtide's experiment."""

    num_devices: int = 40  # N
    clients_per_round: int = 8  # R
    samples_per_client: int = 1500
    batch_size: int = 50
    local_epochs: int = 3  # E
    learning_rate: float = 0.01  # plain SGD
    num_parameters: int = 21_840
    warm_up: int = 1  # rounds that are not measured: processes start, memory is touched
    rounds: int = int(os.environ.get("FEDTIDE_PEERS_ROUNDS", "6"))  # that are

    @property
    def samples_per_round(self) -> int:
        """Samples that go through the model and back in a round."""
        return self.clients_per_round * self.samples_per_client * self.local_epochs

    @property
    def all_rounds(self) -> int:
        return self.warm_up + self.rounds


JOB = Job()
CORES = 2  # what every framework may use
THREADS = int(os.environ.get("FEDTIDE_PEERS_THREADS", CORES))  # of PyTorch, where one process does all the training
IN_FLIGHT = JOB.clients_per_round  # clients that train at a time, where a virtual clock has such a number
# Environment variables, as these reach all processes that a framework starts: which measurement they belong to, the data
MARK, FILE = "FEDTIDE_PEERS_RUN", "FEDTIDE_PEERS_DATA"
RESULT = "RESULT "  # what the line begins with: frameworks print lines of their own


class Data(NamedTuple):
    """MNIST as it is trained on, and who holds what."""

    images: np.ndarray  # float32 [n 1 28 28], normalised
    labels: np.ndarray  # int64 [n]
    test_images: np.ndarray  # [m 1 28 28]
    test_labels: np.ndarray  # [m]
    held: np.ndarray  # sample numbers by device [N samples_per_client]


def save(path: Path, data: Data) -> None:
    """Write the data, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    with aside.open("wb") as file:
        np.savez(file, **data._asdict())
    aside.replace(path)


def load() -> Data:
    """Read what the driver exported."""
    with np.load(os.environ[FILE]) as stored:
        return Data(**{name: stored[name] for name in Data._fields})


def processor_seconds() -> float:
    """Return the processor time that all processes of this measurement have spent so far; nan where there is no /proc.

    They are known by an environment variable: some frameworks start daemons that are nobody's children.
    """
    mark = f"{MARK}={os.environ.get(MARK, '')}".encode()
    ticks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                ticks += sum(map(int, (folder / "stat").read_text().rpartition(") ")[2].split()[11:15]))
        except OSError:  # it ended meanwhile, or is not ours
            continue
    return ticks / os.sysconf("SC_CLK_TCK") if ticks else float("nan")


class Laps:
    """The times at which rounds end, by the clock on the wall and by processor time."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.processor: list[float] = []
        self.samples: list[int] = []

    def lap(self, samples: int | None = None) -> None:
        """Say that a round has ended. samples: how many it trained, if it is not what the job says."""
        self.wall.append(time.perf_counter())
        self.processor.append(processor_seconds())
        self.samples.append(JOB.samples_per_round if samples is None else samples)

    def report(self, peer: str, version: str, accuracy: float, **more: Any) -> None:
        """Print the result as one line: the rounds after the warm-up."""
        first = JOB.warm_up - 1
        walls, processors = np.diff(self.wall[first:]), np.diff(self.processor[first:])
        result = {
            "peer": peer,
            "version": version,
            "rounds": len(walls),
            "samples": int(sum(self.samples[first + 1 :])),
            "seconds": float(walls.sum()),
            "processor_seconds": float(processors.sum()),
            "round_seconds": [round(each, 4) for each in walls.tolist()],
            "accuracy": float(accuracy),
            **more,
        }
        print(RESULT + json.dumps(result), flush=True)


def described() -> dict[str, Any]:
    """Return the job as it goes into the stored result."""
    return {**asdict(JOB), "cores": CORES, "samples_per_round": JOB.samples_per_round}
