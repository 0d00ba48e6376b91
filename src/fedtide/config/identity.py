"""What identifies an experiment: its resolved keys, and the files of the user's own that it names."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from fedtide.config.keys import Experiment, all_keys, is_later, key_value
from fedtide.core.reading import is_own_file
from fedtide.parts import registry
from fedtide.parts.kinds import NAMED


def dump(experiment: Experiment) -> dict[str, Any]:
    """Return the resolved experiment as plain data."""
    return experiment.model_dump(mode="json")


# Keys that may name a file of the user's own, as file.py:name.
POLICY_KEYS = tuple(kind.key for kind in NAMED.values())


def own_files(experiment: Experiment) -> dict[str, str]:
    """Return the keys that name a file of the user's own, there or not, each with the name (`file.py:attribute`)."""
    tree = dump(experiment)
    names = {key: tree[group][leaf] for key in POLICY_KEYS for group, leaf in [key.split(".")]}
    return {key: name for key, name in names.items() if is_own_file(name)}


def experiment_argument_files(experiment: Experiment) -> dict[str, str]:
    """Return the arguments of the user's own parts that name a file, by dotted key, each with the name as it was given."""
    found: dict[str, str] = {}
    for name, kind in NAMED.items():
        files = registry.part_argument_files(name, key_value(experiment, kind.key), key_value(experiment, kind.args))
        found |= {f"{kind.args}.{each}": place for each, place in files.items()}
    return found


# Arguments of ours that say where work is done, by trainer: they change no result.
PLACES = {"dask": ("address", "workers")}


def digest(experiment: Experiment) -> str:
    """Return a hash that identifies the resolved experiment: same hash, same results.

    Where the data files lie, which workers train, who watches and which preset filled the values do not change a result, so
    they do not count.
    Nor does a key that came later, at its default: what was stored before it came is still found.
    """
    tree = dump(experiment)
    del tree["scenario"], tree["framework"], tree["profile"], tree["data"]["folder"], tree["tracker"]
    for name in PLACES.get(tree["learning"]["trainer"], ()):
        tree["learning"]["trainer_args"].pop(name, None)
    for key, field in all_keys().items():
        group, _, name = key.rpartition(".")
        if is_later(field) and group and tree[group][name] == field.get_default(call_default_factory=True):
            del tree[group][name]
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]
