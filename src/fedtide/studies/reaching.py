"""What it takes to reach an accuracy: time, bits or joules up to the first evaluation that shows it.

`time_to_0.9`, `bits_to_0.9`, `joules_to_0.9`, `bits_down_to_0.9` and `air_time_to_0.9` are metrics like others, for any
accuracy; but a run may never get there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from fedtide.records.energy import UNPRICED, joules, prices
from fedtide.studies.result import RunResult
from fedtide.types import Floats

_NAME = re.compile(r"(time|bits|joules|bits_down|air_time)_to_(0?\.\d+|1(?:\.0*)?)")
HELP: Final = "time_to_A, bits_to_A, joules_to_A, bits_down_to_A, air_time_to_A with an accuracy A such as 0.9"


def _bits(result: RunResult) -> Floats:
    return np.asarray(result.column("bits") + result.column("control_bits"))


def _joules(result: RunResult) -> Floats:
    """Return the energy up to every evaluation in J; of what was not counted then, by the prices; NaN without any."""
    if "joules" in result.columns:
        return result.column("joules")
    found = prices(result.experiment)
    spent = joules(result.column("symbols"), result.column("samples_trained"), *found)
    return spent if found.known else np.full_like(spent, np.nan)


def _air_time(result: RunResult) -> Floats:
    return result.column("air_time") if "air_time" in result.columns else np.full_like(result.column("time"), np.nan)


SPENT: Final[Mapping[str, Callable[[RunResult], Floats]]] = {
    "time": lambda result: result.column("time"),
    "bits": _bits,  # payloads and what was reported before scheduling
    "joules": _joules,
    "bits_down": lambda result: result.column("bits_down"),
    "air_time": _air_time,
}
UNCOUNTED: Final[Mapping[str, str]] = {
    "joules": UNPRICED,
    "air_time": "radio.symbol_rate is 0: give it to count time on the air",
    "bits_down": "stored by an older fedtide, which did not count bits down: run it again",
}


class Reached(NamedTuple):
    """What several seeds spend until an accuracy is reached: a seed that does not reach it is later than all that do."""

    median: float  # infinite unless more than half of the seeds reach it
    reached: int
    seeds: int


@dataclass(frozen=True)
class Reaching:
    """A metric: what of something is spent until an accuracy is reached."""

    what: str  # time, bits, joules, bits_down, air_time
    accuracy: float

    def __call__(self, result: RunResult) -> float:
        """Return the amount at the first evaluation that shows the accuracy; NaN if none does, or nothing is known of it."""
        reached = np.flatnonzero(result.column("test_accuracy") >= self.accuracy)
        return float(SPENT[self.what](result)[reached[0]]) if len(reached) else math.nan

    def over_seeds(self, results: Sequence[RunResult]) -> Reached:
        """Return the median over these seeds, and how many reach the accuracy."""
        spent = np.array([self(each) for each in results])
        median = np.median(np.where(np.isnan(spent), math.inf, spent)) if len(spent) else math.inf
        return Reached(float(median), int(np.isfinite(spent).sum()), len(spent))

    def reason(self, results: Sequence[RunResult]) -> str:
        """Say why some of these runs have no such number; nothing if all have."""
        missing = [each for each in results if math.isnan(self(each))]
        if not missing:
            return ""
        if self.what in UNCOUNTED and any(np.isnan(SPENT[self.what](each)).all() for each in missing):
            return UNCOUNTED[self.what]
        return f"{len(results) - len(missing)} of {len(results)} seeds reach {self.accuracy:g}"


def named(name: str) -> Reaching | None:
    """Return the metric of this name; None if it is none of these."""
    found = _NAME.fullmatch(name)
    return Reaching(found[1], float(found[2])) if found and float(found[2]) > 0 else None
