"""What is looked at before a run begins: what a caller handed over, users' own parts, and whether there is room for it all."""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from fedtide import config, testing
from fedtide.config import Experiment
from fedtide.core.memory_budget import require_memory
from fedtide.core.yaml12 import shown
from fedtide.data.dataset import check_dataset
from fedtide.data.holdings import has_virtual_holdings, holding_label_counts
from fedtide.engine.devices import updates_state_on_train
from fedtide.engine.loop import make_metrics, trainer_label
from fedtide.engine.step import plan_step
from fedtide.engine.system import System, make_task
from fedtide.errors import FedtideError, RunFolderError
from fedtide.learning.trainer import Task, Trainer, work_is_equal
from fedtide.parts import checks
from fedtide.rng import stream
from fedtide.runs import RunHeader, data_digest, is_deployment_folder
from fedtide.types import Candidates, Vector, readonly_copy

ASKED_AGAIN: Final = 5  # the last aggregations on record
_COPIES: Final = 3  # of a part's memory while it is called: what was, what it writes to, what it answers


# What a caller hands over: the right things, and fitting each other.


def preflight_experiment(given: Any) -> Experiment:
    """Return an experiment as it is, and a mapping or a file as the experiment that it stands for."""
    return given if isinstance(given, Experiment) else config.experiment(given)


def preflight_handed_parts(experiment: Experiment, dataset: Any, system: Any, trainer: Any) -> tuple[str, ...]:
    """Return which parts of a run were handed over; raise if one is none, or does not fit the others."""
    if system is not None and not isinstance(system, System):
        raise FedtideError(f"system={shown(system)}: give what fedtide.engine.system.build made of the experiment")
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
            raise FedtideError(f"trainer={shown(trainer)} has no {method}(...): see fedtide.learning.trainer.Trainer")
    given = {"dataset": dataset, "system": system, "trainer": trainer}
    return tuple(name for name, each in given.items() if each is not None)


def _check_unchanged(system: System) -> None:
    """Raise if devices no longer hold the labels that they held when the system was built."""
    data, fleet = system.dataset, system.fleet
    if not len(data.train.labels) or not len(fleet.partition) or has_virtual_holdings(fleet.partition):
        return
    if not np.array_equal(
        holding_label_counts(data.train.labels, fleet.partition, data.num_labels), fleet.label_counts
    ):
        raise FedtideError("the labels of the dataset changed since the system was built from it: build it again")


def preflight_trainer(trainer: Any, system: System) -> None:
    """Raise if a trainer was made of another system, or cannot take its data; one that tells neither is the user's business."""
    task, wanted = getattr(trainer, "task", None), make_task(system)
    if isinstance(task, Task):
        differs = {
            "seed": task.seed != wanted.seed,
            "local work": task.work != wanted.work,
            "model": _plain(task.model) != _plain(wanted.model),
            "shape of images": task.shape != wanted.shape,
        }
        if other := [name for name, yes in differs.items() if yes]:
            raise FedtideError(
                f"the trainer was made of another system (its {', '.join(other)} differ): make it with "
                "fedtide.engine.system.make_trainer(system) of the system that is simulated"
            )
    if not work_is_equal(system.device_work.part) and not getattr(trainer, "takes_work", False):
        raise FedtideError(
            f"{trainer_label(trainer)} does not say that it does what a job's own `work` says (takes_work = True), which "
            f"learning.work={system.experiment.learning.work} sets: train by `job.work or task.work` and say so, or leave "
            "learning.work out"
        )
    if system.world is not None and updates_state_on_train(trainer):
        _refuse_remembering(trainer, system.experiment)
    if callable(check_samples := getattr(trainer, "check_samples", None)):
        check_samples(system.dataset.train)
        check_samples(system.dataset.test)


def _refuse_remembering(trainer: Any, experiment: Experiment) -> None:
    """Raise if a trainer's memory goes on with every training, and updates are sent at a later tick than they are ready."""
    keys = {
        "timeline.uploads=later": experiment.timeline.uploads == "later",
        "fleet.unpicked=keep": experiment.fleet.unpicked == "keep",
        f"radio.retransmission={experiment.radio.retransmission}": experiment.radio.retransmission.name != "drop",
    }
    for key in [key for key, given in keys.items() if given][:1]:
        raise FedtideError(
            f"{trainer_label(trainer)} remembers something with every training, so that every device is trained when it is ready, "
            f"and by {key} its update waits to be sent: give the trainer a method `arrived`, or leave {key} out"
        )


def _plain(model: Any) -> Any:
    """Return a model as something that equals what was made alike, which a partial does not."""
    return (model.func, model.args, model.keywords) if isinstance(model, functools.partial) else model


def preflight_folder(folder: Any) -> Path | RunHeader | None:
    """Return where to keep a run: a path, or the header that was read there; raise if no simulation can be there."""
    if folder is None:
        return None
    place = folder.path if isinstance(folder, RunHeader) else folder
    if not isinstance(place, (str, os.PathLike)) or not str(place) or "\0" in str(place):
        raise FedtideError(f"folder={folder!r} names no folder: give a path, or None to keep nothing")
    if is_deployment_folder(Path(place)):
        raise RunFolderError(
            f"{place} holds a federation of real devices: start its ServerApp again, which continues it"
        )
    return folder if isinstance(folder, RunHeader) else Path(place)


# Users' own parts: asked twice before a run begins, and about the last recorded aggregations before it goes on. A resumed run
# makes its parts anew: one that depends on more than it is called with would go on with other numbers.


def preflight_own_parts(system: System, num_parameters: int) -> None:
    """Raise if a part of the user's own answers otherwise when it is asked again. Parts of the world are asked when made."""
    policy = system.policy
    parts = {
        "scheduler": policy.scheduler,
        "weighting": policy.weighting,
        "aggregator": policy.aggregator,
        "codec": system.codec,
        "access": system.access,
    }
    sizes = system.fleet.num_devices, system.dataset.num_labels, num_parameters
    testing.refuse_impure(parts, *sizes)
    for metric in make_metrics(system.experiment):
        testing.refuse_impure({"metric": metric}, *sizes)


class Answered(NamedTuple):
    """One aggregation as it was: what the policies saw, and what they answered."""

    rows: Candidates
    picked: list[int]  # device numbers, ascending
    arrived: list[int]  # those of them whose updates were weighed
    weight: list[float]  # of these


def preflight_answers(path: Path, system: System, answered: Iterable[Answered], called: str = "at aggregation") -> None:
    """Raise if a user's scheduler or weighting does not answer again as it did. called: what goes before its number.

    What aggregators and codecs were given is not on record.
    """
    policy = system.policy
    scheduler, weighting = (
        not checks.is_ours(part) and not checks.part_remembers(part)  # memory is on record
        for part in (policy.scheduler, policy.weighting)
    )
    if not (scheduler or weighting):
        return
    for rows, picked, arrived, weight in deque(answered, ASKED_AGAIN):
        when = f"{called} {rows.tick} than before the interruption"
        if scheduler and (rows.update_sq_norm is not None or not policy.needs):
            rng = stream(system.experiment.seed, "schedule", rows.tick)
            grant = plan_step(policy, rows, system.num_symbols, rng, system.allocation)
            if rows.device[grant.picked].tolist() != picked:
                label = checks.part_label("scheduler", policy.scheduler)
                raise _stateful(path, f"{label} picks other devices {when}")
        if weighting and arrived:
            came = rows.device.searchsorted(arrived)
            label = checks.part_label("weighting", policy.weighting)
            answer = policy.weighting(readonly_copy(rows.num_samples[came]), readonly_copy(rows.age[came]))
            if checks.checked_weights(answer, len(came), label).tolist() != weight:
                raise _stateful(path, f"{label} gives other weights {when}")


def _stateful(path: Path, reason: str) -> RunFolderError:
    return RunFolderError(
        f"{path} cannot be resumed to the same numbers: {reason}, and a resumed run makes its policies anew; begin it again in "
        "a new folder, or let the policy depend on its arguments alone (candidates.tick counts the aggregations, rng is the "
        "same each time; for a cache use functools.lru_cache)"
    )


# Room: a machine that runs out of memory kills without a word.


def preflight_memory(system: System, trainer: Trainer, model: Vector) -> None:
    """Raise if a run of these models [d] would need more memory than there is for anything that grows with the fleet.

    What is counted is what our own parts keep; those of a user's are the user's to know.
    """
    experiment, count, d = system.experiment, system.fleet.num_devices, len(model)
    work, held = system.device_work, system.fleet.num_samples
    most = work.samples(np.arange(count), np.ones(count, np.int64), held).max()
    key = "local_epochs" if system.work.steps is None else "local_steps"
    key = key if work_is_equal(work.part) else f"work={experiment.learning.work}"
    require_memory(
        16.0 * float(most), f"the order of the {most:,} samples of one local training", f"lower learning.{key}"
    )
    name, ticks = (
        experiment.part("timeline").name,
        count if system.world else len(system.ticks),
    )  # as many as may matter
    num_edges = 1 if system.edges is None else system.edges.count
    if system.edges is not None:
        require_memory(
            4.0 * _COPIES * d * num_edges,
            f"policy.aggregator=hierarchical with {num_edges:,} edge servers: their models of {d:,} parameters in each version",
            "take fewer edges or a smaller model",
        )
        model = system.edges.tiled(model)
    if size := {"per_arrival": 1, "buffered": experiment.timeline.buffer_size}.get(name):
        # where devices come one by one, each trains from a model version of its own
        versions = min(count // size, ticks) + 1
        require_memory(
            4.0 * versions * d * num_edges,
            f"timeline.name={name} with fleet.num_devices={count:,}: the {versions:,} versions of a model of "
            f"{d:,} parameters that devices train from",
            "take fewer devices, a smaller model, a shorter timeline.horizon, or timeline.name=periodic",
        )
    aggregator, codec, part = system.policy.aggregator, system.codec, experiment.learning.trainer
    picked = min(count, ticks * experiment.policy.limit)
    trained = count if updates_state_on_train(trainer) else picked  # whoever is touched is remembered from then on
    _require_memory(aggregator, f"policy.aggregator={experiment.policy.aggregator}", count, d, _COPIES, model, count)
    _require_memory(codec, f"codec.name={experiment.codec.name}", picked, d, picked, d)
    _require_memory(trainer, f"learning.trainer={part}", trained, d, trained, d)


def _require_memory(part: Any, name: str, devices: int, num_parameters: int, copies: int, *init: Any) -> None:
    """Raise if so many copies of what a part of ours remembers do not fit. init: what its memory is made of."""
    if not checks.part_remembers(part) or not checks.is_ours(part):
        return
    made = part.init(*(each.copy() if isinstance(each, np.ndarray) else each for each in init))
    require_memory(
        float(copies * sum(np.asarray(each).nbytes for each in made.values())),
        f"what {name} remembers of {devices:,} devices and {num_parameters:,} parameters",
        "take fewer devices, a smaller model, a shorter timeline.horizon, or another part",
    )
