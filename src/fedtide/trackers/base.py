"""What a tracker is, how the ones asked for are made, and how they are called so that none can harm a run."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from fedtide.core import signals
from fedtide.core.faults import fault_message, fault_text
from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError
from fedtide.parts import registry
from fedtide.parts.checks import part_error_place
from fedtide.parts.kinds import KINDS
from fedtide.parts.user_code import reading_user_code
from fedtide.runs.record import RoundRecord
from fedtide.types import read_only

if TYPE_CHECKING:
    from fedtide.config import Experiment
    from fedtide.runs.result import Result

# Ours, each imported when it is asked for; the package that it writes with, when a run begins.
TRACKERS: Final[dict[str, str]] = {
    "tensorboard": "fedtide.trackers.adapters:TensorBoard",
    "mlflow": "fedtide.trackers.adapters:MLflow",
    "wandb": "fedtide.trackers.adapters:WandB",
}
_CALLS: Final = KINDS["tracker"].calls


def tracker_scalars(record: RoundRecord) -> dict[str, float]:
    """Return the numbers of one aggregation that all trackers show, by name, without those that it does not have."""
    found: dict[str, Any] = {
        "test/accuracy": record.test_accuracy,
        "test/loss": record.test_loss,
        "train/loss": record.train_loss,
        "uplink/symbols": sum(record.symbols),
        "uplink/bits": sum(record.sent_bits),  # payloads
        "uplink/mean_capacity": _mean(record.capacity),  # bit/symbol
        "devices/ready": record.num_ready,
        "devices/picked": len(record.picked),
        "devices/arrived": record.num_arrived,
        "devices/lost": len(record.lost),
        "devices/silent": len(record.silent),
        "devices/retransmitted": len(record.retransmitted),
        "devices/mean_age": _mean(record.age),  # ticks
        "devices/label_variance": record.label_variance,
        "time": record.time,  # simulated
        **{f"spent/{name}": value for name, value in record.ledger._asdict().items()},  # so far
        **{f"metrics/{name}": value for name, value in record.metrics.items()},
    }
    return {name: float(value) for name, value in found.items() if isinstance(value, Real)}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if len(values) else None


class Tracker(Protocol):
    """Watches a run. Every method may be left out, but not all of them; a plain function is called with every record."""

    def begin(self, experiment: Experiment, folder: Path | None, total: int) -> None:
        """A run begins or goes on. folder: where it is kept, if it is; total: aggregations in all, 0 if nobody knows."""

    def round(self, record: RoundRecord) -> None:
        """One aggregation is done. A run that was killed repeats a few, with the same numbers."""

    def end(self, result: Result | None) -> None:
        """The run is over; None: it was interrupted or failed, and may go on some day."""


class NamedTracker(NamedTuple):
    """A tracker, with the methods that it has."""

    name: str  # as the user gave it
    made: Any
    methods: Mapping[str, Callable[..., None]]


def make_trackers(wanted: Sequence[str | Mapping[str, Any] | object]) -> list[NamedTracker]:
    """Return the trackers that are wanted: names, mappings `{name: ..., arguments}`, objects, classes or functions.

    What cannot be made, or cannot be called as it will be, is refused here, before a run begins; what fails later only warns.
    """
    if isinstance(wanted, str | Mapping) or not isinstance(wanted, Sequence):
        raise FedtideError(
            f"tracker={shown(wanted)} is not a list; write tracker=[{', '.join(TRACKERS)}] or some of them"
        )
    return [_make(each) for each in wanted]


def _make(wanted: str | Mapping[str, Any] | object) -> NamedTracker:
    entry: Any = {"name": wanted} if isinstance(wanted, str) else wanted
    if isinstance(entry, Mapping):
        name, args = entry.get("name"), {key: value for key, value in entry.items() if key != "name"}
    else:
        name, args = getattr(entry, "__name__", None) or type(entry).__name__, {}
    if not isinstance(name, str):
        raise FedtideError(f"tracker={shown(entry)} has no name; write {{name: tensorboard, ...}}")
    with reading_user_code("tracker", name, "making it"):  # even looking at an object may run code of its own
        if isinstance(entry, Mapping):
            made = registry.resolve("tracker", name, args)
        else:
            made = entry() if inspect.isclass(entry) else entry
        offered = {method: getattr(made, method, None) for method in _CALLS}
        methods = {method: call for method, call in offered.items() if callable(call)}
        if not methods and callable(made):
            methods = {"round": made}
        if not methods:
            raise FedtideError(
                f"tracker={name!r} is {shown(made)}, which tracks nothing: give it one of the methods "
                "begin(experiment, folder, total), round(record), end(result), or write a function of the record"
            )
        for method, call in methods.items():
            registry.check_registry_call("tracker", name, made, "" if call is made else method, _CALLS[method])
    return NamedTracker(name, made, methods)


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
        for tracker in [tracker for tracker in self._held if method in tracker.methods]:
            asked = signals.stop_requested()  # when a run is being ended, that it was asked to is no news
            try:
                tracker.methods[method](*given)
            except BaseException as error:  # SystemExit too: a tracker does not end a run
                self._held.remove(tracker)
                ctrl_c = isinstance(error, KeyboardInterrupt) and not signals.is_foreign_signal(error)
                if ctrl_c or (signals.stop_requested() and not asked):
                    raise KeyboardInterrupt from None
                what = f" raised {fault_text(error)} in {method} ({part_error_place(tracker.made, error)})"
                what = f": {fault_message(error)}" if isinstance(error, FedtideError) else what
                self._warn(f"tracker={tracker.name!r}{what}; the run goes on without it")
            if signals.stop_requested() and not asked:  # it swallowed Ctrl-C
                raise KeyboardInterrupt
