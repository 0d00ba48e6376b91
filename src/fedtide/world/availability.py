"""When a device can be reached.

An availability is a callable (seed, device [m], time [m]) -> when each of these devices is next there [m], at that time or
later; infinity if it never is again. A device must be there to receive a model and to say that it is ready; in between it
computes, there or not. If its attribute `always` is True, nobody ever has to be waited for, and it is not asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from fedtide.types import Floats, Ints
from fedtide.world.battery import Battery
from fedtide.world.daily import Daily
from fedtide.world.fedscale import FedScaleAvailability
from fedtide.world.markov import Markov
from fedtide.world.trace_availability import TraceAvailability


class Availability(Protocol):
    """When a device can be reached."""

    def __call__(self, seed: int, device: Ints, time: Floats, /) -> Floats:
        """Return when each device is next there, at this time or later [m]."""
        ...


@dataclass(frozen=True)
class Always:
    """Every device is always there."""

    always: ClassVar[bool] = True

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return the time itself [m]."""
        return time.copy()


def always(availability: Availability) -> bool:
    """Say whether every device is always there."""
    return bool(getattr(availability, "always", False))


AVAILABILITIES: dict[str, Callable[..., Availability]] = {
    "always": Always,
    "markov": Markov,
    "trace": TraceAvailability,
    "fedscale": FedScaleAvailability,
    "battery": Battery,
    "daily": Daily,
}
