"""The devices, as columns: how long they compute, what they hold."""

from __future__ import annotations

from typing import NamedTuple

from fedtide.core.ram import need
from fedtide.rng import stream
from fedtide.types import Floats, Ints


class Fleet(NamedTuple):
    """N devices, one row each."""

    duration: Floats  # T_k, time for one local training [N]
    partition: list[Ints]  # S_k as indices into the training set, N arrays
    num_samples: Ints  # |S_k| [N]
    label_counts: Ints  # b_k [N c]

    @property
    def num_devices(self) -> int:
        """N."""
        return len(self.duration)


def draw_durations(seed: int, num_devices: int, min_duration: float, max_duration: float) -> Floats:
    """Draw T_k ~ U(T_min, T_max], once per seed [N]. The lower end is left out, so that no device takes no time."""
    need(24.0 * num_devices, f"a fleet of {num_devices:,} devices", "lower fleet.num_devices")
    return max_duration - stream(seed, "duration").random(num_devices) * (max_duration - min_duration)
