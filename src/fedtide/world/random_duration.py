"""Durations drawn from a law.

Their tails have no end. The radio's symbols per tick and the synchronous timeline's rounds go by fleet.max_duration all the
same: whoever takes longer than a round is ready at the end of the round in which it finishes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedtide import columns
from fedtide.core.arguments import arg
from fedtide.types import Floats, Ints

LEAST = np.finfo(np.float64).tiny  # no device takes no time, whatever rounds to 0


def _scale(seed: int, device: Ints, spread: float) -> Floats | float:
    """Return by how much each device is slower than the median one, drawn once [m]."""
    return np.exp(spread * columns.normal(seed, "duration spread", device)) if spread else 1.0


@dataclass(frozen=True)
class ShiftedExponential:
    """T = s_k (a + b X), X ~ Exp(1) for every job: at least the shift a, b more on average (Lee et al., 2018).

    s_k = exp(spread Z_k), Z_k ~ N(0, 1) once per device. Jobs may take longer than fleet.max_duration.
    """

    shift: Annotated[float, arg("a, what a job takes at least", unit="units of time", ge=0)] = 0.2
    mean: Annotated[float, arg("b, what it takes beyond that on average", unit="units of time", gt=0)] = 0.3
    spread: Annotated[float, arg("sigma of the log-normal s_k; 0: all devices alike", ge=0, le=10)] = 0.0
    redraws: ClassVar[bool] = True

    def __call__(self, seed: int, device: Ints, job: Ints) -> Floats:
        """Return T [m]."""
        drawn = self.shift + self.mean * columns.exponential(seed, "shifted exponential", device, job)
        return np.maximum(_scale(seed, device, self.spread) * drawn, LEAST)


@dataclass(frozen=True)
class ShiftedExponentialBySize:
    """T = s_k n_k (a + b X), X ~ Exp(1) for every job, n_k samples visited per job (Shi et al., IEEE TWC 2021).

    s_k = exp(spread Z_k), Z_k ~ N(0, 1) once per device. Jobs may take longer than fleet.max_duration.
    """

    samples_per_job: Annotated[Ints, arg("n_k, samples that one local training visits", key="fleet.samples_per_job")]
    shift: Annotated[float, arg("a, what a sample takes at least", unit="units of time", ge=0)] = 4e-5
    mean: Annotated[float, arg("b, what it takes beyond that on average", unit="units of time", gt=0)] = 6e-5
    spread: Annotated[float, arg("sigma of the log-normal s_k; 0: all devices alike", ge=0, le=10)] = 0.0
    redraws: ClassVar[bool] = True

    def __call__(self, seed: int, device: Ints, job: Ints) -> Floats:
        """Return T [m]."""
        drawn = ShiftedExponential(self.shift, self.mean, self.spread)(seed, device, job)
        return np.maximum(np.asarray(self.samples_per_job)[device] * drawn, LEAST)


@dataclass(frozen=True)
class LogNormal:
    """T = median exp(sigma Z), Z ~ N(0, 1), once per device or for every job: a few devices are far slower than most.

    Its mean is median exp(sigma^2 / 2). Jobs may take longer than fleet.max_duration.
    """

    median: Annotated[float, arg("half of them take less", unit="units of time", gt=0)] = 0.5
    sigma: Annotated[float, arg("spread of log T", ge=0, le=10)] = 0.5
    per_job: Annotated[bool, arg("draw for every job, not once per device")] = False

    @property
    def redraws(self) -> bool:
        """Do the jobs of a device differ in length?"""
        return self.per_job

    def __call__(self, seed: int, device: Ints, job: Ints) -> Floats:
        """Return T [m]."""
        index = (job,) if self.per_job else ()
        return np.maximum(self.median * np.exp(self.sigma * columns.normal(seed, "log-normal", device, *index)), LEAST)
