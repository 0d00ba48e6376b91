"""TiFL's tiers; the paper and its symbols are in tifl.yaml."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from fedtide import arg


@dataclass(frozen=True)
class Tifl:
    """Draw a tier of clients that are about as fast as one another, and within it the clients of this round."""

    duration: Annotated[Any, arg("what the profiler measures", key="run.duration")]
    chances: Annotated[list, arg("how likely each tier is drawn, the fastest first")]
    profiled: Annotated[int, arg("sync_rounds, trainings of every client that are measured", ge=1)] = 5
    num_devices: Annotated[int, arg("|K|", key="fleet.num_devices")] = 1
    seed: Annotated[int, arg("of the fleet", key="seed")] = 0

    @cached_property
    def tier(self):
        """Return the tier of every client [N], 0 the fastest; tiers are equally large."""
        client = np.arange(self.num_devices)
        before = 10**6 + np.arange(self.profiled)  # trainings that are none of the run's
        measured = [self.duration(self.seed, client, np.full(len(client), job)) for job in before]
        place = np.argsort(np.argsort(np.mean(measured, axis=0)))
        return place * len(self.chances) // self.num_devices

    def __call__(self, idle, count, rng):
        """Return who trains in this round."""
        tier = rng.choice(len(self.chances), p=self.chances)
        return rng.permutation(np.flatnonzero(self.tier[idle.device] == tier))[:count]
