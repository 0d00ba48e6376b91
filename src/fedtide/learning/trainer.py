"""The contract between the engine and whatever trains: jobs in, updates out; what a job is; learning-rate schedules."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from fedtide.config import Part
from fedtide.core.files import is_own_file
from fedtide.data.dataset import wrong_dataset_values
from fedtide.errors import FedtideError
from fedtide.parts import registry
from fedtide.rng import stream
from fedtide.types import Floats, Ints, Job, LocalWork, Samples, Tick, Vector, Work

TRAINERS: Final[dict[str, str]] = {  # by name, as module:class: they are imported when they are used
    "native": "fedtide.learning.native:NativeTrainer",
    "torch": "fedtide.learning.torch:TorchTrainer",
    "scaffold": "fedtide.methods:Scaffold",
    "dask": "fedtide.learning.dask:DaskTrainer",
    "attacked": "fedtide.learning.attacked:AttackedTrainer",
}
# Those around another trainer (their argument `inner`), with how many vectors as long as the model travel each way.
WRAPPERS: Final[dict[str, int]] = {"scaffold": 2, "dask": 1, "attacked": 1}

MOST_THREADS: Final = 4096  # more than there are jobs is no use, and the extension counts them in 32 bits

RowType = TypeVar("RowType")
TableId: TypeAlias = tuple[int, int, int]
WorkPart: TypeAlias = Callable[[int, Ints, Ints], Work]  # (seed, device [m], job [m]) -> what each does
Schedule: TypeAlias = Callable[[Floats], Floats]


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
    `check_samples(samples)`, which raises before a run begins if it cannot take these, and `close()`, called at a run's end. One
    that does what `job.work` says, where a job has it, in place of `task.work` has `takes_work = True`.
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
    for name, number in (("device", job.device), ("version", job.version), ("number", job.number or 0)):
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
    entry: Any = trainer.args.get("inner", "native") if trainer.name in WRAPPERS else None
    if ":" in trainer.name:  # a user's own around one of ours
        inside = [each for each in registry.inner_parameters("trainer", trainer.name) if each.about.part == "trainer"]
        default = inside[0].default if inside and not is_own_file(str(inside[0].default)) else None
        entry = trainer.args.get(inside[0].name, default) if inside else None
    named = isinstance(entry, str) or (isinstance(entry, Mapping) and isinstance(entry.get("name"), str))
    return trainer_backend(Part.of(entry)) if named else trainer.name


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
        return np.asarray(num_samples * work.epochs)
    full, rest = np.divmod(work.steps, -(-num_samples // work.batch_size))
    return np.asarray(full * num_samples + np.minimum(rest * work.batch_size, num_samples))


def steps_per_training(work: LocalWork, num_samples: Any) -> Any:
    """Return how many steps one local training makes on a device, or on each of several, that holds so many samples."""
    return work.steps if work.steps is not None else -(-num_samples // work.batch_size) * work.epochs


def batches(seed: int, device: int, version: int, samples: Ints, work: LocalWork) -> tuple[Ints, Ints]:
    """Return the samples one job visits [s] and the bounds of its mini-batches [steps+1].

    device, version: the job's address; with learning.seed_by=job its number stands in place of the version.
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


# How much each device does with a model (`learning.work`).


def work_is_equal(work: WorkPart) -> bool:
    """Say whether all devices do what learning.* says."""
    return bool(getattr(work, "equal", False))


def work_varies(work: WorkPart) -> bool:
    """Say whether the jobs of a device may differ."""
    return bool(getattr(work, "redraws", True))


class DeviceWork(NamedTuple):
    """What the devices of a system do with models."""

    part: WorkPart
    usual: LocalWork  # what learning.* says
    seed: int

    def of(self, device: Ints, job: Ints | None) -> tuple[LocalWork, Floats | None]:
        """Return what these devices do in these jobs, as columns, and the rate of each [m]; None: the usual one.

        job: their numbers [m]; None if no job differs from the first.
        """
        if work_is_equal(self.part):
            return self.usual, None
        found = self.part(self.seed, device, np.ones_like(device) if job is None else job)
        epochs, steps = found.epochs, found.steps
        if epochs is None and steps is None:
            epochs, steps = self.usual.epochs, self.usual.steps
        size = self.usual.batch_size if found.batch_size is None else found.batch_size
        return LocalWork(size, epochs, steps, self.usual.proximal), found.rate

    def samples(self, device: Ints, job: Ints | None, num_samples: Ints) -> Ints:
        """Return how many samples devices that hold so many visit in these jobs [m]."""
        return samples_per_training(self.of(device, job)[0], num_samples)

    def samples_per_job(self, num_samples: Ints) -> Ints | SamplesPerJob:
        """Return how many samples the devices of a fleet visit in a job [N], or what tells it for every job."""
        if work_varies(self.part):
            return SamplesPerJob(self, num_samples)
        return self.samples(np.arange(len(num_samples)), None, num_samples)


@dataclass(frozen=True)
class SamplesPerJob:
    """How many samples devices visit whose jobs differ: a function (device [m], job [m]) -> samples [m]."""

    work: DeviceWork
    num_samples: Ints  # [N]

    def __call__(self, device: Ints, job: Ints) -> Ints:
        """Return the number of samples of each of these jobs [m]."""
        return self.work.samples(device, job, self.num_samples[device])

    def __getitem__(self, device: Any) -> Any:
        """Raise: there is no one number per device."""
        raise FedtideError(
            "fleet.samples_per_job is a function of (device, job) here, since learning.work differs from job to job: call it, or "
            "let learning.work be the same for all jobs of a device"
        )

    def __array__(self, *_: Any, **__: Any) -> Any:
        """Raise, too."""
        return self[...]


def work_rows(work: LocalWork, count: int) -> list[LocalWork]:
    """Return columns of work as that of each of so many devices."""

    def rows(column: Any) -> list[int | None]:
        return [None] * count if column is None else np.broadcast_to(column, count).tolist()

    columns = zip(rows(work.batch_size), rows(work.epochs), rows(work.steps), strict=True)
    return [LocalWork(size, epochs, steps, work.proximal) for size, epochs, steps in columns]


def numbered_jobs(ticks: Iterable[Tick], num_devices: int) -> Iterator[Tick]:
    """Return ticks that say which job each ready device has finished: as its timeline says, or by counting."""
    finished = np.zeros(num_devices, np.int64)
    for tick in ticks:
        finished[tick.ready] += 1
        yield tick if tick.job is not None else tick._replace(job=finished[tick.ready])


# Learning-rate schedules: a factor [m] for the share of the horizon that has passed when a device receives its model [m].


def constant(elapsed: Floats) -> Floats:
    """The learning rate is constant."""
    return np.ones_like(elapsed)


def halved(elapsed: Floats) -> Floats:
    """The paper's: halved after half of the horizon."""
    return np.where(elapsed < 0.5, 1.0, 0.5)


def cosine(elapsed: Floats) -> Floats:
    """Falls from 1 to 0 as half a cosine."""
    return np.asarray((1 + np.cos(np.pi * elapsed)) / 2)


RATE_SCHEDULES: Final[dict[str, Schedule]] = {"constant": constant, "halved": halved, "cosine": cosine}
