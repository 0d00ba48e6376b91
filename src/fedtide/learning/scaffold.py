"""SCAFFOLD: local steps corrected by control variates, so that devices with different data do not drift apart.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, SCAFFOLD: Stochastic controlled averaging for federated learning (ICML 2020),
option II. Device k holds c_k, the server c; from model x, K steps of rate eta_l:

    y <- y - eta_l (g_k(y) - c_k + c)
    c_k+ = c_k - c + (x - y) / (K eta_l)      so c_k+ is the mean of the gradients on the way
    sends dy = y - x and dc = c_k+ - c_k      twice the uplink; and the server sends x and c, twice the downlink

What travels is [2d]: (x, S c) down, (dy, S dc) up. S, about K eta_l / alpha, makes both halves as large, so that a codec with
one scale for all does both justice; it is the same for all devices and the whole run, however K and eta_l vary.

c_k goes on by what the server reads of dc, once it has it. With a codec that loses nothing this is the paper's; with any
other it keeps c the mean of all c_k, and what was lost is in the next dc (Huang, Li, Li, Stochastic controlled averaging for
federated learning with communication compression, ICLR 2024). As there, dc = alpha (c_k+ - c_k) for a codec whose error may be
larger than what it encodes, which would grow from one to the next; alpha = 1 is the paper's. An update that did not arrive
leaves c_k as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import numpy as np

from fedtide.errors import FedtideError
from fedtide.learning.trainer import TRAINERS, WRAPPERS, Score, Task, Trainer, check_jobs, steps_per_training
from fedtide.methods import Payload, pack, unpack
from fedtide.parts import registry
from fedtide.parts.arguments import arg
from fedtide.types import Job, Memory, Samples, Vector

_FAITHFUL: Final = ("ideal", "top_k", "dead_zone")  # codecs whose error is smaller than what they encode
_DAMPED: Final = 0.1  # alpha with others
_USUAL_SAMPLES: Final = 60_000  # of all devices, if data.num_train does not say


@dataclass(frozen=True)
class Scaffold:
    """Control variates around the native trainer, or another of ours; goes with policy.aggregator=scaffold.

    Memory: S c_k [d], which goes on with what arrived. A proximal term is a part of the gradient; steps are those of plain SGD,
    since of others K eta_l does not tell the mean gradient.
    """

    task: Task
    inner: Annotated[str, arg("who trains, one of fedtide's own")] = "native"
    inner_args: Annotated[dict[str, Any] | None, arg("arguments of the inner trainer")] = None
    scale: Annotated[
        float | None,
        arg(
            "S: control variates travel times S; not given: learning rate times steps over alpha",
            gt=0,
        ),
    ] = None
    damping: Annotated[
        float | None,
        arg(
            "alpha: how far c_k goes to the mean gradient at once; not given: 1, or 0.1 with a noisy codec", gt=0, le=1
        ),
    ] = None
    learning_rate: Annotated[float, arg("at the start, for S", key="learning.learning_rate", gt=0)] = 0.01
    num_train: Annotated[int | None, arg("samples of all, for S; not given: 60,000", key="data.num_train")] = None
    num_devices: Annotated[int, arg("N, for S", key="fleet.num_devices", ge=1, le=10**8)] = 40
    codec: Annotated[str, arg("how it travels, for alpha", key="codec.name")] = "ideal"
    _trainer: Any = field(init=False, repr=False, compare=False)
    _damping: float = field(init=False, repr=False, compare=False)
    _scale: float = field(init=False, repr=False, compare=False)
    _length: int = field(init=False, repr=False, compare=False)  # d

    def __post_init__(self) -> None:
        """Make the inner trainer; raise if it cannot be one."""
        trainer = _made(self.inner, self.inner_args or {}, self.task)
        samples = max((self.num_train or _USUAL_SAMPLES) // self.num_devices, 1)
        steps = steps_per_training(self.task.work, samples)
        object.__setattr__(self, "_trainer", trainer)
        object.__setattr__(self, "_damping", self.damping or (1.0 if self.codec in _FAITHFUL else _DAMPED))
        object.__setattr__(self, "_scale", self.scale or self.learning_rate * max(steps, 1) / self._damping)
        object.__setattr__(self, "_length", len(trainer.initial_model(self.task.seed)))

    @property
    def name(self) -> str:
        """What it is called in the records of a run."""
        return f"scaffold around {getattr(self._trainer, 'name', self.inner)}, scale={self._scale:g}"

    def init(self, num_parameters: int) -> Memory:
        """Return c_k = 0 [d]; num_parameters: of both halves."""
        return {"control": np.zeros(num_parameters // 2, np.float32)}

    def initial_model(self, seed: int) -> Vector:
        """Return theta(1), and c = 0 with it [2d]."""
        first = self._trainer.initial_model(seed)
        return pack(first, np.zeros_like(first))

    def train(self, jobs: Sequence[Job]) -> Vector:
        """Return (dy, S dc) of every job [r 2d]."""
        check_jobs(jobs, 2 * self._length)
        received = [unpack(job.start) for job in jobs]
        inner = [self._corrected(job, payload) for job, payload in zip(jobs, received, strict=True)]
        updates: Vector = self._trainer.train(inner)
        made = np.empty((len(jobs), 2 * self._length), np.float32)
        for job, payload, update, row in zip(jobs, received, updates, made, strict=True):
            way = steps_per_training(self.task.work, len(job.indices)) * float(job.learning_rate)  # K eta_l
            # nobody learns a gradient from no step: then c_k stays
            found = -payload.control - (self._scale / way) * update.astype(np.float64) if way else 0.0
            sent = unpack(row)
            sent.model[:], sent.control[:] = update, self._damping * found
        return made

    def _corrected(self, job: Job, received: Payload) -> Job:
        """Return the inner trainer's job: from x, with c - c_k added to its gradients."""
        own = (job.memory or self.init(2 * self._length))["control"]
        added = (received.control.astype(np.float64) - own) / self._scale
        return job._replace(start=np.array(received.model), memory=None, correction=added.astype(np.float32))

    def arrived(self, memory: Memory, update: Vector) -> Memory:
        """Return c_k after the server has read dc."""
        return {"control": memory["control"] + unpack(update).control}

    def evaluate(self, model: Vector, samples: Samples) -> Score:
        """Score x."""
        if np.shape(model) != (2 * self._length,):
            raise FedtideError(
                f"the vector is {np.shape(model)}; scaffold's is model and control variate, {2 * self._length}"
            )
        score: Score = self._trainer.evaluate(np.array(unpack(model).model), samples)
        return score

    def check_samples(self, samples: Samples) -> None:
        """Raise if the inner trainer cannot take such samples."""
        self._trainer.check_samples(samples)


def _made(name: str, args: dict[str, Any], task: Task) -> Trainer:
    """Return one of our trainers; raise unless its steps are those of plain SGD."""
    known = [each for each in TRAINERS if each not in WRAPPERS]
    if name not in known:
        raise FedtideError(f"trainer='scaffold': inner={name!r} is none of fedtide's own trainers: {', '.join(known)}")
    made: Trainer = registry.resolve("trainer", name, args, {"run.task": task}.__getitem__)
    momentum, optimizer = getattr(made, "momentum", 0.0), getattr(made, "optimizer", "sgd")
    if momentum or optimizer != "sgd":
        what = f"momentum={momentum}" if momentum else f"optimizer={optimizer}"
        raise FedtideError(
            f"trainer='scaffold': inner_args.{what} makes steps from which the mean gradient cannot be told: leave it out"
        )
    return made
