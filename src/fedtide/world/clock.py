"""What a timeline is told of the devices: how long each takes from receiving a model until it is ready."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedtide.types import Clock, Floats, Ints
from fedtide.world.availability import Availability, always
from fedtide.world.duration import Duration, first, redraws


def make_clock(
    seed: int,
    num_devices: int,
    horizon: float,
    duration: Duration,
    availability: Availability,
    receive: Callable[[Ints, Floats], Floats] | None = None,
) -> Clock:
    """Return the clock of a fleet: a device waits until it is there, receives, works, and waits until it is there again.

    receive: (device [m], time [m]) -> how long each takes to receive a model [m]; None: no time.
    """
    known = None if redraws(duration) else first(duration, seed, num_devices)  # [N]

    def work(device: Ints, job: Ints, time: Floats) -> Floats:
        device = np.asarray(device, np.int64)
        return known[device] if known is not None else duration(seed, device, np.broadcast_to(job, device.shape))

    def elapsed(device: Ints, job: Ints, time: Floats) -> Floats:
        device = np.asarray(device, np.int64)
        time = np.broadcast_to(time, device.shape)
        begin = availability(seed, device, time)
        worked = work(device, job, time)
        if receive is not None:
            here = np.isfinite(begin)
            worked = worked.copy()
            worked[here] += receive(device[here], begin[here])
        end = begin + worked
        ready = end.copy()
        soon = np.isfinite(end)  # whoever never comes or never finishes is not asked for again
        ready[soon] = availability(seed, device[soon], end[soon])
        # Without a wait it is exactly the work, which a difference of times would round.
        return np.where((begin == time) & (ready == end), worked, ready - time)

    if always(availability):  # nobody is waited for, and it is not asked
        if receive is None:
            return Clock(num_devices, horizon, work)
        get = receive

        def received(device: Ints, job: Ints, time: Floats) -> Floats:
            device = np.asarray(device, np.int64)
            return work(device, job, time) + get(device, np.broadcast_to(time, device.shape))

        return Clock(num_devices, horizon, received)
    return Clock(num_devices, horizon, elapsed, lambda device, time: availability(seed, device, time))
