"""Devices that lie: a share of the fleet sends false updates, whoever trains."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import numpy as np

from fedtide import columns
from fedtide.errors import FedtideError
from fedtide.learning.trainer import WRAPPERS, TableId, Task, check_jobs, read_trainer_tables, trainer_table_name
from fedtide.parts import registry
from fedtide.parts.arguments import arg
from fedtide.types import Floats, Job, Samples, Trained, Vector


class AttackedTrainer:
    """Another trainer in which some devices replace their updates by false ones; all other updates keep their bits.

    round(share N) devices attack. The seed draws them, so that every method meets the same ones. With update u and strength s
    an attacker sends -s u (sign_flip), s u (scale), s ||u|| z / sqrt(d) with z a standard normal vector [d] (noise), the same with
    one z for all attackers and the whole run (collude), or s times the update trained on labels L - 1 - label, of L labels
    (label_flip). They report their losses and numbers of samples honestly.
    """

    def __init__(
        self,
        task: Task,
        inner: Annotated[str, arg("the inner trainer", part="trainer")] = "native",
        inner_args: Annotated[
            dict[str, Any] | None, arg("arguments of the inner trainer, unless given with its name")
        ] = None,
        share: Annotated[float, arg("share of devices that attack; 0: none", ge=0, le=1)] = 0.0,
        attack: Annotated[
            Literal["sign_flip", "noise", "scale", "collude", "label_flip"],
            arg("what attackers send in place of their update"),
        ] = "sign_flip",
        strength: Annotated[float, arg("s: norm relative to an honest update", gt=0)] = 1.0,
        num_devices: Annotated[int, arg("N, number of devices", key="fleet.num_devices", ge=1, le=10**8)] = 40,
    ) -> None:
        if inner in WRAPPERS:
            raise FedtideError(
                f"trainer='attacked': inner={str(inner)!r} stands around a trainer itself: name native, torch or your own inside"
            )
        self.task: Final = task
        self.share, self.attack, self.strength, self._num_devices = share, attack, strength, num_devices
        args = registry.inner_arguments(inner, inner_args)[0]
        self._inner: Any = registry.resolve("trainer", inner, args, {"run.task": task}.__getitem__)
        self._length = len(self._inner.initial_model(task.seed))
        self._flipped: dict[TableId, tuple[Samples, Samples]] = {}  # tables of the last call, with false labels
        for method in ("initial_model", "evaluate", "init", "arrived", "predict", "check_samples", "close"):
            if callable(own := getattr(self._inner, method, None)):
                setattr(self, method, own)
        self.takes_work = bool(getattr(self._inner, "takes_work", False))
        what = f"{attack} of {strength:g} by {len(self.attackers)} devices"
        self.name = f"{getattr(self._inner, 'name', inner)}, attacked: {what}"  # in the records of a run

    @functools.cached_property
    def attackers(self) -> frozenset[int]:
        """The devices that attack."""
        lots = columns.uniform(self.task.seed, "attackers", np.arange(self._num_devices))
        return frozenset(np.argsort(lots, kind="stable")[: round(self.share * self._num_devices)].tolist())

    def train(self, jobs: Sequence[Job]) -> Vector | Trained:
        """Return what devices send [r d], one row per job, with the memory of each if the inner trainer has one."""
        check_jobs(jobs, self._length)
        rows = [row for row, job in enumerate(jobs) if job.device in self.attackers]
        answer = self._inner.train(self._poisoned(jobs, rows))
        updates = np.array(answer.updates if isinstance(answer, Trained) else answer)
        for row in rows:
            updates[row] = self._false(jobs[row], updates[row].astype(np.float64))
        return Trained(updates, answer.memory) if isinstance(answer, Trained) else updates

    def _poisoned(self, jobs: Sequence[Job], rows: Sequence[int]) -> Sequence[Job]:
        """Return the jobs that are trained: those of attackers on false labels, if that is the attack."""
        if self.attack != "label_flip":
            return jobs
        self._flipped = read_trainer_tables([jobs[row] for row in rows], self._flipped, self._with_false_labels)
        trained = list(jobs)
        for row in rows:
            trained[row] = jobs[row]._replace(samples=self._flipped[trainer_table_name(jobs[row].samples)][1])
        return trained

    def _with_false_labels(self, samples: Samples) -> Samples:
        """Return these samples with the last label in place of the first, and so on."""
        labels = np.asarray(samples.labels)
        return samples._replace(labels=(self.task.num_labels - 1 - labels).astype(labels.dtype))

    def _false(self, job: Job, update: Floats) -> Floats:
        """Return what an attacker sends in place of an update [d]."""
        if self.attack in ("noise", "collude"):
            whose = job.address if self.attack == "noise" else (0, 0)
            noise = columns.normal(self.task.seed, "attack", np.arange(len(update)), *whose)
            return np.asarray(self.strength * np.sqrt(np.square(update).mean()) * noise)
        return -self.strength * update if self.attack == "sign_flip" else self.strength * update
