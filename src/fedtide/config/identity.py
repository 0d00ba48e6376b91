"""What identifies an experiment: its resolved keys, and the files of the user's own that it names."""

from __future__ import annotations

import functools
import hashlib
import json
from typing import Any

from fedtide.config.keys import Experiment
from fedtide.config.presets import PRESETS
from fedtide.core.reading import is_own_file
from fedtide.parts import registry
from fedtide.parts.kinds import NAMED


def dump(experiment: Experiment) -> dict[str, Any]:
    """Return the resolved experiment as plain data."""
    return experiment.model_dump(mode="json")


def own_files(experiment: Experiment) -> dict[str, str]:
    """Return the keys that name a file of the user's own, there or not, each with the name (`file.py:attribute`)."""
    names = {kind.key: experiment.part(name).name for name, kind in NAMED.items()}
    return {key: name for key, name in names.items() if is_own_file(name)}


def experiment_argument_files(experiment: Experiment) -> dict[str, str]:
    """Return the parameters of parts that name a file, by dotted key, each with the name as it was given."""
    found: dict[str, str] = {}
    for name, kind in NAMED.items():
        part = experiment.part(name)
        files = registry.part_argument_files(name, part.name, part.args)
        found |= {f"{kind.key}.{parameter}": place for parameter, place in files.items()}
    return found


# Parameters of ours that say where work is done, by trainer: they change no result.
PLACES = {"dask": ("address", "workers")}


def digest(experiment: Experiment) -> str:
    """Return a hash that identifies the resolved experiment: same hash, same results.

    Where the data files lie, which workers train, who watches and which preset filled the values do not change a result, so
    they do not count. Nor does a key at its default: a new key leaves the names of stored runs as they are.
    """
    tree = dump(experiment)
    for key in (*PRESETS, "tracker"):
        del tree[key]
    del tree["data"]["folder"]
    trainer = experiment.learning.trainer
    kept = {name: value for name, value in trainer.args.items() if name not in PLACES.get(trainer.name, ())}
    tree["learning"]["trainer"] = {"name": trainer.name, **kept} if kept else trainer.name
    for group, keys in _default_keys().items():
        tree[group] = {key: value for key, value in tree[group].items() if key not in keys or value != keys[key]}
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]


@functools.cache
def _default_keys() -> dict[str, dict[str, Any]]:
    """Return the default of every key, by group."""
    return {group: keys for group, keys in dump(Experiment()).items() if isinstance(keys, dict)}
