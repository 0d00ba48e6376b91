"""Local trainings of devices that are simulated here, with what their trainer remembers of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from fedtide.core import parts
from fedtide.core.answers import as_array, shown
from fedtide.core.lasting import table
from fedtide.drivers.witness import PATIENCE_SECONDS, in_a_copy
from fedtide.errors import TrainingError
from fedtide.learning.trainer import Trainer
from fedtide.records import trainer_name
from fedtide.server import border
from fedtide.server.step import Received
from fedtide.types import Job, Memory, Trained, Vector, lent, read_only

Devices: TypeAlias = Mapping[str, Mapping[int, Memory]]  # what devices remember, by kind of part and device


def train(trainer: Trainer, jobs: Sequence[Job], devices: Devices) -> tuple[dict[int, Vector], Devices]:
    """Train jobs of different devices; return the updates [d] by device, and what devices remember then."""
    if not jobs:
        return {}, devices
    jobs = [job._replace(start=lent(job.start), mine=read_only(job.mine)) for job in jobs]  # these are the server's
    if not parts.remembers(trainer):
        updates = _checked(trainer.train(jobs), jobs, trainer)
        return {job.device: update for job, update in zip(jobs, updates, strict=True)}, devices
    known, label = table(devices.get("trainer", {})), trainer_label(trainer)
    memory: dict[int, Memory] = {}
    for job in jobs:
        new = job.device not in known  # it is touched for the first time
        memory[job.device] = border.first_memory(trainer, "trainer", len(job.start)) if new else known[job.device]
    answer: Any = trainer.train([job._replace(memory=border.lent_memory(memory[job.device])) for job in jobs])
    if waits(trainer):
        updates = _checked(answer, jobs, trainer)
        return {job.device: row for job, row in zip(jobs, updates, strict=True)}, devices
    given = answer.memory if isinstance(answer, Trained) else None
    if not isinstance(given, list | tuple) or len(given) != len(jobs):
        what = f"Trained with {shown(given)}" if isinstance(answer, Trained) else f"a {type(answer).__name__}"
        raise TrainingError(
            f"{label} has memory and returned {what}: return Trained(updates, memory), a row and a memory for each of the "
            f"{len(jobs)} jobs"
        )
    updates = _checked(answer.updates, jobs, trainer)
    for job, after in zip(jobs, given, strict=True):
        memory[job.device] = border.memory(after, memory[job.device], label)
    return {job.device: row for job, row in zip(jobs, updates, strict=True)}, {
        **devices,
        "trainer": known.after(memory),
    }


def refuse_dice(trainer: Trainer, jobs: Sequence[Job], devices: Devices, updates: Mapping[int, Vector]) -> None:
    """Raise if a trainer of the user's own trains these jobs otherwise when it is asked again: no resume would repeat it."""
    if parts.is_ours(trainer):
        return

    def ask() -> str:
        again, _ = train(trainer, jobs, devices)
        return "" if all(np.array_equal(again[k], updates[k], equal_nan=True) for k in updates) else "differs"

    found = in_a_copy(ask, PATIENCE_SECONDS)
    if ask() if found is None else found:
        raise TrainingError(
            f"{trainer_label(trainer)} gives another update when it trains the same job again: draw only by address "
            "(fedtide.rng.stream(seed, ..., job.device, job.version)) and keep state only in job.memory"
        )


def waits(trainer: Trainer) -> bool:
    """Say whether what a trainer remembers of a device goes on with what arrives, not with every training."""
    return parts.remembers(trainer) and callable(getattr(trainer, "arrived", None))


def goes_on(trainer: Trainer) -> bool:
    """Say whether a trainer has to train every ready device, picked or not, since its memory goes on with it."""
    return parts.remembers(trainer) and not waits(trainer)


def acknowledged(trainer: Trainer, received: Received) -> Received:
    """Let a trainer that waits for it remember what arrived: only these devices' memory goes on."""
    if not waits(trainer) or not received.updates:
        return received
    memory = table(received.devices.get("trainer", {}))
    after = {device: after_arrival(trainer, memory.get(device), update) for device, update in received.updates.items()}
    return received._replace(devices={**received.devices, "trainer": memory.after(after)})


def after_arrival(trainer: Trainer, memory: Memory | None, update: Vector) -> Memory:
    """Return what a trainer remembers of a device whose update [d] the server has, as it reads it."""
    before = border.first_memory(trainer, "trainer", len(update)) if memory is None else memory
    call: Any = trainer
    return border.memory(call.arrived(border.lent_memory(before), lent(update)), before, trainer_label(trainer))


def close(trainer: Trainer) -> None:
    """Let a trainer go that holds something, such as the processes of a cluster."""
    made = trainer.policy if isinstance(trainer, parts.Guarded) else trainer
    if callable(let_go := getattr(made, "close", None)):
        let_go()


def _checked(answer: Any, jobs: Sequence[Job], trainer: Trainer) -> Vector:
    """Return what a trainer made as float32, which is what devices send, a row for each job; raise if it is something else."""
    shape, updates = (len(jobs), len(jobs[0].start)), as_array(answer)
    if updates.shape != shape or updates.dtype.kind not in "fiu":
        raise TrainingError(
            f"{trainer_label(trainer)} returned updates {updates.dtype}{list(updates.shape)}: it must give float32 "
            f"{list(shape)}, one row for each job"
        )
    with np.errstate(over="ignore"):
        made: Vector = updates.astype(np.float32, copy=False)
    return made


def trainer_label(trainer: Trainer) -> str:
    """Name a trainer in an error message about its answer."""
    if isinstance(trainer, parts.Guarded):
        return parts.label("trainer", trainer)
    return f"the trainer {trainer_name(trainer)}{parts.place(trainer)}"
