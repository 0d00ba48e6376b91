"""Before a federation goes on, its own policies are asked again for what they answered so far.

A new ServerApp makes them anew: one that keeps state would go on with other numbers. The trace has all that a scheduler and
a weighting were given, and the rounds have what they answered.
"""

from __future__ import annotations

import numpy as np

from fedtide import plugins
from fedtide.errors import TrainingError
from fedtide.flower.history import History, candidates
from fedtide.flower.trace import Period
from fedtide.rng import stream
from fedtide.server import plan
from fedtide.system import System
from fedtide.types import read_only


def check_answers(system: System, history: History) -> None:
    """Raise if a user's scheduler or weighting answers otherwise than it did before the interruption."""
    policy = system.policy
    schedules, weighs = (isinstance(each, plugins.Guarded) for each in (policy.scheduler, policy.weighting))
    uploads = np.zeros(system.fleet.num_devices, np.int64)
    for period, record in zip(history.trace.periods, history.rounds, strict=False):
        rows = candidates(period, system.fleet.num_devices, system.dataset.num_labels, uploads)
        if schedules:
            rng = stream(system.experiment.seed, "schedule", period.tick)
            grant = plan(policy, rows, system.num_symbols, rng)
            if rows.device[grant.picked].tolist() != period.picked:
                raise _other(plugins.label("scheduler", policy.scheduler), "picks other devices", period)
        if weighs and period.arrived:
            came = np.searchsorted(rows.device, period.arrived)
            weights = np.asarray(policy.weighting(read_only(rows.num_samples[came]), read_only(rows.age[came])))
            before = dict(zip(record.picked, record.weight, strict=True))
            exact = 1e-12 if weights.dtype.itemsize >= 8 else 1e-5  # single precision is brought to the sum 1
            if not np.allclose(weights, [before[k] for k in period.arrived], rtol=exact, atol=0.0):
                raise _other(plugins.label("weighting", policy.weighting), "gives other weights", period)
        uploads[period.arrived] += 1


def _other(policy: str, does: str, period: Period) -> TrainingError:
    return TrainingError(
        f"{policy} {does} in period {period.tick} than before the interruption: make it depend on its arguments alone "
        "(candidates.tick counts the periods, rng is the same each time), or begin anew in another folder"
    )
