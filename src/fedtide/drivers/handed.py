"""What a caller of `simulate` hands over, looked at before anything begins: the right things, and fitting each other."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import numpy as np

from fedtide.config import Experiment
from fedtide.errors import DataError, FedtideError, RunFolderError
from fedtide.learning.trainer import Task
from fedtide.records import data_digest, is_deployment
from fedtide.system import System, make_task
from fedtide.types import Dataset, Samples


def check_arguments(experiment: Any, threads: Any, on_round: Any) -> None:
    """Raise if a caller gave something else than an experiment, a number of threads and a function."""
    if not isinstance(experiment, Experiment):
        raise FedtideError(
            f"simulate was given a {_kind(experiment)} for an experiment: make one with fedtide.experiment(...)"
        )
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)) or threads < 1:
        raise FedtideError(f"threads={threads!r} must be a whole number of at least 1")
    if on_round is not None and not callable(on_round):
        raise FedtideError(
            f"on_round is a {_kind(on_round)} and cannot be called: give a function of a record and a number"
        )


def check_handed(experiment: Experiment, dataset: Any, system: Any, trainer: Any) -> tuple[str, ...]:
    """Return which parts of a run were handed over; raise if one is none, or does not fit the others."""
    if system is not None and not isinstance(system, System):
        raise FedtideError(f"system is a {_kind(system)}: give what fedtide.system.build made of the experiment")
    if system is not None and system.experiment != experiment:
        raise FedtideError("the system was built from another experiment; build it from the one that is simulated")
    for each in (dataset, system.dataset if system is not None else None):
        if each is not None:
            _check_dataset(each)
    own = dataset if system is None else system.dataset
    if dataset is not None and dataset is not own and data_digest(dataset) != data_digest(own):
        raise FedtideError("the dataset is not the one that the system was built with; hand over one of them alone")
    for method in ("initial_model", "train", "evaluate"):
        if trainer is not None and not callable(getattr(trainer, method, None)):
            raise FedtideError(
                f"trainer is a {_kind(trainer)} without {method}(...): see fedtide.learning.trainer.Trainer"
            )
    given = {"dataset": dataset, "system": system, "trainer": trainer}
    return tuple(name for name, each in given.items() if each is not None)


def check_trainer(trainer: Any, system: System) -> None:
    """Raise if a trainer was made of another system, or cannot take its data; one that tells neither is the user's business."""
    check_samples = getattr(trainer, "check_samples", None)
    task = getattr(trainer, "task", None)
    if isinstance(task, Task):
        _check_task(task, system)
    if callable(check_samples):
        check_samples(system.dataset.train)
        check_samples(system.dataset.test)


def _check_task(task: Task, system: System) -> None:
    wanted = make_task(system)
    differs = {
        "seed": task.seed != wanted.seed,
        "local work": task.work != wanted.work,
        "model": _plain(task.model) != _plain(wanted.model),
        "shape of images": task.shape != wanted.shape,
    }
    other = [name for name, yes in differs.items() if yes]
    if other:
        raise FedtideError(
            f"the trainer was made of another system (its {', '.join(other)} differ): make it with "
            "fedtide.system.make_trainer(system) of the system that is simulated"
        )


def _plain(model: Any) -> Any:
    """Return a model as something that equals what was made alike, which a partial does not."""
    return (model.func, model.args, model.keywords) if isinstance(model, functools.partial) else model


def checked_folder(folder: Any) -> Path | None:
    """Return where to keep a run as a path; raise if that cannot be a simulation's folder."""
    if folder is None:
        return None
    if not isinstance(folder, (str, os.PathLike)) or not str(folder) or "\0" in str(folder):
        raise FedtideError(f"folder={folder!r} names no folder: give a path, or None to keep nothing")
    path = Path(folder)
    if is_deployment(path):
        raise RunFolderError(
            f"{path} holds a federation of real devices: start its ServerApp again, which continues it"
        )
    return path


def _kind(thing: Any) -> str:
    return type(thing).__name__


def _check_dataset(dataset: Any) -> None:
    """Raise if something is not a data set that can be shared out and trained on."""
    if not isinstance(dataset, Dataset):
        raise DataError(f"dataset is a {_kind(dataset)}: give a fedtide.types.Dataset, as fedtide.data.load returns")
    if not isinstance(dataset.num_labels, (int, np.integer)) or not 1 <= dataset.num_labels <= 256:
        raise DataError(f"the data set has num_labels={dataset.num_labels!r}: it must be a whole number from 1 to 256")
    for part, samples in (("train", dataset.train), ("test", dataset.test)):
        if not isinstance(samples, Samples) or not all(isinstance(each, np.ndarray) for each in samples):
            raise DataError(
                f"the data set's {part} is a {_kind(samples)}: give Samples(images, labels) of NumPy arrays"
            )
        images, labels = samples
        if (
            images.ndim != 4
            or 0 in images.shape[1:]
            or images.dtype.kind != "f"
            or labels.dtype.kind not in "iu"
            or labels.shape != images.shape[:1]
        ):
            raise DataError(
                f"the data set's {part} has images {images.dtype}{list(images.shape)} and labels {labels.dtype}"
                f"{list(labels.shape)}: give float32 [n channels height width] and uint8 [n]"
            )
        if not len(labels) or labels.min() < 0 or labels.max() >= dataset.num_labels:
            has = f"labels from {labels.min()} to {labels.max()}" if len(labels) else "no samples"
            raise DataError(f"the data set's {part} has {has}: give at least one, labels 0 to {dataset.num_labels - 1}")
        if not np.isfinite(images).all():
            raise DataError(f"the data set's {part} has images with NaN or infinity: give finite numbers")
