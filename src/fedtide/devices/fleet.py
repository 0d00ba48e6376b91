"""The devices, as columns: how long they compute, what they hold."""

from __future__ import annotations

from typing import NamedTuple

from fedtide.data.holdings import Counted, Holdings
from fedtide.types import Floats, Ints


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
