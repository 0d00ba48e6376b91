"""Before a federation goes on, its own policies are asked again for what they answered so far.

A new ServerApp makes them anew: one that keeps state would go on with other numbers. The trace has all that a scheduler and
a weighting were given, and the rounds have what they answered; asked again in the same order, one that counts its calls has
its count back. What combiners and codecs were given is not on record: the witness watches them (`witness.py`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedtide import plugins
from fedtide.flower.history import History, candidates
from fedtide.records import StatefulError
from fedtide.rng import stream
from fedtide.server import plan, weigh
from fedtide.system import System


def check_answers(path: Path, system: System, history: History) -> None:
    """Raise if a user's scheduler or weighting answers otherwise than it did before the interruption."""
    policy = system.policy
    schedules, weighs = (not plugins.is_ours(each) for each in (policy.scheduler, policy.weighting))
    uploads = np.zeros(system.fleet.num_devices, np.int64)
    for period, record in zip(history.trace.periods, history.rounds, strict=False):
        rows = candidates(period, system.fleet.num_devices, system.dataset.num_labels, uploads)
        if schedules:
            grant = plan(policy, rows, system.num_symbols, stream(system.experiment.seed, "schedule", period.tick))
            if rows.device[grant.picked].tolist() != period.picked:
                label = plugins.label("scheduler", policy.scheduler)
                raise StatefulError(
                    path, f"{label} picks other devices in period {period.tick} than before the interruption"
                )
        if weighs and period.arrived:
            came = np.searchsorted(rows.device, period.arrived)
            weight = dict(zip(record.picked, record.weight, strict=True))
            if weigh(policy, rows.num_samples[came], rows.age[came]).tolist() != [weight[k] for k in period.arrived]:
                label = plugins.label("weighting", policy.weighting)
                raise StatefulError(
                    path, f"{label} gives other weights in period {period.tick} than before the interruption"
                )
        uploads[period.arrived] += 1
