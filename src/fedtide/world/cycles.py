"""Durations by what there is to compute and how fast the CPU is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedtide.core.arguments import arg
from fedtide.errors import FedtideError
from fedtide.types import Floats, Ints
from fedtide.world.frequency import check_frequencies, frequencies


@dataclass(frozen=True)
class Cycles:
    """T_k = c n_k / f_k: cycles per sample times samples per job over the CPU's frequency, drawn once (Tran et al., 2019).

    f_k ~ U(min_frequency, max_frequency), the same as energy=cmos has. T_k may exceed fleet.max_duration: set that to the
    slowest, as rounds and symbols per tick go by it.
    """

    samples_per_job: Annotated[Ints, arg("n_k, samples that one local training visits", key="fleet.samples_per_job")]
    cycles_per_sample: Annotated[float, arg("c", unit="cycles", ge=0, key="fleet.cycles_per_sample")] = 1e7
    min_frequency: Annotated[float, arg("f_k at least", unit="cycles/s", gt=0, key="fleet.min_frequency")] = 1e9
    max_frequency: Annotated[float, arg("f_k at most", unit="cycles/s", gt=0, key="fleet.max_frequency")] = 1e9
    unit_seconds: Annotated[float, arg("how long a unit of time is", unit="s", gt=0)] = 1.0
    redraws: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_frequencies("duration=cycles", self.min_frequency, self.max_frequency)
        if not self.cycles_per_sample > 0:
            raise FedtideError(
                f"duration=cycles: fleet.cycles_per_sample={self.cycles_per_sample:g} means that devices take no time; "
                "give the cycles of visiting one sample, say 1e7"
            )

    def __call__(self, seed: int, device: Ints, job: Ints) -> Floats:
        """Return T_k [m]."""
        speed = frequencies(seed, device, self.min_frequency, self.max_frequency) * self.unit_seconds
        return self.cycles_per_sample * np.asarray(self.samples_per_job)[device] / speed
