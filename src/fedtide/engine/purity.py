"""Finding out whether a user's policy depends on the past: a resumed run makes its policies anew.

Two questions, put whenever a run is saved. Has anything changed that the policy can reach, since the run began: its
attributes, those of its class and its functions, what they close over, the globals they name? Then it keeps state. And if
nothing has: does it answer its last call again as it did? Else it has dice, a clock or a hidden memory of its own. Neither
touches the numbers of the run: a policy that keeps state is not called a second time, and any other is asked in a copy of this
process, so that what it keeps where we do not see it (a cache, a library's generator) stays as it was.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import random
import select
import signal
import sys
import time
import types
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Final

import numpy as np

from fedtide.aggregate.base import Lifted
from fedtide.core import signals
from fedtide.engine.checks import CHECKED
from fedtide.engine.system import System
from fedtide.errors import TrainingError
from fedtide.parts import registry, user_code
from fedtide.parts.kinds import KINDS

# Modules whose classes are not looked into: they are as good as values.
_FOREIGN: Final = {"fedtide", "numpy", "scipy", "torch", *sys.stdlib_module_names}
_CACHED: Final = type(functools.lru_cache(lambda: None))
_DICE: Final = (np.random.Generator, np.random.BitGenerator, np.random.RandomState, random.Random)
_REMEDY: Final = (
    "draw only from the rng it is given, or by seed from fedtide.columns, and keep state only in its memory"
)
_DEEPEST = 60  # attributes of attributes of ...
PATIENCE_SECONDS = 5.0  # with a policy that is asked again in a copy of the process, besides what its last call took
_LONGEST = 2000  # bytes of what a copy says; a pipe takes so many at once


@dataclass(frozen=True)
class WatchedPart(user_code.Guarded):
    """A user's policy that remembers its last call of each method, to be asked again."""

    last: dict[str, tuple[tuple[Any, ...], Any]] = field(default_factory=dict, compare=False, repr=False)
    seconds: dict[str, float] = field(default_factory=dict, compare=False, repr=False)  # that the last calls took

    def __call__(self, *args: Any) -> Any:
        """Call the policy."""
        return self._kept("", super().__call__, args)

    def __getattr__(self, attribute: str) -> Any:
        value = super().__getattr__(attribute)
        if attribute not in registry.calls(self.kind, self.policy):
            return value
        return lambda *args: self._kept(attribute, value, args)

    def _kept(self, method: str, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        before, begun = tuple(_rewound(each) for each in args), time.monotonic()
        answer = call(*args)
        self.seconds[method] = time.monotonic() - begun
        # A copy: the answer may be a buffer that the policy writes to again.
        self.last[method] = before, _copied(answer)
        return answer

    def asked_again(self) -> str:
        """Ask the policy for its last calls again, and say what is wrong with its answers; "" if they are as they were."""
        again = "when it is called again with the same arguments"
        for method, (args, answer) in self.last.items():
            try:
                # a generator was kept as it stood before the call; ask with a copy of it, for the next time
                given = (getattr(self.policy, method) if method else self.policy)(*(_rewound(each) for each in args))
            except BaseException as error:  # it is the user's code; what it raises here, SystemExit too, is an answer
                if signals.wanted(error):
                    raise
                return f"{self.label} raises {type(error).__name__} {again}"
            if contents(_copied(given)) != contents(answer):
                return f"{self.label} gives another answer {again}"
        return ""


def _rewound(argument: Any) -> Any:
    """Return an argument as it is now: a generator as a copy, all else as it is (arrays are read-only)."""
    if isinstance(argument, dict):  # memory, which is lent to be written to
        return {name: np.array(each) for name, each in argument.items()}
    if not isinstance(argument, np.random.Generator):
        return argument
    bits = type(argument.bit_generator)()
    bits.state = argument.bit_generator.state
    return np.random.Generator(bits)


def _copied(answer: Any) -> Any:
    """Copy what a policy may write to again."""
    if isinstance(answer, np.ndarray):
        return answer.copy()
    if isinstance(answer, tuple) and hasattr(answer, "_fields"):
        return type(answer)(*map(_copied, answer))
    if isinstance(answer, (list, tuple)):
        return [_copied(each) for each in answer]
    if isinstance(answer, dict):
        return {name: _copied(each) for name, each in answer.items()}
    return answer


class PurityCheck:
    """Watches the user's policies of one run. `system` is the same system with them under watch."""

    def __init__(self, system: System) -> None:
        policy = system.policy
        self._watched: dict[str, WatchedPart] = {}
        self.system = system._replace(
            policy=policy._replace(
                **{kind: self._put(kind, getattr(policy, kind)) for kind in ("scheduler", "weighting", "aggregator")}
            ),
            **{
                kind: self._put(kind, getattr(system, kind))
                for kind in ("codec", "channel", "access", "allocation", "energy")
            },
        )
        self._begun = {kind: contents(each.policy) for kind, each in self._watched.items()}
        self._found = ""

    def _put(self, kind: str, part: Any) -> Any:
        """Return a part with the user's own under watch: itself, what a border stands around, what ours are made with."""
        inner: Any = part.part if isinstance(part, CHECKED) or isinstance(part, Lifted) else part  # noqa: SIM101
        if not user_code.is_ours(inner):
            self._watched[kind] = _watched(kind, inner)
            return self._watched[kind] if inner is part else replace(part, part=self._watched[kind])
        if not is_dataclass(part) or isinstance(part, type):
            return part
        made_with = {each.name: getattr(part, each.name) for each in fields(part) if each.init}
        changed = {
            name: self._put(each.part.kind if isinstance(each, CHECKED) else name if name in KINDS else kind, each)
            for name, each in made_with.items()
            if is_dataclass(each) or (name in KINDS and callable(each))
        }
        return replace(part, **changed) if any(changed[name] is not made_with[name] for name in changed) else part

    def watches(self, kind: str) -> bool:
        """Say whether the policy of this kind is a user's own."""
        return kind in self._watched

    def asked_again(self, kind: str) -> bool:
        """Say whether a user's policy can be asked again for the whole run, which gives it its state back.

        What a weighting and most schedulers are called with is on record; updates are not.
        """
        can_be = kind == "weighting" or (kind == "scheduler" and not self.system.policy.needs)
        return can_be and self.watches(kind) and not registry.remembers(self._watched[kind])

    def keeps_state(self) -> str:
        """Say which policy depends on the past, and how; "" if none is seen to."""
        for kind, policy in self._watched.items():
            self._found = self._found or self._look(kind, policy)
        return self._found

    def refuse_dice(self, count: int) -> None:
        """Raise if a policy answers otherwise when it is asked again; asked at first and then ever more rarely."""
        if count & (count - 1):
            return
        for kind, policy in self._watched.items():
            if self._begun[kind] == contents(policy.policy) and (found := _asked(policy)):
                raise TrainingError(f"{found}{policy.place}: {_REMEDY}")

    def _look(self, kind: str, policy: WatchedPart) -> str:
        before, now = self._begun[kind], contents(policy.policy)
        if before != now:
            changed = next(place for place in (*now, *before) if now.get(place) != before.get(place))
            return "" if self.asked_again(kind) else f"{policy.label} keeps state between its calls ({changed} changed)"
        return _asked(policy)


def _asked(policy: WatchedPart) -> str:
    """Ask a policy for its last calls again, in a copy of this process if that can be, and say what is wrong."""
    found = in_a_copy(policy.asked_again, PATIENCE_SECONDS + 4 * sum(policy.seconds.values()))
    return policy.asked_again() if found is None else found


def in_a_copy(ask: Callable[[], str], patience: float) -> str | None:
    """Ask in a copy of this process, which has its state and none of its threads, and return the answer.

    None if the copy cannot be made, or ends or gives up [s] without an answer: what it waits for may be a thread.
    """
    if not hasattr(os, "fork"):
        return None
    reading, writing = os.pipe()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer Pythons warn of copies of a process with threads
            copy = os.fork()
    except OSError:  # no room for it
        os.close(reading)
        os.close(writing)
        return None
    if copy == 0:
        try:
            _be_quiet(patience)
            os.write(writing, b"+" + ask().encode("utf-8", "replace")[:_LONGEST])
        finally:
            os._exit(0)  # nothing of the run is flushed or let go of twice
    os.close(writing)
    try:
        heard, _, _ = select.select([reading], [], [], patience)
        answer = os.read(reading, _LONGEST + 1) if heard else b""
    finally:
        os.close(reading)
        os.kill(copy, signal.SIGKILL)
        os.waitpid(copy, 0)
    return answer[1:].decode("utf-8", "replace") if answer else None


def _be_quiet(patience: float) -> None:
    """Let this copy of a process print nothing, obey signals as any other, and end by itself."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, patience)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)


def _watched(kind: str, policy: Any) -> WatchedPart:
    """Put a user's policy under watch."""
    guarded = (
        policy if isinstance(policy, user_code.Guarded) else user_code.Guarded(kind, type(policy).__name__, policy)
    )
    return WatchedPart(guarded.kind, guarded.name, guarded.policy)


def contents(thing: Any) -> dict[str, str]:
    """Return all that a thing can reach and change, as text by place; values that are long are hashed."""
    seen: dict[int, Any] = {}  # by id, and kept alive so that no id is used twice
    return dict(_walk("", thing, seen, 0))


def _walk(place: str, thing: Any, seen: dict[int, Any], depth: int) -> Iterator[tuple[str, str]]:
    if thing is None or isinstance(thing, (bool, int, float, complex, str, bytes)):
        yield place or "it", _hashed(repr(thing).encode())
        return
    if id(thing) in seen or depth > _DEEPEST:
        return
    seen[id(thing)] = thing
    try:
        inside = list(_parts(thing))
    except Exception:  # an object that cannot be looked at
        inside = [(None, type(thing).__qualname__)]
    for name, inner in inside:
        if name is None:
            yield place or "it", inner
        else:
            yield from _walk(f"{place}.{name}" if place else name, inner, seen, depth + 1)


def _parts(thing: Any) -> Iterator[tuple[str | None, Any]]:
    """Return what a thing consists of by name; its own value, as text, without a name."""
    if isinstance(thing, np.ndarray) and thing.dtype != object:
        yield None, _hashed(f"{thing.dtype}{thing.shape}".encode() + np.ascontiguousarray(thing).tobytes())
    elif isinstance(thing, functools.partial):
        yield from (("function", thing.func), ("arguments", thing.args), ("keywords", thing.keywords))
    elif isinstance(thing, (types.MethodType, staticmethod, classmethod)):
        yield from (("function", thing.__func__), ("self", getattr(thing, "__self__", None)))
    elif isinstance(thing, property):
        yield from (("get", thing.fget), ("set", thing.fset))
    elif isinstance(thing, _CACHED):  # its function, not what it holds
        yield "function", thing.__wrapped__
    elif isinstance(thing, types.FunctionType):
        yield from _of_function(thing)
    elif isinstance(thing, types.GeneratorType):
        yield None, str(thing.gi_frame.f_lasti if thing.gi_frame else None)
        yield from thing.gi_frame.f_locals.items() if thing.gi_frame else ()
    elif isinstance(thing, type):
        if not _foreign(thing.__module__):
            methods = ("__call__", "__init__")
            yield from ((name, each) for name, each in vars(thing).items() if name in methods or name[:2] != "__")
            yield from ((f"base {base.__name__}", base) for base in thing.__bases__)
    elif isinstance(thing, (types.ModuleType, *_DICE)):  # dice are no state: what is rolled is another answer
        return
    elif isinstance(thing, BaseException):  # without where it was raised, which others (Dask) let be pickled, too
        yield from (("class", type(thing)), ("arguments", thing.args), ("attributes", vars(thing)))
    else:
        yield from _of_object(thing)


def _of_object(thing: Any) -> Iterator[tuple[str | None, Any]]:
    """What an object holds: as a container, and as attributes; one of a library is a value as a whole."""
    if isinstance(thing, (dict, types.MappingProxyType)):
        yield None, str(len(thing))
        for number, (key, value) in enumerate(thing.items()):
            name = key if isinstance(key, str) else f"[{number}]"
            yield from ((f"key {name}", key), (name, value))
    elif isinstance(thing, (list, tuple, set, frozenset, deque, np.ndarray)):
        yield None, str(len(thing))
        yield from ((f"[{number}]", each) for number, each in enumerate(thing))
    elif _foreign(type(thing).__module__):
        yield None, _pickled(thing)
    kind = type(thing)
    if not _foreign(kind.__module__):
        slots = [name for base in kind.__mro__ for name in _slots(base) if hasattr(thing, name)]
        held = {**getattr(thing, "__dict__", {}), **{name: getattr(thing, name) for name in slots}}
        kept = functools.cached_property
        yield from ((name, each) for name, each in held.items() if not isinstance(getattr(kind, name, None), kept))
        yield "class", kind
        if not held:
            yield None, _pickled(thing)


def _of_function(function: types.FunctionType) -> Iterator[tuple[str | None, Any]]:
    """What a function can change: defaults, what it closes over, its attributes, the globals that it names."""
    if _foreign(function.__module__ or ""):
        return
    yield from (("defaults", function.__defaults__), ("keyword defaults", function.__kwdefaults__))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            yield name, None
    yield from vars(function).items()
    names = set(_names(function.__code__))
    for name in sorted(names):
        value = function.__globals__.get(name)
        if isinstance(value, types.ModuleType):  # a file beside it: what is named of it
            if not _foreign(value.__name__):
                yield from ((each, getattr(value, each)) for each in sorted(names) if hasattr(value, each))
        elif value is not None:
            yield name, value


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _names(each)


def _foreign(module: str) -> bool:
    return module.split(".")[0] in _FOREIGN


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _pickled(thing: Any) -> str:
    """Return a digest of an object of the standard library, NumPy or PyTorch: a generator with its state, a tensor."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _hashed(pickle.dumps(thing))
    except Exception:  # a lock, an open file: nothing to compare
        return _hashed(repr(thing).encode())


def _hashed(text: bytes) -> str:
    return text.decode("ascii", "replace") if len(text) <= 64 else hashlib.sha256(text).hexdigest()
