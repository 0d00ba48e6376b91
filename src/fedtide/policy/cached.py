"""The last update of every device, for combiners that remember it."""

from __future__ import annotations

import numpy as np

from fedtide.core.arguments import MOST_MEMORY
from fedtide.errors import FedtideError
from fedtide.types import Floats, Vector


def nothing_yet(num_devices: int, num_parameters: int, combiner: str) -> Vector:
    """Return an update of zero for every device [N d]; raise if that is more than a part may remember."""
    size = 4.0 * num_devices * num_parameters
    if size > MOST_MEMORY:
        raise FedtideError(
            f"policy.combiner={combiner} keeps the last update of every device, fleet.num_devices={num_devices:,} times "
            f"{num_parameters:,} parameters in float32: {size / 1e9:,.3g} GB, more than the {MOST_MEMORY / 1e9:g} GB that a "
            "part may remember; take fewer devices, a smaller model, or another combiner"
        )
    return np.zeros((num_devices, num_parameters), np.float32)


def mean(kept: Vector) -> Floats:
    """Return the mean of all rows [d], one row after the other, so that the bits do not depend on the machine."""
    total = np.zeros(kept.shape[1])
    for row in kept:
        total += row
    return total / len(kept)
