"""Building an experiment from files, key=value arguments, mappings, Python objects and other experiments."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedtide.config.keys import Experiment, all_keys, dump, has_all_keys
from fedtide.config.nested import PART_KEYS, merge_nested, nest, parse_overrides, without_replaced_nested
from fedtide.config.presets import PRESETS
from fedtide.config.values import Part, explain_validation
from fedtide.core.files import files_beside, is_own_file, locate_file
from fedtide.core.yaml12 import plain_yaml_tree, read_yaml_file, shown
from fedtide.errors import FedtideError, did_you_mean
from fedtide.parts import registry, user_code
from fedtide.parts.arguments import NO_DEFAULT, argument_given_elsewhere, part_parameters
from fedtide.parts.kinds import builtin_parts

# Parts given as Python objects: each becomes its name (`file.py:name`) and arguments, as in an experiment file.
#
# So a run knows the source file by its content, and a resume, a study's worker or a node finds the part again.


def replaced_part_objects(tree: Mapping[Any, Any], above: str = "") -> dict[Any, Any]:
    """Return a tree of keys, nested or dotted, with names in the place of parts that are Python objects."""
    made: dict[Any, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and not above and key not in PART_KEYS:
            made[key] = replaced_part_objects(value, f"{key}.")
        elif isinstance(value, (list, tuple)):  # of trackers or metrics
            made[key] = [part.entry if isinstance(part, Part) else part for part in value]
        else:
            made[key] = part_object_value(f"{above}{key}", value)
    return made


def part_object_value(key: str, part: Any) -> Any:
    """Return what a key is given, with a name (and arguments) in the place of a part that is a Python object."""
    if isinstance(part, Part):
        return part.entry
    given = dict(part) if isinstance(part, Mapping) else {"name": part}
    if key in PART_KEYS and isinstance(part, Mapping):  # parameters may be parts themselves
        part = given = {name: each if name == "name" else part_object_value(key, each) for name, each in given.items()}
    made = given.get("name")
    if key not in PART_KEYS or not (callable(made) or dataclasses.is_dataclass(made)):
        return part
    name, args = _named(PART_KEYS[key], made)
    entry = {**args, **given, "name": name}
    return entry if len(entry) > 1 else name


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
        for each in part_parameters(type(part)):
            if each.name in given and (remedy := argument_given_elsewhere(each)):
                raise FedtideError(f"{kind}: {each.name}={shown(given[each.name])} cannot be given with it: {remedy}")
        return _found(kind, type(part)), given
    if not (inspect.isroutine(part) or inspect.isclass(part)):
        raise FedtideError(
            f"{kind}: a {type(part).__name__} cannot be written down: give a function, a class, an object of a dataclass, "
            f"or its name as file.py:name"
        )
    return _found(kind, part), {}


def _left_open(part: Any) -> set[str]:
    """Return the fields of an object that an experiment's key fills: those not given, as far as can be seen.

    One that has to be given for the object to be made, such as N, is left to the experiment, too.
    """
    found = set()
    for parameter in part_parameters(type(part)):
        value, default = getattr(part, parameter.name), parameter.default
        is_default = not getattr(value, "ndim", 0) and bool(value == default)
        if parameter.about.key is not None and (value is None or default is NO_DEFAULT or is_default):
            found.add(parameter.name)
    return found


def _found(kind: str, part: Any) -> str:
    """Return the name under which a function or class is found again."""
    name = part.__qualname__
    for own, each in builtin_parts(kind).items():
        if each == f"{part.__module__}:{name}" or (callable(each) and part in (each, inspect.unwrap(each))):
            return own
    if not name.isidentifier():
        raise FedtideError(
            f"{kind}: {name} is not at the top of a file, where a resumed run could find it again: write it as `def` there"
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


def read_words(words: Iterable[str]) -> dict[str, Any]:
    """Read what a command line says of an experiment: a file, if the first word is not key=value, then keys on top."""
    given = list(words)
    tree = _read_experiment(Path(given.pop(0))) if given and "=" not in given[0] else {}
    return _on_top(tree, parse_overrides(given))


def _read_experiment(path: Path) -> dict[str, Any]:
    """Read an experiment file; files that its parts name are looked for beside it, too."""
    tree = read_yaml_file(path)
    if tree.keys() & {"axes", "variants"} or tree.keys() >= {"version", "name"}:
        raise FedtideError(
            f"{path} is a study file (it has {shown(', '.join(tree))}), not an experiment: use `fedtide study run {path}`"
        )
    tree = nest(tree)
    for key, kind in PART_KEYS.items():
        group, _, leaf = key.partition(".")
        inner = tree.get(group)
        if isinstance(inner, Mapping) and leaf in inner:
            tree[group] = {**inner, leaf: _beside(kind, inner[leaf], path.parent)}
    learning = tree.get("learning")
    if isinstance(learning, Mapping) and isinstance(metrics := learning.get("metrics"), list):
        tree["learning"] = {**learning, "metrics": [_beside("metric", each, path.parent) for each in metrics]}
    if isinstance(trackers := tree.get("tracker"), list):
        tree["tracker"] = [_beside("tracker", each, path.parent) for each in trackers]
    return tree


def _beside(kind: str, entry: Any, folder: Path) -> Any:
    """Return a part's entry with the files that it names given in full where they lie in the experiment's folder alone."""
    if isinstance(entry, str):
        return files_beside(entry, folder)
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        return entry
    args = {name: _beside_inside(value, folder) for name, value in entry.items() if name != "name"}
    with user_code.search_user_folder(folder):
        files = registry.part_argument_files(kind, entry["name"], args)
    full = {
        name: os.path.abspath(locate_file(place, folder))
        for name, place in files.items()
        if name in args and not os.path.exists(place)
    }
    return {**entry, **args, **full, "name": files_beside(entry["name"], folder)}


def _beside_inside(value: Any, folder: Path) -> Any:
    """Return a parameter, and what is in it, with the names of parts in files given in full as above."""
    if isinstance(value, str):
        return files_beside(value, folder) if is_own_file(value) else value
    return {name: _beside_inside(each, folder) for name, each in value.items()} if isinstance(value, Mapping) else value


def experiment(*given: Mapping[str, Any] | Experiment | str | Path, **keys: Any) -> Experiment:
    """Build an Experiment from one or more sources; later ones override earlier ones.

    A source is a mapping (nested, or with dotted keys), an Experiment, the path of a YAML file, or a `key=value` string. On top
    of an Experiment, a source changes only the keys that it names.

    given: the sources, in order. keys: further keys as keyword arguments, applied last: `seed=3`, `policy={"limit": 4}` or
    `**{"policy.limit": 4}`.

    Returns: The experiment, with every key filled in. It is frozen; build another one to change a key.

    Raises: FedtideError if a key is unknown or a value is invalid. The message is one line.

    >>> import fedtide
    >>> e = fedtide.experiment({"policy.limit": 4}, "radio.snr_db=10", seed=3)
    >>> e.policy.limit, e.radio.snr_db, e.seed
    (4, 10.0, 3)
    >>> fedtide.experiment(e, policy={"scheduler": "random"}).policy.limit
    4
    """
    merged: dict[str, Any] = {}
    for each in (*given, keys):
        merged = _on_top(merged, _tree(each))
    try:
        return Experiment.model_validate(merged)
    except ValidationError as error:
        raise FedtideError(explain_validation(error, all_keys(), unknown=nearest_key)) from None


def _tree(given: Any) -> dict[str, Any]:
    """Return as a nested mapping what experiment() was given."""
    if isinstance(given, Experiment):
        return dump(given)
    if isinstance(given, str):
        return read_words([given])
    if isinstance(given, Path):
        return _read_experiment(given)
    if not isinstance(given, Mapping):
        raise FedtideError(
            f"{shown(given)} is not an experiment; give a mapping of keys, the path of a file, or an Experiment"
        )
    return nest(plain_yaml_tree(replaced_part_objects(given)))


def _on_top(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Lay keys on others. On an experiment that has all its keys, one key may take another's place."""
    if not over or has_all_keys(over):
        return over or under
    if not has_all_keys(under):
        return merge_nested(under, over)
    for key in PRESETS:
        if over.get(key) not in (None, under.get(key)):
            raise FedtideError(
                f"{key}={shown(over[key])} fills in what is left out, and this experiment has every key already "
                f"({key}={shown(under.get(key))}): give the keys themselves, or begin without it"
            )
    return merge_nested(without_replaced_nested(under, over), over)


def nearest_key(key: str) -> str:
    """Say which valid key a wrong one may have meant, or where to look."""
    inside = [name for name in all_keys() if name.startswith(f"{key}.")]
    if inside:
        return f": it is a group of keys; name one of {', '.join(inside)}"
    leaf = [each for each in all_keys() if each.rpartition(".")[2] == key.rpartition(".")[2]]
    if leaf:
        return f": did you mean {leaf[0]}?"
    return ": " + did_you_mean(key, [*all_keys(), *Experiment.model_fields], "see `fedtide run --keys` for all keys")
