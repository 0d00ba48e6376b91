"""What a timeline is told of the devices: how long each takes from receiving a model until it is ready."""

from __future__ import annotations

import numpy as np

from fedtide.types import Clock, Floats, Ints
from fedtide.world.availability import Availability, always
from fedtide.world.duration import Duration, first, redraws


def make_clock(seed: int, num_devices: int, horizon: float, duration: Duration, availability: Availability) -> Clock:
    """Return the clock of a fleet: a device waits until it is there, works, and waits until it is there again."""
    known = None if redraws(duration) else first(duration, seed, num_devices)  # [N]

    def work(device: Ints, job: Ints, time: Floats) -> Floats:
        device = np.asarray(device, np.int64)
        return known[device] if known is not None else duration(seed, device, np.broadcast_to(job, device.shape))

    def elapsed(device: Ints, job: Ints, time: Floats) -> Floats:
        device = np.asarray(device, np.int64)
        time = np.broadcast_to(time, device.shape)
        begin = availability(seed, device, time)
        worked = work(device, job, time)
        end = begin + worked
        ready = end.copy()
        soon = np.isfinite(end)  # whoever never comes or never finishes is not asked for again
        ready[soon] = availability(seed, device[soon], end[soon])
        # Without a wait it is exactly the work, which a difference of times would round.
        return np.where((begin == time) & (ready == end), worked, ready - time)

    return Clock(num_devices, horizon, work if always(availability) else elapsed)
