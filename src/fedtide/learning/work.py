"""How much each device does with a model, where not all do the same.

A work is a callable (seed, device [m], job [m]) -> Work: epochs or steps, batch size and rate of these devices' trainings of
these numbers (1, 2, ...). It depends on its arguments alone. If its attribute `redraws` is False, every job of a device is like
its first; without the attribute, every job is asked for. If its attribute `equal` is True, it is not asked at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

import numpy as np

from fedtide import columns
from fedtide.errors import FedtideError
from fedtide.parts.arguments import arg
from fedtide.types import Ints, Work

_MOST: Final = 10**6  # epochs


@dataclass(frozen=True)
class EqualWork:
    """Every device does the same with every model, as learning.local_epochs, local_steps and batch_size say."""

    equal: ClassVar[bool] = True
    redraws: ClassVar[bool] = False

    def __call__(self, seed: int, device: Ints, job: Ints) -> Work:
        """Leave all to learning.*."""
        return Work()


@dataclass(frozen=True)
class UniformEpochs:
    """E_k ~ U{min, ..., max}, drawn for every job, or once per device; takes the place of learning.local_epochs.

    Wang, Liu, Liang, Joshi, Poor, Tackling the objective inconsistency problem in heterogeneous federated optimization (NeurIPS
    2020), has U{2, ..., 5} for every round; Li et al., Federated optimization in heterogeneous networks (MLSys 2020), draws for
    its stragglers from 1 on.
    """

    min_epochs: Annotated[int, arg("smallest number of passes over the device's data", ge=1, le=_MOST)] = 2
    max_epochs: Annotated[int, arg("largest number of passes", ge=1, le=_MOST)] = 5
    per_job: Annotated[bool, arg("draw for every job; false: once per device")] = True

    def __post_init__(self) -> None:
        if self.min_epochs > self.max_epochs:
            raise FedtideError(
                f"work=uniform_epochs: min_epochs={self.min_epochs} exceeds max_epochs={self.max_epochs}; swap them or lower it"
            )

    @property
    def redraws(self) -> bool:
        """Do the jobs of a device differ?"""
        return self.per_job

    def __call__(self, seed: int, device: Ints, job: Ints) -> Work:
        """Return E_k [m]."""
        index = (job,) if self.per_job else ()
        drawn = columns.uniform(seed, "local epochs", device, *index) * (self.max_epochs - self.min_epochs + 1)
        return Work(epochs=self.min_epochs + drawn.astype(np.int64))


@dataclass(frozen=True)
class PerDevice:
    """Optional lists by device: device k has entry k; a list shorter than N repeats."""

    epochs: Annotated[list[int] | None, arg("E_k, passes over the device's data")] = None
    steps: Annotated[list[int] | None, arg("E_k as steps, in place of epochs")] = None
    batch_size: Annotated[list[int] | None, arg("samples per step")] = None
    rate: Annotated[list[float] | None, arg("learning rate, relative to learning.learning_rate and its schedule")] = (
        None
    )
    redraws: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("epochs", "steps", "batch_size", "rate"):
            if getattr(self, name) == []:
                raise FedtideError(
                    f"work=per_device: {name}=[] has no entry; give one number per device, or leave it out"
                )
        if self.epochs is not None and self.steps is not None:
            raise FedtideError("work=per_device has both epochs and steps; give one of them")

    def __call__(self, seed: int, device: Ints, job: Ints) -> Work:
        """Return the entries of these devices [m]."""
        return Work(*(_entries(each, device) for each in (self.epochs, self.steps, self.batch_size, self.rate)))


def _entries(given: Any, device: Ints) -> Any:
    return None if given is None else np.asarray(given)[device % len(given)]


WORKS: Final[dict[str, Any]] = {"equal": EqualWork, "uniform_epochs": UniformEpochs, "per_device": PerDevice}
