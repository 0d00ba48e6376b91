"""A timeline of your own: aggregate often at first, when models change fast, and ever more rarely later.

fedtide plan timeline.name=examples/my_timeline.py:quick_start timeline.name.growth=1.02
"""

import numpy as np

from fedtide import Tick


def quick_start(clock, first=0.1, growth=1.05):
    """Yield every aggregation up to the horizon; a device that is ready gets the new model and starts over."""
    everyone = np.arange(clock.num_devices)
    start, job = np.ones_like(everyone), np.ones_like(everyone)
    finish = clock.elapsed(everyone, job, np.zeros(clock.num_devices))
    index, time, period = 1, first, first
    while time <= clock.horizon:
        ready = np.flatnonzero(finish <= time)
        yield Tick(index, time, ready, start[ready])
        index += 1
        start[ready], job[ready] = index, job[ready] + 1
        finish[ready] = time + clock.elapsed(ready, job[ready], np.full(len(ready), time))
        period *= growth
        time += period
