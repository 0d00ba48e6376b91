"""Aggregating once, for tests: any aggregator, a plain function included, with all that arrived as one lot or in several."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedtide.aggregate.base import Cohort, as_aggregator
from fedtide.parts import checks

NUM_DEVICES = 30


def cohort(weights: Any, age: Any, device: Any = None, num_devices: int = NUM_DEVICES, rates: Any = None) -> Cohort:
    """Return a cohort of devices 0, 1, ... with ten samples each."""
    r = len(weights)
    device = np.arange(r) if device is None else device
    return Cohort(
        device, age, np.full(r, 10), weights, num_devices, np.ones(r) if rates is None else rates[0], *(rates or ())[1:]
    )


def stepped(
    aggregator: Any, state: Any, model: Any, starts: Any, updates: Any, who: Cohort, lot: int = 1000
) -> tuple[Any, Any]:
    """Return the next model and state, through the server's checks; state None: the first. lot: rows that are added at a time."""
    part = as_aggregator(aggregator)
    if who.server_update is None and len(updates):
        who = who._replace(server_update=np.mean(updates, axis=0, dtype=np.float32))
    state = checks.memory_arrays(part.init(model, who.num_devices), "part") if state is None else state
    kept = {name: each.copy() for name, each in state.items()}
    acc = part.start(state, model, who)
    for first in range(0, len(updates), lot):
        rows = slice(first, min(first + lot, len(updates)))
        acc = part.add(acc, rows, starts[rows], updates[rows])
    new, after = checks.checked_pair(part.finish(state, acc, model), "part")
    assert all(np.array_equal(kept[name], state[name]) for name in kept)  # what was is left as it was
    return new, checks.checked_memory(after, state, "part")


def aggregated(aggregator: Any, model: Any, starts: Any, updates: Any, weights: Any, age: Any, **more: Any) -> Any:
    """Return the next model after the first aggregation."""
    return stepped(aggregator, None, model, starts, updates, cohort(weights, age, **more))[0]
