"""The trainer that needs no framework: whole local trainings in C++, one job per thread at a time.

`FEDTIDE_ISA` = avx512, avx2 or baseline forces an instruction path; by default the fastest that the machine offers.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, ClassVar, Final

import numpy as np

from fedtide.errors import FedtideError
from fedtide.extension import native
from fedtide.learning import model as m
from fedtide.learning.trainer import (
    MOST_THREADS,
    Score,
    TableId,
    Task,
    batches,
    check_jobs,
    check_trainer_table,
    read_trainer_tables,
    trainer_table_name,
)
from fedtide.parts.arguments import arg
from fedtide.rng import stream, stream_key
from fedtide.types import Ints, Job, Samples, Vector


def isas() -> list[str]:
    """Return the instruction paths that this machine and build offer, fastest first."""
    return native.isas()


def native_isa() -> str:
    """Return the instruction path that trains here: bits are the same on the same path."""
    return os.environ.get("FEDTIDE_ISA") or isas()[0]


def _lower(model: m.Model) -> list[tuple[int, int, int, int, float]]:
    """Return the layers as the kernel reads them: (kind, size, kernel, padding, p), kinds as `enum class Kind` in native/plan.h."""
    return [_lower_layer(layer) for layer in model.layers]


def _lower_layer(layer: m.Layer) -> tuple[int, int, int, int, float]:
    match layer:
        case m.Conv2d(out, kernel, padding):
            return (0, out, kernel, padding, 0.0)
        case m.MaxPool2d(size):
            return (1, size, 0, 0, 0.0)
        case m.ReLU():
            return (2, 0, 0, 0, 0.0)
        case m.Dropout(p) | m.ChannelDropout(p):
            return (3 if isinstance(layer, m.Dropout) else 4, 0, 0, 0, float(p))
        case m.Linear(out):
            return (5, out, 0, 0, 0.0)
    raise FedtideError(f"the native trainer has no layer {layer}: set learning.trainer=torch")


class NativeTrainer:
    """Trains on the CPU with the compiled kernel.

    The result of a job depends on the task's model, work and seed and on the job alone: not on threads, nor on the other
    jobs of the call. No jobs (r = 0) give an empty array [0 d]. With momentum mu (the heavy ball), a step is v <- mu v + g,
    theta <- theta - rate v; v is 0 when a job begins, and mu = 0 are the bits of plain SGD. `fast` computes convolutions
    by Winograd's algorithm and adds up their gradients in another order: the same mathematics, rounded otherwise.
    """

    takes_work: ClassVar[bool] = True

    def __init__(
        self,
        task: Task,
        momentum: Annotated[float, arg("momentum of the steps", ge=0, lt=1)] = 0.0,
        fast: Annotated[bool, arg("train convolutions with fewer operations, which round otherwise")] = False,
    ) -> None:
        if not isinstance(task.model, m.Model):
            raise FedtideError(
                f"the native trainer was given a {type(task.model).__name__} for a model: name one of fedtide's, or "
                "set learning.trainer=torch"
            )
        if tuple(task.shape) != tuple(task.model.input_shape):
            raise FedtideError(
                f"the model takes images {task.model.input_shape}, and those of the task are {task.shape}"
            )
        self.task: Final = task
        self.momentum: Final = float(momentum)
        self.fast: Final = bool(fast)
        self._isa = _wanted_isa()
        self._layers = _lower(task.model)
        self._num_parameters, self._num_labels = m.num_parameters(task.model), m.num_labels(task.model)
        self._threads = min(int(task.threads), MOST_THREADS)
        # The tables of the last call, as they were given and as the kernel takes them: those are not checked again.
        self._tables: dict[TableId, tuple[Samples, Samples]] = {}
        self._scored: tuple[Samples, Samples] | None = None  # the same of the last evaluation

    @property
    def name(self) -> str:
        """What it is called in the records of a run."""
        given = ([f"momentum={self.momentum}"] if self.momentum else []) + (["fast=True"] if self.fast else [])
        return "native" + (f" with {', '.join(given)}" if given else "")

    def initial_model(self, seed: int) -> Vector:
        """Return theta(1) [d] for this seed."""
        return m.initialize(self.task.model, stream(seed, "initial_model"))

    def train(self, jobs: Sequence[Job]) -> Vector:
        """Return the updates u_k [r d], one row per job."""
        check_jobs(jobs, self._num_parameters)
        if not jobs:
            return np.empty((0, self._num_parameters), np.float32)
        work, seed = [job.work or self.task.work for job in jobs], self.task.seed
        samples, rows = self._table(jobs)
        order = [batches(seed, *job.address, mine, own) for job, mine, own in zip(jobs, rows, work, strict=True)]
        keys = [stream_key(seed, "dropout", *job.address) for job in jobs]
        visited, visited_start = _joined([visited for visited, _ in order])
        bounds, bounds_start = _joined([bounds for _, bounds in order])
        with _refusals():
            return native.train(
                layers=self._layers,
                images=samples.images,
                labels=samples.labels,
                values=samples.values,
                start=np.stack([job.start for job in jobs]),
                learning_rate=np.array([job.learning_rate for job in jobs], np.float64),
                keys=np.array(keys, np.uint64),
                visited=visited,
                visited_start=visited_start,
                bounds=bounds,
                bounds_start=bounds_start,
                proximal=float(self.task.work.proximal),
                momentum=self.momentum,
                correction=_corrections(jobs),
                threads=self._threads,
                isa=self._isa,
                fast=self.fast,
            )

    def _table(self, jobs: Sequence[Job]) -> tuple[Samples, list[Ints]]:
        """Return one table with the samples of all jobs, and where in it those of each job are."""
        self._tables = read_trainer_tables(jobs, self._tables, self._checked)
        held = [self._tables[trainer_table_name(job.samples)][1] for job in jobs]
        if len(self._tables) == 1:
            return held[0], [np.asarray(job.indices, np.int64) for job in jobs]
        own = [table.taken(job.indices) for table, job in zip(held, jobs, strict=True)]
        ends = np.cumsum([len(job.indices) for job in jobs]).tolist()
        return _together(own), [np.arange(low, high) for low, high in itertools.pairwise([0, *ends])]

    def evaluate(self, model: Vector, samples: Samples) -> Score:
        """Return accuracy and mean loss of model [d], dropout off."""
        if self._scored is None or self._scored[0] is not samples:
            self._scored = samples, self._checked(samples)
        samples = self._scored[1]
        if len(samples.labels) == 0:
            raise FedtideError("there are no samples to evaluate on; give at least one")
        model = np.asarray(model, order="C")
        if model.dtype != np.float32 or model.shape != (self._num_parameters,):
            raise FedtideError(
                f"the vector is {model.dtype} {model.shape}; the model needs float32 {(self._num_parameters,)}"
            )
        with _refusals():
            correct, loss = native.evaluate(
                self._layers, samples.images, samples.labels, samples.values, model, self._threads, self._isa, self.fast
            )
        return Score(correct / len(samples.labels), loss / len(samples.labels))

    def check_samples(self, samples: Samples) -> None:
        """Raise if it can neither train nor score on such samples."""
        self._checked(samples)

    def _checked(self, samples: Samples) -> Samples:
        check_trainer_table(samples, self.task.shape, "model", ["uint8"])
        images, labels = np.asarray(samples.images), np.asarray(samples.labels)
        if labels.size and labels.max() >= self._num_labels:
            raise FedtideError(f"label {labels.max()} is out of range: the model gives {self._num_labels} logits")
        values = samples.values if samples.values is None else np.ascontiguousarray(samples.values)
        return Samples(np.ascontiguousarray(images), np.ascontiguousarray(labels), values)


def _corrections(jobs: Sequence[Job]) -> Vector | None:
    """Return what is added to the gradients of each job [r d]; None if nothing is to any."""
    if all(job.correction is None for job in jobs):
        return None
    return np.stack([np.zeros_like(job.start) if job.correction is None else job.correction for job in jobs])


def _together(tables: Sequence[Samples]) -> Samples:
    """Return the samples of all tables in one: as bytes if all are and mean the same by them, else as float32."""
    labels = np.concatenate([each.labels for each in tables])
    if len({None if each.values is None else each.values.tobytes() for each in tables}) == 1:
        return Samples(np.concatenate([each.images for each in tables]), labels, tables[0].values)
    return Samples(np.concatenate([each.floats() for each in tables]), labels)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise FedtideError(f"the native kernel refuses its input: {error}") from error


def _joined(parts: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Return the parts one after another and where each begins [r+1]."""
    starts = np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64)
    return np.concatenate([*parts, np.empty(0, np.int64)]).astype(np.int64, copy=False), starts


def _wanted_isa() -> str:
    wanted = os.environ.get("FEDTIDE_ISA", "")
    if wanted and wanted not in isas():
        raise FedtideError(
            f"FEDTIDE_ISA is {wanted!r}, but this machine and build offer {', '.join(isas())}: choose one of these or unset it"
        )
    return wanted
