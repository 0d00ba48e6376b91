"""Calling trackers so that none of them can harm a run: their failures warn, what they are given is a copy."""

from __future__ import annotations

import copy
import dataclasses
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel

from fedtide.core import stop
from fedtide.core.faults import named, said
from fedtide.errors import FedtideError
from fedtide.records.round import RoundRecord
from fedtide.trackers.base import Lifted, make_trackers

if TYPE_CHECKING:
    from fedtide.config import Experiment
    from fedtide.drivers.simulate import Result

UNCHANGEABLE = (bool, int, float, str, bytes, type(None))


class Trackers:
    """The trackers of one run.

    One that raises anything is warned of in one line and not called again; only Ctrl-C passes. What they are given is
    theirs: changing it changes nothing of ours.
    """

    def __init__(self, wanted: Sequence[str | Mapping[str, Any] | object], warn: Callable[[str], None]) -> None:
        self._held = make_trackers(wanted)
        self._warn = warn
        self._began = False

    def __bool__(self) -> bool:
        """Say whether any are left to call."""
        return bool(self._held)

    def begin(self, experiment: Experiment, folder: Path | None, total: int) -> None:
        """Tell them that a run begins or goes on. folder: where it is kept, if it is; total: aggregations in all."""
        self._began = True
        self._call("begin", experiment, folder, total)

    def round(self, record: RoundRecord) -> None:
        """Tell them of one aggregation."""
        self._call("round", record)

    def end(self, result: Result | None) -> None:
        """Tell them once that the run is over, if they were told that it began; None: it was interrupted or failed."""
        if self._began:
            self._began = False
            self._call("end", result)

    def _call(self, method: str, *given: Any) -> None:
        for tracker in list(self._held):
            asked = stop.asked()  # when a run is being ended, that it was asked to is no news
            try:
                getattr(tracker, method)(*map(_copied, given))
            except BaseException as error:  # SystemExit too: a tracker does not end a run
                self._held.remove(tracker)
                ctrl_c = isinstance(error, KeyboardInterrupt) and not stop.foreign(error)
                if not ctrl_c and (asked or not stop.asked()):
                    self._warn(_failure(tracker, method, error))
                    continue
                raise KeyboardInterrupt from None
            if stop.asked() and not asked:  # it swallowed Ctrl-C
                raise KeyboardInterrupt


def _failure(tracker: Lifted, method: str, error: BaseException) -> str:
    if isinstance(error, FedtideError):
        what = f": {said(error)}"
    else:
        what = f" raised {named(error)} in {method}{_where(error)}"
    return f"tracker={tracker.name!r}{what}; the run goes on without it"


def _where(error: BaseException) -> str:
    """Return file:line of the last step in the tracker's own file, the first one outside of this file."""
    steps = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    steps = [step for step in steps if step[0] != __file__]
    if not steps:
        return ""
    file = steps[0][0]
    line = [line for name, line in steps if name == file][-1]
    near = os.path.relpath(file)
    return f" ({file if near.startswith(os.pardir) else near}:{line})"


def _copied(value: Any) -> Any:
    """Return a value whose containers are new; what cannot be changed, and objects that we know nothing of, stay."""
    if isinstance(value, UNCHANGEABLE):
        return value
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, BaseModel):  # frozen, but what is in it need not be
        return value.model_copy(update={key: _copied(inner) for key, inner in value})
    if dataclasses.is_dataclass(value) and type(value).__module__.startswith("fedtide."):
        twin = copy.copy(value)
        for each in dataclasses.fields(value):
            object.__setattr__(twin, each.name, _copied(getattr(value, each.name)))
        return twin
    if isinstance(value, Mapping):
        return {key: _copied(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        copies = [inner if isinstance(inner, UNCHANGEABLE) else _copied(inner) for inner in value]
        if isinstance(value, list):
            return copies
        return value._make(copies) if hasattr(value, "_make") else tuple(copies)
    return value
