"""Users' own parts: asked twice before a run begins, and about the last recorded aggregations before it goes on.

A resumed run makes its parts anew: one that depends on more than it is called with would go on with other numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from fedtide import testing
from fedtide.engine.step import plan_step
from fedtide.engine.system import System
from fedtide.errors import RunFolderError
from fedtide.parts import checks
from fedtide.rng import stream
from fedtide.types import Candidates, readonly_copy

ASKED_AGAIN: Final = 5  # the last aggregations on record


def check_own_parts(system: System, num_parameters: int) -> None:
    """Raise if a part of the user's own answers otherwise when it is asked again. Parts of the world are asked when made."""
    policy = system.policy
    parts = {
        "scheduler": policy.scheduler,
        "weighting": policy.weighting,
        "aggregator": policy.aggregator,
        "codec": system.codec,
        "access": system.access,
    }
    testing.refuse_impure(parts, system.fleet.num_devices, system.dataset.num_labels, num_parameters)


class Answered(NamedTuple):
    """One aggregation as it was: what the policies saw, and what they answered."""

    rows: Candidates
    picked: list[int]  # device numbers, ascending
    arrived: list[int]  # those of them whose updates were weighed
    weight: list[float]  # of these


def check_answers(path: Path, system: System, answered: Iterable[Answered], called: str = "at aggregation") -> None:
    """Raise if a user's scheduler or weighting does not answer again as it did. called: what goes before its number.

    What aggregators and codecs were given is not on record.
    """
    policy = system.policy
    scheduler, weighting = (
        not checks.is_ours(part) and not checks.remembers(part)  # memory is on record
        for part in (policy.scheduler, policy.weighting)
    )
    if not (scheduler or weighting):
        return
    for rows, picked, arrived, weight in deque(answered, ASKED_AGAIN):
        when = f"{called} {rows.tick} than before the interruption"
        if scheduler and (rows.update_sq_norm is not None or not policy.needs):
            rng = stream(system.experiment.seed, "schedule", rows.tick)
            grant = plan_step(policy, rows, system.num_symbols, rng, system.allocation)
            if rows.device[grant.picked].tolist() != picked:
                label = checks.part_label("scheduler", policy.scheduler)
                raise _stateful(path, f"{label} picks other devices {when}")
        if weighting and arrived:
            came = rows.device.searchsorted(arrived)
            label = checks.part_label("weighting", policy.weighting)
            answer = policy.weighting(readonly_copy(rows.num_samples[came]), readonly_copy(rows.age[came]))
            if checks.checked_weights(answer, len(came), label).tolist() != weight:
                raise _stateful(path, f"{label} gives other weights {when}")


def _stateful(path: Path, reason: str) -> RunFolderError:
    return RunFolderError(
        f"{path} cannot be resumed to the same numbers: {reason}, and a resumed run makes its policies anew; begin it again in "
        "a new folder, or let the policy depend on its arguments alone (candidates.tick counts the aggregations, rng is the "
        "same each time; for a cache use functools.lru_cache)"
    )
