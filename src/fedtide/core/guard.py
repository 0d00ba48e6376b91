"""A user's part under guard: whatever it raises comes out as one line that names it and the line of its file."""

from __future__ import annotations

import functools
import inspect
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fedtide.core import stop
from fedtide.core.faults import named
from fedtide.core.kinds import KINDS
from fedtide.errors import FedtideError, TrainingError


@dataclass(frozen=True)
class Guarded:
    """A policy whose errors come out as one line that names it; in everything else it is the policy itself."""

    kind: str
    name: str  # as the user gave it
    policy: Any

    @property
    def label(self) -> str:
        """The policy as an error message names it."""
        return f"{self.kind}={self.name!r}"

    @functools.cached_property
    def place(self) -> str:
        """Where it is defined, as an error message says it: looked up once, since a label is asked for at every tick."""
        return place(self.policy)

    def __call__(self, *args: Any) -> Any:
        """Call the policy."""
        with self._reported():
            return self.policy(*args)

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__") or attribute in self.__dataclass_fields__:
            raise AttributeError(attribute)  # copying asks for these before there is a policy
        value = getattr(self.policy, attribute)
        if not callable(value):
            return value

        def call(*args: Any) -> Any:
            with self._reported():
                return value(*args)

        return call

    @contextmanager
    def _reported(self) -> Iterator[None]:
        failure = FedtideError if KINDS[self.kind].asked_before else TrainingError
        with reported(self.kind, self.name, self.policy, failure):
            yield


def label(kind: str, policy: Any) -> str:
    """Name a policy in an error message about its answer: as the user did, with file and line, if it is guarded."""
    return policy.label + policy.place if isinstance(policy, Guarded) else f"the {kind}"


def place(policy: Any) -> str:
    """Return ` (file:line)` of what answers, the function or method of a user's policy; nothing of one of ours."""
    definition = _definition(policy)
    answers = vars(definition).get("__call__", definition) if inspect.isclass(definition) else definition
    return "" if is_of_ours(definition) else f" ({where(answers)})"


@contextmanager
def reported(kind: str, name: str, policy: Any, failure: type[FedtideError] = FedtideError) -> Iterator[None]:
    """Turn whatever a policy raises into one line: its name, what was raised and where in its file, what to do."""
    try:
        yield
        stop.check()  # a policy may have swallowed Ctrl-C
    except FedtideError as error:
        if name in str(error) or is_of_ours(_definition(policy)):
            raise
        # ours, called from the user's file with something that it does not take
        told = failure if type(error) is FedtideError else type(error)
        raise told(f"{kind}={name!r}: {error} ({where(policy, error)})") from error
    except BaseException as error:  # SystemExit too: a policy does not end a run as if all were done
        if stop.wanted(error):
            raise KeyboardInterrupt from None
        what = f"{kind}={name!r} raised {named(error)}"
        if is_of_ours(_definition(policy)):
            raise failure(f"{what}; check the arguments that are given to it") from error
        raise failure(f"{what} ({where(policy, error)}); correct it there") from error


def callback(name: str, called: Any) -> Any:
    """Return a caller's function such that whatever it raises comes out as one line; None and ours as they are."""
    if called is None or is_ours(called):
        return called

    def call(*args: Any) -> Any:
        with reported("callback", name, called, TrainingError):
            return called(*args)

    return call


def _definition(policy: Any) -> Any:
    """Return the function or class behind a policy."""
    while isinstance(policy, (functools.partial, Guarded)):
        policy = policy.func if isinstance(policy, functools.partial) else policy.policy
    found = inspect.unwrap(policy) if callable(policy) else policy
    return found if inspect.isroutine(found) or inspect.isclass(found) else type(found)


def is_ours(policy: Any) -> bool:
    """Say whether a policy is one of ours, under whatever name and with whatever arguments."""
    return is_of_ours(_definition(policy))


def is_of_ours(definition: Any) -> bool:
    """Say whether a function or class is written here."""
    return (getattr(definition, "__module__", None) or "").startswith("fedtide.")


def where(policy: Any, error: BaseException | None = None) -> str:
    """Return file:line of the last step in the policy's own file, or of its definition if no step led there."""
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
