"""How long a device computes.

A duration is a callable (seed, device [m], job [m]) -> time [m] > 0: how long each of these devices takes for its job of that
number (1, 2, ...), infinity if it never finishes. It depends on its arguments alone, whoever else is asked. If its attribute
`redraws` is False, every job of a device takes as long as its first; without the attribute, every job is asked for.

Times are in the unit of fleet.max_duration, by which the radio's symbols per tick and the synchronous timeline's rounds go.
Where a part gives longer ones, whoever takes longer than a round is ready at the end of the round in which it finishes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

import numpy as np

from fedtide.core.arguments import arg
from fedtide.core.ram import need
from fedtide.errors import FedtideError
from fedtide.rng import stream
from fedtide.types import Floats, Ints
from fedtide.world.cycles import Cycles
from fedtide.world.fedscale import FedScaleCapacity
from fedtide.world.random_duration import LogNormal, ShiftedExponential, ShiftedExponentialBySize
from fedtide.world.trace_duration import TraceDuration


class Duration(Protocol):
    """How long a device computes."""

    def __call__(self, seed: int, device: Ints, job: Ints, /) -> Floats:
        """Return how long each device takes for its job of this number [m]."""
        ...


@dataclass(frozen=True)
class Uniform:
    """T_k ~ U(T_min, T_max], drawn once per device. The lower end is left out, so that no device takes no time."""

    min_duration: Annotated[float, arg("T_min", ge=0, key="fleet.min_duration")] = 0.0
    max_duration: Annotated[float, arg("T_max", gt=0, key="fleet.max_duration")] = 1.0
    redraws: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.min_duration > self.max_duration:
            raise FedtideError(
                f"duration=uniform: min_duration={self.min_duration} exceeds max_duration={self.max_duration}; swap them or "
                "lower it"
            )

    def __call__(self, seed: int, device: Ints, job: Ints) -> Floats:
        """Return T_k [m]; the draws come one after the other, so those before the last device are made too."""
        count = int(np.max(device, initial=-1)) + 1
        need(24.0 * count, f"a fleet of {count:,} devices", "lower fleet.num_devices")
        drawn = self.max_duration - stream(seed, "duration").random(count) * (self.max_duration - self.min_duration)
        return drawn[device]


def redraws(duration: Duration) -> bool:
    """Say whether a device's jobs may differ in length."""
    return bool(getattr(duration, "redraws", True))


def first(duration: Duration, seed: int, num_devices: int) -> Floats:
    """Return how long the first job of every device takes [N]."""
    return duration(seed, np.arange(num_devices), np.ones(num_devices, np.int64))


DURATIONS: dict[str, Callable[..., Duration]] = {
    "uniform": Uniform,
    "shifted_exponential": ShiftedExponential,
    "shifted_exponential_by_size": ShiftedExponentialBySize,
    "log_normal": LogNormal,
    "trace": TraceDuration,
    "fedscale_capacity": FedScaleCapacity,
    "cycles": Cycles,
}
