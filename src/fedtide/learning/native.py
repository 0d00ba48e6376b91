"""The trainer that needs no framework: whole local trainings in C++, one job per thread at a time.

`FEDTIDE_ISA` = avx512, avx2 or baseline forces an instruction path; by default the fastest that the machine offers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from fedtide.errors import FedtideError
from fedtide.learning import trainer
from fedtide.learning.model import (
    ChannelDropout,
    Conv2d,
    Dropout,
    Layer,
    Linear,
    MaxPool2d,
    Model,
    ReLU,
    initialize,
    num_labels,
    num_parameters,
)
from fedtide.learning.trainer import LocalWork, Score
from fedtide.rng import key, stream
from fedtide.types import Floats, Ints, Samples, Vector

try:
    import fedtide._native as _native
except ImportError:  # installed without a compiler
    _native = None

MOST_THREADS: Final = 4096  # more than there are jobs is no use, and the kernel counts them in 32 bits

# The numbers are those of `enum class Kind` in native/plan.h.
_KINDS: Final[dict[type, int]] = {Conv2d: 0, MaxPool2d: 1, ReLU: 2, Dropout: 3, ChannelDropout: 4, Linear: 5}


def available() -> bool:
    """Return whether the compiled kernel is there."""
    return _native is not None


def isas() -> list[str]:
    """Return the instruction paths that this machine and build offer, fastest first; empty without the kernel."""
    return list(_native.isas()) if _native is not None else []


def isa() -> str:
    """Return the instruction path that trains here: bits are the same on the same path."""
    return os.environ.get("FEDTIDE_ISA") or (isas() or ["none"])[0]


def lower(model: Model) -> list[tuple[int, int, int, int, float]]:
    """Return the layers as the kernel reads them: (kind, size, kernel, padding, p)."""
    return [_lower_layer(layer) for layer in model.layers]


def _lower_layer(layer: Layer) -> tuple[int, int, int, int, float]:
    kind = _KINDS[type(layer)]
    if isinstance(layer, Conv2d):
        return (kind, layer.out, layer.kernel, layer.padding, 0.0)
    if isinstance(layer, MaxPool2d):
        return (kind, layer.size, 0, 0, 0.0)
    if isinstance(layer, (Dropout, ChannelDropout)):
        return (kind, 0, 0, 0, float(layer.p))
    return (kind, layer.out if isinstance(layer, Linear) else 0, 0, 0, 0.0)


class NativeTrainer:
    """Trains on the CPU with the compiled kernel; keeps the `Trainer` contract.

    model: what is trained. samples: all training data. partition: for each device, its sample numbers.
    The result of a job depends on (seed, device, version, start, learning rate) alone: not on threads, nor on the other
    jobs of the call. No jobs (r = 0) give an empty array [0 d].
    """

    def __init__(
        self,
        model: Model,
        samples: Samples,
        partition: Sequence[Ints],
        work: LocalWork,
        seed: int,
        threads: int = 1,
    ) -> None:
        if _native is None:
            raise FedtideError(
                "the native kernel is not part of this installation (no C++ compiler was found when it was made): install "
                "a C++ compiler and fedtide again, or `pip install 'fedtide[torch]'` and set learning.trainer=torch"
            )
        self._kernel: Any = _native
        self._isa = _wanted_isa()
        self._model, self._layers = model, lower(model)
        self._num_parameters, self._num_labels = num_parameters(model), num_labels(model)
        self._samples = self._checked(samples)
        self._partition = tuple(_checked_device(k, part, len(samples.labels)) for k, part in enumerate(partition))
        self._work, self._seed = _checked_work(work), seed
        if threads < 1:
            raise FedtideError(f"threads is {threads}; the native trainer needs at least 1")
        self._threads = min(int(threads), MOST_THREADS)

    @property
    def made_of(self) -> trainer.MadeOf:
        """What it was made of."""
        return trainer.MadeOf(self._model, self._samples, self._partition, self._work, self._seed)

    def initial_model(self, seed: int) -> Vector:
        """Return theta(1) [d] for this seed."""
        return initialize(self._model, stream(seed, "initial_model"))

    def train(self, start: Vector, device: Ints, version: Ints, learning_rate: Floats) -> Vector:
        """Return the updates u_k [r d] of r jobs: device [r] starting at start [r d], which is model version [r]."""
        start = np.asarray(start, order="C")
        device, version = np.asarray(device), np.asarray(version)
        rates = np.asarray(learning_rate, np.float64, order="C")
        jobs = len(device) if device.ndim == 1 else -1
        if device.shape != (jobs,) or version.shape != (jobs,) or rates.shape != (jobs,):
            raise FedtideError(
                f"device {device.shape}, version {version.shape} and learning_rate {rates.shape} must be vectors with one "
                "entry per job"
            )
        if start.dtype != np.float32 or start.shape != (jobs, self._num_parameters):
            raise FedtideError(
                f"start is {start.dtype} {start.shape}; {jobs} jobs of this model need float32 {(jobs, self._num_parameters)}"
            )
        for name, numbers in (("device", device), ("version", version)):
            if jobs and not np.issubdtype(numbers.dtype, np.integer):
                raise FedtideError(f"{name} holds {numbers.dtype}; it needs whole numbers")
        if jobs and (device.min() < 0 or device.max() >= len(self._partition)):
            raise FedtideError(
                f"device {device.tolist()} goes beyond the {len(self._partition)} devices of the partition"
            )
        if jobs and version.min() < 0:
            raise FedtideError(f"version {version.tolist()} holds a negative number; versions count from 1")

        visited, bounds, keys = [], [], []
        for k, v in zip(device.tolist(), version.tolist(), strict=True):
            job_visited, job_bounds = trainer.batches(self._seed, k, v, self._partition[k], self._work)
            visited.append(job_visited)
            bounds.append(job_bounds)
            keys.append(key(self._seed, "dropout", k, v))
        updates: Vector = self._call(
            self._kernel.train,
            *(self._layers, self._samples.images, self._samples.labels, start, rates, np.array(keys, np.uint64)),
            *(*_joined(visited), *_joined(bounds), float(self._work.proximal), self._threads, self._isa),
        )
        return updates

    def evaluate(self, model: Vector, samples: Samples) -> Score:
        """Return accuracy and mean loss of model [d], dropout off."""
        samples = self._checked(samples)
        if len(samples.labels) == 0:
            raise FedtideError("there are no samples to evaluate on; give at least one")
        model = np.asarray(model, order="C")
        if model.dtype != np.float32 or model.shape != (self._num_parameters,):
            raise FedtideError(
                f"the vector is {model.dtype} {model.shape}; the model needs float32 {(self._num_parameters,)}"
            )
        correct, loss = self._call(
            self._kernel.evaluate, self._layers, samples.images, samples.labels, model, self._threads, self._isa
        )
        return Score(correct / len(samples.labels), loss / len(samples.labels))

    def _checked(self, samples: Samples) -> Samples:
        images, labels = np.asarray(samples.images), np.asarray(samples.labels)
        wanted = tuple(self._model.input_shape)
        if images.dtype != np.float32 or images.ndim != 4 or images.shape[1:] != wanted:
            raise FedtideError(f"images are {images.dtype} {images.shape}; the model needs float32 [n, *{wanted}]")
        if labels.dtype != np.uint8 or labels.shape != images.shape[:1]:
            raise FedtideError(
                f"labels are {labels.dtype} {labels.shape}; {len(images)} images need uint8 {images.shape[:1]}"
            )
        if labels.size and labels.max() >= self._num_labels:
            raise FedtideError(f"label {labels.max()} is out of range: the model gives {self._num_labels} logits")
        return Samples(np.ascontiguousarray(images), np.ascontiguousarray(labels))

    def _call(self, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
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


def _checked_device(device: int, part: Ints, num_samples: int) -> Ints:
    part = np.asarray(part)
    if part.ndim != 1 or not part.size or not np.issubdtype(part.dtype, np.integer):
        raise FedtideError(
            f"device {device} holds {part.dtype} {part.shape}; it needs a vector of at least one sample number"
        )
    if part.min() < 0 or part.max() >= num_samples:
        raise FedtideError(
            f"device {device} holds sample numbers from {part.min()} to {part.max()}; there are {num_samples} samples"
        )
    return part.astype(np.int64, copy=False)


def _checked_work(work: LocalWork) -> LocalWork:
    if work.batch_size < 1:
        raise FedtideError(f"batch_size is {work.batch_size}; it must be at least 1")
    if (work.steps if work.steps is not None else work.epochs or 0) < 0:
        raise FedtideError(f"{work} asks for a negative amount of work")
    if not (np.isfinite(work.proximal) and work.proximal >= 0):
        raise FedtideError(f"proximal is {work.proximal}; it must be finite and not negative")
    return work
