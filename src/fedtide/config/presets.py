"""Frameworks, methods, profiles and scenarios: named sets of values for keys that an experiment leaves out."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fedtide.config.nested import nest
from fedtide.core.yaml12 import read_yaml_file, shown
from fedtide.errors import FedtideError, did_you_mean

PRESETS = ("scenario", "framework", "method", "profile")  # keys that fill in others, and change no result themselves

# A framework is a composition of timeline, scheduler, aggregation and learning; each entry is what differs from the default.
# "=group.key" stands for the value of another key.
FRAMEWORKS: dict[str, dict[str, Any]] = {
    "periodic": {},
    "fedavg": {"timeline": {"name": "synchronous"}, "learning": {"proximal": 0.0}},
    "fedasync": {
        "timeline": {"name": "per_arrival"},
        "policy": {"scheduler": "random", "limit": 1, "aggregator": {"name": "mix", "mixing": 0.4}},
        "learning": {"evaluate_every": 0.25},
    },
    "fedbuff": {
        "timeline": {"name": {"name": "buffered", "waits": False}},
        # everyone in the buffer counts, unless told otherwise
        "policy": {
            "scheduler": "random",
            "limit": "=timeline.buffer_size",
            "weighting": "uniform",
            "aggregator": "buffered_mean",
        },
    },
}


class Method(NamedTuple):
    """What a paper publishes: parts that belong together."""

    keys: dict[str, dict[str, str]]  # the names of its parts
    why: str  # why one of them does not work without the others


METHODS: dict[str, Method] = {
    "scaffold": Method(
        {"learning": {"trainer": "scaffold"}, "policy": {"aggregator": "scaffold"}},
        "the trainer sends control variates besides updates, and the aggregator reads both",
    ),
    "ef21": Method(
        {"codec": {"name": "ef21"}, "policy": {"aggregator": "ef21"}},
        "the codec sends how updates differ from the last ones, and the aggregator adds these up",
    ),
    "over_the_air": Method(
        {"radio": {"access": "over_the_air"}, "codec": {"name": "ideal"}},
        "devices send at once, uncoded, and the server hears the weighted sum of their updates",
    ),
}


def method_problem(chosen: str | None, name_of: Callable[[str], str]) -> str | None:
    """Say which part of a method an experiment lacks, if it names the method or a part that there is for the method alone.

    name_of: the name of a part by key. A user's own part (`file.py:name`) may stand for one of them. What any access over the
    air takes, a user's own too, engine/over_the_air.py checks.
    """
    for method, (groups, why) in METHODS.items():
        parts = {f"{group}.{leaf}": name for group, keys in groups.items() for leaf, name in keys.items()}
        used = [key for key, name in parts.items() if {method} == {*parts.values()} and name_of(key) == name]
        if method != chosen and not used:
            continue
        for key, name in parts.items():
            if (other := name_of(key)) != name and ":" not in other:
                if method == chosen:
                    return f"method={method} does not work with {key}={other}: {why}: leave {key} out"
                return f"{used[0]}={method} does not work with {key}={other}: {why}: add {key}={name}"
    return None


# What the authors' released code used where it differs from the text.
PROFILES: dict[str, dict[str, Any]] = {
    "paper": {},
    "released-code": {
        "radio": {"snr_db": 10 * math.log10(20)},
        "codec": {"name": {"name": "sparse_quantized", "whole_bits": True}, "element_bits": 3},
        "policy": {"scheduler": "best_of_random_subsets"},
        "learning": {"proximal": 0.0},
    },
}


# Scenarios: worlds by name, each a YAML file of the package, whose values fill what an experiment leaves out.
#
# The first line of a file, a comment, says what world it is; those after it, which papers it follows and what differs.


class Scenario(NamedTuple):
    """A world that the package brings along."""

    name: str
    about: str  # one line
    text: str  # the file, comments and all
    keys: dict[str, Any]  # what it fills in, nested


def _folder() -> Path:
    """Return where the scenario files are: in the package, which is installed as files."""
    return Path(__file__).parents[1] / "scenarios"


def scenario_names() -> list[str]:
    """Return the names of all scenarios; the paper's own cell comes first."""
    return sorted((path.stem for path in _folder().glob("*.yaml")), key=lambda name: (name != "paper", name))


def load_scenario(name: str) -> Scenario:
    """Return a scenario by its name; one line if there is none, or its file is not what it should be."""
    known = scenario_names()
    if name not in known:
        hint = did_you_mean(name.lower().replace("-", "_"), known, "see `fedtide scenario list`.")
        raise FedtideError(f"scenario={shown(name)} is not known; {hint} There are {', '.join(known)}")
    return copy.deepcopy(_read(_folder() / f"{name}.yaml"))


@functools.cache
def _read(path: Path) -> Scenario:
    """Read a scenario file; a study of many runs asks for it again and again."""
    text = path.read_text(encoding="utf-8")
    about = text.partition("\n")[0].removeprefix("# ")
    return Scenario(path.stem, about, text, nest(read_yaml_file(path, "scenario")))
