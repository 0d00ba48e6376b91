"""Names to objects: our own policies, a user's file, or an installed package, all through one door.

A name is looked up as (1) one of ours, (2) `path/to/file.py:attribute`, (3) `package.module:attribute`, (4) an entry
point of the group `fedtide.<kind>` (say `fedtide.scheduler`) that an installed package offers. A class or factory is
called with the arguments given in the experiment; a plain function gets them as keywords with every call.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from fedtide.errors import FedtideError


def resolve(kind: str, name: str, known: Mapping[str, Any], args: Mapping[str, Any]) -> Any:
    """Return the object that `name` stands for, made with `args`."""
    if name in known:
        return _make(kind, name, known[name], args)
    if ":" in name:
        return _make(kind, name, attribute(kind, name), args)
    offered = {point.name: point for point in entry_points(group=f"fedtide.{kind}")}
    if name in offered:
        return _make(kind, name, offered[name].load(), args)
    names = [*known, *offered]
    near = difflib.get_close_matches(name, names, 1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise FedtideError(
        f"{kind}={name!r} is not known{hint} Known: {', '.join(names)}. Your own: path/to/file.py:name or package.module:name"
    )


def source_digest(name: str) -> str | None:
    """Return the SHA-256 of a user's policy file, so that a resumed run notices a change; None for anything else."""
    path = _file(name)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path and path.is_file() else None


def _file(name: str) -> Path | None:
    place, _, _ = name.rpartition(":")
    return Path(place) if place.endswith(".py") else None


def attribute(kind: str, name: str) -> Any:
    """Return what `file.py:name` or `package.module:name` stands for, as it is."""
    place, _, wanted = name.rpartition(":")
    module = _load(kind, name, place)
    if not hasattr(module, wanted):
        public = [each for each in vars(module) if not each.startswith("_")]
        raise FedtideError(f"{kind}={name!r}: {place} has no {wanted!r}; it defines {', '.join(public) or 'nothing'}")
    return getattr(module, wanted)


def _load(kind: str, name: str, place: str) -> ModuleType:
    path = _file(name)
    try:
        if path is None:
            return importlib.import_module(place)
        if not path.is_file():
            raise FedtideError(f"{kind}={name!r}: there is no file {place}; give a path relative to the working folder")
        unique = f"fedtide_user_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
        spec = importlib.util.spec_from_file_location(unique, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[unique] = module  # dataclasses look their module up by name
        spec.loader.exec_module(module)
    except FedtideError:
        raise
    except Exception as error:  # whatever the user's module raises while it is read
        raise FedtideError(f"{kind}={name!r}: reading {place} raised {type(error).__name__}: {error}") from error
    return module


def _make(kind: str, name: str, found: Any, args: Mapping[str, Any]) -> Any:
    try:
        if inspect.isclass(found) or getattr(found, "__module__", "").startswith("fedtide."):
            return found(**args)
        if args:  # update_wrapper keeps attributes such as needs_update_norm
            return functools.update_wrapper(functools.partial(found, **args), found)
        return found
    except TypeError as error:
        try:
            takes = f"; it takes {inspect.signature(found)}"
        except ValueError:
            takes = ""
        raise FedtideError(f"{kind}={name!r} does not accept the arguments {dict(args)}: {error}{takes}") from error
