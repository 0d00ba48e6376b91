"""Users' own files: where they lie, how they are loaded, and how their errors become one line."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np

from fedtide.core import signals
from fedtide.core.faults import error_text
from fedtide.core.reading import is_own_file, locate_file
from fedtide.errors import FedtideError, TrainingError
from fedtide.parts.kinds import KINDS

# Users' own files: where they lie, what they hold, and what their names stand for.


MODULE: Final = "fedtide_user_"  # begins the names of the modules that users' files become


_beside: ContextVar[Path | None] = ContextVar("beside", default=None)


@contextmanager
def search_folder(folder: Path | None) -> Iterator[None]:
    """Look for a user's own files in this folder, too, besides the working folder: that of the form that names them."""
    token = _beside.set(folder)
    try:
        yield
    finally:
        _beside.reset(token)


def user_code_folder() -> Path:
    """Return the folder from which a user's own files are named now."""
    return _beside.get() or Path.cwd()


def near(place: str) -> Path:
    """Return where a file of this name lies: in the working folder, or beside the form that names it."""
    return locate_file(place, _beside.get())


def source_digest(name: str) -> str | None:
    """Return the SHA-256 of a user's file and of what it imports from beside it; None for anything else.

    A file that imports nothing from beside it has the SHA-256 of its content.
    """
    path = _file(name)
    if not path or not os.path.isfile(path):
        return None
    own, near_by = file_digest(str(path)), _imported(path)
    if not near_by:
        return own
    told = [f"{place} {file_digest(str(path.resolve().parent / place))}" for place in sorted(near_by)]
    return hashlib.sha256("\n".join([own, *told]).encode()).hexdigest()


def _imported(path: Path) -> set[str]:
    """Return the files in a file's folder, by their path from there, that it imports, directly or through one another."""
    folder, found = path.resolve().parent, set[str]()
    waiting = [path.resolve()]
    while waiting:
        file = waiting.pop()
        package = file.parent.relative_to(folder).parts
        for level, words in _imports(file.read_bytes()):
            full = (*package[: len(package) - level + 1], *words) if level else words
            for end in range(1, len(full) + 1):
                for place in ("/".join(full[:end]) + ".py", "/".join((*full[:end], "__init__.py"))):
                    inner = folder / place
                    if (
                        full[0] != "fedtide"
                        and place not in found
                        and inner != path.resolve()
                        and os.path.isfile(inner)
                    ):
                        found.add(place)
                        waiting.append(inner)
    return found


@functools.lru_cache(maxsize=64)
def _imports(content: bytes) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """Return what a module imports, anywhere in it: how many dots, and the words of each name. Nothing if it is not Python."""
    try:
        nodes = list(ast.walk(ast.parse(content)))
    except (SyntaxError, ValueError, RecursionError):  # reading the file says why
        return ()
    found = [(0, alias.name) for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    for node in (node for node in nodes if isinstance(node, ast.ImportFrom)):
        found += [(node.level, f"{node.module or ''}.{alias.name}".strip(".")) for alias in node.names]
    return tuple((level, tuple(name.split("."))) for level, name in found)


def file_digest(place: str) -> str:
    """Return the SHA-256 of a file that an argument names; of a folder, that of all names and contents in it."""
    path = near(place)
    if not path.is_dir():
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    whole = hashlib.sha256()
    for each in sorted(path.rglob("*")):
        if each.is_file():
            whole.update(each.relative_to(path).as_posix().encode() + b"\0")
            with open(each, "rb") as file:
                whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def _file(name: str) -> Path | None:
    place, _, _ = name.rpartition(":")
    return near(place) if is_own_file(name) else None


def attribute(kind: str, name: str) -> Any:
    """Return what `file.py:name` or `package.module:name` stands for, as it is."""
    place, _, wanted = name.rpartition(":")
    if not place.strip() or not wanted.strip():
        raise FedtideError(f"{kind}={name!r} has nothing on one side of the colon; write path/to/file.py:name")
    module = _load(kind, name, place)
    with reading(kind, name, f"looking into {place}"):  # a module may have a __getattr__ of its own
        if hasattr(module, wanted):
            return getattr(module, wanted)
    public = [each for each in vars(module) if not each.startswith("_")]
    raise FedtideError(f"{kind}={name!r}: {place} has no {wanted!r}; it defines {', '.join(public) or 'nothing'}")


def _load(kind: str, name: str, place: str) -> ModuleType:
    path = _file(name)
    with reading(kind, name, f"reading {place}"):
        if path is None:
            return importlib.import_module(place)
        if not os.path.isfile(path):
            raise FedtideError(
                f"{kind}={name!r}: there is no file {place}, neither in the working folder {Path.cwd()} nor beside the form "
                "that names it; give its path from one of the two, or in full"
            )
        script = sys.modules.get("__main__")
        if script is not None and os.path.abspath(getattr(script, "__file__", None) or os.curdir) == os.path.abspath(
            path
        ):
            return script  # running: it is not run a second time
        unique = f"{MODULE}{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:12]}"
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
            _fresh(path)
            spec.loader.exec_module(module)
            _fresh(path)
        module.__fedtide_digest__ = digest  # type: ignore[attr-defined]  # only of a file that was read to its end
    return module


def _fresh(path: Path) -> None:
    """Forget the modules beside a file that were edited since it was loaded; note what the others hold."""
    places = {str(path.resolve().parent / place) for place in _imported(path)}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file in places:
            digest = file_digest(file)
            if vars(module).setdefault("__fedtide_digest__", digest) != digest:
                del sys.modules[name]
                Path(importlib.util.cache_from_source(file)).unlink(missing_ok=True)  # its time counts seconds only


@contextmanager
def reading(kind: str, name: str, doing: str) -> Iterator[None]:
    """Turn whatever a user's module raises while it is read into one line, with the line of its file if that is known."""
    try:
        yield
        signals.raise_if_stopped()
    except FedtideError:
        raise
    except BaseException as error:
        if signals.wanted(error):
            raise KeyboardInterrupt from None
        path = _file(name)
        lines = [
            line
            for frame, line in traceback.walk_tb(error.__traceback__)
            if path is not None and os.path.abspath(frame.f_code.co_filename) == os.path.abspath(path)
        ]
        where = f" ({name.rpartition(':')[0]}:{lines[-1]}); correct it there" if lines else ""
        raise FedtideError(f"{kind}={name!r}: {doing} raised {error_text(error)}{where}") from error


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


# A user's part under guard: whatever it raises comes out as one line that names it and the line of its file.


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
        return source_place(self.policy)

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


def part_label(kind: str, policy: Any) -> str:
    """Name a policy in an error message about its answer: as the user did, with file and line, if it is guarded."""
    policy = getattr(policy, "__wrapped__", policy)
    return policy.label + policy.place if isinstance(policy, Guarded) else f"the {kind}"


def source_place(policy: Any) -> str:
    """Return ` (file:line)` of what answers, the function or method of a user's policy; nothing of one of ours."""
    definition = _definition(policy)
    answers = vars(definition).get("__call__", definition) if inspect.isclass(definition) else definition
    return "" if is_of_ours(definition) else f" ({where(answers)})"


@contextmanager
def reported(kind: str, name: str, policy: Any, failure: type[FedtideError] = FedtideError) -> Iterator[None]:
    """Turn whatever a policy raises into one line: its name, what was raised and where in its file, what to do."""
    try:
        yield
        signals.raise_if_stopped()  # a policy may have swallowed Ctrl-C
    except FedtideError as error:
        if name in str(error) or is_of_ours(_definition(policy)):
            raise
        # ours, called from the user's file with something that it does not take
        told = failure if type(error) is FedtideError else type(error)
        raise told(f"{kind}={name!r}: {error} ({where(policy, error)})") from error
    except BaseException as error:  # SystemExit too: a policy does not end a run as if all were done
        if signals.wanted(error):
            raise KeyboardInterrupt from None
        what = f"{kind}={name!r} raised {error_text(error)}"
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
    policy = inspect.unwrap(policy)
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


# What a user's part answered, whatever that is: as an array, and in few words.


_MOST_CHARACTERS = 200


def as_array(answer: Any) -> Any:
    """Return what a part answered as an array; one of no dimension, which is no answer, if it holds no plain numbers.

    That is a list of lists of unequal length, an array with entries masked, a tensor that does not become an array.
    """
    try:
        masks = sys.modules.get("numpy.ma")  # not imported for this: without it there are no masks
        return np.array(None) if masks is not None and masks.is_masked(answer) else np.asarray(answer)
    except Exception:  # NumPy's own and whatever the object's conversion raises
        return np.array(None)


def short_answer(answer: Any) -> str:
    """Return an answer in few words, also if its own words raise."""
    try:
        return " ".join(str(answer).split())[:_MOST_CHARACTERS]
    except Exception:
        return f"a {type(answer).__name__}"
