"""Methods that are two parts at once, each whole: SCAFFOLD is a trainer and an aggregator, EF21 a codec and an aggregator.

`method=scaffold` and `method=ef21` name both (`config/presets.py`, which refuses one without the other).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import numpy as np

from fedtide.aggregate.base import Around, Average, Cohort, Inner, InnerArgs, Sums
from fedtide.codec.base import Packet
from fedtide.codec.baselines import CodecAround
from fedtide.errors import FedtideError
from fedtide.learning.trainer import TRAINERS, WRAPPERS, Score, Task, Trainer, check_jobs, steps_per_training
from fedtide.parts import registry
from fedtide.parts.arguments import arg
from fedtide.types import Job, Memory, Rng, Samples, Vector, Vectors

# SCAFFOLD (Karimireddy et al. 2020), option II. Device k holds c_k, the server c; from model x, K steps of rate eta_l:
#
#     y <- y - eta_l (g_k(y) - c_k + c)
#     c_k+ = c_k - c + (x - y) / (K eta_l)      so c_k+ is the mean of the gradients on the way
#     sends dy = y - x and dc = alpha (c_k+ - c_k), alpha = 1 in the paper
#     x <- x + inner(dy),   c <- c + (1/N) sum_k dc_k;   c_k <- c_k + dc as the server reads it, once it has it
#
# What travels is [2d]: (x, S c) down, (dy, S dc) up. S, about K eta_l / alpha, makes both halves as large, so that a codec with
# one scale for all does both justice; it is the same for all devices and the whole run, however K and eta_l vary.

_FAITHFUL: Final = ("ideal", "top_k", "dead_zone")  # codecs whose error is smaller than what they encode
_DAMPED: Final = 0.1  # alpha with others
_USUAL_SAMPLES: Final = 60_000  # of all devices, if data.num_train does not say


class Payload(NamedTuple):
    """What travels with SCAFFOLD, down and up."""

    model: Vector  # x or dy [d]
    control: Vector  # S c or S dc [d]


def _pack(model: Any, control: Any) -> Vector:
    """Return a payload as the one vector that a codec encodes [2d]."""
    return np.concatenate([model, control]).astype(np.float32)


def _unpack(vector: Vector) -> Payload:
    """Return the payload of a vector [2d] as views."""
    num_parameters = (len(vector) + 1) // 2
    return Payload(vector[:num_parameters], vector[num_parameters:])


@dataclass
class Scaffold:
    """Control variates around a built-in trainer; requires policy.aggregator=scaffold.

    Memory: S c_k [d], which goes on with what arrived. A proximal term is a part of the gradient; steps are those of plain SGD,
    since of others K eta_l does not tell the mean gradient.
    """

    takes_work: ClassVar[bool] = True
    task: Task
    inner: Annotated[str, arg("the inner trainer, one of fedtide's own", part="trainer")] = "native"
    inner_args: Annotated[dict[str, Any] | None, arg("arguments of the inner trainer, unless given with its name")] = (
        None
    )
    scale: Annotated[
        float | None,
        arg("S: control variates are sent times S; default: learning rate times steps over alpha", gt=0),
    ] = None
    damping: Annotated[
        float | None,
        arg("alpha: step of c_k towards the mean gradient; default: 1, or 0.1 with a noisy codec", gt=0, le=1),
    ] = None
    learning_rate: Annotated[float, arg("initial learning rate, for S", key="learning.learning_rate", gt=0)] = 0.01
    num_train: Annotated[int | None, arg("total number of samples, for S; default: 60,000", key="data.num_train")] = (
        None
    )
    num_devices: Annotated[int, arg("N, number of devices, for S", key="fleet.num_devices", ge=1, le=10**8)] = 40
    codec: Annotated[str, arg("the codec, for alpha", key="codec.name")] = "ideal"

    def __post_init__(self) -> None:
        """Make the inner trainer; raise if it cannot be one."""
        self._trainer = _plain_trainer(self.inner, registry.inner_arguments(self.inner, self.inner_args)[0], self.task)
        self._length = len(self._trainer.initial_model(self.task.seed))  # d
        self._damping = self.damping or (1.0 if self.codec in _FAITHFUL else _DAMPED)
        samples = max((self.num_train or _USUAL_SAMPLES) // self.num_devices, 1)
        steps = max(steps_per_training(self.task.work, samples), 1)
        self._scale = self.scale or self.learning_rate * steps / self._damping

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
        return _pack(first, np.zeros_like(first))

    def train(self, jobs: Sequence[Job]) -> Vector:
        """Return (dy, S dc) of every job [r 2d]."""
        check_jobs(jobs, 2 * self._length)
        received = [_unpack(job.start) for job in jobs]
        inner = [self._corrected(job, payload) for job, payload in zip(jobs, received, strict=True)]
        updates = self._trainer.train(inner)
        made = np.empty((len(jobs), 2 * self._length), np.float32)
        for row, (job, payload, update) in enumerate(zip(jobs, received, updates, strict=True)):
            way = steps_per_training(job.work or self.task.work, len(job.indices)) * float(job.learning_rate)  # K eta_l
            change = np.zeros(self._length)  # nobody learns a gradient from no step: then c_k stays
            if way:
                change = -payload.control - (self._scale / way) * update.astype(np.float64)
            made[row] = _pack(update, self._damping * change)
        return made

    def _corrected(self, job: Job, received: Payload) -> Job:
        """Return the inner trainer's job: from x, with c - c_k added to its gradients."""
        own = (job.memory or self.init(2 * self._length))["control"]
        added = (received.control.astype(np.float64) - own) / self._scale
        return job._replace(start=np.array(received.model), memory=None, correction=added.astype(np.float32))

    def arrived(self, memory: Memory, update: Vector) -> Memory:
        """Return c_k after the server has read dc."""
        return {"control": memory["control"] + _unpack(update).control}

    def evaluate(self, model: Vector, samples: Samples) -> Score:
        """Score x."""
        if np.shape(model) != (2 * self._length,):
            raise FedtideError(
                f"the vector is {np.shape(model)}; scaffold's is model and control variate, {2 * self._length}"
            )
        return self._trainer.evaluate(np.array(_unpack(model).model), samples)

    def check_samples(self, samples: Samples) -> None:
        """Raise if the inner trainer cannot take such samples."""
        self._trainer.check_samples(samples)  # type: ignore[attr-defined]


def _plain_trainer(name: str, args: dict[str, Any], task: Task) -> Trainer:
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


@dataclass(frozen=True)
class ControlVariates(Around):
    """SCAFFOLD: x by the inner aggregator, c' = c + (1/N) sum_k dc_k over those that arrived; for learning.trainer=scaffold.

    So c = (1/N) sum over all N devices of c_k, however few of them arrive. The paper's x is inner=average_deltas (its
    server_rate is eta_g) with policy.weighting=uniform; c takes no weights.
    """

    inner: Inner = "average_deltas"
    inner_args: InnerArgs = None

    def init(self, model: Vector, num_devices: int) -> Memory:
        """Return what the inner aggregator begins with."""
        return self.init_inner(_unpack(model).model, num_devices)

    def start(self, state: Memory, model: Vector, cohort: Cohort) -> tuple[Any, Sums]:
        """Start the inner aggregator, and a sum from c."""
        payload, share = _unpack(model), np.full(len(cohort.device), 1 / cohort.num_devices)
        return self.start_inner(state, payload.model, cohort), Sums(cohort, share, payload.control.astype(np.float64))

    def add(self, acc: tuple[Any, Sums], rows: slice, starts: Vectors, updates: Vectors) -> tuple[Any, Sums]:
        """Give the models to the inner aggregator; add to c what the devices' own ones changed by."""
        models, changes = [_unpack(start).model for start in starts], [_unpack(update) for update in updates]
        inner = self._inner.add(acc[0], rows, models, [change.model for change in changes])
        return inner, Average().add(acc[1], rows, models, [change.control for change in changes])

    def finish(self, state: Memory, acc: tuple[Any, Sums], model: Vector) -> tuple[Vector, Memory]:
        """Return both."""
        new, own = self.finish_inner(state, acc[0], _unpack(model).model)
        return _pack(new, acc[1].updates), own


# EF21 (Richtarik, Sokolov and Fatkhullin 2021): each device sends how its update differs from what the server has of it.
#
#     sent: c_k = C(u_k - g_k)     g_k: what the server has of device k, g_k = 0 at first
#     g_k' = g_k + c_k
#     server: G' = G + (1/N) sum_k c_k,  x' = x + rate G'
#
# What decode returns is the difference c_k, not the update: the server has no memory of a device there, and needs none,
# since it adds all differences up.


@dataclass(frozen=True)
class Ef21(CodecAround):
    """Send the difference between an update and the server's copy of it; requires policy.aggregator=ef21.

    Memory: g_k [d] of each device. It goes on with what arrived, as the server's sum does. Packets are the inner codec's.
    """

    wrapper: ClassVar[str] = "ef21"

    def init(self, num_parameters: int) -> Memory:
        """Return g = 0."""
        return {"known": np.zeros(num_parameters, np.float32)}

    def encode(self, memory: Memory, update: Vector, budget_bits: float, rng: Rng) -> tuple[Packet, Memory]:
        """Send C(u - g)."""
        packet = self.encoded(update - memory["known"], budget_bits, rng)
        return packet, {"known": memory["known"] + self.decode(packet)}


@dataclass(frozen=True)
class Ef21Sum:
    """EF21: G' = G + (1/N) sum_k c_k, x' = x + rate G'; c_k = C(u_k - g_k) is what codec.name=ef21 sends.

    So G = (1/N) sum over all N devices of g_k: every aggregation goes along the last known updates of all devices, those that
    did not upload included. Devices count alike: weights would have to stay the same for ever, which those of arrivals do not.
    Memory: G [d] in float64, summed one device after the other.
    """

    rate: Annotated[float, arg("server step size along the mean of all devices", gt=0)] = 1.0

    def init(self, model: Vector, num_devices: int) -> Memory:
        """Return G = 0."""
        return {"mean": np.zeros(len(model))}

    def start(self, state: Memory, model: Vector, cohort: Cohort) -> Sums:
        """Begin with G."""
        return Sums(cohort, cohort.weights, state["mean"].copy())

    def add(self, acc: Sums, rows: slice, starts: Vectors, updates: Vectors) -> Sums:
        """Add the differences to the mean."""
        for update in updates:
            acc.updates += update.astype(np.float64) / acc.cohort.num_devices
        return acc

    def finish(self, state: Memory, acc: Sums, model: Vector) -> tuple[Vector, Memory]:
        """Add the mean to the model."""
        return (model + self.rate * acc.updates).astype(np.float32), {"mean": acc.updates}
