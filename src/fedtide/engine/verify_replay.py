"""Before a run goes on, its own scheduler and weighting are asked again for what they answered so far.

They are made anew: one that depends on the past would go on with other numbers. What they were given, and what they
answered, is on record; asked again in the same order, one that counts its calls has its count back. What aggregators and codecs
were given is not: the witness watches them (`witness.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedtide.engine import checks
from fedtide.engine.purity import PurityCheck
from fedtide.engine.step import plan_step
from fedtide.parts import registry, user_code
from fedtide.rng import stream
from fedtide.runs import StatefulError
from fedtide.types import Candidates, readonly_copy


class Answered(NamedTuple):
    """One aggregation as it was: what the policies saw, and what they answered."""

    rows: Candidates
    picked: list[int]  # device numbers, ascending
    arrived: list[int]  # those of them whose updates were weighed
    weight: list[float]  # of these


def check_answers(
    path: Path, witness: PurityCheck, answered: Iterable[Answered], called: str = "at aggregation"
) -> None:
    """Raise if a user's scheduler or weighting does not answer again as it did. called: what goes before its number."""
    system, policy = witness.system, witness.system.policy
    scheduler, weighting = (
        witness.watches(kind) and not registry.remembers(getattr(policy, kind))  # memory is on record
        for kind in ("scheduler", "weighting")
    )
    if not (scheduler or weighting):
        return
    for rows, picked, arrived, weight in answered:
        when = f"{called} {rows.tick} than before the interruption"
        if scheduler and (rows.update_sq_norm is not None or not policy.needs):
            rng = stream(system.experiment.seed, "schedule", rows.tick)
            grant = plan_step(policy, rows, system.num_symbols, rng, system.allocation)
            if rows.device[grant.picked].tolist() != picked:
                label = user_code.part_label("scheduler", policy.scheduler)
                raise StatefulError(path, f"{label} picks other devices {when}")
        if weighting and arrived:
            came = np.searchsorted(rows.device, arrived)
            label = user_code.part_label("weighting", policy.weighting)
            answer = policy.weighting(readonly_copy(rows.num_samples[came]), readonly_copy(rows.age[came]))
            if checks.weights(answer, len(came), label).tolist() != weight:
                raise StatefulError(path, f"{label} gives other weights {when}")
