"""Frameworks, profiles and scenarios: named sets of values for keys that an experiment leaves out."""

from __future__ import annotations

import copy
import functools
import math
from pathlib import Path
from typing import Any, NamedTuple

from fedtide.config.trees import nest
from fedtide.core.reading import read_file
from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError, did_you_mean

# Frameworks and profiles: whose values fill what an experiment leaves out.


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
        hint = did_you_mean(name.lower().replace("-", "_"), known, "see `fedtide scenario list`.")
        raise FedtideError(f"scenario={shown(name)} is not known; {hint} There are {', '.join(known)}")
    return copy.deepcopy(_read(folder() / f"{name}.yaml"))


@functools.cache
def _read(path: Path) -> Scenario:
    """Read a scenario file; a study of many runs asks for it again and again."""
    text = path.read_text(encoding="utf-8")
    about = text.partition("\n")[0].removeprefix("# ")
    return Scenario(path.stem, about, text, nest(read_file(path, "scenario")))
