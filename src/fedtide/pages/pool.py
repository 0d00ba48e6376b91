"""Columns and runs of a page, each kept once: runs of a seed share their clock, and figures share their runs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from fedtide.pages.thin import every
from fedtide.studies.reaching import SPENT
from fedtide.studies.result import RunResult
from fedtide.types import Floats

# What curves may be drawn over; the page calls them so. Bits: payloads and what was reported before scheduling.
AXES: Final = {
    "time": "time",
    "index": "iteration",
    "bits": "bits sent",
    "symbols": "symbols spent (airtime)",
    "air_time": "seconds on the air",
    "joules": "energy (J)",
    "samples_trained": "samples trained on",
    "bits_down": "bits down",
}
HEIGHTS: Final = {"test_accuracy": "test accuracy", "train_loss": "training loss"}


class Pool:
    """What a page's curves are made of: `columns` and `runs` as plain data; runs name columns by their number."""

    def __init__(self, most: int | None = None) -> None:
        """most: points kept of a run, evenly, its last one among them; None: all."""
        self.columns: list[Any] = []
        self.runs: list[dict[str, Any]] = []
        self.is_thinned = False
        self._most = most
        self._numbers: dict[bytes, int] = {}
        self._known: dict[str, int] = {}

    def run(self, result: RunResult) -> int:
        """Return the number of a run."""
        found = spent(result) | {name: result.column(name) for name in HEIGHTS}
        kept = np.arange(len(found["time"])) if self._most is None else every(len(found["time"]), self._most)
        self.is_thinned |= len(kept) < len(found["time"])
        named = {name: self._column(values[kept]) for name, values in found.items() if is_whole(values)}
        fleet = result.experiment.get("fleet", {})
        entry = {**named, "chance": result.chance, "window": float(fleet.get("max_duration", 1.0))}
        key = repr(entry)
        if key not in self._known:
            self._known[key] = len(self.runs)
            self.runs.append(entry)
        return self._known[key]

    def _column(self, values: Floats) -> int:
        key = values.tobytes()
        if key not in self._numbers:
            self._numbers[key] = len(self.columns)
            self.columns.append(coded(values))
        return self._numbers[key]


def spent(result: RunResult) -> dict[str, Floats]:
    """Return what a run had spent at every evaluation, by the names of AXES; NaN where it was not counted."""
    return {name: SPENT[name](result) if name in SPENT else result.column(name) for name in AXES}


def is_whole(values: Floats) -> bool:
    """Say whether a column is there at every evaluation, and says anything."""
    return len(values) > 0 and bool(np.isfinite(values).all()) and bool(np.any(values))


def coded(values: Floats) -> Any:
    """Return a column as plain data: whole numbers by their steps, which are short and exact; others as they are."""
    if np.all(values == np.round(values)) and np.all(np.abs(values) < 2**53):
        return {"steps": np.diff(values.astype(np.int64), prepend=0).tolist()}
    return values.tolist()
