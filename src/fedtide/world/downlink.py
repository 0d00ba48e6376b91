"""How long a device takes to receive a model.

A downlink is a callable (seed, device [m], time [m], bits) -> time [m] >= 0: how long each of these devices takes to receive so
many bits from that time on, infinity if it never has them. It depends on its arguments alone. If its attribute `instant` is
True, nobody ever waits for a model, and it is not asked; if `shared` is True, one transmission serves all who receive a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

import numpy as np

from fedtide.types import Floats, Ints


class Downlink(Protocol):
    """How long a device takes to receive a model."""

    def __call__(self, seed: int, device: Ints, time: Floats, bits: float, /) -> Floats:
        """Return how long each device takes to receive so many bits from this time on [m]."""
        ...


@dataclass(frozen=True)
class Instant:
    """The paper's: a model is there at once."""

    instant: ClassVar[bool] = True

    def __call__(self, seed: int, device: Ints, time: Floats, bits: float) -> Floats:
        """Return 0 [m]."""
        return np.zeros(len(device))


def instant(downlink: Downlink) -> bool:
    """Say whether nobody ever waits for a model."""
    return bool(getattr(downlink, "instant", False))


def shared(downlink: Downlink) -> bool:
    """Say whether one transmission serves all who receive a model."""
    return bool(getattr(downlink, "shared", False))


DOWNLINKS: Final[dict[str, Any]] = {
    "instant": Instant,
    "broadcast": "fedtide.world.receiving:Broadcast",
    "unicast": "fedtide.world.receiving:Unicast",
}
