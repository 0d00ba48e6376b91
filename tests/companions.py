"""What a registered part takes in an experiment: its own key, and the parts that it does not work without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedtide import config
from fedtide.parts.kinds import KINDS

# By kind and name. A new part that is refused alone needs a line.
COMPANIONS: Mapping[tuple[str, str], dict[str, Any]] = {
    ("aggregator", "ef21"): {"codec": {"name": "ef21"}},
    ("codec", "ef21"): {"policy": {"aggregator": "ef21"}},
    ("aggregator", "scaffold"): {"learning": {"trainer": "scaffold"}},
    ("trainer", "scaffold"): {"policy": {"aggregator": "scaffold"}},
    ("aggregator", "aflguard"): {"data": {"num_held_out": 10}},
    ("aggregator", "hierarchical"): {"policy": {"aggregator": {"edges": 3, "every": 4}}},
}


def with_companions(kind: str, entry: str | dict[str, Any]) -> dict[str, Any]:
    """Return the keys of an experiment that has this part."""
    group, _, leaf = KINDS[kind].key.partition(".")
    name = entry if isinstance(entry, str) else entry["name"]
    return config.merge_nested({group: {leaf: entry}}, COMPANIONS.get((kind, name), {}))
