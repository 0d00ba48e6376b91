"""The contract between the engine and whatever trains: jobs in, updates out; learning-rate schedules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from fedtide.config import Part
from fedtide.data.dataset import wrong_dataset_values
from fedtide.errors import FedtideError
from fedtide.rng import stream
from fedtide.types import Floats, Ints, Job, Samples, Vector

TRAINERS: Final[dict[str, str]] = {  # by name, as module:class: they are imported when they are used
    "native": "fedtide.learning.native:NativeTrainer",
    "torch": "fedtide.learning.torch:TorchTrainer",
    "scaffold": "fedtide.methods:Scaffold",
    "dask": "fedtide.learning.dask:DaskTrainer",
}
# Those around another trainer (their argument `inner`), with how many vectors as long as the model travel each way.
WRAPPERS: Final[dict[str, int]] = {"scaffold": 2, "dask": 1}

MOST_THREADS: Final = 4096  # more than there are jobs is no use, and the extension counts them in 32 bits

RowType = TypeVar("RowType")
TableId: TypeAlias = tuple[int, int, int]


class LocalWork(NamedTuple):
    """What a device does with a model it received."""

    batch_size: int = 50
    epochs: int | None = 3  # E as passes over the data ...
    steps: int | None = None  # ... or as a number of steps
    proximal: float = 0.02  # lambda


class Task(NamedTuple):
    """What a trainer is made of: what is learnt and how. The data comes with the jobs."""

    model: Any  # a Model description, or what makes a torch module
    work: LocalWork
    seed: int
    shape: tuple[int, ...]  # of an image [channels height width]
    num_labels: int
    threads: int = 1  # jobs at a time; changes no bit


class Score(NamedTuple):
    """How well a model does on a set of samples."""

    accuracy: float  # share of right answers
    loss: float  # mean cross-entropy in nats


class Trainer(Protocol):
    """Trains devices and scores models. The result for a job depends on the job alone, never on its neighbours.

    A trainer that remembers something of each device has `init(num_parameters) -> Memory`; every job then has its device's
    `memory`, and `train` returns `Trained(updates, memory)`. Where only what arrived counts, it has `arrived(memory, update) ->
    Memory` besides: then it returns plain updates, and its memory goes on with each that the server has read [d]. It may have
    `check_samples(samples)`, which raises before a run begins if it cannot take these, and `close()`, called at a run's end.
    """

    def initial_model(self, seed: int) -> Vector:
        """Return theta(1) [d] for this seed."""
        ...

    def train(self, jobs: Sequence[Job]) -> Vector:
        """Return the updates u_k [r d], one row per job; none [0 d] if there are no jobs."""
        ...

    def evaluate(self, model: Vector, samples: Samples) -> Score:
        """Return accuracy and mean loss of model [d], dropout off."""
        ...


def check_jobs(jobs: Sequence[Job], num_parameters: int) -> None:
    """Raise if a job cannot be trained by a model of this many parameters."""
    for number, job in enumerate(jobs):
        if not isinstance(job, Job):
            raise FedtideError(f"job {number} is a {type(job).__name__}: give a fedtide.types.Job")
        if problem := _job_problem(job, num_parameters):
            raise FedtideError(f"job {number}: {problem}")


def _job_problem(job: Job, num_parameters: int) -> str | None:
    """Say what is wrong with a job."""
    for name, number in (("device", job.device), ("version", job.version)):
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or number < 0:
            return f"{name}={number!r} must be a whole number of at least 0"
    rate = np.asarray(job.learning_rate)
    if rate.shape != () or rate.dtype.kind not in "fiu" or not math.isfinite(rate):
        return f"the learning rate {job.learning_rate!r} must be one finite number"
    for name, vector in (("start", job.start), ("correction", job.correction)):
        given = np.asarray(vector)
        if vector is not None and (given.dtype != np.float32 or given.shape != (num_parameters,)):
            return f"{name} is {given.dtype} {given.shape}; a job of this model needs float32 {(num_parameters,)}"
    held, there = np.asarray(job.indices), len(job.samples.labels)
    if held.ndim != 1 or not held.size or not np.issubdtype(held.dtype, np.integer):
        return f"device {job.device} holds {held.dtype} {held.shape}; it needs a vector of at least one sample number"
    if held.min() < 0 or held.max() >= there:
        return f"device {job.device} holds sample numbers from {held.min()} to {held.max()}; there are {there} samples"
    return None


def trainer_backend(trainer: Part) -> str:
    """Return who does the steps, which the bits depend on: the trainer, or the one that it stands around."""
    return str(trainer.args.get("inner", "native")) if trainer.name in WRAPPERS else trainer.name


def trainer_table_name(samples: Samples) -> TableId:
    """Return what tells one table of samples from another while both are there."""
    return id(samples.images), id(samples.labels), id(samples.values)


def check_trainer_table(samples: Samples, shape: Sequence[int], who: str, kinds: Sequence[str]) -> None:
    """Raise if these are not images [n *shape] of float32, or of bytes with what they stand for, and their labels [n].

    who: needs them. kinds: of the labels' numbers, by name or kind of their dtype.
    """
    images, labels, wanted = np.asarray(samples.images), np.asarray(samples.labels), tuple(shape)
    if images.dtype not in (np.float32, np.uint8) or images.ndim != 4 or images.shape[1:] != wanted:
        raise FedtideError(f"images are {images.dtype} {images.shape}; the {who} needs float32 or uint8 [n, *{wanted}]")
    if wrong := wrong_dataset_values(samples._replace(images=images)):
        raise FedtideError(f"a table of samples has {wrong}")
    if labels.shape != images.shape[:1] or not {labels.dtype.kind, labels.dtype.name} & {*kinds}:
        raise FedtideError(
            f"labels are {labels.dtype} {labels.shape}; {len(images)} images need uint8 {images.shape[:1]}"
        )


def read_trainer_tables(
    jobs: Sequence[Job], before: Mapping[TableId, tuple[Samples, RowType]], read: Callable[[Samples], RowType]
) -> dict[TableId, tuple[Samples, RowType]]:
    """Return every table of the jobs beside what `read` makes of it, which is taken from `before` if it is there.

    A trainer that keeps this from one call to the next reads a table once, however many calls bring it.
    """
    tables: dict[TableId, tuple[Samples, RowType]] = {}
    for job in jobs:
        name = trainer_table_name(job.samples)
        if name not in tables:
            tables[name] = before.get(name) or (job.samples, read(job.samples))
    return tables


def samples_per_training(work: LocalWork, num_samples: Ints) -> Ints:
    """Return how many samples one local training visits on devices that hold so many [m]."""
    if work.steps is None:
        return num_samples * (work.epochs or 0)
    full, rest = np.divmod(work.steps, -(-num_samples // work.batch_size))
    return np.asarray(full * num_samples + np.minimum(rest * work.batch_size, num_samples))


def steps_per_training(work: LocalWork, num_samples: int) -> int:
    """Return how many steps one local training makes on a device that holds so many samples."""
    return work.steps if work.steps is not None else -(-num_samples // work.batch_size) * (work.epochs or 0)


def batches(seed: int, device: int, version: int, samples: Ints, work: LocalWork) -> tuple[Ints, Ints]:
    """Return the samples one job visits [s] and the bounds of its mini-batches [steps+1].

    Every epoch is a fresh shuffle of the device's samples, cut into batches of batch_size, the last one shorter.
    With `steps`, the same sequence of batches goes on for that many steps.
    """
    rng = stream(seed, "batches", device, version)
    per_epoch = -(-len(samples) // work.batch_size)
    steps = steps_per_training(work, len(samples))
    order = [rng.permutation(samples) for _ in range(-(-steps // per_epoch))]
    epoch, within = np.divmod(np.arange(steps + 1), per_epoch)
    bounds = epoch * len(samples) + within * work.batch_size
    visited = np.concatenate(order) if order else np.empty(0, np.int64)
    return visited[: bounds[-1]], bounds


# Learning-rate schedules: a factor for the share of the horizon that has passed when a device receives its model.


RATE_SCHEDULES: Final[dict[str, Callable[[Floats], Floats]]] = {
    "constant": np.ones_like,
    "halved": lambda elapsed: np.where(elapsed < 0.5, 1.0, 0.5),
    "cosine": lambda elapsed: (1 + np.cos(np.pi * elapsed)) / 2,  # falls from 1 to 0
}
