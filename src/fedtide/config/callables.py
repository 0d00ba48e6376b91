"""Parts handed over as Python objects: each becomes its name (`file.py:name`) and arguments, as in an experiment file.

So a run knows the source file by its content, and a resume, a study's worker or a node finds the part again.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from fedtide.core.arguments import left_to_the_run, parameters
from fedtide.core.forms import shown
from fedtide.core.kinds import NAMED, table
from fedtide.errors import FedtideError

_KEYS = {kind.key: name for name, kind in NAMED.items()}


def replaced(tree: Mapping[Any, Any], above: str = "") -> dict[Any, Any]:
    """Return a tree of keys, nested or dotted, with names in the place of parts that are Python objects."""
    made: dict[Any, Any] = {}
    for key, each in tree.items():
        whole = f"{above}{key}"
        if whole in _KEYS:
            made[key] = value(whole, each)
        elif isinstance(each, Mapping) and not above and not str(key).endswith("args"):
            made[key] = replaced(each, f"{key}.")
        else:
            made[key] = each
    return made


def value(key: str, part: Any) -> Any:
    """Return what a key is given, with a name (and arguments) in the place of a part that is a Python object."""
    if key not in _KEYS:
        return part
    if isinstance(part, Mapping) and _is_object(part.get("name")):
        name, args = _named(_KEYS[key], part["name"])
        return {**args, **part, "name": name}
    if not _is_object(part):
        return part
    name, args = _named(_KEYS[key], part)
    return {"name": name, **args} if args else name


def _is_object(part: Any) -> bool:
    """Say whether a part was given as an object, and not as its name, a mapping, or something that no part is."""
    is_form = part is None or isinstance(part, (str, bool, int, float, list, tuple, Mapping, PurePath))
    return not is_form and not hasattr(part, "tolist")


def _named(kind: str, part: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of a part that is a function, a class, or an object with fields."""
    if isinstance(part, functools.partial):
        if part.args:
            raise FedtideError(
                f"{kind}: a functools.partial with positional arguments {part.args} has no names for them; give keywords"
            )
        name, args = _named(kind, part.func)
        return name, {**args, **part.keywords}
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        fields = {each.name: getattr(part, each.name) for each in dataclasses.fields(part) if each.init}
        given = {name: value for name, value in fields.items() if name not in _left_open(part)}
        for each in parameters(type(part)):
            if each.name in given and (remedy := left_to_the_run(each)):
                raise FedtideError(f"{kind}: {each.name}={shown(given[each.name])} cannot be given with it: {remedy}")
        return _found(kind, type(part)), given
    if not (inspect.isroutine(part) or inspect.isclass(part)):
        raise FedtideError(
            f"{kind}: a {type(part).__name__} cannot be written down: give a function, a class, an object of a dataclass, "
            f"or its name as file.py:name"
        )
    return _found(kind, part), {}


def _left_open(part: Any) -> set[str]:
    """Return the fields of an object that an experiment's key fills and that were not given, as far as can be seen."""
    keyed = [each for each in parameters(type(part)) if each.about.key is not None]
    plain = (bool, int, float, str, type(None))
    known = [each for each in keyed if isinstance(each.default, plain) or str(each.about.key).startswith("run.")]
    unset = {each.name for each in keyed if left_to_the_run(each) and getattr(part, each.name) is None}
    return unset | {each.name for each in known if _is_plainly(getattr(part, each.name), each.default)}


def _is_plainly(value: Any, default: Any) -> bool:
    """Say whether a value is the default; an array is none, and would not say."""
    return not getattr(value, "ndim", 0) and bool(value == default)


def _found(kind: str, part: Any) -> str:
    """Return the name under which a function or class is found again."""
    name = part.__qualname__
    for own, each in table(kind).items():
        if each == f"{part.__module__}:{name}" or (callable(each) and part in (each, inspect.unwrap(each))):
            return own
    if "<lambda>" in name:
        raise FedtideError(
            f"{kind}: a lambda has no name, so a resumed run could not find it again: write it as `def` in a file"
        )
    if "<locals>" in name or "." in name:
        raise FedtideError(
            f"{kind}: {name} is defined inside something else, where a resumed run could not find it: move it to the top of "
            "its file"
        )
    try:
        file = inspect.getsourcefile(part)
    except TypeError:
        file = None
    if file is None or not os.path.isfile(file):
        raise FedtideError(
            f"{kind}: {name} has no source file ({file or part.__module__}), which a run is known by: put it into a file "
            "(in a notebook: %%writefile parts.py) and import it from there"
        )
    near = os.path.relpath(file)
    return f"{os.path.abspath(file) if near.startswith(os.pardir) else near}:{name}"
