"""What a tracker is, how the ones asked for are made, and how they are called so that none can harm a run."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from pydantic import TypeAdapter

from fedtide.core import signals
from fedtide.core.faults import error_text, said
from fedtide.core.files import write_atomically
from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError
from fedtide.parts import checks, registry
from fedtide.parts.kinds import KINDS
from fedtide.runs.record import RoundRecord
from fedtide.types import read_only

if TYPE_CHECKING:
    from fedtide.config import Experiment
    from fedtide.runs.result import Result


# The numbers that trackers show, and their names: the same with all of them.


def scalars(record: RoundRecord) -> dict[str, float]:
    """Return the numbers of one aggregation by name, without those that it does not have."""
    found: dict[str, Any] = {
        "test/accuracy": record.test_accuracy,
        "test/loss": record.test_loss,
        "train/loss": record.train_loss,
        "uplink/symbols": sum(record.symbols),
        "uplink/bits": sum(record.sent_bits),  # payloads
        "uplink/mean_capacity": _mean(record.capacity),  # bit/symbol
        "devices/ready": record.num_ready,
        "devices/picked": len(record.picked),
        "devices/mean_age": _mean(record.age),  # ticks
        "devices/label_variance": record.label_variance,
        "time": record.time,  # simulated
        **{f"spent/{name}": value for name, value in record.ledger._asdict().items()},  # so far
        **{f"metrics/{name}": value for name, value in record.metrics.items()},
    }
    return {name: float(value) for name, value in found.items() if isinstance(value, Real)}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if len(values) else None


# What trackers need to find their own run again: a small file `trackers.json` in the run folder, and their packages.


_FILE = "trackers.json"


_SESSIONS: Final = TypeAdapter(dict[str, dict[str, Any]])


def remembered(folder: Path | None, tracker: str) -> dict[str, Any]:
    """Return what a tracker wrote down in this folder; nothing if there is none, or the file cannot be read."""
    return _read(folder).get(tracker, {})


def remember(folder: Path | None, tracker: str, **values: Any) -> None:
    """Write something down for the next session of this run, beside what other trackers did."""
    if folder is not None:
        write_atomically(folder / _FILE, _SESSIONS.dump_json({**_read(folder), tracker: values}, indent=2))


def _read(folder: Path | None) -> dict[str, dict[str, Any]]:
    try:
        return _SESSIONS.validate_json((folder / _FILE).read_bytes()) if folder else {}
    except (OSError, ValueError):  # a new run, or a damaged file: the tracker begins a run of its own
        return {}


def package(name: str, extra: str) -> Any:
    """Import what a tracker writes with; say what to install if it is not there."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise FedtideError(
            f"{name} cannot be imported ({error_text(error)}): pip install 'fedtide[{extra}]'"
        ) from error


# What a tracker is, and how the ones that are asked for are made.
#
# A tracker has any of the three methods of `Tracker`; a plain function is called with every record. What cannot be made (a
# name that is not known, arguments that do not fit) is refused before a run begins; what fails later only warns.


# Ours, each imported when it is asked for; the package that it writes with, when a run begins.
TRACKERS: Final[dict[str, str]] = {
    "tensorboard": "fedtide.trackers.adapters:TensorBoard",
    "mlflow": "fedtide.trackers.adapters:MLflow",
    "wandb": "fedtide.trackers.adapters:WandB",
}
_CALLS: Final = KINDS["tracker"].calls


class Tracker(Protocol):
    """Watches a run. Every method may be left out, but not all of them."""

    def begin(self, experiment: Experiment, folder: Path | None, total: int) -> None:
        """A run begins or goes on. folder: where it is kept, if it is; total: aggregations in all."""

    def round(self, record: RoundRecord) -> None:
        """One aggregation is done. A run that was killed repeats a few, with the same numbers."""

    def end(self, result: Result | None) -> None:
        """The run is over; None: it was interrupted or failed, and may go on some day."""


@dataclass(frozen=True)
class LiftedTracker:
    """A tracker with all three methods, whichever of them the user's has."""

    name: str  # as the user gave it
    begin: Callable[[Experiment, Path | None, int], None]
    round: Callable[[RoundRecord], None]
    end: Callable[[Any], None]


def make_trackers(wanted: Sequence[str | Mapping[str, Any] | object]) -> list[LiftedTracker]:
    """Return the trackers that are wanted: names, mappings `{name: ..., arguments}`, objects, classes or functions."""
    if isinstance(wanted, str | Mapping) or not isinstance(wanted, Sequence):
        raise FedtideError(f"tracker={shown(wanted)} is no list; write tracker=[{', '.join(TRACKERS)}] or some of them")
    return [_make(each) for each in wanted]


def _make(wanted: str | Mapping[str, Any] | object) -> LiftedTracker:
    if isinstance(wanted, str):
        return _named(wanted, {})
    if isinstance(wanted, Mapping):
        args = dict(wanted)
        name = args.pop("name", None)
        if not isinstance(name, str):
            raise FedtideError(f"tracker={shown(dict(wanted))} has no name; write {{name: tensorboard, ...}}")
        return _named(name, args)
    name = getattr(wanted, "__name__", None) or type(wanted).__name__
    if inspect.isclass(wanted):
        with checks.reported("tracker", name, wanted):
            return lifted_tracker(name, wanted())
    return lifted_tracker(name, wanted)


def _named(name: str, args: Mapping[str, Any]) -> LiftedTracker:
    found = registry.find_part("tracker", name, TRACKERS)
    if inspect.isroutine(found):  # a function of the record
        return lifted_tracker(name, functools.partial(found, **args) if args else found)
    with checks.reported("tracker", name, found):  # making it, and even looking at it, may run code of its own
        made = registry.resolve("tracker", name, args)
    return lifted_tracker(name, made)


def lifted_tracker(name: str, made: Any) -> LiftedTracker:
    """Return a tracker with all three methods; raise if it has none of them, or cannot be called as it will be."""
    with checks.reported("tracker", name, made):  # even looking at an object may run code of its own
        offered = {method: getattr(made, method, None) for method in _CALLS}
        found: dict[str, Any] = {method: call for method, call in offered.items() if callable(call)}
        if not found and callable(made):
            found = {"round": made}
        if not found:
            raise FedtideError(
                f"tracker={name!r} is {shown(made)}, which tracks nothing: give it one of the methods "
                "begin(experiment, folder, total), round(record), end(result), or write a function of the record"
            )
        for method, call in found.items():
            _check_call(name, method, call)
    return LiftedTracker(name, **{method: found.get(method, _nothing) for method in _CALLS})


def _nothing(*_: object) -> None:
    """Do what a method that was left out does."""


def _check_call(name: str, method: str, call: Any) -> None:
    try:
        signature = inspect.signature(call, follow_wrapped=False)
    except (TypeError, ValueError):  # it is not written in Python
        return
    try:
        signature.bind(*_CALLS[method])
    except TypeError as error:
        raise FedtideError(
            f"tracker={name!r} is called as {method}({', '.join(_CALLS[method])}), but it takes {signature}: {error}; "
            "correct it there"
        ) from error


class Trackers:
    """The trackers of one run.

    One that raises anything is warned of in one line and not called again; only Ctrl-C passes. Records are frozen, and the
    model is read-only.
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
        """Tell them of one aggregation: lists of their own, so that none can change the run's."""
        if self._held:
            columns: list[Any] = [copy.copy(column) for column in record]
            self._call("round", RoundRecord(*columns))

    def end(self, result: Result | None) -> None:
        """Tell them once that the run is over, if they were told that it began; None: it was interrupted or failed."""
        if self._began:
            self._began = False
            self._call("end", result and result._replace(model=read_only(result.model)))

    def _call(self, method: str, *given: Any) -> None:
        for tracker in list(self._held):
            asked = signals.stop_requested()  # when a run is being ended, that it was asked to is no news
            try:
                getattr(tracker, method)(*given)
            except BaseException as error:  # SystemExit too: a tracker does not end a run
                self._held.remove(tracker)
                ctrl_c = isinstance(error, KeyboardInterrupt) and not signals.foreign(error)
                if not ctrl_c and (asked or not signals.stop_requested()):
                    self._warn(_failure(tracker, method, error))
                    continue
                raise KeyboardInterrupt from None
            if signals.stop_requested() and not asked:  # it swallowed Ctrl-C
                raise KeyboardInterrupt


def _failure(tracker: LiftedTracker, method: str, error: BaseException) -> str:
    if isinstance(error, FedtideError):
        what = f": {said(error)}"
    else:
        what = f" raised {error_text(error)} in {method}{_where(error)}"
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
