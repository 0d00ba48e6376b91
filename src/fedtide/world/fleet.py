"""The devices, as columns: how long they compute, what they hold."""

from __future__ import annotations

from typing import NamedTuple

from fedtide.types import Floats, Ints


class Fleet(NamedTuple):
    """N devices, one row each."""

    duration: Floats  # T_k, time for one local training, the first if they differ [N]
    partition: list[Ints]  # S_k as indices into the training set, N arrays
    num_samples: Ints  # |S_k| [N]
    label_counts: Ints  # b_k [N c]

    @property
    def num_devices(self) -> int:
        """N."""
        return len(self.duration)
