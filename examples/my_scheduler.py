"""A scheduler of your own: the freshest updates first, the better channel among equals.

fedtide run policy.scheduler=examples/my_scheduler.py:freshest_first
"""

import numpy as np


def freshest_first(candidates, limit, rng):
    """Return positions within the candidates, not device numbers: sorted by age, then by capacity (best first)."""
    return np.lexsort((-candidates.capacity, candidates.age))[:limit]
