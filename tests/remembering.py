"""Parts with memory, one of each kind that may have one, as a user would write them: their answers depend on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedtide.codec.base import Packet, packet, unseal
from fedtide.learning.trainer import Score, Task
from fedtide.rng import stream
from fedtide.types import Trained


class Fair:
    """Picks whoever was picked least, the best link first."""

    def init(self, num_devices: int) -> Any:
        return {"picked": np.zeros(num_devices, np.int64), "calls": 0}

    def __call__(self, memory: Any, candidates: Any, limit: int, rng: Any) -> Any:
        device = candidates.device
        order = np.lexsort((-candidates.capacity, memory["picked"][device]))
        picked = order[: max(limit - int(memory["calls"]) % 2, 1)]
        memory["picked"][device[picked]] += 1
        return picked, {"picked": memory["picked"], "calls": memory["calls"] + 1}


class Heard:
    """Weighs down whoever was heard often."""

    def init(self, num_devices: int) -> Any:
        return {"times": np.zeros(num_devices)}

    def __call__(self, memory: Any, num_samples: Any, age: Any, device: Any) -> Any:
        weight = num_samples / (1 + memory["times"][device])
        memory["times"][device] += 1
        return weight / weight.sum(), memory


class Momentum:
    """The server's momentum."""

    def init(self, model: Any) -> Any:
        return {"velocity": np.zeros(len(model))}

    def __call__(self, memory: Any, model: Any, starts: Any, updates: Any, weights: Any, age: Any, device: Any) -> Any:
        velocity = 0.5 * memory["velocity"] + (weights[:, None] * updates).sum(axis=0)
        return model + velocity, {"velocity": velocity}


class TopK:
    """Error feedback."""

    code = 9

    def init(self, num_parameters: int) -> Any:
        return {"left": np.zeros(num_parameters, np.float32)}

    def num_kept(self, num_parameters: int, budget_bits: float) -> int:
        return min(int(budget_bits // 64), num_parameters)

    def encode(self, memory: Any, update: Any, budget_bits: float, rng: Any) -> Any:
        left = memory["left"] + update
        r = self.num_kept(len(left), budget_bits) // 2  # so that something is left over
        kept = np.argsort(-np.abs(left), kind="stable")[:r]
        payload = kept.astype("<u4").tobytes() + left[kept].astype("<f4").tobytes()
        left[kept] = 0
        return packet(self.code, len(left), r, payload, 64 * r), {"left": left}

    def decode(self, sent: Packet) -> Any:
        header, payload = unseal(sent.data, self.code, sent.num_parameters)
        update, r = np.zeros(sent.num_parameters, np.float32), header.num_kept
        update[np.frombuffer(payload, "<u4", r)] = np.frombuffer(payload, "<f4", r, 4 * r)
        return update


class Control:
    """A control vector of each device; learns nothing, but depends on device, version, start and memory."""

    size = 300

    def __init__(self, task: Task) -> None:
        self.task = task

    def init(self, num_parameters: int) -> Any:
        return {"control": np.zeros(num_parameters), "jobs": np.zeros((), np.int64)}

    def initial_model(self, seed: int) -> Any:
        return stream(seed, "initial_model").standard_normal(self.size).astype(np.float32)

    def train(self, jobs: Any) -> Any:
        rows, memory = [], []
        for job in jobs:
            noise = stream(self.task.seed, "batches", job.device, job.version).standard_normal(self.size)
            row = job.learning_rate * (noise - job.start) + 0.5 * job.memory["control"]
            rows.append(row)
            memory.append({"control": row - job.memory["control"] / 3, "jobs": job.memory["jobs"] + 1})
        return Trained(np.array(rows), memory)

    def evaluate(self, model: Any, samples: Any) -> Score:
        norm = float(np.square(model, dtype=np.float64).sum())
        return Score(1 / (1 + norm), norm)


class Outage:
    """Every third link carries next to nothing, and is believed to carry as much as the others."""

    def __call__(self, seed: int, tick: int, time: float, device: Any) -> Any:
        from fedtide.types import Link

        believed = 2.0 + (device * 7 + tick) % 5
        return Link(np.where((device + tick) % 3 == 0, believed / 1000, believed), believed)


FILE = __file__
KEYS: dict[str, dict[str, Any]] = {
    "scheduler": {"policy": {"scheduler": f"{FILE}:Fair"}},
    "weighting": {"policy": {"weighting": f"{FILE}:Heard"}},
    "aggregator": {"policy": {"aggregator": f"{FILE}:Momentum"}},
    "codec": {"codec": {"name": f"{FILE}:TopK"}},
    "trainer": {"learning": {"trainer": f"{FILE}:Control"}},
}
OUTAGE: dict[str, Any] = {"radio": {"channel": f"{FILE}:Outage"}}
