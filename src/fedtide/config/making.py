"""Making an experiment of what was given: files, key=value words, mappings, Python objects, other experiments."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedtide.config import callables
from fedtide.config.fields import explain
from fedtide.config.identity import POLICY_KEYS, dump
from fedtide.config.keys import Experiment, all_keys, has_all_keys
from fedtide.config.trees import lay, merge, nest, split_parts, with_room
from fedtide.core import parts
from fedtide.core.forms import NotAForm, plain, shown
from fedtide.core.kinds import NAMED
from fedtide.core.reading import beside, locate, parse_overrides, read_file
from fedtide.errors import FedtideError


def read_words(words: Iterable[str]) -> dict[str, Any]:
    """Read what a command line says of an experiment: a file, if the first word is not key=value, then keys on top."""
    given = list(words)
    tree = _read_experiment(Path(given.pop(0))) if given and "=" not in given[0] else {}
    return _on_top(tree, split_parts(parse_overrides(given)))


def _read_experiment(path: Path) -> dict[str, Any]:
    """Read an experiment file; the user's own policies are looked for beside it, too."""
    tree = read_file(path)
    if tree.keys() & {"axes", "variants"} or tree.keys() >= {"version", "name"}:
        raise FedtideError(
            f"{path} is a study file (it has {shown(', '.join(tree))}), not an experiment: use `fedtide study run {path}`"
        )
    tree = split_parts(nest(tree))
    for key in POLICY_KEYS:
        group, _, name = key.partition(".")
        inner = tree.get(group)
        if isinstance(inner, Mapping) and isinstance(inner.get(name), str):
            tree = merge(tree, {group: {name: beside(inner[name], path.parent)}})
    trackers = tree.get("tracker")
    if isinstance(trackers, list):
        tree["tracker"] = [_beside(each, path.parent) for each in trackers]
    return _with_files_beside(tree, path.parent)


def _beside(tracker: Any, folder: Path) -> Any:
    """Return what a list of trackers has, with a file of the user's own named such that it is found from anywhere."""
    if isinstance(tracker, str):
        return beside(tracker, folder)
    if isinstance(tracker, Mapping) and isinstance(tracker.get("name"), str):
        return {**tracker, "name": beside(tracker["name"], folder)}
    return tracker


def _with_files_beside(tree: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Name the files that parts' arguments name such that they are found from anywhere, if they lie in this folder alone."""
    for kind, each in NAMED.items():
        group, _, leaf = each.args.partition(".")
        inner = tree.get(group)
        args, name = (
            (inner.get(leaf), inner.get(each.key.partition(".")[2])) if isinstance(inner, Mapping) else ({}, None)
        )
        if not isinstance(args, Mapping) or not isinstance(name, str):
            continue
        with parts.beside(folder):
            files = {key: each for key, each in parts.argument_files(kind, name, args).items() if key in args}
        full = {
            key: os.path.abspath(locate(place, folder)) for key, place in files.items() if not os.path.exists(place)
        }
        tree = merge(tree, {group: {leaf: {**args, **full}}}) if full else tree
    return tree


def experiment(*given: Mapping[str, Any] | Experiment | str | Path, **keys: Any) -> Experiment:
    """Make an Experiment, the later ones of what is given on top; one clear line if it cannot be.

    Each is a mapping (nested, or with dotted keys), an Experiment, the path of a file, or a `key=value` word. What is laid
    on an Experiment changes it: all else keeps its value. Keywords come on top of all: `seed=3`, `policy={"limit": 4}` or
    `**{"policy.limit": 4}`.
    """
    merged: dict[str, Any] = {}
    for each in (*given, keys):
        merged = _on_top(merged, _tree(each))
    try:
        return Experiment.model_validate(merged)
    except ValidationError as error:
        raise FedtideError(explain(error, _about, nearest)) from None


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
            f"{shown(given)} is no experiment; give a mapping of keys, the path of a file, or an Experiment"
        )
    try:
        tree = plain(callables.replaced(given))
    except NotAForm as error:
        raise FedtideError(str(error)) from None
    return split_parts(nest(tree))


def _on_top(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Lay keys on others. On an experiment that has all its keys, one key may take another's place."""
    if not over or has_all_keys(over):
        return over or under
    if not has_all_keys(under):
        return merge(under, over)
    for key in ("scenario", "framework", "profile"):
        before = under.get(key)  # a file of an earlier version knows no scenario
        if key in over and over[key] != before:
            raise FedtideError(
                f"{key}={shown(over[key])} fills in what is left out, and this experiment has every key already "
                f"({key}={shown(before)}): give the keys themselves, or begin without it"
            )
    return lay(with_room(under, over), over)


def nearest(key: str) -> str:
    """Say which valid key a wrong one may have meant, or where to look."""
    inside = [name for name in all_keys() if name.startswith(f"{key}.")]
    if inside:
        return f": it is a group of keys; name one of {', '.join(inside)}"
    leaf = [each for each in all_keys() if each.rpartition(".")[2] == key.rpartition(".")[2]]
    near = leaf or difflib.get_close_matches(key, [*all_keys(), *Experiment.model_fields], 1, 0.5)
    return f": did you mean {near[0]}?" if near else ": see `fedtide run --keys` for all keys"


def _about(key: str) -> str | None:
    """Say what a key means."""
    field = all_keys().get(key)
    return field.description if field is not None else None
