"""Is there room for what a run will hold? Asked before it begins: a machine that runs out of memory kills without a word."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from fedtide.core.memory_budget import require
from fedtide.engine.system import System
from fedtide.engine.training import updates_state_on_train
from fedtide.learning.trainer import Trainer, samples_per_training
from fedtide.parts import checks
from fedtide.types import Vector

_COPIES: Final = (
    3  # of what a part of the server remembers while it is called: what was, what it writes to, what it answers
)


def check_room(system: System, trainer: Trainer, model: Vector) -> None:
    """Raise if a run of these models [d] would need more memory than there is for anything that grows with the fleet.

    What is counted is what our own parts keep; those of a user's are the user's to know.
    """
    work, most = system.work, samples_per_training(system.work, system.fleet.num_samples.max()[None])[0]
    key = "local_epochs" if work.steps is None else "local_steps"
    require(16.0 * float(most), f"the order of the {most:,} samples of one local training", f"lower learning.{key}")
    _check_models(system, len(model))
    _check_server(system, model)
    _check_devices(system, trainer, len(model))


def _check_models(system: System, num_parameters: int) -> None:
    """Where devices come one by one, each trains from a model version of its own."""
    experiment, count = system.experiment, system.fleet.num_devices
    name = experiment.part("timeline").name
    size = {"per_arrival": 1, "buffered": experiment.timeline.buffer_size}.get(name)
    if size is None:
        return
    versions = min(count // size, len(system.ticks)) + 1
    require(
        4.0 * versions * num_parameters,
        f"timeline.name={name} with fleet.num_devices={count:,}: the {versions:,} versions of a model of "
        f"{num_parameters:,} parameters that devices train from",
        "take fewer devices, a smaller model, a shorter timeline.horizon, or timeline.name=periodic",
    )


def _check_server(system: System, model: Vector) -> None:
    aggregator = system.policy.aggregator
    if not checks.is_ours(aggregator):
        return
    size = _size(aggregator.init(model.copy(), system.fleet.num_devices))
    require(
        _COPIES * size,
        f"what policy.aggregator={system.experiment.policy.aggregator} remembers of fleet.num_devices="
        f"{system.fleet.num_devices:,} devices and {len(model):,} parameters",
        "take fewer devices, a smaller model, or another aggregator",
    )


def _check_devices(system: System, trainer: Trainer, num_parameters: int) -> None:
    """What simulated devices remember is kept from the first time that each of them is touched."""
    experiment, count = system.experiment, system.fleet.num_devices
    picked = min(count, len(system.ticks) * experiment.policy.limit)
    named = {
        "codec": (system.codec, f"codec.name={experiment.codec.name}", picked),
        "trainer": (
            trainer,
            f"learning.trainer={experiment.learning.trainer}",
            count if updates_state_on_train(trainer) else picked,
        ),
    }
    for kind, (part, name, touched) in named.items():
        if not checks.remembers(part) or not checks.is_ours(part):
            continue
        start: Any = part
        require(
            touched * _size(start.init(num_parameters)),
            f"what {name} remembers of {touched:,} devices and {num_parameters:,} parameters",
            f"take fewer devices, a smaller model, a shorter timeline.horizon, or another {kind}",
        )


def _size(memory: Any) -> float:
    """Return how many bytes named arrays take."""
    return float(sum(np.asarray(each).nbytes for each in memory.values()))
