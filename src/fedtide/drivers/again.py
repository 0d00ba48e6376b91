"""Before a run goes on, its own scheduler and weighting are asked again for what they answered so far.

They are made anew: one that depends on the past would go on with other numbers. What they were given, and what they
answered, is on record; asked again in the same order, one that counts its calls has its count back. What combiners and codecs
were given is not: the witness watches them (`witness.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedtide.core import parts
from fedtide.drivers.witness import Witness
from fedtide.records import StatefulError
from fedtide.rng import stream
from fedtide.server import border
from fedtide.server.step import plan
from fedtide.types import Candidates, lent


class Answered(NamedTuple):
    """One aggregation as it was: what the policies saw, and what they answered."""

    rows: Candidates
    picked: list[int]  # device numbers, ascending
    arrived: list[int]  # those of them whose updates were weighed
    weight: list[float]  # of these


def check_answers(path: Path, witness: Witness, answered: Iterable[Answered], called: str = "at aggregation") -> None:
    """Raise if a user's scheduler or weighting does not answer again as it did. called: what goes before its number."""
    system, policy = witness.system, witness.system.policy
    scheduler, weighting = (
        witness.watches(kind) and not parts.remembers(getattr(policy, kind))  # memory is on record
        for kind in ("scheduler", "weighting")
    )
    if not (scheduler or weighting):
        return
    for rows, picked, arrived, weight in answered:
        when = f"{called} {rows.tick} than before the interruption"
        if scheduler and (rows.update_sq_norm is not None or not policy.needs):
            rng = stream(system.experiment.seed, "schedule", rows.tick)
            grant = plan(policy, rows, system.num_symbols, rng, system.allocation)
            if rows.device[grant.picked].tolist() != picked:
                label = parts.label("scheduler", policy.scheduler)
                raise StatefulError(path, f"{label} picks other devices {when}")
        if weighting and arrived:
            came = np.searchsorted(rows.device, arrived)
            label = parts.label("weighting", policy.weighting)
            answer = policy.weighting(lent(rows.num_samples[came]), lent(rows.age[came]))
            if border.weights(answer, len(came), label).tolist() != weight:
                raise StatefulError(path, f"{label} gives other weights {when}")
