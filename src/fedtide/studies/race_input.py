"""What a race is given, read and checked: candidates, fidelities, a budget."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedtide.config import Experiment
from fedtide.core.yaml12 import shown, yaml_in_line
from fedtide.errors import FedtideError
from fedtide.studies import spec
from fedtide.studies.spec import Given

_BUDGET = re.compile(r"(\d+(?:\.\d*)?)\s*([smh])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_NAMES = 60  # characters of a candidate without a name


class Stage(NamedTuple):
    """A fidelity: keys that make a run cheaper, and its seeds."""

    keys: Mapping[str, Any]
    seeds: Sequence[int]


class Budget(NamedTuple):
    """What a race may spend."""

    runs: float = math.inf
    seconds: float = math.inf  # of one core


def race_entries(candidates: Any, base: Given, name: str) -> dict[str, Experiment]:
    """Return every candidate as an experiment, by its name."""
    if isinstance(candidates, Mapping) and candidates and all(isinstance(each, list) for each in candidates.values()):
        grid = spec.cross_study(name, spec.given_base(base), candidates, {}, 1)
        return {run.label: run.experiment for run in grid.runs}
    if isinstance(candidates, (list, tuple)):
        texts = [yaml_in_line(each).strip("{}")[:_NAMES] if isinstance(each, Mapping) else "" for each in candidates]
        named = {
            text if text and texts.count(text) == 1 else f"candidate {number}": each
            for number, (text, each) in enumerate(zip(texts, candidates, strict=True))
        }
    else:
        named = candidates
    if not isinstance(named, Mapping) or not named:
        raise FedtideError(
            f"candidates={shown(candidates)} has no candidates: "
            f"give {{'name': {{keys}}}}, a list of keys, or keys with lists of values"
        )
    variants = {label: spec.given_base(each) for label, each in named.items()}
    study = spec.side_by_side_study(name, variants, 1, spec.given_base(base))
    first: dict[str, str] = {}
    for run in study.runs:
        if first.setdefault(run.name, run.label) != run.label:
            raise FedtideError(f"{shown(first[run.name])} and {shown(run.label)} are the same experiment; keep one")
    return {run.label: run.experiment for run in study.runs}


def race_stage(given: Any, seeds: Sequence[int]) -> Stage:
    """Return a fidelity with its seeds."""
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise FedtideError(
            f"the fidelity {shown(given)} is not a mapping: give keys, such as {{'timeline.horizon': 2.5}}"
        )
    keys = {key: value for key, value in given.items() if key != "seeds"}
    count = given.get("seeds", len(seeds))
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= len(seeds):
        raise FedtideError(f"seeds={shown(count)} of a fidelity must be a whole number from 1 to {len(seeds)}")
    return Stage(keys, seeds[:count])


def check_race(
    entries: Mapping[str, Any],
    seeds: Sequence[int],
    level: Any,
    validation: Any,
    confirm: Any,
    against: Any,
    block: Any,
) -> None:
    """Raise if a race cannot be as it is asked for."""
    for what, value, least in (("confirm", confirm, 0), ("block", block, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise FedtideError(f"{what}={shown(value)} must be a whole number of at least {least}")
    check_level(level)
    if validation is not None and (isinstance(validation, bool) or not isinstance(validation, (int, float))):
        raise FedtideError(f"validation={shown(validation)} must be a share of the training samples, or None")
    if against is not None and against not in entries:
        raise FedtideError(
            f"against={shown(against)} is not a candidate; choose from {', '.join(map(repr, list(entries)[:6]))}"
        )


def check_level(level: Any) -> None:
    """Raise if a level is none."""
    if isinstance(level, bool) or not isinstance(level, float) or not 0 < level < 0.5:
        raise FedtideError(f"level={shown(level)} must be between 0 and 0.5: how often a verdict may be wrong")


def race_budget(given: Any) -> Budget:
    """Return a budget of runs or of core-seconds."""
    if given is None:
        return Budget()
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return Budget(runs=given)
    found = _BUDGET.fullmatch(given.strip()) if isinstance(given, str) else None
    if found is None or float(found[1]) == 0:
        raise FedtideError(
            f"budget={shown(given)} must be a number of runs, or the time of one core such as 90s, 20m, 1.5h"
        )
    return Budget(seconds=float(found[1]) * _SECONDS[found[2]])
