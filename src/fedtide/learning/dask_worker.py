"""What a Dask worker does and holds of a run: tables of samples, and the trainer.

Both are plugins, which Dask sends once to every worker, also to one that joins later. They are named by what they hold, so that a run
which is started again finds those of a killed one.
"""

from __future__ import annotations

import hashlib
import pickle
import threading
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from distributed import WorkerPlugin, get_worker

from fedtide.errors import FedtideError
from fedtide.learning.native import native_isa
from fedtide.types import Job, Samples, Trained, Vector

_CODED_AT_ONCE: Final = 2048  # images


class Chunk(NamedTuple):
    """Jobs that a worker trains in one go. Every model that they start from is there once."""

    maker: str  # by name
    starts: Sequence[Vector]  # [d] each
    jobs: Sequence[Any]  # Job, with a number of the models above as `start` and the name of a table as `samples`


class Missing(NamedTuple):
    """The answer of a worker that lacks something: another run on the cluster took it away."""

    names: tuple[str, ...]


class JobTable(WorkerPlugin):  # type: ignore[misc]
    """A table of samples on a worker."""

    idempotent: ClassVar[bool] = True  # one that is there already is not sent again

    def __init__(self, samples: Samples) -> None:
        self.samples = samples


class Maker(WorkerPlugin):  # type: ignore[misc]
    """What makes the trainer of a run on a worker, which is kept there; it trains one chunk at a time, on all its threads."""

    idempotent: ClassVar[bool] = True

    def __init__(self, made_of: bytes, path: str | None, packages: Mapping[str, str | None]) -> None:
        self._made_of, self._path, self._packages = made_of, path, packages
        self.name = content_name("trainer", made_of, repr((path, sorted(packages.items()))).encode())
        self._trainer: Any = None

    def setup(self, worker: Any) -> None:
        """Begin on a worker: what belongs to one process is made there."""
        self._lock, self._where, self._threads = threading.Lock(), worker.address, worker.state.nthreads

    def train(self, jobs: Sequence[Job]) -> Vector | Trained:
        """Train some jobs; raise if this worker would give other bits than the run's own process."""
        with self._lock:
            if self._trainer is None:
                self._check()
                found, task, args = pickle.loads(self._made_of)
                self._trainer = found(task._replace(threads=self._threads), **args)
            answer: Vector | Trained = self._trainer.train(jobs)
            return answer

    def _check(self) -> None:
        for package, wanted in self._packages.items():
            if (here := installed_version(package)) != wanted:
                raise FedtideError(
                    f"the Dask worker {self._where} has {package} {here}, the run {wanted}, and another may give other bits: "
                    f"install {package} {wanted} there"
                )
        if self._path is not None and native_isa() != self._path:
            raise FedtideError(
                f"the Dask worker {self._where} trains on the instruction path {native_isa()}, the run on {self._path}, and another "
                f"gives other bits: start this worker with FEDTIDE_ISA={self._path}, or without it, or the run on its path"
            )


def installed_version(package: str) -> str | None:
    """Return the version of a package here; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def content_name(kind: str, *contents: Any) -> str:
    """Return the name of what holds these arrays or bytes."""
    digest = hashlib.sha256()
    for each in contents:
        array = np.ascontiguousarray(np.frombuffer(each, np.uint8) if isinstance(each, bytes) else each)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.view(np.uint8).data if array.size else b"")
    return f"fedtide-{kind}-{digest.hexdigest()[:32]}"


def train_chunk(chunk: Chunk) -> Vector | Trained | Missing:
    """Train the jobs of a chunk on the worker that this runs on."""
    held = get_worker().plugins
    if missing := tuple(sorted({chunk.maker, *(job.samples for job in chunk.jobs)} - held.keys())):
        return Missing(missing)
    jobs = [job._replace(start=chunk.starts[job.start], samples=held[job.samples].samples) for job in chunk.jobs]
    answer: Vector | Trained = held[chunk.maker].train(jobs)
    return answer


def as_bytes(samples: Samples) -> Samples:
    """Return images of at most 256 values per channel as bytes, which train to the same bits in a quarter of the size."""
    images = samples.images
    if images.dtype != np.float32 or images.ndim != 4:
        return samples
    coded, values = np.empty(images.shape, np.uint8), np.zeros((images.shape[1], 256), np.float32)
    for channel in range(images.shape[1]):
        known = np.zeros(0, np.uint32)  # the values' bits
        for again in (False, True):  # look for values, then code them
            for first in range(0, len(images), _CODED_AT_ONCE):
                rows = slice(first, first + _CODED_AT_ONCE)
                bits = np.ascontiguousarray(images[rows, channel]).view(np.uint32)
                place = np.searchsorted(known, bits)
                if again:
                    coded[rows, channel] = place
                elif (other := bits[np.take(known, place, mode="clip") != bits] if len(known) else bits).size:
                    known = np.union1d(known, other)
                    if len(known) > values.shape[1]:
                        return samples
        values[channel, : len(known)] = known.view(np.float32)
    return samples._replace(images=coded, values=values)
