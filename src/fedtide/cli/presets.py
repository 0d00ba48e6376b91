"""Frameworks and profiles: names for several keys at once, as the lists of the command line show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedtide import config


def presets() -> dict[str, dict[str, str]]:
    """Return what each framework and profile fills in, by name."""
    known = {"framework": config.FRAMEWORKS, "profile": config.PROFILES}
    return {key: {name: _flat(tree) or "the defaults" for name, tree in trees.items()} for key, trees in known.items()}


def _flat(tree: Mapping[str, Any]) -> str:
    return ", ".join(f"{group}.{key}={value}" for group, keys in tree.items() for key, value in keys.items())
