"""A timeline of your own: aggregate often at first, when models change fast, and ever more rarely later.

fedtide plan timeline.name=examples/my_timeline.py:quick_start timeline.args='{period: 0.1, growth: 1.02}'
"""

import numpy as np

from fedtide import Tick


def quick_start(duration, horizon, period=0.1, growth=1.05):
    """Return every aggregation up to the horizon; a device that is ready gets the new model and starts over."""
    ticks, time, finish, start = [], period, duration.copy(), np.ones(len(duration), np.int64)
    while time <= horizon:
        ready = np.flatnonzero(finish <= time)
        ticks.append(Tick(len(ticks) + 1, time, ready, start[ready]))
        start[ready], finish[ready] = len(ticks) + 1, time + duration[ready]
        period *= growth
        time += period
    return ticks
