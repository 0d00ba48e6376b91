"""Frameworks, profiles and scenarios: named sets of values for keys that an experiment leaves out."""

from __future__ import annotations

import copy
import difflib
import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedtide.core.reading import read_file
from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError
from fedtide.parts.kinds import NAMED

# Nested mappings of keys, laid on one another.


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


# Frameworks and profiles: whose values fill what an experiment leaves out.


# A framework is a composition of timeline, scheduler, aggregation and learning; each entry is what differs from the default.
# "=group.key" stands for the value of another key.
FRAMEWORKS: dict[str, dict[str, Any]] = {
    "periodic": {},
    "fedavg": {"timeline": {"name": "synchronous"}, "learning": {"proximal": 0.0}},
    "fedasync": {
        "timeline": {"name": "per_arrival"},
        "policy": {"scheduler": "random", "limit": 1, "aggregator": "mix", "aggregator_args": {"mixing": 0.4}},
        "learning": {"evaluate_every": 0.25},
    },
    "fedbuff": {
        "timeline": {"name": "buffered", "args": {"waits": False}},
        # everyone in the buffer counts, unless told otherwise
        "policy": {
            "scheduler": "random",
            "limit": "=timeline.buffer_size",
            "weighting": "uniform",
            "aggregator": "buffered_mean",
        },
    },
}


# What the authors' released code used where it differs from the text.
PROFILES: dict[str, dict[str, Any]] = {
    "paper": {},
    "released-code": {
        "radio": {"snr_db": 10 * math.log10(20)},
        "codec": {"name": "sparse_quantized", "args": {"whole_bits": True}, "element_bits": 3},
        "policy": {"scheduler": "best_of_random_subsets"},
        "learning": {"proximal": 0.0},
    },
}


# Scenarios: worlds by name, each a YAML file of the package, whose values fill what an experiment leaves out.
#
# The first line of a file, a comment, says what world it is; those after it, which papers it follows and what differs.


# What an experiment says of itself, and a world does not.
_NOT_OF_A_WORLD = ("seed", "scenario", "framework", "profile", "tracker")


class Scenario(NamedTuple):
    """A world that the package brings along."""

    name: str
    about: str  # one line
    text: str  # the file, comments and all
    keys: dict[str, Any]  # what it fills in, nested


def folder() -> Path:
    """Return where the scenario files are: in the package, which is installed as files."""
    return Path(__file__).parents[1] / "scenarios"


def scenario_names() -> list[str]:
    """Return the names of all scenarios; the paper's own cell comes first."""
    return sorted((path.stem for path in folder().glob("*.yaml")), key=lambda name: (name != "paper", name))


def scenario(name: str) -> Scenario:
    """Return a scenario by its name; one line if there is none, or its file is not what it should be."""
    known = scenario_names()
    if name not in known:
        near = difflib.get_close_matches(name.lower().replace("-", "_"), known, 1, 0.5)
        hint = f"did you mean {near[0]!r}?" if near else "see `fedtide scenario list`."
        raise FedtideError(f"scenario={shown(name)} is not known; {hint} There are {', '.join(known)}")
    return copy.deepcopy(_read(folder() / f"{name}.yaml"))


@functools.cache
def _read(path: Path) -> Scenario:
    """Read a scenario file; a study of many runs asks for it again and again."""
    keys = split_parts(nest(read_file(path, "scenario")))
    if wrong := [key for key in _NOT_OF_A_WORLD if key in keys]:
        raise FedtideError(f"the scenario file {path} gives {wrong[0]}, which is no part of a world; leave it out")
    if wrong := [key for key, group in keys.items() if not isinstance(group, dict)]:
        raise FedtideError(f"the scenario file {path} gives {wrong[0]} a value; it is a group of keys")
    text = path.read_text(encoding="utf-8")
    about = text.partition("\n")[0]
    if not about.startswith("# "):
        raise FedtideError(f"the scenario file {path} does not begin with a comment that says in one line what it is")
    return Scenario(path.stem, about[2:].strip(), text, keys)
