"""What a caller of `simulate` hands over, looked at before anything begins: the right things, and fitting each other."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedtide import config
from fedtide.config import Experiment
from fedtide.data.dataset import check_dataset
from fedtide.data.holdings import is_virtual, label_counts
from fedtide.engine.system import System, make_task
from fedtide.errors import FedtideError, RunFolderError
from fedtide.learning.trainer import Task
from fedtide.runs import RunHeader, data_digest, is_deployment


def as_experiment(given: Any) -> Experiment:
    """Return an experiment as it is, and a mapping or a file as the experiment that it stands for."""
    if isinstance(given, (str, Path, Mapping)):
        return config.experiment(given)
    if not isinstance(given, Experiment):
        raise FedtideError(f"got a {_kind(given)} for an experiment: make one with fedtide.experiment(...)")
    return given


def check_simulate_arguments(threads: Any, on_round: Any) -> None:
    """Raise if a caller gave something else than a number of threads and a function."""
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)) or threads < 1:
        raise FedtideError(f"threads={threads!r} must be a whole number of at least 1")
    if on_round is not None and not callable(on_round):
        raise FedtideError(
            f"on_round is a {_kind(on_round)} and cannot be called: give a function of a record and a number"
        )


def check_handed(experiment: Experiment, dataset: Any, system: Any, trainer: Any) -> tuple[str, ...]:
    """Return which parts of a run were handed over; raise if one is none, or does not fit the others."""
    if system is not None and not isinstance(system, System):
        raise FedtideError(f"system is a {_kind(system)}: give what fedtide.engine.system.build made of the experiment")
    if system is not None and system.experiment != experiment:
        raise FedtideError("the system was built from another experiment; build it from the one that is simulated")
    if dataset is not None:
        check_dataset(dataset)
    if system is not None:  # a trainer of one's own may hold all the data itself
        check_dataset(system.dataset, may_be_empty=trainer is not None)
        _check_unchanged(system)
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


def _check_unchanged(system: System) -> None:
    """Raise if devices no longer hold the labels that they held when the system was built."""
    data, fleet = system.dataset, system.fleet
    if not len(data.train.labels) or not len(fleet.partition) or is_virtual(fleet.partition):
        return
    if not np.array_equal(label_counts(data.train.labels, fleet.partition, data.num_labels), fleet.label_counts):
        raise FedtideError("the labels of the dataset changed since the system was built from it: build it again")


def check_given_trainer(trainer: Any, system: System) -> None:
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
            "fedtide.engine.system.make_trainer(system) of the system that is simulated"
        )


def _plain(model: Any) -> Any:
    """Return a model as something that equals what was made alike, which a partial does not."""
    return (model.func, model.args, model.keywords) if isinstance(model, functools.partial) else model


def checked_folder(folder: Any) -> Path | RunHeader | None:
    """Return where to keep a run: a path, or the header that was read there; raise if no simulation can be there."""
    if folder is None:
        return None
    if isinstance(folder, RunHeader):
        checked_folder(folder.path)
        return folder
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
