"""The border to users' parts: whatever they raise or answer wrongly comes out as one line with the part, the value, the reason.

`Guarded` is the one wrapper around a user's part. It reports what the part raises; a part of the world (durations, channels,
...) it also hands copies, and checks the answer. What the server's parts answer (positions, weights, models, memory) is
checked where it is used, ours too: that is cheap.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final, NamedTuple

import numpy as np

from fedtide.core import signals
from fedtide.core.faults import fault_text
from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError, TrainingError
from fedtide.parts.arguments import MOST_MEMORY
from fedtide.parts.kinds import KINDS
from fedtide.types import Floats, Link, Memory, Selection, Shares, Signal, Vector, Work, readonly_copy

_LONGEST_NAME: Final = 100  # characters: it is a file's name in the checkpoint
_LONGEST_ANSWER: Final = 200  # characters of an answer in a message
_SLACK: Final = 1 + 1e-9  # what rounding may add
_NOTHING: Final = 1e-9  # bits; products of links too faint to matter round to 0


@dataclass(frozen=True)
class Guarded:
    """A user's part whose errors come out as one line that names it; in everything else it is the part itself."""

    kind: str
    name: str  # as the user gave it
    policy: Any

    @property
    def label(self) -> str:
        """The part as an error message names it."""
        return f"{self.kind}={self.name!r}"

    @functools.cached_property
    def place(self) -> str:
        """Where it is defined, as an error message says it: looked up once, since a label is asked for at every tick."""
        return source_place(self.policy)

    def __call__(self, *args: Any) -> Any:
        """Call the part. One of the world gets copies, and its answer is checked."""
        check = ANSWERS.get(self.kind)
        lent = [readonly_copy(each) if check and isinstance(each, np.ndarray) else each for each in args]
        with self._reported():
            answer = self.policy(*lent)
        return check(WorldCall(self.kind, self.label + self.place, args), answer) if check else answer

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__") or attribute in self.__dataclass_fields__:
            raise AttributeError(attribute)  # copying asks for these before there is a policy
        value = getattr(self.policy, attribute)
        if not callable(value):
            return value

        def call(*args: Any) -> Any:
            with self._reported():
                answer = value(*args)
            if (check := METHOD_ANSWERS.get((self.kind, attribute))) is None:
                return answer
            return check(WorldCall(self.kind, f"{self.label}{self.place}: {attribute}", args[:1]), answer)

        return call

    def _reported(self) -> AbstractContextManager[None]:
        return part_errors_reported(self.kind, self.name, self.policy, _failure(self.kind))


def _failure(kind: str) -> type[FedtideError]:
    return FedtideError if KINDS[kind].asked_before else TrainingError


@contextmanager
def part_errors_reported(
    kind: str, name: str, policy: Any, failure: type[FedtideError] = FedtideError
) -> Iterator[None]:
    """Turn whatever a part raises into one line: its name, what was raised and where in its file, what to do."""
    try:
        yield
        signals.raise_if_stopped()  # a part may have swallowed Ctrl-C
    except FedtideError as error:
        if name in str(error) or is_ours(policy):
            raise
        # ours, called from the user's file with something that it does not take
        told = failure if type(error) is FedtideError else type(error)
        raise told(f"{kind}={name!r}: {error} ({part_error_place(policy, error)})") from error
    except BaseException as error:  # SystemExit too: a part does not end a run as if all were done
        if signals.stop_was_wanted(error):
            raise KeyboardInterrupt from None
        what = f"{kind}={name!r} raised {fault_text(error)}"
        if is_ours(policy):
            raise failure(f"{what}; check the arguments that are given to it") from error
        raise failure(f"{what} ({part_error_place(policy, error)}); correct it there") from error


def checked_callback(name: str, called: Any) -> Any:
    """Return a caller's function such that whatever it raises comes out as one line; None and ours as they are."""
    if called is None or is_ours(called):
        return called

    def call(*args: Any) -> Any:
        with part_errors_reported("callback", name, called, TrainingError):
            return called(*args)

    return call


def unguarded_part(part: Any) -> Any:
    """Return the part behind a guard."""
    return part.policy if isinstance(part, Guarded) else part


def _definition(policy: Any) -> Any:
    """Return the function or class behind a part."""
    policy = inspect.unwrap(policy)
    while isinstance(policy, (functools.partial, Guarded)):
        policy = policy.func if isinstance(policy, functools.partial) else policy.policy
    found = inspect.unwrap(policy) if callable(policy) else policy
    return found if inspect.isroutine(found) or inspect.isclass(found) else type(found)


def is_ours(policy: Any) -> bool:
    """Say whether a part is one of ours, under whatever name and with whatever arguments."""
    return is_of_ours(_definition(policy))


def outermost_user_part(policy: Any) -> Any:
    """Return a part that is not one of ours, or the first such one inside it (its `inner_part`); None: all are ours."""
    while policy is not None and is_ours(policy):
        policy = getattr(unguarded_part(getattr(policy, "__wrapped__", policy)), "inner_part", None)
    return policy


def is_of_ours(definition: Any) -> bool:
    """Say whether a function or class is written here."""
    return (getattr(definition, "__module__", None) or "").startswith("fedtide.")


def part_label(kind: str, policy: Any) -> str:
    """Name a part in an error message about its answer: as the user did, with file and line, if it is guarded."""
    policy = getattr(policy, "__wrapped__", policy)
    return policy.label + policy.place if isinstance(policy, Guarded) else f"the {kind}"


def source_place(policy: Any) -> str:
    """Return ` (file:line)` of what answers, the function or method of a user's part; nothing of one of ours."""
    definition = _definition(policy)
    answers = vars(definition).get("__call__", definition) if inspect.isclass(definition) else definition
    return "" if is_of_ours(definition) else f" ({part_error_place(answers)})"


def part_error_place(policy: Any, error: BaseException | None = None) -> str:
    """Return file:line of the last step in the part's own file, or of its definition if no step led there."""
    definition = _definition(policy)
    try:
        file = inspect.getsourcefile(definition) or inspect.getfile(definition)
        line = inspect.getsourcelines(definition)[1]
    except (OSError, TypeError):  # it is not written in Python, or its text is gone
        return str(getattr(definition, "__module__", None) or "no file")
    for frame, number in traceback.walk_tb(error.__traceback__ if error else None):
        line = number if frame.f_code.co_filename == file else line
    near = os.path.relpath(file)
    return f"{file if near.startswith(os.pardir) else near}:{line}"


def answer_as_array(answer: Any) -> Any:
    """Return what a part answered as an array; one of no dimension, which is no answer, if it holds no plain numbers.

    That is a list of lists of unequal length, an array with entries masked, a tensor that does not become an array.
    """
    try:
        masks = sys.modules.get("numpy.ma")  # not imported for this: without it there are no masks
        return np.array(None) if masks is not None and masks.is_masked(answer) else np.asarray(answer)
    except Exception:  # NumPy's own and whatever the object's conversion raises
        return np.array(None)


# Parts of the world: one number per device, or per picked device.


class WorldCall(NamedTuple):
    """A call of a part of the world: who is asked, and with what."""

    kind: str
    label: str
    args: tuple[Any, ...]

    def column(self, answer: Any, what: str, is_right: Callable[[Floats], Any] | None = None) -> Floats:
        """Return an answer as floats of our own [m]; raise unless each is right. By default: finite and not negative."""
        columns = {
            name: each for name, each in zip(KINDS[self.kind].calls[""], self.args, strict=True) if np.ndim(each)
        }
        count, found, failure = len(next(iter(columns.values()))), answer_as_array(answer), _failure(self.kind)
        if found.shape != (count,) or (count and found.dtype.kind not in "fiu"):
            seen = f"an array of shape {found.shape} and type {found.dtype}"
            seen = seen if found.dtype != object else shown(answer, _LONGEST_ANSWER)
            raise failure(f"{self.label} returned {seen}: it must give {count} {what}, one per device")
        made = np.array(found, np.float64)  # a copy: whoever made it may write to it again
        right = np.isfinite(made) & (made >= 0) if is_right is None else is_right(made)
        for at in np.flatnonzero(~right)[:1]:
            asked = ", ".join(f"{name}={each[at]}" for name, each in columns.items())
            raise failure(f"{self.label} returned {made[at]} at position {at} ({asked}): it must give {what}")
        return made


def _link(call: WorldCall, answer: Any) -> Floats | Link:
    if not isinstance(answer, Link):
        return call.column(answer, "finite SNRs >= 0, not in dB")
    return Link(
        call.column(answer.capacity, "finite capacities >= 0 in bit/symbol"),
        call.column(answer.estimated_capacity, "finite estimated capacities >= 0 in bit/symbol"),
    )


def _signal(call: WorldCall, answer: Any) -> Signal:
    snr, estimated = answer if isinstance(answer, Signal) else (call.args[-1], answer)
    return Signal(
        call.column(snr, "finite SNRs >= 0, not in dB"), call.column(estimated, "finite estimated SNRs >= 0, not in dB")
    )


def _shares(call: WorldCall, answer: Any) -> Shares:
    """Return what an allocation answered as shares [r]; if it gave the symbols alone, all of them are filled."""
    capacity, num_symbols = call.args
    symbols = call.column(answer.symbols if isinstance(answer, Shares) else answer, "finite numbers of symbols >= 0")
    with np.errstate(over="ignore"):
        total, carried = float(symbols.sum()), symbols * capacity
    if total > num_symbols * _SLACK:
        raise TrainingError(f"{call.label} returned {total:.12g} symbols in all: there are {num_symbols:.12g} to share")
    bits = call.column(answer.bits if isinstance(answer, Shares) else carried, "finite numbers of bits >= 0")
    for at in np.flatnonzero(bits > carried * _SLACK + _NOTHING)[:1]:
        raise TrainingError(
            f"{call.label} returned {bits[at]:.12g} bits at position {at}: its {symbols[at]:.12g} symbols carry "
            f"{carried[at]:.12g} at {capacity[at]:.6g} bit/symbol; grant at most that"
        )
    return Shares(symbols, bits)


_MOST_LOCAL: Final = 10**9  # epochs, steps or samples of a step


def _work(call: WorldCall, answer: Any) -> Work:
    """Return how much devices do [m]: whole numbers of epochs or steps, and what else is given."""
    if not isinstance(answer, Work) or (answer.epochs is not None and answer.steps is not None):
        raise FedtideError(
            f"{call.label} returned {shown(answer, _LONGEST_ANSWER)}: it must give fedtide.Work(epochs or steps, batch_size, rate), "
            "columns of one number per device; leave out what is as learning.* says"
        )

    def whole(name: str) -> Any:
        wanted = f"whole numbers of {name} from 1 to {_MOST_LOCAL:,}"
        given = getattr(answer, name)
        is_right = lambda found: (found >= 1) & (found <= _MOST_LOCAL) & (found == np.floor(found))  # noqa: E731
        return None if given is None else call.column(given, wanted, is_right).astype(np.int64)

    def positive(found: Floats) -> Any:
        return np.isfinite(found) & (found > 0)

    rate = None if answer.rate is None else call.column(answer.rate, "finite rates > 0", positive)
    return Work(whole("epochs"), whole("steps"), whole("batch_size"), rate)


ANSWERS: Final[dict[str, Callable[[WorldCall, Any], Any]]] = {
    "duration": lambda call, answer: call.column(answer, "times > 0", lambda found: found > 0),
    "availability": lambda call, answer: call.column(
        answer, "when the device is next there, at that time or later", lambda found: found >= call.args[2]
    ),
    "channel": _link,
    "coverage": lambda call, answer: call.column(answer, "finite average SNRs >= 0, not in dB"),
    "csi": _signal,
    "modem": lambda call, answer: call.column(answer, "finite capacities >= 0 in bit/symbol"),
    "downlink": lambda call, answer: call.column(answer, "times >= 0", lambda found: found >= 0),
    "energy": lambda call, answer: call.column(answer, "finite energies >= 0 in J"),
    "allocation": _shares,
    "retransmission": lambda call, answer: call.column(answer, "numbers of bits >= 0", lambda found: found >= 0),
    "work": _work,
    "schedule": lambda call, answer: call.column(answer, "finite factors >= 0 of the learning rate"),
}

# Methods that are asked with what the part is called with, and more.
METHOD_ANSWERS: Final[dict[tuple[str, str], Callable[[WorldCall, Any], Any]]] = {
    ("modem", "achieved"): ANSWERS["modem"],
    ("modem", "error"): lambda call, answer: call.column(
        answer, "probabilities from 0 to 1", lambda found: (found >= 0) & (found <= 1)
    ),
}


# Parts of the server.


def checked_selection(answer: Any, most: int, ready: int, label: str) -> Selection:
    """Return what a scheduler answered, its positions ascending; it may pick fewer than it may."""
    answer = answer if isinstance(answer, Selection) else Selection(answer)
    picked, proved, problem = answer_as_array(answer.picked), answer.proved_minimal, None
    if picked.ndim != 1 or (len(picked) and not np.issubdtype(picked.dtype, np.integer)):
        problem = "they must be a one-dimensional array of whole numbers"
    elif len(picked) > most:
        problem = f"there are {len(picked)}, and at most min(limit, ready) = {most} are asked for"
    elif len(set(picked.tolist())) != len(picked):
        problem = "some are duplicates"
    elif len(picked) and (picked.min() < 0 or picked.max() >= ready):
        problem = (
            f"they must lie in 0..{ready - 1}; a scheduler returns positions within the candidates, not device numbers"
        )
    if problem:
        raise TrainingError(f"{label} returned positions {shown(answer.picked, _LONGEST_ANSWER)}: {problem}")
    if proved is not None and not isinstance(proved, bool | np.bool_):
        raise TrainingError(f"{label} said proved_minimal={shown(proved)}: say True, False or None")
    metrics = answer.metrics if isinstance(answer.metrics, Mapping) else {"": answer.metrics}
    for name, value in metrics.items():
        number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
        if not name or not isinstance(name, str) or not number:
            raise TrainingError(
                f"{label} said metrics={shown(answer.metrics, _LONGEST_ANSWER)}: give finite numbers by name, or nothing"
            )
    return Selection(
        np.sort(picked).astype(np.int64),
        None if proved is None else bool(proved),
        {name: float(value) for name, value in metrics.items()},
    )


def checked_weights(answer: Any, count: int, label: str) -> Floats:
    """Return the weights [count] that a weighting gave."""
    given = answer_as_array(answer)
    found = given.astype(np.float64) if given.dtype.kind in "fiub" else np.array(np.nan)
    exact = given.dtype.itemsize >= 8  # else they add up to 1 as well as single precision can
    if found.shape != (count,) or not np.all(found >= 0) or not abs(found.sum() - 1) < (1e-9 if exact else 1e-5):
        total = f" (the sum is {found.sum():.12g})" if found.shape == (count,) else ""
        raise TrainingError(
            f"{label} returned {shown(answer, _LONGEST_ANSWER)}{total}: it must give {count} weights >= 0 with sum 1"
        )
    return found if exact else found / found.sum()


def checked_vector(answer: Any, num_parameters: int, label: str) -> Vector:
    """Return what an aggregator or a codec made as a float32 [d] of our own, or say how it went wrong.

    It is a copy: whoever made it may write to it again, or may have returned what it was given.
    """
    found = answer_as_array(answer)
    if found.shape != (num_parameters,) or found.dtype.kind not in "fiu":
        what = f"an array of shape {found.shape}" if found.ndim else shown(answer, _LONGEST_ANSWER)
        raise TrainingError(f"{label} returned {what}: it must give the {num_parameters} numbers of the model")
    with np.errstate(over="ignore"):
        made = np.array(found, np.float32)
    if not np.isfinite(made).all():
        at = int(np.flatnonzero(~np.isfinite(made))[0])
        raise TrainingError(
            f"{label} returned {found[at]} at position {at}: it must give finite numbers (what it was given was finite)"
        )
    return made


# What parts remember: named arrays, handed in and returned.


def part_remembers(part: Any) -> bool:
    """Say whether a part has memory: whether it has `init`, which makes it."""
    return callable(getattr(part, "init", None))


def call_part(
    part: Any,
    kind: str,
    memory: Memory | None,
    init: Any,
    given: tuple[Any, ...],
    last: tuple[Any, ...] = (),
    method: str = "",
) -> tuple[Any, Memory | None]:
    """Call a part, or a method of it; return its answer, and what it remembers then (None: it has no memory).

    init: what its first memory is made of, if it has none yet. last: what a part with memory is given besides.
    """
    call = getattr(part, method) if method else part
    if not part_remembers(part):
        return call(*given), None
    before = first_part_memory(part, kind, init) if memory is None else memory
    label = part_label(kind, part)
    answer, after = checked_pair(call(copied_memory(before), *given, *last), label)
    return answer, checked_memory(after, before, label)


def first_part_memory(part: Any, kind: str, *given: Any) -> Memory:
    """Return what a part remembers at the beginning."""
    return memory_arrays(part.init(*given), f"{part_label(kind, part)}: init")


def checked_pair(answer: Any, label: str) -> tuple[Any, Any]:
    """Return what a part with memory answered, (answer, memory)."""
    if not isinstance(answer, tuple) or len(answer) != 2:
        many = f"{len(answer)} values" if isinstance(answer, tuple) else f"a {type(answer).__name__}"
        raise TrainingError(
            f"{label} returned {many}: a part with memory returns (answer, memory), the memory a mapping of names to arrays"
        )
    return answer[0], answer[1]


def checked_memory(answer: Any, before: Memory, label: str) -> Memory:
    """Return memory as arrays of our own; raise unless names, shapes and types are those it began with."""
    after = memory_arrays(answer, label)
    for name in sorted({*before, *after}):
        if name not in after or name not in before:
            wrong = "is gone" if name not in after else "is new"
            raise TrainingError(
                f"{label}: memory[{name!r}] {wrong}; memory keeps the names that init gave it "
                f"({', '.join(sorted(before)) or 'none'})"
            )
        old, new = before[name], after[name]
        if old.shape != new.shape or old.dtype != new.dtype:
            raise TrainingError(
                f"{label}: memory[{name!r}] was {old.dtype}{list(old.shape)} and is {new.dtype}{list(new.shape)}; memory "
                "keeps the shapes and types that init gave it, so that it cannot grow"
            )
    return after


def memory_arrays(answer: Any, label: str) -> Memory:
    """Return a mapping of names to arrays as copies of our own."""
    if not isinstance(answer, Mapping):
        raise TrainingError(f"{label} gave a {type(answer).__name__} for memory: give a mapping of names to arrays")
    made: Memory = {}
    for name, value in dict(answer).items():
        if not isinstance(name, str) or not (name.isidentifier() and name.isascii() and len(name) <= _LONGEST_NAME):
            raise TrainingError(f"{label} gave memory the name {shown(name)}: names are words, such as 'momentum'")
        array = answer_as_array(value)
        size = array.nbytes + sum(each.nbytes for each in made.values())
        if size > MOST_MEMORY:
            raise TrainingError(
                f"{label}: memory of {size / 1e9:,.3g} GB is more than {MOST_MEMORY / 1e9:g} GB, and is saved with every "
                "checkpoint; keep less"
            )
        if array.dtype.kind not in "biuf":
            raise TrainingError(f"{label}: memory[{name!r}] is {shown(value)}, which is not an array of numbers")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            bad = array[~np.isfinite(array)][0] if array.ndim else array
            raise TrainingError(f"{label}: memory[{name!r}] holds {bad}; it must hold finite numbers")
        made[name] = np.array(array)  # a copy: whoever made it may write to it again
    return made


def copied_memory(held: Memory) -> Memory:
    """Return a copy for a part to write to: what was saved stays as it is if the part fails."""
    return {name: value.copy() for name, value in held.items()}
