"""What a tracker is, and how the ones that are asked for are made.

A tracker has any of the three methods of `Tracker`; a plain function is called with every record. What cannot be made
(a name that is not known, arguments that do not fit) is refused before a run begins; what fails later only warns.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from fedtide.core import parts
from fedtide.core.forms import shown
from fedtide.core.kinds import KINDS
from fedtide.errors import FedtideError
from fedtide.records.round import RoundRecord

if TYPE_CHECKING:
    from fedtide.config import Experiment
    from fedtide.drivers.simulate import Result

# Ours, each imported when it is asked for; the package that it writes with, when a run begins.
TRACKERS: Final[dict[str, str]] = {
    "tensorboard": "fedtide.trackers.tensorboard:TensorBoard",
    "mlflow": "fedtide.trackers.mlflow:MLflow",
    "wandb": "fedtide.trackers.wandb:WandB",
}
CALLS: Final = KINDS["tracker"].calls


class Tracker(Protocol):
    """Watches a run. Every method may be left out, but not all of them."""

    def begin(self, experiment: Experiment, folder: Path | None, total: int) -> None:
        """A run begins or goes on. folder: where it is kept, if it is; total: aggregations in all."""

    def round(self, record: RoundRecord) -> None:
        """One aggregation is done. A run that was killed repeats a few, with the same numbers."""

    def end(self, result: Result | None) -> None:
        """The run is over; None: it was interrupted or failed, and may go on some day."""


@dataclass(frozen=True)
class Lifted:
    """A tracker with all three methods, whichever of them the user's has."""

    name: str  # as the user gave it
    begin: Callable[[Experiment, Path | None, int], None]
    round: Callable[[RoundRecord], None]
    end: Callable[[Any], None]


def make_trackers(wanted: Sequence[str | Mapping[str, Any] | object]) -> list[Lifted]:
    """Return the trackers that are wanted: names, mappings `{name: ..., arguments}`, objects, classes or functions."""
    if isinstance(wanted, str | Mapping) or not isinstance(wanted, Sequence):
        raise FedtideError(f"tracker={shown(wanted)} is no list; write tracker=[{', '.join(TRACKERS)}] or some of them")
    return [_make(each) for each in wanted]


def _make(wanted: str | Mapping[str, Any] | object) -> Lifted:
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
        with parts.reported("tracker", name, wanted):
            return lifted(name, wanted())
    return lifted(name, wanted)


def _named(name: str, args: Mapping[str, Any]) -> Lifted:
    found = parts.find("tracker", name, TRACKERS)
    if inspect.isroutine(found):  # a function of the record
        return lifted(name, functools.partial(found, **args) if args else found)
    with parts.reported("tracker", name, found):  # making it, and even looking at it, may run code of its own
        made = parts.resolve("tracker", name, args)
    return lifted(name, made)


def lifted(name: str, made: Any) -> Lifted:
    """Return a tracker with all three methods; raise if it has none of them, or cannot be called as it will be."""
    with parts.reported("tracker", name, made):  # even looking at an object may run code of its own
        offered = {method: getattr(made, method, None) for method in CALLS}
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
    return Lifted(name, **{method: found.get(method, _nothing) for method in CALLS})


def _nothing(*_: object) -> None:
    """Do what a method that was left out does."""


def _check_call(name: str, method: str, call: Any) -> None:
    try:
        signature = inspect.signature(call, follow_wrapped=False)
    except (TypeError, ValueError):  # it is not written in Python
        return
    try:
        signature.bind(*CALLS[method])
    except TypeError as error:
        raise FedtideError(
            f"tracker={name!r} is called as {method}({', '.join(CALLS[method])}), but it takes {signature}: {error}; "
            "correct it there"
        ) from error
