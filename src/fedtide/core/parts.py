"""Names to objects: our own parts, a user's file, or an installed package, all through one door.

A name is looked up as (1) one of ours, (2) `path/to/file.py:attribute`, (3) `package.module:attribute`, (4) an entry
point of the group `fedtide.<kind>` (say `fedtide.scheduler`) that an installed package offers. A class is called with the
arguments given in the experiment; a plain function gets them as keywords with every call. What a part remembers is its
memory, which it is handed and returns; it keeps no other state: a resumed run makes it anew (`drivers/witness.py`).

What a user's part raises comes out as one line that names the part and the line of the user's file.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias

from fedtide.core import stop
from fedtide.core.arguments import NO_DEFAULT, Parameter, checked, parameters
from fedtide.core.faults import named
from fedtide.core.forms import shown
from fedtide.core.kinds import KINDS, table
from fedtide.core.reading import is_file, is_own_file, locate
from fedtide.errors import FedtideError, TrainingError

Fill: TypeAlias = Callable[[str], Any]  # the value of an experiment's key

MODULE: Final = "fedtide_user_"  # begins the names of the modules that users' files become


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


def nothing(key: str) -> Any:
    """Fill in nothing: for a part that is made by itself."""
    raise FedtideError(f"a part wants {key}, and there is no experiment to take it from; give it as an argument")


def part(
    kind: str, name: str, args: Mapping[str, Any], fill: Fill = nothing, known: Mapping[str, Any] | None = None
) -> Any:
    """Return the part that `name` stands for, made with the user's `args`, and what else it declares filled in.

    A user's own is checked to take what it will be called with, and is guarded; so is one of ours with a user's arguments.
    """
    ours = table(kind) if known is None else known
    with _read(kind, name, "looking at it"):  # even the signature of an object may run code of its own
        made = resolve(kind, name, args, fill, ours)
        if name not in ours:
            for method, parameters in calls(kind, made).items():
                _check_call(kind, name, made, method, parameters)
    return Guarded(kind, name, made) if args or name not in ours else made


def calls(kind: str, made: Any) -> Mapping[str, tuple[str, ...]]:
    """Return how a part is called: what it is given, by method."""
    known = KINDS[kind]
    if not remembers(made) or known.remembers is None:
        return known.calls
    return {"init": known.init, **known.remembers}


def remembers(part: Any) -> bool:
    """Say whether a part has memory: whether it has `init`, which makes it."""
    return callable(getattr(part, "init", None))


def label(kind: str, policy: Any) -> str:
    """Name a policy in an error message about its answer: as the user did, with file and line, if it is guarded."""
    return policy.label + policy.place if isinstance(policy, Guarded) else f"the {kind}"


def place(policy: Any) -> str:
    """Return ` (file:line)` of what answers, the function or method of a user's policy; nothing of one of ours."""
    definition = _definition(policy)
    answers = vars(definition).get("__call__", definition) if inspect.isclass(definition) else definition
    return "" if _is_ours(definition) else f" ({_where(answers)})"


@contextmanager
def reported(kind: str, name: str, policy: Any, failure: type[FedtideError] = FedtideError) -> Iterator[None]:
    """Turn whatever a policy raises into one line: its name, what was raised and where in its file, what to do."""
    try:
        yield
        stop.check()  # a policy may have swallowed Ctrl-C
    except FedtideError as error:
        if name in str(error) or _is_ours(_definition(policy)):
            raise
        # ours, called from the user's file with something that it does not take
        told = failure if type(error) is FedtideError else type(error)
        raise told(f"{kind}={name!r}: {error} ({_where(policy, error)})") from error
    except BaseException as error:  # SystemExit too: a policy does not end a run as if all were done
        if stop.wanted(error):
            raise KeyboardInterrupt from None
        what = f"{kind}={name!r} raised {named(error)}"
        if _is_ours(_definition(policy)):
            raise failure(f"{what}; check the arguments that are given to it") from error
        raise failure(f"{what} ({_where(policy, error)}); correct it there") from error


def _definition(policy: Any) -> Any:
    """Return the function or class behind a policy."""
    while isinstance(policy, (functools.partial, Guarded)):
        policy = policy.func if isinstance(policy, functools.partial) else policy.policy
    found = inspect.unwrap(policy) if callable(policy) else policy
    return found if inspect.isroutine(found) or inspect.isclass(found) else type(found)


def is_ours(policy: Any) -> bool:
    """Say whether a policy is one of ours, under whatever name and with whatever arguments."""
    return _is_ours(_definition(policy))


def _is_ours(definition: Any) -> bool:
    return (getattr(definition, "__module__", None) or "").startswith("fedtide.")


def _where(policy: Any, error: BaseException | None = None) -> str:
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


def _check_call(kind: str, name: str, made: Any, method: str, parameters: tuple[str, ...]) -> None:
    """Raise if a user's policy cannot be called as it will be."""
    called = getattr(made, method, None) if method else made
    wanted = f"{method}({', '.join(parameters)})"
    if not callable(called):
        lacks = f"has no method {wanted}" if method else f"cannot be called as {wanted}"
        raise FedtideError(f"{kind}={name!r} {lacks}; a {kind} needs it ({_where(made)})")
    try:
        # not the signature that a decorator copies, which would hide the arguments that were given
        signature = inspect.signature(called, follow_wrapped=False)
    except (TypeError, ValueError):  # it is not written in Python; the guard is there when it is called
        return
    former = KINDS[kind].formerly
    try:
        signature.bind(*parameters)
    except TypeError as error:
        if former is not None and _binds(signature, former):
            return
        raise FedtideError(
            f"{kind}={name!r} is called as {wanted}, but it takes {method}{signature}: {error} ({_where(made)}); "
            "correct it there"
        ) from error


def _binds(signature: inspect.Signature, names: tuple[str, ...]) -> bool:
    try:
        signature.bind(*names)
    except TypeError:
        return False
    return True


def resolve(
    kind: str, name: str, args: Mapping[str, Any], fill: Fill = nothing, known: Mapping[str, Any] | None = None
) -> Any:
    """Return the part itself, made with `args`, without a guard. known: ours, by name, if they are not the usual ones."""
    return _make(kind, name, find(kind, name, table(kind) if known is None else known), args, fill)


def check_name(kind: str, name: str) -> None:
    """Raise if a name without a colon is neither one of ours nor an installed package's."""
    if ":" not in name and name not in (ours := table(kind)) and name not in (offered := _offered(kind)):
        raise FedtideError(_unknown(KINDS[kind].key, name, [*ours, *offered]))


def find(kind: str, name: str, known: Mapping[str, Any]) -> Any:
    """Return the class, function or object that `name` stands for, as it is."""
    if name in known:
        return _ours(kind, name, known[name])
    if ":" in name:
        return attribute(kind, name)
    offered = _offered(kind)
    if name not in offered:
        raise FedtideError(_unknown(kind, name, [*known, *offered]))
    with _read(kind, name, "loading it"):
        return offered[name].load()


def _ours(kind: str, name: str, found: Any) -> Any:
    """Return one of ours, which may be named by its place, so that it is imported when it is used."""
    if not isinstance(found, str):
        return found
    module, _, attribute = found.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise FedtideError(
            f"{KINDS[kind].key}={name} needs a package that is not there ({error}): pip install 'fedtide[{name}]'"
        ) from error


def _offered(kind: str) -> dict[str, EntryPoint]:
    """Return what installed packages offer of a kind, by name."""
    return {point.name: point for point in entry_points(group=f"fedtide.{kind}")}


def _unknown(key: str, name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, 1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    elsewhere = [known.key for kind, known in KINDS.items() if name in table(kind)]
    hint = f": it is one of {elsewhere[0]}." if elsewhere else hint
    own = "Your own: path/to/file.py:name or package.module:name"
    return f"{key}={name!r} is not known{hint} Known: {', '.join(names)}. {own}"


def source_digest(name: str) -> str | None:
    """Return the SHA-256 of a user's policy file, so that a resumed run notices a change; None for anything else."""
    path = _file(name)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path and is_file(path) else None


def argument_files(kind: str, name: str, args: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments of a user's part that are declared as a Path and name a file that is there.

    Of a part that cannot be read now there are none: whoever makes it says why.
    """
    folders, ours = (Path(), policy_folder()), table(kind)
    given = {
        each: value
        for each, value in args.items()
        if isinstance(value, str) and any(is_file(folder / value) for folder in folders)
    }
    if not given or name in ours:
        return {}
    try:
        declared = parameters(find(kind, name, ours))
    except FedtideError:
        return {}
    paths = {each.name for each in declared if Path in (each.type, *typing.get_args(each.type))}
    return {each: place for each, place in given.items() if each in paths}


def file_digest(place: str) -> str:
    """Return the SHA-256 of a file that an argument names."""
    with open(locate(place, _beside.get()), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_beside: ContextVar[Path | None] = ContextVar("beside", default=None)


@contextmanager
def beside(folder: Path | None) -> Iterator[None]:
    """Look for a user's own files in this folder, too, besides the working folder: that of the form that names them."""
    token = _beside.set(folder)
    try:
        yield
    finally:
        _beside.reset(token)


def policy_folder() -> Path:
    """Return the folder from which a user's own files are named now."""
    return _beside.get() or Path.cwd()


def _file(name: str) -> Path | None:
    place, _, _ = name.rpartition(":")
    return locate(place, _beside.get()) if is_own_file(name) else None


def attribute(kind: str, name: str) -> Any:
    """Return what `file.py:name` or `package.module:name` stands for, as it is."""
    place, _, wanted = name.rpartition(":")
    if not place.strip() or not wanted.strip():
        raise FedtideError(f"{kind}={name!r} has nothing on one side of the colon; write path/to/file.py:name")
    module = _load(kind, name, place)
    with _read(kind, name, f"looking into {place}"):  # a module may have a __getattr__ of its own
        if hasattr(module, wanted):
            return getattr(module, wanted)
    public = [each for each in vars(module) if not each.startswith("_")]
    raise FedtideError(f"{kind}={name!r}: {place} has no {wanted!r}; it defines {', '.join(public) or 'nothing'}")


def _load(kind: str, name: str, place: str) -> ModuleType:
    path = _file(name)
    with _read(kind, name, f"reading {place}"):
        if path is None:
            return importlib.import_module(place)
        if not is_file(path):
            raise FedtideError(
                f"{kind}={name!r}: there is no file {place}, neither in the working folder {Path.cwd()} nor beside the form "
                "that names it; give its path from one of the two, or in full"
            )
        script = sys.modules.get("__main__")
        if script is not None and os.path.abspath(getattr(script, "__file__", None) or os.curdir) == os.path.abspath(
            path
        ):
            return script  # running: it is not run a second time
        unique = f"{MODULE}{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
        digest = source_digest(name)
        known = sys.modules.get(unique)
        if known is not None and getattr(known, "__fedtide_digest__", None) == digest:
            return known  # two policies of one file share its module
        spec = importlib.util.spec_from_file_location(unique, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[unique] = module  # dataclasses look their module up by name
        with _neighbours(path):
            spec.loader.exec_module(module)
        module.__fedtide_digest__ = digest  # type: ignore[attr-defined]  # only of a file that was read to its end
    return module


@contextmanager
def _read(kind: str, name: str, doing: str) -> Iterator[None]:
    """Turn whatever a user's module raises while it is read into one line, with the line of its file if that is known."""
    try:
        yield
        stop.check()
    except FedtideError:
        raise
    except BaseException as error:
        if stop.wanted(error):
            raise KeyboardInterrupt from None
        path = _file(name)
        lines = [
            line
            for frame, line in traceback.walk_tb(error.__traceback__)
            if path is not None and os.path.abspath(frame.f_code.co_filename) == os.path.abspath(path)
        ]
        where = f" ({name.rpartition(':')[0]}:{lines[-1]}); correct it there" if lines else ""
        raise FedtideError(f"{kind}={name!r}: {doing} raised {named(error)}{where}") from error


@contextmanager
def _neighbours(path: Path) -> Iterator[None]:
    """Let a file import what lies beside it, as a script may."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the file took it away itself
            sys.path.remove(folder)


def _make(kind: str, name: str, found: Any, args: Mapping[str, Any], fill: Fill) -> Any:
    """Make the part of what was found: a class with its arguments, a function to be called with them besides its own."""
    is_maker = _is_maker(kind, found)
    context = {each: fill(f"run.{each}") for each in KINDS[kind].made_with} if is_maker else {}
    check_arguments(kind, name, found, args, is_maker, context)
    given = len(context) if is_maker else len(KINDS[kind].calls.get("", ()))
    all_args = arguments(found, args, fill, f"{kind}={name!r}", given)
    if is_maker and callable(found):
        with reported(kind, name, found):
            return found(*context.values(), **all_args)
    if all_args:  # update_wrapper keeps attributes such as needs_update_norm
        return functools.update_wrapper(functools.partial(found, **all_args), found)
    return found


def _is_maker(kind: str, found: Any) -> bool:
    """Say whether what was found makes the part, rather than being it.

    A class does, and a function of ours that does not take what the part is called with.
    """
    called = KINDS[kind].calls.get("")
    if inspect.isclass(found) or not KINDS[kind].calls:
        return True
    return (
        called is not None
        and inspect.isroutine(found)
        and _is_ours(found)
        and len(inspect.signature(found).parameters) < len(called)
    )


def own_parameters(kind: str, found: Any) -> list[Parameter]:
    """Return the parameters that an experiment may give to a part, without those that it is made or called with."""
    declared, known = parameters(found), KINDS[kind]
    if not _is_maker(kind, found):
        called, former = calls(kind, found)[""], known.formerly or ()
        is_former = former and tuple(each.name for each in declared[: len(former)]) == former
        return declared[len(former if is_former else called) :]
    if inspect.isroutine(found) and "round" in known.calls:  # a tracker that is a function of the record
        return declared[len(known.calls["round"]) :]
    # what makes a PyTorch module takes nothing but its arguments
    return declared[sum(each.default is NO_DEFAULT for each in declared[: len(known.made_with)]) :]


def named_parts(kind: str) -> dict[str, str]:
    """Return every part that has a name, ours and those of installed packages, each with where it comes from."""
    ours = dict.fromkeys(table(kind), "fedtide")
    return {**ours, **{name: point.value for name, point in _offered(kind).items() if name not in ours}}


def arguments(found: Any, args: Mapping[str, Any], fill: Fill, label: str, given: int = 0) -> dict[str, Any]:
    """Return what a part is made with: the user's arguments, checked, and what it declares to be filled from elsewhere."""
    declared = {each.name: each for each in parameters(found, given)}
    made = {name: checked(declared[name], value, label) if name in declared else value for name, value in args.items()}
    made = {name: locate(str(each), _beside.get()) if isinstance(each, Path) else each for name, each in made.items()}
    for name, each in declared.items():
        if name in made or each.about.key is None or (fill is nothing and each.default is not NO_DEFAULT):
            continue
        made[name] = fill(each.about.key)
    return made


def check_arguments(
    kind: str, name: str, found: Any, args: Mapping[str, Any], is_maker: bool, context: Iterable[str]
) -> None:
    """Raise if a part does not take these arguments among what else it is given."""
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # it is not written in Python, or no function at all
        return
    try:
        filled = {each.name for each in parameters(found) if each.about.key is not None and each.name not in args}
        if is_maker:
            signature.bind(*context, **dict.fromkeys(filled), **args)
        else:
            signature.bind_partial(**args)
    except TypeError as error:
        taken = (
            (", ".join(each.name for each in own_parameters(kind, found)) or "none")
            if _is_ours(found)
            else _plainly(signature)
        )
        raise FedtideError(
            f"{kind}={name!r} does not accept the arguments {shown(dict(args))}: {error}; it takes {taken}"
        ) from error


def _plainly(signature: inspect.Signature) -> inspect.Signature:
    """Return a signature with its types alone, for a line of text: what else is said of a parameter is long."""
    return signature.replace(
        parameters=[
            each.replace(annotation=typing.get_args(each.annotation)[0])
            if typing.get_origin(each.annotation) is typing.Annotated
            else each
            for each in signature.parameters.values()
        ]
    )
