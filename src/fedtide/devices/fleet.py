"""The devices, as columns: how long they compute, what they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np

from fedtide.data.holdings import Counted, Holdings
from fedtide.parts.arguments import arg
from fedtide.types import Floats, Ints

# What a duration may ask for: samples of a training [N], or where jobs differ a function (device [m], job [m]) -> samples [m].
JobSamples: TypeAlias = Annotated[
    Ints | Callable[[Ints, Ints], Ints],
    arg("n_k, samples that one local training visits", key="fleet.samples_per_job"),
]


def samples_of_jobs(given: Ints | Callable[[Ints, Ints], Ints], device: Ints, job: Ints) -> Ints:
    """Return how many samples these devices visit in these jobs [m]."""
    return given(device, job) if callable(given) else np.asarray(given)[device]


class Fleet(NamedTuple):
    """N devices, one row each."""

    duration: Floats  # T_k, time for one local training, the first if they differ [N]
    partition: Holdings  # S_k as indices into the training set, ascending: partition[k]
    num_samples: Ints  # |S_k| [N]
    label_counts: Ints | Counted  # b_k [N c]; rows of virtual holdings are computed as they are taken

    @property
    def num_devices(self) -> int:
        """N."""
        return len(self.duration)
