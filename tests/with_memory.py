"""One part with memory of each kind that may have it, so that the contract suites run over that way of calling, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedtide.codec.base import Packet
from fedtide.codec.sparse_quantized import SparseQuantized
from fedtide.types import Candidates, Job, Memory, Trained


class InTurn:
    """A scheduler: whoever was picked least often, the lower number first."""

    def init(self, num_devices: int) -> Memory:
        return {"picked": np.zeros(num_devices, np.int64)}

    def __call__(self, memory: Memory, candidates: Candidates, limit: int, rng: Any) -> tuple[Any, Memory]:
        picked = np.argsort(memory["picked"][candidates.device], kind="stable")[:limit]
        memory["picked"][candidates.device[picked]] += 1
        return picked, memory


class Rarely:
    """A weighting: a device counts the more, the less often it was heard."""

    def init(self, num_devices: int) -> Memory:
        return {"heard": np.zeros(num_devices, np.int64)}

    def __call__(self, memory: Memory, num_samples: Any, age: Any, device: Any) -> tuple[Any, Memory]:
        weights = num_samples / (1.0 + memory["heard"][device])
        memory["heard"][device] += 1
        return weights / weights.sum(), memory


class Momentum:
    """An aggregator: the mean update and a part of the last step."""

    def init(self, model: Any) -> Memory:
        return {"step": np.zeros_like(model)}

    def __call__(
        self, memory: Memory, model: Any, starts: Any, updates: Any, weights: Any, age: Any, device: Any
    ) -> tuple[Any, Memory]:
        step = (0.5 * memory["step"] + weights @ updates).astype(np.float32)
        return model + step, {"step": step}


class ErrorFeedback:
    """A codec: what was not sent is added to the next update."""

    def __init__(self) -> None:
        self._inner = SparseQuantized()

    def init(self, num_parameters: int) -> Memory:
        return {"error": np.zeros(num_parameters, np.float32)}

    def encode(self, memory: Memory, update: Any, budget_bits: float, rng: Any) -> tuple[Packet, Memory]:
        wanted = update + memory["error"]
        packet = self._inner.encode(wanted, budget_bits, rng)
        return packet, {"error": wanted - self._inner.decode(packet)}

    def decode(self, packet: Packet) -> Any:
        return self._inner.decode(packet)

    def num_kept(self, num_parameters: int, budget_bits: float) -> int:
        return self._inner.num_kept(num_parameters, budget_bits)


class Counting:
    """A trainer: another one, and how often each device was trained."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.task = inner, inner.task

    def init(self, num_parameters: int) -> Memory:
        return {"times": np.zeros(1, np.int64)}

    def initial_model(self, seed: int) -> Any:
        return self._inner.initial_model(seed)

    def train(self, jobs: Sequence[Job]) -> Trained:
        updates = self._inner.train([job._replace(memory=None) for job in jobs])
        return Trained(updates, [{"times": job.memory["times"] + 1} for job in jobs if job.memory is not None])

    def evaluate(self, model: Any, samples: Any) -> Any:
        return self._inner.evaluate(model, samples)


REMEMBERING = {
    "scheduler": InTurn,
    "weighting": Rarely,
    "aggregator": Momentum,
    "codec": ErrorFeedback,
    "trainer": Counting,
}
