"""Nested mappings of keys, laid on one another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedtide.core.forms import shown
from fedtide.core.kinds import NAMED
from fedtide.errors import FedtideError


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay `over` on `under`, group by group; free-form `args` are replaced whole."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        deeper = isinstance(value, Mapping) and isinstance(below, Mapping) and not key.endswith("args")
        merged[key] = merge(below, value) if deeper else value  # type: ignore[arg-type]
    return merged


def lay(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay `over` on `under`, but drop the arguments of a policy in whose place `over` puts another."""
    bare = {key: dict(value) if isinstance(value, Mapping) else value for key, value in under.items()}
    for group, inner in over.items():
        below = bare.get(group)
        if isinstance(inner, Mapping) and isinstance(below, dict):
            for key in inner:
                args = "args" if key == "name" else f"{key}_args"
                if args in below and inner[key] != below.get(key):
                    del below[args]
    return merge(bare, over)


def with_room(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `under` without the key whose place one of `over` takes: E is given in epochs or in steps."""
    learning = over.get("learning")
    for one, other in (("local_steps", "local_epochs"), ("local_epochs", "local_steps")):
        if isinstance(learning, Mapping) and learning.get(one) is not None and other not in learning:
            under = merge(under, {"learning": {other: None}})
    return dict(under)


def nest(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tree with what has a dotted key (`policy.limit`) inside its group."""
    nested: dict[str, Any] = {key: value for key, value in tree.items() if "." not in key}
    for key, value in tree.items():
        *groups, leaf = key.split(".")
        if not groups:
            continue
        here = nested
        for group in groups:
            inner = here.get(group, {})
            if not isinstance(inner, Mapping):
                raise FedtideError(f"{key} goes below {group}={shown(inner)}, which is no group; give one of the two")
            here[group] = dict(inner)
            here = here[group]
        if leaf in here:
            raise FedtideError(f"{key} is given twice, with a dot and inside its group; keep one")
        here[leaf] = value
    return nested


def split_parts(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tree in which `scheduler: {name: mine, share: 0.5}` is `scheduler: mine, scheduler_args: {share: 0.5}`."""
    for kind in NAMED.values():
        (group, leaf), args = kind.key.split("."), kind.args.rpartition(".")[2]
        inner = tree.get(group)
        if not isinstance(inner, Mapping):
            continue
        given = inner.get(leaf)
        if not isinstance(given, Mapping):
            continue
        if not isinstance(given.get("name"), str):
            raise FedtideError(
                f"{kind.key}={shown(dict(given))} has no name: write a name alone, or {{name: ..., arguments}}"
            )
        rest = {name: each for name, each in given.items() if name != "name"}
        if rest and args in inner:
            raise FedtideError(f"{kind.args} is given beside {kind.key}={shown(dict(given))}; keep one of the two")
        tree = {**tree, group: {**inner, leaf: given["name"], **({args: rest} if rest else {})}}
    return dict(tree)
