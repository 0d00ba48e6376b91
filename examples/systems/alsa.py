"""ALSA's schedule; the paper and its symbols are in alsa.yaml."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide import Selection, arg


@dataclass(frozen=True)
class Alsa:
    """Schedule those whose upload adds most to the expected effectivity score of the round."""

    delay_cost: Annotated[float, arg("gamma, what a sample costs that waits for another round", ge=0)] = 0.1

    def __call__(self, candidates, limit, rng):
        """Return the devices with the largest gains."""
        samples = candidates.num_samples * (1.0 + candidates.age)  # n_u; the kept update has only the first |S_u| [m]
        arrives = 1 - candidates.uplink.error()[:, 0]  # p_u, in the current fading [m]
        gain = (1 + self.delay_cost) * arrives * samples
        picked = np.argsort(-gain, kind="stable")[:limit]
        return Selection(picked, metrics={"effectivity": gain[picked].sum() - self.delay_cost * samples.sum()})
