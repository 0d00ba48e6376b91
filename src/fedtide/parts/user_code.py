"""Users' own files: where they lie, what they hold, and what their names stand for."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from fedtide.core import signals
from fedtide.core.faults import fault_text
from fedtide.core.files import is_own_file, locate_file
from fedtide.errors import FedtideError

MODULE: Final = "fedtide_user_"  # begins the names of the modules that users' files become


_beside: ContextVar[Path | None] = ContextVar("beside", default=None)


def own_names(entry: Any) -> list[str]:
    """Return the names with a colon in a tree of keys: a user's own parts, and those of installed packages."""
    if isinstance(entry, Mapping):
        return [name for each in entry.values() for name in own_names(each)]
    if isinstance(entry, list):
        return [name for each in entry for name in own_names(each)]
    return [entry] if isinstance(entry, str) and ":" in entry else []


@contextmanager
def search_user_folder(folder: Path | None) -> Iterator[None]:
    """Look for a user's own files in this folder, too, besides the working folder: that of the form that names them."""
    token = _beside.set(folder)
    try:
        yield
    finally:
        _beside.reset(token)


def user_code_folder() -> Path:
    """Return the folder from which a user's own files are named now."""
    return _beside.get() or Path.cwd()


def user_file_near(place: str) -> Path:
    """Return where a file of this name lies: in the working folder, or beside the form that names it."""
    return locate_file(place, _beside.get())


def user_source_digest(name: str) -> str | None:
    """Return the SHA-256 of a user's file and of what it imports from beside it; None for anything else.

    A file that imports nothing from beside it has the SHA-256 of its content.
    """
    path = _file(name)
    if not path or not os.path.isfile(path):
        return None
    own, near_by = user_file_digest(str(path)), _imported(path)
    if not near_by:
        return own
    told = [f"{place} {user_file_digest(str(path.resolve().parent / place))}" for place in sorted(near_by)]
    return hashlib.sha256("\n".join([own, *told]).encode()).hexdigest()


def user_source_files(name: str) -> list[Path]:
    """Return a user's file and those that it imports from beside it; nothing for anything else."""
    path = _file(name)
    if not path or not os.path.isfile(path):
        return []
    return [path, *(path.resolve().parent / place for place in sorted(_imported(path)))]


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


def user_file_digest(place: str) -> str:
    """Return the SHA-256 of a file that an argument names; of a folder, that of all names and contents in it."""
    path = user_file_near(place)
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
    return user_file_near(place) if is_own_file(name) else None


def user_code_attribute(kind: str, name: str) -> Any:
    """Return what `file.py:name` or `package.module:name` stands for, as it is."""
    place, _, wanted = name.rpartition(":")
    if not place.strip() or not wanted.strip():
        raise FedtideError(f"{kind}={name!r} has nothing on one side of the colon; write path/to/file.py:name")
    module = _load(kind, name, place)
    with reading_user_code(kind, name, f"looking into {place}"):  # a module may have a __getattr__ of its own
        if hasattr(module, wanted):
            return getattr(module, wanted)
    public = [each for each in vars(module) if not each.startswith("_")]
    raise FedtideError(f"{kind}={name!r}: {place} has no {wanted!r}; it defines {', '.join(public) or 'nothing'}")


def _load(kind: str, name: str, place: str) -> ModuleType:
    path = _file(name)
    with reading_user_code(kind, name, f"reading {place}"):
        if path is None:
            return importlib.import_module(place)
        if not os.path.isfile(path):
            raise FedtideError(
                f"{kind}={name!r}: file {place} not found in the working folder {Path.cwd()} or next to the file that names it; "
                "give its path from one of the two, or in full"
            )
        script = sys.modules.get("__main__")
        if script is not None and os.path.abspath(getattr(script, "__file__", None) or os.curdir) == os.path.abspath(
            path
        ):
            return script  # running: it is not run a second time
        unique = f"{MODULE}{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:12]}"
        digest = user_source_digest(name)
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
            digest = user_file_digest(file)
            if vars(module).setdefault("__fedtide_digest__", digest) != digest:
                del sys.modules[name]
                Path(importlib.util.cache_from_source(file)).unlink(missing_ok=True)  # its time counts seconds only


@contextmanager
def reading_user_code(kind: str, name: str, doing: str) -> Iterator[None]:
    """Turn whatever a user's module raises while it is read into one line, with the line of its file if that is known."""
    try:
        yield
        signals.raise_if_stopped()
    except FedtideError:
        raise
    except BaseException as error:
        if signals.stop_was_wanted(error):
            raise KeyboardInterrupt from None
        path = _file(name)
        lines = [
            line
            for frame, line in traceback.walk_tb(error.__traceback__)
            if path is not None and os.path.abspath(frame.f_code.co_filename) == os.path.abspath(path)
        ]
        where = f" ({name.rpartition(':')[0]}:{lines[-1]}); correct it there" if lines else ""
        raise FedtideError(f"{kind}={name!r}: {doing} raised {fault_text(error)}{where}") from error


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
